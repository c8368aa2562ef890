/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up models: a loss and a size for every configuration, to search with all answers known. */
#ifndef CKP_TESTS_UNIT_PLAN_WORLD_H
#define CKP_TESTS_UNIT_PLAN_WORLD_H
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ckpress/plan.h>
#include "harness/seed.h"

#define assert_ok(call) assert_int_equal(call, CKP_OK)

typedef struct world {
    double loss[CKP_SEARCH_CONFIGS];       /* never rises with precision; the live loss is 1 */
    uint64_t bytes[CKP_SEARCH_CONFIGS];    /* both metrics' names of a configuration have the same */
    double epsilon;
    bool ragged;                           /* losses were changed and are no longer monotone */
} world;

/* A world of one of world_kinds sorts; its epsilon makes from none to all configurations good. */
enum { WORLD_KINDS = 4 };
void world_draw(world *w, test_rng *r, unsigned kind);
/* Sizes that need not follow precision. */
void world_draw_sizes(world *w, test_rng *r);

static inline bool
world_good(const world *w, size_t i)
{
    return w->loss[i] - 1 <= w->epsilon;
}

typedef struct outcome {
    bool good;
    size_t index;                          /* of the choice */
    ckp_search_result result;
    ckp_search_stats stats;
} outcome;

/* A whole search, all that its header promises checked on the way. loss_live and epsilon of opt are the world's. */
outcome world_search(const world *w, ckp_search_options opt);
/* The least size of a good configuration that exists under opt; UINT64_MAX without one. */
uint64_t world_optimum(const world *w, const ckp_search_options *opt);
#endif
