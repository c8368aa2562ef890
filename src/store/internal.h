/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the store: the handle, and what its files call of each other. Layout and order: docs/runs.md. */
#ifndef CKPI_STORE_INTERNAL_H
#define CKPI_STORE_INTERNAL_H
#include <pthread.h>
#include "base/limits.h"
#include "format/runfile.h"
#include "os/host.h"
#include "store/store.h"

#define CKPI_RUN_FILE "run.json"
#define CKPI_MANIFEST_FILE "manifest.json"
#define CKPI_DELETED_FILE "deleted.json"   /* what a manifest becomes when its checkpoint is deleted */
#define CKPI_COPIED_FILE "copied.json"     /* up to where this run is a copy */
#define CKPI_LOCK_DIR "lock"
/* Attempts of one epoch and step are numbered below this: the sweep has to try every number. */
#define CKPI_ATTEMPTS 4096u

struct ckpi_store {
    ckpi_fs *fs;
    ckpi_store_mode mode;
    int64_t pid;                 /* owner (invariant 11) */
    pthread_mutex_t mutex;       /* guards what follows and the order of calls on disk */
    ckpi_id run_id;
    ckpi_lockfile lock;          /* writer: what our lock file says */
    bool lost;                   /* another writer has taken over */
    bool identity_lost;          /* it was taken from the manifests (repair.c) */
    uint64_t max_sequence;       /* writer: highest that was ever on disk, or may have been */
    uint32_t begun;              /* attempts begun by this handle */
};

struct ckpi_attempt {
    uint64_t step;
    uint32_t id;
    bool maybe_visible;          /* publishing its manifest was tried and failed: it may come back with a power cut */
    char dir[CKPI_DIR_NAME_MAX];
};

/* Entry and exit of every public function. enter: CKP_EFORK in another process than the owner; locks. */
CKP_MUST_USE ckp_status ckpi_store_enter(ckpi_store *s, ckp_error *err);
/* The same for functions that write: CKP_EINVAL for a reader, CKP_EBUSY when the lock is known to be lost. */
CKP_MUST_USE ckp_status ckpi_store_enter_write(ckpi_store *s, ckp_error *err);
/* The same for functions that write shards, which members of a group may. */
CKP_MUST_USE ckp_status ckpi_store_enter_shard(ckpi_store *s, ckp_error *err);
void ckpi_store_leave(ckpi_store *s);

/* "DIR/FILE"; cut names cannot happen: both parts are bounded. */
#define CKPI_STORE_PATH 512
void ckpi_store_path(char out[CKPI_STORE_PATH], const char *dir, const char *file);
/* Publishes dir/file (dir may be "") through a unique temporary. */
CKP_MUST_USE ckp_status ckpi_store_put(ckpi_store *s, const char *dir, const char *file, const ckpi_buf *b, bool replace, ckp_error *err);
/* *there is true when a file of that name exists. */
CKP_MUST_USE ckp_status ckpi_store_exists(ckpi_store *s, const char *dir, const char *file, bool *there, ckp_error *err);

