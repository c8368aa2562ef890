/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run: a directory (or URL prefix) of checkpoints with one identity and lineage. Layout, write order, lock and the
 * numbered invariants: docs/runs.md. The store never decodes a tensor.
 *
 * Saving:     open(WRITE) -> begin -> shard writer(s) -> commit        (a failed commit has cleaned up after itself)
 * Restoring:  open(READ or WRITE) -> latest or find -> files under ckpi_store_fs -> free
 *
 * Thread safety: every function locks the handle, so refresh() may run on any thread beside the others.
 * Fork: a handle belongs to the process that opened it; in a forked child every call fails with CKP_EFORK and free only
 * frees memory (invariant 11).
 */
#ifndef CKPI_STORE_H
#define CKPI_STORE_H
#include "format/manifest.h"
#include "os/os.h"

typedef struct ckpi_store ckpi_store;
typedef struct ckpi_attempt ckpi_attempt;

typedef enum ckpi_store_mode {
    CKPI_STORE_READ,      /* takes no lock, changes nothing */
    CKPI_STORE_WRITE,     /* takes the lock; creates run.json when there is none; sweeps own dead temporaries */
    CKPI_STORE_MEMBER     /* of a group whose rank 0 has opened it for writing: adds shards to its attempts, and does nothing else */
} ckpi_store_mode;

typedef struct ckpi_store_options {
    uint32_t lock_expiry_s;   /* 0: 120. A lock not refreshed for so long may be taken over */
    uint32_t lock_wait_s;     /* how long open waits for a lock that another writer holds; 0: not at all */
    bool repair;              /* a run.json that is missing or damaged is taken from the manifests, and by a writer written anew */
    const ckpi_buf *identity; /* NULL, or a copy is to be written: what run.json says (CKP_EMISMATCH), or is to say where there is none */
} ckpi_store_options;

/*
 * Takes fs, also on failure. opt may be NULL.
 * CKP_ENOTFOUND: not a run (READ); CKP_EEXIST: an identity is to be given to a directory that holds other files; CKP_EBUSY: another writer holds it (the text names pid, host and age);
 * CKP_ECORRUPT: run.json is damaged, or missing while checkpoints are there; CKP_EVERSION, CKP_EUNSUPPORTED; I/O.
 */
CKP_MUST_USE ckp_status ckpi_store_open(ckpi_store **out, ckpi_fs *fs, ckpi_store_mode mode, const ckpi_store_options *opt, ckp_error *err);
/* Releases the lock (best effort). Attempts still open must have been committed or aborted. Accepts NULL. */
void ckpi_store_free(ckpi_store *s);

ckpi_fs *ckpi_store_fs(ckpi_store *s);            /* borrowed; for reading checkpoint files as "DIR/FILE" */
ckpi_id ckpi_store_run_id(const ckpi_store *s);
uint64_t ckpi_store_epoch(const ckpi_store *s);   /* 0 for a reader */

/*
 * Says that this writer lives; call it at least every expiry / 4. CKP_EBUSY: another writer has taken over; from then on
 * every writing call fails with CKP_EBUSY.
 */
CKP_MUST_USE ckp_status ckpi_store_refresh(ckpi_store *s, ckp_error *err);
/*
 * Around one call that takes long and gives no occasion to say so (an fsync, an upload, a decoding): a thread that refreshes the claim until it is stopped. The
 * caller holds nothing of s. NULL: none is needed, or none could be made; that is no failure.
 */
typedef struct ckpi_keeper ckpi_keeper;
ckpi_keeper *ckpi_store_keep(ckpi_store *s);
void ckpi_keeper_stop(ckpi_keeper *k);            /* accepts NULL */

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Makes a directory "step-SSSSSSSS-AAAAAAAA" that never existed before. CKP_EINVAL: step above INT64_MAX; CKP_EBUSY; I/O. */
CKP_MUST_USE ckp_status ckpi_store_begin(ckpi_store *s, uint64_t step, ckpi_attempt **out, ckp_error *err);
const char *ckpi_attempt_dir(const ckpi_attempt *a);      /* valid until commit or abort */

/*
 * A writer for shard `index` of `count` (ckpi_shard_name) in the attempt's directory. The caller puts, then finishes it
 * (ckpi_writer_finish: data is durable), takes ckpi_writer_pos and ckpi_writer_hash for ckpi_manifest_add_shard, and frees it.
 */
CKP_MUST_USE ckp_status ckpi_store_shard(ckpi_store *s, ckpi_attempt *a, uint32_t index, uint32_t count, ckpi_writer **out, ckp_error *err);

