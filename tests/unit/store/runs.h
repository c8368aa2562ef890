/* SPDX-License-Identifier: Apache-2.0 */
/* Saves without an engine, and the judge of docs/runs.md's invariants: shared by the store's tests. */
#ifndef CKP_TESTS_RUNS_H
#define CKP_TESTS_RUNS_H
#include "harness/check.h"
#include "harness/faultfs.h"
#include "store/store.h"

#define TRACE_MAX 64
/* What most tests retain. */
#define LAST_ONE ((ckpi_retention){.last = 1})

/* What the store has promised so far. */
typedef struct trace {
    char kept[TRACE_MAX][CKPI_DIR_NAME_MAX];     /* committed: must be there, whole */
    char base[TRACE_MAX][CKPI_DIR_NAME_MAX];     /* of kept[i]; "" for a key */
    size_t n_kept;
    char maybe[TRACE_MAX][CKPI_DIR_NAME_MAX];    /* a failed commit, or a deletion begun: whole or gone */
    size_t n_maybe;
    char gone[TRACE_MAX][CKPI_DIR_NAME_MAX];     /* deleted: must never come back */
    size_t n_gone;
} trace;

/* A fresh directory, in memory where there is such a place; and away with it. */
#define RUN_TMP_MAX 64
void run_tmp(char dir[RUN_TMP_MAX]);
void run_rm(const char *dir);

/* Content that tells steps and shards apart. Freed by free(); NULL on lack of memory. */
uint8_t *run_bytes(uint64_t step, uint32_t shard, size_t *n);

ckp_status run_open(ckpi_store **s, ckpi_fs *fs, ckpi_store_mode mode, ckp_error *err);
/* One whole save of `shards` shards; base NULL: a key, else a delta on that directory. dir (may be NULL) gets its name. */
ckp_status run_save(ckpi_store *s, uint64_t step, const char *base, uint32_t shards, char dir[CKPI_DIR_NAME_MAX], ckp_error *err);
/* The same, noting the outcome. */
ckp_status trace_save(trace *t, ckpi_store *s, uint64_t step, const char *base, char dir[CKPI_DIR_NAME_MAX]);
/* Retention of the newest point alone, noting what may and what must be gone. */
ckp_status trace_retain_one(trace *t, ckpi_store *s);

/* Says how many points of an operation were cut, and that a judge has passed each: `make test-crash` adds them up. */
void run_points(const char *operation, const char *fault, uint64_t n);

/* Makes the newest claim look old, as if its writer, which is this process, were long dead. */
void run_age_lock(fault_disk *d);
/* By so many seconds. */
void run_age_lock_by(fault_disk *d, int64_t seconds);

/*
 * The judge: reads the run (every manifest found is whole with its chain and every byte of its shards right; promises are
 * kept), then writes (opening sweeps what is left, the next save commits and is the newest). Fails the test otherwise.
 */
void run_judge(fault_disk *d, const trace *t, const char *what);
#endif
