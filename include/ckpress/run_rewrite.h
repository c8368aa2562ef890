/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_REWRITE_H
#define CKPRESS_RUN_REWRITE_H
/*
 * Storing checkpoints of a run at rest otherwise (docs/runs.md, "Standing in"): without the optimizer's first moments, or without a base. Nothing that
 * is committed changes: a checkpoint that is made of another stands in for it, with the same step and place in the order, and is proved by
 * decoding all of it before it is published; the old one is deleted when everything that was based on it has a stand-in too.
 */
#include <ckpress/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ckp_rewrite_fate {
    CKP_REWRITE_LEFT = 0,        /**< nothing to do, or done before */
    CKP_REWRITE_DONE = 1,        /**< what was asked for */
    CKP_REWRITE_MOVED = 2,       /**< its base was written anew, so its file names another one; it holds what it held, chunk by chunk */
    CKP_REWRITE_NEEDED = 3       /**< thin: older than asked for, but first moments of a checkpoint that keeps its own are differences to these */
} ckp_rewrite_fate;

/** Make one with CKP_REWRITE_OPTS_INIT. */
typedef struct ckp_rewrite_opts {
    size_t size;                 /**< sizeof(ckp_rewrite_opts) */
    uint64_t older_than;         /**< thin: the newest so many restorable checkpoints keep theirs; at least 1 */
    bool dry_run;                /**< say, and touch nothing: needs no lock */
    const char *base_model;      /**< of a run with one that was moved; NULL: where it was */
    unsigned threads;            /**< of the proof; 0: one a processor */
    ckp_progress_fn progress;    /**< may be NULL; bytes of files that are read */
    void *user;
    /** May be NULL: what becomes of each restorable checkpoint, by sequence, once it has; new_bytes: of its file, in a dry run 0. */
    void (*told)(void *told_user, const ckp_list_entry *e, ckp_rewrite_fate fate, uint64_t new_bytes);
    void *told_user;
} ckp_rewrite_opts;
#define CKP_REWRITE_OPTS_INIT {sizeof(ckp_rewrite_opts), 10, false, NULL, 0, NULL, NULL, NULL, NULL}

typedef struct ckp_rewritten {
    size_t size;                 /**< sizeof(ckp_rewritten), set by the caller */
    uint64_t done, moved, needed;
    uint64_t deleted;            /**< old ones, those of an earlier call that was cut short too */
    uint64_t freed_bytes;        /**< of what was deleted; dry run, thin: of first moments that would go */
    uint64_t new_bytes;
} ckp_rewritten;

/**
 * Drops the first moments (roles m and momentum) of restorable checkpoints older than the newest `older_than`. Weights, second moments and
 * everything else come back bit for bit as before; the moments come back as zeros, and ckp_checkpoint_dropped says so. Momentum whose
 * scales the weights' steps follow stays, and so do moments that a checkpoint which keeps its own is based on.
 * What was cut short goes on when it is asked for again.
 * @param opt  may be NULL.
 * @return CKP_EBUSY: a training writes to the run; CKP_ECORRUPT: something in the run is damaged, or a file is, named: nothing is deleted; CKP_EBASE:
 *         the base model is not there; CKP_ENOTFOUND, CKP_EINVAL, CKP_ECANCELLED, CKP_ENOSPC, CKP_EIO, CKP_ENOMEM.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_thin(const char *dir, const ckp_rewrite_opts *opt, ckp_rewritten *done, ckp_error *err);

/**
 * Makes the checkpoint of a step a key: its chain is no longer needed for it, and shorter for what is based on it.
 * @return also CKP_EUNSUPPORTED: it is coded lossily: what later deltas are based on is not only what it restores to, so a key
 *         that they could stand on cannot be made of it.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_rebase(const char *dir, uint64_t step, const ckp_rewrite_opts *opt, ckp_rewritten *done, ckp_error *err);

/** What was dropped from a checkpoint's state, as a sentence; NULL: nothing. Static. */
CKP_API const char *ckp_checkpoint_dropped(const ckp_checkpoint *ck);
/** The same of an entry of a list. */
CKP_API const char *ckp_list_entry_dropped(const ckp_list_entry *e);

#ifdef __cplusplus
}
#endif
#endif