/*
 * Publishes the checkpoint. Fills the fields of m that are marked (store). Consumes the attempt whatever happens: after a
 * failure its directory has been removed as far as possible, and the run is as it was.
 * CKP_EINVAL: m is not a possible manifest, or a shard it lists is not there with that length; CKP_EBASE: the base is not a
 * whole committed checkpoint with that content id and chain (invariant 10); CKP_EBUSY: the lock is lost (invariant 9); I/O.
 */
CKP_MUST_USE ckp_status ckpi_store_commit(ckpi_store *s, ckpi_attempt *a, ckpi_manifest *m, ckp_error *err);
/* Removes what the attempt wrote. Consumes it; accepts NULL. Never touches a committed checkpoint. */
void ckpi_store_abort(ckpi_store *s, ckpi_attempt *a);

/*
 * For a MEMBER: the attempt that rank 0 has begun. CKP_EINVAL: no name of one; CKP_EEXIST: it is a checkpoint already. Its shard is written with
 * ckpi_store_shard, synced with ckpi_store_shard_done, and then the attempt is left; or it is left with the shard removed again.
 */
CKP_MUST_USE ckp_status ckpi_store_join(ckpi_store *s, const char *dir, ckpi_attempt **out, ckp_error *err);
/* The name of a finished shard is durable. */
CKP_MUST_USE ckp_status ckpi_store_shard_done(ckpi_store *s, const ckpi_attempt *a, ckp_error *err);
/* Frees a; remove: its shard `index` of `count` goes first, while no manifest is there. Not after rank 0 was told of it: its manifest may yet come. Accepts NULL. */
void ckpi_store_leave_attempt(ckpi_store *s, ckpi_attempt *a, uint32_t index, uint32_t count, bool remove);

/* ---- what is there ------------------------------------------------------------------------------------------------ */

typedef enum ckpi_health {
    CKPI_HEALTH_OK = 0,
    CKPI_HEALTH_INCOMPLETE,      /* no manifest: a save in flight or cut short */
    CKPI_HEALTH_DELETING,        /* a deletion was cut short */
    CKPI_HEALTH_BAD_MANIFEST,    /* hash, field, unreadable, or it says another directory */
    CKPI_HEALTH_FOREIGN,         /* of another run: copied here by hand */
    CKPI_HEALTH_UNSUPPORTED,     /* written by a newer version, or needs an unknown feature */
    CKPI_HEALTH_MISSING_SHARD,
    CKPI_HEALTH_WRONG_LENGTH,
    CKPI_HEALTH_BAD_BASE         /* whole itself, but a checkpoint that it needs is not */
} ckpi_health;
const char *ckpi_health_name(ckpi_health h);     /* "ok", "incomplete", ... static */

typedef enum ckpi_keep { CKPI_KEEP_NO = 0, CKPI_KEEP_BASE, CKPI_KEEP_POINT } ckpi_keep;

typedef struct ckpi_entry {
    char dir[CKPI_DIR_NAME_MAX];
    uint64_t step;
    uint32_t attempt;
    ckpi_health health;
    ckpi_manifest *m;            /* NULL for INCOMPLETE to UNSUPPORTED, FOREIGN excepted */
    uint64_t bytes;              /* of its shards by the manifest; 0 without one */
    size_t base;                 /* index of its base in the same list, or SIZE_MAX */
    char *reason;                /* a sentence when health is not OK, else NULL */
    ckpi_keep keep;              /* filled by ckpi_retention_mark */
    bool replaced;               /* likewise: another one stands in for it */
} ckpi_entry;

typedef struct ckpi_entries {
    ckpi_entry *v;
    size_t n;
} ckpi_entries;

/*
 * Every directory with a checkpoint's name: those with a manifest by sequence, ascending, after those without. Other names
 * are ignored. Checks structure (level 1) and whole chains; reads no shard. *out is freed by ckpi_entries_free.
 */
CKP_MUST_USE ckp_status ckpi_store_list(ckpi_store *s, ckpi_entries *out, ckp_error *err);
void ckpi_entries_free(ckpi_entries *e);

/* A checkpoint and all that it needs, from its key (first) to itself (last). */
typedef struct ckpi_chain {
    ckpi_manifest **m;
    char (*dir)[CKPI_DIR_NAME_MAX];
    size_t n;
} ckpi_chain;
#define CKPI_CHAIN_INIT {0}
void ckpi_chain_free(ckpi_chain *c);