/* lock.c */
CKP_MUST_USE ckp_status ckpi_lock_take(ckpi_store *s, const ckpi_store_options *opt, ckp_error *err);
/* Reads the lock again: CKP_EBUSY, and lost from then on, when it is not ours any more (invariant 9). */
CKP_MUST_USE ckp_status ckpi_lock_check(ckpi_store *s, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_lock_refresh(ckpi_store *s, ckp_error *err);
/* Inside of what takes long where each file is a request: refreshes a writer's claim when a quarter of its life is over. A lock that is lost shows at the
   next check. */
void ckpi_lock_keep(ckpi_store *s);
void ckpi_lock_release(ckpi_store *s);
/* Sees to it that a claim can be written when the disk is full; best effort. Not in object stores. */
void ckpi_lock_reserve(ckpi_store *s);
/* keeper.c; inside: the caller is inside, and touches nothing of s until the keeper is stopped. */
ckpi_keeper *ckpi_keeper_start(ckpi_store *s, bool inside);
/* Claims before ours, oldest first. *v is freed by free(); forget() removes their files. */
CKP_MUST_USE ckp_status ckpi_lock_history(ckpi_store *s, ckpi_lockfile **v, size_t *n, ckp_error *err);
void ckpi_lock_forget(ckpi_store *s, const ckpi_lockfile *v, size_t n);

/* attempt.c */
/* The id of attempt `number` (below CKPI_ATTEMPTS) at a step, under a lock's nonce. */
uint32_t ckpi_attempt_number(uint64_t nonce, uint64_t step, uint32_t number);

/* commit.c */
/* Publishes another run's manifest, byte for byte (text), over an attempt whose shards are durable. After a failure the attempt has been removed
   as far as possible. */
CKP_MUST_USE ckp_status ckpi_commit_copy(ckpi_store *s, ckpi_attempt *a, const ckpi_manifest *m, const ckpi_buf *text, ckp_error *err);

/* Publishes m over an attempt, in the place in the order and with the age that old has. As ckpi_commit_copy. */
CKP_MUST_USE ckp_status ckpi_commit_rewritten(ckpi_store *s, ckpi_attempt *a, ckpi_manifest *m, const ckpi_manifest *old, ckp_error *err);

/* copied.c */
/* CKP_OK with all zero where there is none, or none that says anything. */
CKP_MUST_USE ckp_status ckpi_copied_read(ckpi_store *s, ckpi_copyfile *out, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_copied_write(ckpi_store *s, const ckpi_copyfile *c, ckp_error *err);
/* CKP_EMISMATCH: both runs have gone on since they were one. have: what `to` holds; c: what its record says; theirs: the source's record. */
CKP_MUST_USE ckp_status ckpi_copied_judge(const ckpi_entries *src, const ckpi_copyfile *theirs, const ckpi_entries *have, const ckpi_copyfile *c, ckp_error *err);
/* The entry of that directory that has a manifest of this run; NULL: none. */
const ckpi_entry *ckpi_copied_find(const ckpi_entries *e, const char *dir);
/* Whether two manifests say the same. False also on lack of memory: *st tells. */
bool ckpi_copied_same(const ckpi_manifest *a, const ckpi_manifest *b, ckp_status *st);

/* remove.c */
/* Removes shards and temporaries of a directory without a manifest, then the directory. Foreign files stay, and it with them. Callers may
   go on after a failure: the sweep of the next writer tries again. */
ckp_status ckpi_remove_uncommitted(ckpi_store *s, const char *dir, ckp_error *err);
/* Deletes a committed checkpoint, or goes on with a deletion that was cut short. m is its manifest. */
CKP_MUST_USE ckp_status ckpi_remove_committed(ckpi_store *s, const char *dir, const ckpi_manifest *m, ckp_error *err);

/* retain.c */
/* CKP_ECORRUPT: something is damaged, or cannot be read: what it is based on is not known then, and nothing may be deleted. */
CKP_MUST_USE ckp_status ckpi_refuse_damage(const ckpi_entries *e, ckp_error *err);

/* repair.c */
/* Sets s->run_id to what all manifests say. CKP_ENOTFOUND: there is none; CKP_EMISMATCH: they disagree. */
CKP_MUST_USE ckp_status ckpi_identity_find(ckpi_store *s, ckp_error *err);
/* Writes run.json anew, under the lock; a damaged one is set aside. */
CKP_MUST_USE ckp_status ckpi_identity_put(ckpi_store *s, ckp_error *err);
/* Raises *max to the highest sequence of what was set aside. */
CKP_MUST_USE ckp_status ckpi_aside_sequence(ckpi_store *s, uint64_t *max, ckp_error *err);

/* sweep.c; failures are left for the next writer. */
void ckpi_sweep(ckpi_store *s);
/* The rest of a deletion that was cut short. */
ckp_status ckpi_resume_deletion(ckpi_store *s, const char *dir);

/* scan.c, entry.c */
/* Between them much is read, and what is there may be what was there at the begin; a file that is not may be missing in truth. */
CKP_MUST_USE ckp_status ckpi_survey_open(ckpi_store *s, ckp_error *err);
void ckpi_survey_close(ckpi_store *s);
/* As ckpi_store_list, for callers that are inside already. */
CKP_MUST_USE ckp_status ckpi_store_scan(ckpi_store *s, ckpi_entries *out, ckp_error *err);
/* Reads and parses dir/file as a manifest of this run's directory `dir`. CKP_EMISMATCH: another run's (*out is set all the same). */
CKP_MUST_USE ckp_status ckpi_read_manifest(ckpi_store *s, const char *dir, const char *file, ckpi_manifest **out, ckp_error *err);
/* Presence and length of every shard. */
CKP_MUST_USE ckp_status ckpi_check_shards(ckpi_store *s, const char *dir, const ckpi_manifest *m, ckp_error *err);
/* Bytes read, for progress. */
typedef struct ckpi_tally {
    ckpi_store *keeps;           /* its lock is refreshed on the way: reading takes hours; NULL: none. The caller is inside */
    ckp_progress_fn fn;
    void *user;
    uint64_t done, total;
} ckpi_tally;
/* The hash of every byte of every shard. */
CKP_MUST_USE ckp_status ckpi_check_hashes(ckpi_store *s, const char *dir, const ckpi_manifest *m, ckpi_tally *t, ckp_error *err);
/* Fills health, m, bytes and reason of an entry whose name is set; not its base. */
CKP_MUST_USE ckp_status ckpi_entry_read(ckpi_store *s, ckpi_entry *e, ckp_error *err);
/* Sets health and reason. */
CKP_MUST_USE ckp_status ckpi_entry_bad(ckpi_entry *e, ckpi_health h, const char *reason, ckp_error *err);

/* Names of a directory (names.c): */
typedef struct ckpi_names {
    char **v;
    bool *is_dir;
    size_t n;
    ckp_status failed;
} ckpi_names;
CKP_MUST_USE ckp_status ckpi_names_read(ckpi_store *s, const char *dir, ckpi_names *out, ckp_error *err);
void ckpi_names_free(ckpi_names *names);
/* Whether a file of that name in a step directory is a shard's. */
bool ckpi_is_shard(const char *name);

/* Whether a checkpoint, or one that was set aside, is a delta on a directory; true also when there is no memory to tell. */
bool ckpi_named_as_base(ckpi_store *s, const ckpi_names *names, const char *dir);
#endif
