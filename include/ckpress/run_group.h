/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_GROUP_H
#define CKPRESS_RUN_GROUP_H
/*
 * Several writers of one run: the ranks of a training save one checkpoint together, each a shard of it. All of them open the run with a group,
 * and then call ckp_run_open, ckp_run_save, ckp_checkpoint_open and ckp_checkpoint_open_all in the same order, with the same steps.
 *
 * Rank 0 holds the lock, makes the directory, publishes the manifest, deletes old checkpoints; all ranks see the same directory. A checkpoint is
 * committed when every rank's shard is durable, or not at all, and every rank gets the same answer: a failure of one is a failure of all, with the rank in its
 * text (docs/runs.md, "Several writers").
 */
#include <ckpress/state.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How ranks talk. Initialise with CKP_GROUP_INIT; copied by ckp_run_open. `ctx` must stay valid until the run is closed. */
typedef struct ckp_group {
    size_t size;                 /**< sizeof(ckp_group) */
    void *ctx;                   /**< first argument of exchange */
    unsigned rank, world;        /**< this one, below world; of all: 1 to 65536 */
    /**
     * An all-gather: gives every rank n bytes (the same n everywhere, some 2 KB) and puts what all of them gave into `all`, n * world bytes, by rank. Must return
     * within `seconds`, with a failure where a rank has not come by then or is known to be gone. After a failure it is not called again: a run whose ranks
     * have lost each other takes no more saves. Called by one thread at a time: the caller's of ckp_run_open, ckp_checkpoint_open and
     * ckp_checkpoint_open_all, a thread of the run's own while a save is in flight (some hundred times a second at its begin, then once a second). So it must
     * not share what it talks through with the training's own exchanges, unless that is safe. The run's thread has all signals blocked.
     * @return CKP_OK; any other status with err's text filled in (ckp_objects_fail does it; err is never NULL).
     */
    ckp_status (*exchange)(void *ctx, const void *mine, size_t n, void *all, double seconds, ckp_error *err);
    double seconds;              /**< that a rank may be silent while a save is in flight; default 10. A live one speaks every second */
    double join_seconds;         /**< that ranks wait for the last of them to call; default 600 */
} ckp_group;
#define CKP_GROUP_INIT {sizeof(ckp_group), NULL, 0, 1, NULL, 10.0, 600.0}

#ifdef __cplusplus
}
#endif
#endif