/*
 * A place in the order of checkpoints, by its fields in turn: a stand-in and what it stands in for, and what two writers committed at once, have one sequence.
 * With a sequence alone: before all of that sequence.
 */
typedef struct ckpi_order {
    uint64_t sequence, epoch, step;
    char dir[CKPI_DIR_NAME_MAX];
} ckpi_order;
int ckpi_order_compare(const ckpi_order *a, const ckpi_order *b);
/* dir is m's. */
ckpi_order ckpi_order_of(const ckpi_manifest *m, const char *dir);

/*
 * The last restorable checkpoint that comes before that place in the order. Directories that were passed over are appended to *why (may be NULL), a line each
 * with the reason. CKP_ENOTFOUND when none is left.
 */
CKP_MUST_USE ckp_status ckpi_store_before(ckpi_store *s, const ckpi_order *place, ckpi_chain *out, ckpi_buf *why, ckp_error *err);
/* The same: the last one with a sequence below `below` (UINT64_MAX: the newest). */
CKP_MUST_USE ckp_status ckpi_store_latest(ckpi_store *s, uint64_t below, ckpi_chain *out, ckpi_buf *why, ckp_error *err);
/* The newest restorable checkpoint of that step. CKP_ENOTFOUND: there is none, or its reason when there is a broken one. */
CKP_MUST_USE ckp_status ckpi_store_at_step(ckpi_store *s, uint64_t step, ckpi_chain *out, ckp_error *err);
/* That directory. CKP_ENOTFOUND, CKP_ECORRUPT with the reason when it is not restorable. */
CKP_MUST_USE ckp_status ckpi_store_chain(ckpi_store *s, const char *dir, ckpi_chain *out, ckp_error *err);

/* Level 1: manifest, shards' presence and lengths, chain. Level 2: also the hash of every byte of its own shards. */
CKP_MUST_USE ckp_status ckpi_store_check(ckpi_store *s, const char *dir, int level, ckp_progress_fn progress, void *user, ckp_error *err);

/* ---- standing in ---------------------------------------------------------------------------------------------------- */

/*
 * Publishes a checkpoint that was made of another one and stands in for it: same step, same place in the order, and a later epoch, so that it
 * counts as the newer of the two while both are there. m: a copy of old's manifest, but for what was made anew (shards, content, base, dropped). Its
 * base must be committed (invariant 10). Consumes the attempt whatever happens, as commit does.
 */
CKP_MUST_USE ckp_status ckpi_store_replace(ckpi_store *s, ckpi_attempt *a, ckpi_manifest *m, const ckpi_manifest *old, ckp_error *err);
/* The entry that stands in for entry i, whole; SIZE_MAX: none. */
size_t ckpi_stand_in(const ckpi_entries *all, size_t i);
/* Deletes every checkpoint that another one stands in for and that nothing is based on but such ones; deltas before their bases. */
CKP_MUST_USE ckp_status ckpi_store_drop_replaced(ckpi_store *s, size_t *n, uint64_t *bytes, ckp_error *err);

/* ---- repair --------------------------------------------------------------------------------------------------------- */

typedef enum ckpi_repair_fate {
    CKPI_REPAIR_SET_ASIDE,       /* renamed to set-aside-DIR */
    CKPI_REPAIR_DELETED,
    CKPI_REPAIR_LEFT,            /* not ours to judge: of another run, of a newer version, or it cannot be read */
    CKPI_REPAIR_ATTEMPT          /* dry run: the sweep, or else repair, would take it */
} ckpi_repair_fate;

typedef struct ckpi_repair_ask {
    bool dry_run;
    bool remove;                 /* delete what would be set aside, if something restorable is left */
    bool data;                   /* also check the hash of every byte */
    ckp_progress_fn progress;    /* bytes of shards, with data */
    void *user;
    void (*told)(void *told_user, const ckpi_entries *all, const ckpi_entry *e, ckpi_repair_fate fate, const char *reason);
    void *told_user;
} ckpi_repair_ask;

typedef struct ckpi_repaired {
    size_t set_aside, deleted, left, attempts, restorable;
    uint64_t newest_step;        /* of the restorable one with the highest sequence */
    bool identity;               /* run.json was lost */
} ckpi_repaired;

/*
 * Takes what is damaged, or based on what is, out of the way. The store was opened with the option `repair`, for writing unless it is a dry run.
 * A failure part way leaves the run as consistent as it was; asked again, it goes on.
 */
