/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_COPY_H
#define CKPRESS_RUN_COPY_H
/*
 * Copying a run, or some of its checkpoints with all that they need, into a directory that is a run at every moment (docs/runs.md, "Copies").
 */
#include <ckpress/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What became of a checkpoint. */
typedef enum ckp_copy_fate {
    CKP_COPY_DONE = 0,           /**< copied; in a dry run: would be */
    CKP_COPY_THERE = 1,          /**< the copy has it already */
    CKP_COPY_DAMAGED = 2         /**< left out: damaged, or based on what is */
} ckp_copy_fate;

/** Make one with CKP_COPY_OPTS_INIT. */
typedef struct ckp_copy_opts {
    size_t size;                 /**< sizeof(ckp_copy_opts) */
    const uint64_t *step;        /**< the newest checkpoint of each of these steps, n_steps of them */
    size_t n_steps;
    bool newest;                 /**< and the newest of all. Neither steps nor this: the whole run */
    bool dry_run;                /**< say, and touch nothing */
    ckp_progress_fn progress;    /**< may be NULL; bytes of shards. Not 0: CKP_ECANCELLED */
    void *user;
    /** May be NULL: called for each that was asked for and for what those need, by sequence, as soon as its fate is known. reason: NULL unless damaged. */
    void (*told)(void *told_user, const ckp_list_entry *e, ckp_copy_fate fate, const char *reason);
    void *told_user;
} ckp_copy_opts;
#define CKP_COPY_OPTS_INIT {sizeof(ckp_copy_opts), NULL, 0, false, false, NULL, NULL, NULL, NULL}

typedef struct ckp_copied {
    size_t size;                 /**< sizeof(ckp_copied), set by the caller */
    uint64_t copied, there, damaged;
    uint64_t bytes;              /**< of shards of what was copied */
    uint64_t models_outside;     /**< copied keys whose base model does not lie in the run's directory: whoever keeps the copy keeps that file */
} ckp_copied;

/**
 * Copies checkpoints of the run at dir into dest, which is made, or is an earlier copy of the same run.
 *
 * The copy is the same run: same identity, same directories, files and order. Each checkpoint appears in it once all that it needs is there, in the
 * order in which they were saved; every byte of every shard is proved by its hash on the way. What was cut short goes on when it is called again.
 * The source is only read, and may be written and pruned meanwhile: what is deleted from it before it was copied is not missed, what is saved
 * after the call has begun may be missing. The copy's lock is held: no training writes to it meanwhile. A base model's file is copied if it lies in dir.
 *
 * What is damaged is left out with all that is based on it, the rest is copied; then the call fails with what was found first.
 *
 * @param opt   may be NULL: the whole run.
 * @param done  filled on failure too.
 * @return CKP_EEXIST: dest is no run and holds other files; CKP_EMISMATCH: dest is another run, or source and copy have both gone on since they were one; CKP_ENOTFOUND: no run, or nothing restorable of
 *         what was asked for (dest is not made then); CKP_ECORRUPT: damage, named; CKP_EBUSY: somebody writes to dest; CKP_ECANCELLED;
 *         CKP_EINVAL: dest is the run itself or lies in it, NULL, or a bad size; CKP_ENOSPC, CKP_EIO, CKP_EACCESS, CKP_ENOMEM. After any
 *         failure dest is a run without what was not yet committed.
 * Thread safety: safe.   Since: 0.1
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_copy(const char *dir, const char *dest, const ckp_copy_opts *opt, ckp_copied *done, ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
