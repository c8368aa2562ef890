/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a group as threads of this process, with an all-gather in memory; and an object store whose n-th request of a rank fails. */
#ifndef CKP_TESTS_RUN_RANKS_H
#define CKP_TESTS_RUN_RANKS_H
#include <ckpress/ckpress.h>
#include <pthread.h>
#include "harness/bucket.h"

#define RANKS_MAX 8

typedef struct ranks ranks;
typedef struct rank_ctx { ranks *r; unsigned rank; } rank_ctx;

/* What a rank does; returns into status[rank]. Assertions of cmocka belong to the main thread: ranks only return and note. */
typedef ckp_status (*rank_fn)(ranks *r, unsigned rank);

struct ranks {
    unsigned world;
    double seconds, join_seconds;
    void *user;
    ckp_status status[RANKS_MAX];
    ckp_error err[RANKS_MAX];
    double took[RANKS_MAX];      /* seconds of what `fn` did; its own to fill */
    /* the all-gather */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    rank_ctx ctx[RANKS_MAX];
    unsigned come, left, gone;   /* gone: bits of ranks that have died */
    uint64_t round;
    uint8_t slot[2][RANKS_MAX][4096];
};

void ranks_init(ranks *r, unsigned world, void *user);
void ranks_free(ranks *r);
/* Runs fn as every rank, each in a thread, and waits for all. */
void ranks_run(ranks *r, rank_fn fn);
ckp_group ranks_group(ranks *r, unsigned rank);
/* That rank says nothing any more; the others' exchanges fail at once. */
void ranks_die(ranks *r, unsigned rank);

/* ---- a bucket behind a gate ---- */

typedef struct gate {
    ckp_objects below;
    pthread_mutex_t mutex;
    unsigned long calls, at;     /* the at-th fails; 0: none */
    bool lasting;                /* and all after it */
    ckp_status answer;
    unsigned long fired;
    long slow_ms;                /* that each put takes */
} gate;

void gate_init(gate *g, bucket *b);
ckp_objects gate_table(gate *g);
void gate_arm(gate *g, unsigned long at, bool lasting, ckp_status answer);
#endif