CKP_MUST_USE ckp_status ckpi_store_repair(ckpi_store *s, const ckpi_repair_ask *ask, ckpi_repaired *done, ckp_error *err);

/* ---- retention ---------------------------------------------------------------------------------------------------- */

/* Which restorable points stay: those that any rule names, the newest, and the newest whose metrics are finite. Without a rule all. */
typedef struct ckpi_retention {
    uint32_t last;               /* the newest so many; 0: no such rule */
    uint64_t every;              /* the first of each stretch of so many steps: [0, N), [N, 2 N) ...; 0: no such rule */
    const char *best;            /* a metric's name; NULL: no such rule */
    uint32_t n_best;             /* so many with its lowest, or highest, values */
    bool best_is_max;
    uint64_t max_bytes;          /* of all that stays, bases counted: the oldest points go until it fits, but not the newest; 0: no limit */
    const char *const *dir;      /* these, n_dir of them */
    size_t n_dir;
} ckpi_retention;

/*
 * Decides, touches nothing: points become KEEP_POINT, what they need KEEP_BASE, other whole checkpoints KEEP_NO. Of a checkpoint and what stands in for
 * it, the latter is the point. Broken and foreign entries keep
 * KEEP_POINT: they are not ours to delete. CKP_ENOTFOUND: one of r->dir is not a restorable checkpoint.
 */
CKP_MUST_USE ckp_status ckpi_retention_mark(ckpi_entries *e, const ckpi_retention *r, ckp_error *err);

typedef struct ckpi_retained {
    size_t points, bases, deleted;
    uint64_t freed_bytes, left_bytes;
} ckpi_retained;

/*
 * Marks and deletes: of each checkpoint the manifest first, then shards, then the directory; deltas before their bases.
 * Deletes nothing and fails with CKP_ECORRUPT when a committed checkpoint references something that is missing (repair
 * decides then). At least one committed checkpoint stays, always. A failure part way leaves the run consistent.
 */
CKP_MUST_USE ckp_status ckpi_store_retain(ckpi_store *s, const ckpi_retention *r, ckpi_retained *done, ckp_error *err);
/* The same without deleting: *e (freed by the caller) says what would stay. A reader may ask. */
CKP_MUST_USE ckp_status ckpi_store_retain_plan(ckpi_store *s, const ckpi_retention *r, ckpi_entries *e, ckpi_retained *done, ckp_error *err);

/* ---- copying ------------------------------------------------------------------------------------------------------- */

typedef enum ckpi_copy_fate { CKPI_COPY_DONE, CKPI_COPY_THERE, CKPI_COPY_DAMAGED } ckpi_copy_fate;

typedef struct ckpi_copy_ask {
    const uint64_t *step;        /* the newest checkpoint of each of these, n_steps of them */
    size_t n_steps;
    bool newest;                 /* and the newest of all; neither: all */
    bool dry_run;
    ckp_progress_fn progress;    /* bytes of shards */
    void *user;
    /* What became of each that was asked for and of their bases, as soon as it is known. reason: of a damaged one. */
    void (*told)(void *told_user, const ckpi_entries *all, const ckpi_entry *e, ckpi_copy_fate fate, const char *reason);
    void *told_user;
} ckpi_copy_ask;

typedef struct ckpi_copied {
    size_t copied, there, damaged;
    uint64_t bytes;              /* of shards of those that were copied */
    size_t models_outside;       /* keys whose base model does not lie in the run */
} ckpi_copied;

/* What run.json says, for ckpi_store_options.identity. */
CKP_MUST_USE ckp_status ckpi_store_identity(ckpi_store *s, ckpi_buf *out, ckp_error *err);

/*
 * Copies checkpoints with all that they need, each committed once its bases are there, under the names and with the manifests that they have;
 * every shard's bytes are proved by the manifest's hash on the way. `from` may be open for reading. `to`: opened for writing with from's identity;
 * for a dry run for reading, or NULL where there is no run yet.
 * What is damaged is left out with all that needs it; the rest is copied, then CKP_ECORRUPT says which was the first. What is deleted from
 * the source meanwhile is not missed. CKP_ENOTFOUND: nothing that can be restored was asked for; CKP_EMISMATCH: both have gone on since they
 * were one; CKP_EBUSY: to's lock is lost; CKP_ECANCELLED; I/O. After a failure `to` is a run without what was not yet committed.
 */
CKP_MUST_USE ckp_status ckpi_store_copy(ckpi_store *from, ckpi_store *to, const ckpi_copy_ask *ask, ckpi_copied *done, ckp_error *err);
#endif
