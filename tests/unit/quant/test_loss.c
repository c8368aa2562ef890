/* SPDX-License-Identifier: Apache-2.0 */
/* Sensitivities and sums of errors: what they say they are, to the bit on every ISA, NaN and tails included. */
#include "mill.h"
#include <math.h>
#include <stdlib.h>
#include "quant/loss.h"

static const size_t lengths[] = {0, 1, 7, 8, 9, 15, 16, 17, 33, 1000, 4101};

/* A positive, zero, negative, denormal, infinite or NaN number; finite: none of the last two. */
static float
draw(test_rng *r, bool finite)
{
    switch (test_below(r, 12)) {
    case 0: return 0.0f;
    case 1: return -0.0f;
    case 2: return 1e-41f;
    case 3: return finite ? 3e38f : INFINITY;
    case 4: return finite ? -3e38f : NAN;
    default: return (float)(test_normal(r) * exp2(8 * test_normal(r)));
    }
}

static float *
drawn(test_rng *r, size_t n, bool finite)
{
    float *x = (float *)guard_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = draw(r, finite);
    return x;
}

static void
test_scores(void **state)
{
    (void)state;
    test_rng r = test_rng_new("loss scores");
    uint32_t cpus[8];
    const size_t levels = mill_cpus(cpus, CHECK_COUNT(cpus));
    for (size_t l = 0; l < CHECK_COUNT(lengths); l++) {
        const size_t n = lengths[l];
        float *v = drawn(&r, n, false), *w = drawn(&r, n, false), *score = (float *)guard_alloc(n * sizeof *score);
        for (size_t k = 0; k < levels; k++) {
            ckpi_loss_scores(score, v, w, n, cpus[k]);
            for (size_t i = 0; i < n; i++) {
                const float want = (v[i] > 0 ? sqrtf(v[i]) : 0) * fabsf(w[i]);
                assert_true(isnan(want) ? isnan(score[i]) : score[i] == want);
            }
        }
        guard_free(v);
        guard_free(w);
        guard_free(score);
    }
}

static void
test_sums(void **state)
{
    (void)state;
    test_rng r = test_rng_new("loss sums");
    uint32_t cpus[8];
    const size_t levels = mill_cpus(cpus, CHECK_COUNT(cpus));
    for (size_t l = 0; l < CHECK_COUNT(lengths); l++) {
        const size_t n = lengths[l];
        float *w = drawn(&r, n, true), *back = drawn(&r, n, true);
        ckpi_loss_sums first = {0};
        double err2 = 0, sum2 = 0, most = 0;
        for (size_t i = 0; i < n; i++) {
            const double x = (double)w[i], e = x - (double)back[i];
            err2 += e * e;
            sum2 += x * x;
            most = fmax(most, fabs(e));
        }
        for (size_t k = 0; k < levels; k++) {
            ckpi_loss_sums s = {NAN, NAN, NAN};
            ckpi_loss_of(&s, w, back, n, cpus[k]);
            first = k == 0 ? s : first;
            assert_memory_equal(&s, &first, sizeof s);
            assert_true(s.max_err == most);
            /* n roundings, either way */
            assert_true(fabs(s.err2 - err2) <= 1e-12 * err2 && fabs(s.sum2 - sum2) <= 1e-12 * sum2);
        }
        guard_free(w);
        guard_free(back);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores), cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
