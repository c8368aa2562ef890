/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that several ranks write together (docs/runs.md, "Several writers"). A save is one conversation (talk.h), from each call of ckp_run_save to its END,
 * also where this rank has nothing to write:
 *
 *   JOINED   all compare steps and bases            -> rank 0 makes the directory: BEGUN
 *   BEGUN    each writes its shard, syncs it        -> WRITTEN
 *   WRITTEN  of all: rank 0 publishes the manifest  -> END, the checkpoint is there
 *   FAILED   of any, at any time: all stop writing, remove their shards -> CLEARED -> rank 0 removes the directory: END, there is none
 */
#ifndef CKPI_RUN_GROUP_H
#define CKPI_RUN_GROUP_H
#include "run/checkpoint.h"
#include "run/session.h"

/* What has been committed. */
typedef struct ckpi_made {
    char dir[CKPI_DIR_NAME_MAX];
    ckpi_id content;
    uint32_t chain;
    uint64_t sequence;
} ckpi_made;

/*
 * ckp_run_open: rank 0 opens the store, and takes the lock; then the others do; then all hear that all have come so far. st: this rank's so far. After a
 * failure of lead, which all ranks have alike, nothing follows; the others' failures are heard at the end.
 */
CKP_MUST_USE ckp_status ckpi_group_lead(ckp_run *run, ckp_status st, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_group_follow(ckp_run *run, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_group_opened(ckp_run *run, ckp_status st, ckp_error *err);

/* ckp_run_save. */
CKP_MUST_USE ckp_status ckpi_group_save(ckp_run *run, uint64_t step, ckp_state *state, const ckp_save_options *opt, bool *taken, ckp_error *err);
/* The worker's begin, commit and abort: these tell the others. st: this rank's so far. */
CKP_MUST_USE ckp_status ckpi_group_begin(ckp_run *run, ckp_status st, ckpi_attempt **out, ckp_error *err);
/* Consumes *a, and makes it NULL, where it has been committed or removed. */
CKP_MUST_USE ckp_status ckpi_group_commit(ckp_run *run, ckpi_attempt **a, const ckpi_writer *w, const ckpi_fmt_sum *sum, ckpi_manifest *m, ckpi_made *made,
                                          ckp_error *err);
/* Returns what every rank returns: the first failure of all. a may be NULL. */
CKP_MUST_USE ckp_status ckpi_group_fail(ckp_run *run, ckpi_attempt *a, ckp_status st, ckp_error *err);

/* ckp_checkpoint_open: the newest that opens on every rank. all: every shard, not this rank's alone. */
CKP_MUST_USE ckp_status ckpi_group_open(ckp_checkpoint **out, ckp_run *run, int64_t step, bool all, ckp_error *err);
/* How this run sees checkpoints of several writers. */
ckpi_shards ckpi_group_shards(const ckp_run *run, bool all);
#endif
