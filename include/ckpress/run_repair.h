/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_REPAIR_H
#define CKPRESS_RUN_REPAIR_H
/*
 * Repairing a run at rest (docs/runs.md, "Repair"): what is damaged, and what is based on it, goes out of the way; an identity that was lost is
 * written anew. Nothing is deleted unless that is asked for.
 */
#include <ckpress/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ckp_repair_fate {
    CKP_REPAIR_SET_ASIDE = 0,    /**< its directory was renamed to set-aside-DIR, which nothing reads or removes */
    CKP_REPAIR_DELETED = 1,
    CKP_REPAIR_LEFT = 2,         /**< of another run, of a newer version, or it cannot be read: not for a repair to judge */
    CKP_REPAIR_SWEPT = 3,        /**< the rest of a save or of a deletion that was cut short: removed, as the next training would */
    CKP_REPAIR_ATTEMPT = 4       /**< dry run: the same, or set aside where it may be all that is left of something */
} ckp_repair_fate;

/** Make one with CKP_REPAIR_OPTS_INIT. */
typedef struct ckp_repair_opts {
    size_t size;                 /**< sizeof(ckp_repair_opts) */
    bool dry_run;                /**< say, and touch nothing: needs no lock */
    bool remove;                 /**< delete instead of setting aside. Sets aside all the same where nothing restorable would be left */
    bool data;                   /**< read everything: what fails its hash is damaged too. Else structure alone is looked at */
    ckp_progress_fn progress;    /**< may be NULL; bytes of shards, with data */
    void *user;
    /** May be NULL: what became of each that is not a whole checkpoint; reason: a sentence. */
    void (*told)(void *told_user, const ckp_list_entry *e, ckp_repair_fate fate, const char *reason);
    void *told_user;
} ckp_repair_opts;
#define CKP_REPAIR_OPTS_INIT {sizeof(ckp_repair_opts), false, false, false, NULL, NULL, NULL, NULL}

typedef struct ckp_repaired {
    size_t size;                 /**< sizeof(ckp_repaired), set by the caller */
    uint64_t set_aside, deleted, left, swept;
    uint64_t restorable;         /**< checkpoints */
    uint64_t newest_step;        /**< of these, the one that a restore takes; 0 when there is none */
    bool identity;               /**< run.json was missing or damaged, and is what all manifests say now; a damaged one is in set-aside-run.json */
} ckp_repaired;

/**
 * Afterwards listing and restoring find whole checkpoints only, and retention works again. Each step is one that a power cut leaves undone or done;
 * asked again, it goes on.
 * @param opt   may be NULL.
 * @param done  filled on failure too.
 * @return CKP_EBUSY: a training writes to the run; CKP_ENOTFOUND: no run, or, after all was done, nothing in it can be restored; CKP_EMISMATCH:
 *         run.json is lost and manifests name different runs; CKP_ECANCELLED; CKP_EINVAL; CKP_EIO, CKP_EACCESS, CKP_ENOSPC, CKP_ENOMEM.
 * Thread safety: safe.   Since: 0.1
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_repair(const char *dir, const ckp_repair_opts *opt, ckp_repaired *done, ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
