/* SPDX-License-Identifier: Apache-2.0 */
/* The quality that keeps a run to a number of bits: against a coder of known cost. */
#include "harness/check.h"

#include <math.h>

#include "harness/seed.h"
#include "run/rate.h"

enum { KEY_EVERY = 16 };

/* What saves cost in the world of a test: as the coder's do, the first delta after a key is dear, and so is one that is finer than its base. */
typedef struct world {
    double weights, slope, rest, noise;
    int before;
    test_rng r;
} world;

/* One save; what it cost. */
static double
save(world *w, ckpi_rate *rate, unsigned in_period)
{
    const double q = ckpi_rate_quality(rate);
    double weights = w->weights * pow(q, -w->slope) * (1.0 + w->noise * (2.0 * test_unit(&w->r) - 1.0));
    if (in_period == 0)
        weights = 2.2 - log2(q);
    else if (in_period == 1 || rate->at < w->before)
        weights += 0.5;
    w->before = rate->at;
    ckpi_rate_saw(rate, in_period == 0, weights, weights + w->rest, KEY_EVERY);
    return weights + w->rest;
}

/* Mean cost of the last three of six periods, and how often the quality changed in them. */
static double
settled(world *w, ckpi_rate *rate, unsigned *changes)
{
    double sum = 0.0;
    unsigned n = 0;
    *changes = 0;
    for (unsigned i = 0; i < 6 * KEY_EVERY; i++) {
        const int before = rate->at;
        const double cost = save(w, rate, i % KEY_EVERY);
        if (i < 3 * KEY_EVERY)
            continue;
        sum += cost;
        n++;
        *changes += rate->at != before;
    }
    return sum / n;
}

static void
test_target_is_kept(void **state)
{
    (void)state;
    const double slope[] = {0.75, 0.84, 0.95}, target[] = {0.55, 0.7, 0.9};
    for (size_t s = 0; s < CHECK_COUNT(slope); s++) {
        for (size_t t = 0; t < CHECK_COUNT(target); t++) {
            world w = {.weights = 0.35, .slope = slope[s], .rest = 0.2, .noise = 0.02, .r = test_rng_new("rate")};
            ckpi_rate r;
            unsigned changes;
            ckpi_rate_start(&r, target[t], 1.0);
            const double cost = settled(&w, &r, &changes);
            assert_true(cost <= 1.03 * target[t]);
            assert_true(cost >= 0.88 * target[t]);
            assert_true(changes <= 3);
        }
    }
}

/* A training whose saves become dearer: coarser before the period has broken the budget, and never finer in the middle of a chain. */
static void
test_coarser_soon(void **state)
{
    (void)state;
    world w = {.weights = 0.3, .slope = 0.84, .rest = 0.2, .r = test_rng_new("soon")};
    ckpi_rate r;
    unsigned changes;
    ckpi_rate_start(&r, 0.7, 1.0);
    (void)settled(&w, &r, &changes);
    const int before = r.at;
    double sum = 0.0;
    w.weights *= 2.0;
    for (unsigned i = 0; i < KEY_EVERY; i++) {
        const int at = r.at;
        sum += save(&w, &r, i);
        assert_true(i + 1 == KEY_EVERY || r.at >= at);
    }
    assert_true(r.at > before);
    assert_true(sum / KEY_EVERY <= 1.1 * 0.7);
}

static void
test_out_of_reach(void **state)
{
    (void)state;
    world w = {.weights = 0.35, .slope = 0.84, .rest = 0.3, .r = test_rng_new("reach")};
    ckpi_rate r;
    unsigned changes;
    ckpi_rate_start(&r, 0.2, 0.5);
    (void)settled(&w, &r, &changes);
    assert_int_equal(r.at, CKPI_RATE_COARSEST);
    assert_true(ckpi_rate_quality(&r) == 1.0);
    assert_true(ckpi_rate_out_of_reach(&r));
    ckpi_rate_start(&r, 30.0, 1.0);
    (void)settled(&w, &r, &changes);
    assert_int_equal(r.at, CKPI_RATE_FINEST);
    assert_true(ckpi_rate_quality(&r) == 0.125 && !ckpi_rate_out_of_reach(&r));
}

static void
test_no_target(void **state)
{
    (void)state;
    world w = {.weights = 0.35, .slope = 0.84, .rest = 0.3, .r = test_rng_new("none")};
    ckpi_rate r;
    unsigned changes;
    ckpi_rate_start(&r, 0.0, 0.7);
    ckpi_rate_resume(&r, 0.3);
    (void)settled(&w, &r, &changes);
    assert_true(ckpi_rate_quality(&r) == 0.7);
    assert_false(ckpi_rate_out_of_reach(&r));
}

static void
test_going_on(void **state)
{
    (void)state;
    ckpi_rate r, again;
    ckpi_rate_start(&r, 0.5, 0.7);
    for (r.at = CKPI_RATE_FINEST; r.at <= CKPI_RATE_COARSEST; r.at++) {
        ckpi_rate_start(&again, 0.5, 0.7);
        ckpi_rate_resume(&again, ckpi_rate_quality(&r));
        assert_int_equal(again.at, r.at);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target_is_kept), cmocka_unit_test(test_coarser_soon), cmocka_unit_test(test_out_of_reach),
        cmocka_unit_test(test_no_target),      cmocka_unit_test(test_going_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
