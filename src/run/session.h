/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: a run that is open for writing.
 *
 *   caller's thread                         worker thread (encoding: another, of the lowest priority; this one helps when it is late)
 *   save: wait or skip, seal, [survey],     idle: refresh the lock
 *         pass over live memory  -- job -->  begin, encode, fsync, publish, commit, retain
 *
 * The predictor and the stages belong to the caller's thread while no job is in flight, to the worker while one is. `busy` says which;
 * it changes under the mutex only. After a failed job the predictor no longer describes a committed checkpoint, so the next save is a key
 * (docs/runs.md, invariant 10).
 */
#ifndef CKPI_RUN_SESSION_H
#define CKPI_RUN_SESSION_H
#include <pthread.h>
#include <ckpress/run.h>
#include "engine/encode.h"
#include "run/base_model.h"
#include "run/dynaquant.h"
#include "run/memory.h"
#include "run/place.h"
#include "run/profile.h"
#include "run/rate.h"
#include "run/talk.h"
#include "store/store.h"

/* What the worker needs to know of one save. */
typedef struct ckpi_save_job {
    uint64_t step;
    bool key;
    bool on_model;               /* a key whose weights are predicted from the base model's */
    bool inline_pass;            /* stages do not fit the budget: the pass is part of the encoding, on the caller's thread */
    const ckpi_pass *pass;       /* then */
    ckpi_settings set;
    double quality;              /* that set is of */
    ckpi_dq_numbers dq;          /* with set.dynaquant */
    ckpi_buf tree;               /* a copy */
    ckp_metric *metrics;         /* owned, names too */
    size_t n_metrics;
    uint64_t raw_bytes, raw_by_role[CKP_ROLE_COUNT_], params_by_role[CKP_ROLE_COUNT_];
    double started, cpu_front;
    uint64_t alike;              /* in a group: must be the same on all ranks */
    ckp_status refused;          /* in a group: not CKP_OK, this rank has nothing to save, and refusal says why */
    ckp_error refusal;
    bool told;                   /* the caller knows of refused already */
    ckpi_clusters_loss clusters[CKP_ROLE_COUNT_];   /* what moments in clusters lost */
} ckpi_save_job;

/* The checkpoint that the predictor describes. */
typedef struct ckpi_base_ref {
    char dir[CKPI_DIR_NAME_MAX];
    ckpi_id checkpoint, shard;   /* content ids */
    uint32_t chain;              /* of the checkpoint */
    uint32_t shard_chain;        /* of this rank's shard, which may have had a key since */
    bool on_model;               /* that of the key behind it */
    uint64_t key_bytes;          /* of the key's shard behind it; 0: not known */
    ckpi_id table_content;       /* shard that stores table and tree */
    ckpi_buf table_tree;         /* that tree, the dictionary for later ones */
} ckpi_base_ref;

struct ckp_run {
    int64_t pid;
    char *dir;
    ckp_objects objects;         /* what opt.objects is, if that is not NULL */
    char *stage_dir;             /* what objects.stage_dir is */
    ckp_run_options opt;
    ckp_tensor_step *steps;      /* owned; what opt.coding.steps is */
    ckpi_settings set;
    ckp_dynaquant *dynaquant;    /* opt.coding.dynaquant, copied; or NULL */
    ckpi_dq dq;                  /* bound for the pass at hand */
    ckpi_store *store;
    ckpi_memory memory;          /* the newest checkpoint in shared memory; the worker's while a job is in flight */
    bool keep_memory;            /* when the run is closed */
    ckp_group group;             /* what opt.group is, if that is not NULL */
    ckpi_talk *talk;             /* in a group; or NULL */
    ckpi_ctx *front, *back;      /* threads of the pass; of the coding */
    ckpi_pred *pred;             /* NULL before the first save */
    ckpi_stage *stages;          /* by group of pred */
    ckpi_lasting lasting;
    ckpi_base_model *model;      /* of opt.base_model; or NULL */
    ckpi_rate rate;              /* of opt.target_bits */
    ckpi_retention rules;        /* of opt.keep_last and opt.retention; owns `best` */
    ckpi_id model_content;       /* of its file for pred's table and layout; zero: not known */
    uint64_t model_stamp;        /* of the file, when model_content was last proved */
    char model_lost[256];        /* why there is none any more; "": all is well */
    bool key_next;
    bool staged;                 /* a save is held: see ckp_run_stage */
    ckp_checkpoint *adopted;     /* restored from; the predictor is made of it at the next save */
    ckpi_base_ref base;
    char parent[CKPI_DIR_NAME_MAX];
    uint64_t restore_count;
    ckpi_save_job job;
    /* between the threads: */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool thread_made, sync_made, busy, stop;
    ckp_status failed;           /* of the last job, not yet told */
    ckp_error failure;
    ckp_save_stats stats;        /* of the last job that ended */
    double last_stall;
    double refreshed;            /* the lock, last; the worker's */
};

