/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_PRUNE_H
#define CKPRESS_RUN_PRUNE_H
/*
 * Deleting old checkpoints of a run by rules, when no training writes to it (docs/runs.md, "Retention", "Delete order").
 */
#include <ckpress/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What becomes of a checkpoint. */
typedef enum ckp_fate {
    CKP_FATE_DELETED = 0,
    CKP_FATE_BASE = 1,           /**< stays, for a kept one needs it */
    CKP_FATE_KEPT = 2            /**< named by a rule, or not ours to judge (of another run) */
} ckp_fate;

typedef struct ckp_pruned {
    size_t size;                 /**< sizeof(ckp_pruned), set by the caller */
    uint64_t kept, bases, deleted;
    uint64_t freed_bytes;        /**< of shards */
    uint64_t left_bytes;
} ckp_pruned;

/**
 * Deletes what no rule keeps; a checkpoint's manifest goes first, so that whatever is cut short leaves no half checkpoint. Nothing is deleted from
 * a run in which anything is damaged.
 * @param rules    at least one rule, or max_bytes.
 * @param dry_run  say, and touch nothing: needs no lock.
 * @param fn       may be NULL: called for each checkpoint, by sequence, before anything is deleted.
 * @return CKP_EBUSY: a training writes to it; CKP_ECORRUPT: damage (named); CKP_ENOTFOUND: no run; CKP_EINVAL: no rule.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_prune(const char *dir, const ckp_retention *rules, bool dry_run,
                                              void (*fn)(void *user, const ckp_list_entry *e, ckp_fate fate), void *user, ckp_pruned *done,
                                              ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