/* The predictor from the adopted checkpoint, if there is one and it fits; else the next save is a key. */
CKP_MUST_USE ckp_status ckpi_session_load(ckp_run *run, ckp_error *err);
/* Whether the base model's file is not as it was at the last key. */
bool ckpi_session_model_touched(const ckp_run *run);
/*
 * The base model's weights into the predictor, for a key. A file that has gone or changed is none any more: checkpoints so far need what it was, but
 * those from now on shall not; model_lost says so.
 */
CKP_MUST_USE ckp_status ckpi_session_load_model(ckp_run *run, ckp_error *err);
/* Worker. */
void *ckpi_session_worker(void *run);
/* One job from begin to commit; also called on the caller's thread for inline passes. */
CKP_MUST_USE ckp_status ckpi_session_write(ckp_run *run, ckp_error *err);
/* Its manifest, as far as this rank knows; no shards. */
CKP_MUST_USE ckp_status ckpi_session_manifest(const ckp_run *run, ckpi_manifest *m, ckp_error *err);
/* Refreshes the lock when it is due. */
void ckpi_session_refresh(ckp_run *run);
void ckpi_session_job_clear(ckpi_save_job *job);
/* Takes a state into run->job, up to the moment when the live tensors may change, as ckp_run_save does. *pass: for an inline pass. */
CKP_MUST_USE ckp_status ckpi_session_take(ckp_run *run, uint64_t step, ckp_state *state, const ckp_save_options *opt, ckpi_pass *pass,
                                          ckp_error *err);
/* The same state again, as a key, by grids of that quality or (config not NULL) by DynaQuant. */
CKP_MUST_USE ckp_status ckpi_session_retake(ckp_run *run, ckp_state *state, double quality, const ckp_dynaquant *config, ckp_error *err);
/* Seals a state; CKP_EINVAL: its tensors are not those of the staged one. */
CKP_MUST_USE ckp_status ckpi_session_same(ckp_run *run, ckp_state *state, ckp_error *err);
/* The weights of a save that was taken by DynaQuant, by another configuration; of the same state. */
CKP_MUST_USE ckp_status ckpi_session_recode(ckp_run *run, ckp_state *state, const ckp_dynaquant *config, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_session_add_metrics(ckpi_save_job *job, const ckp_metric *m, size_t n, ckp_error *err);
/* Whether a call must be skipped, for CKP_BUSY_SKIP. */
bool ckpi_session_skip(ckp_run *run);
/* What the statistics say of the copy in memory. */
void ckpi_session_note_memory(ckp_run *run);
/* Gives the job to the worker. */
void ckpi_session_hand_over(ckp_run *run);
/* CKP_EFORK in a forked child. */
CKP_MUST_USE ckp_status ckpi_session_check(const ckp_run *run, ckp_error *err);
/* The same, and CKP_EINVAL while a save is staged. */
CKP_MUST_USE ckp_status ckpi_session_check_free(const ckp_run *run, ckp_error *err);
/* Waits until no job is in flight; does not look at its failure. */
void ckpi_session_drain(ckp_run *run);
#endif
