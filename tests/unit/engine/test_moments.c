/* SPDX-License-Identifier: Apache-2.0 */
/* Steps follow the size of moments, and a group's chunk has what three values and directions make of them, piece by piece. */
#include "engine/moments.h"
#include "base/cpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "harness/check.h"
#include "harness/seed.h"

enum { N = 60000 };

static ckpi_reach
sample(const float *m, const float *v)
{
    const ckpi_enc_in in = {.grid = {.n = N, .cols = 300, .rows = N / 300, .vstep = 512, .has_v = v != NULL}, .m = m, .v = v, .kc = 1.0F};
    ckpi_reach r;
    ckpi_moments_sample(&r, &in);
    return r;
}

/* About 12 steps are the RMS of a normal distribution; heavy tails still have room. */
static void
steps_follow_any_size(void **state)
{
    (void)state;
    test_rng r = test_rng_new("steps");
    float *m = malloc(N * sizeof *m), *v = malloc(N * sizeof *v);
    assert_true(m != NULL && v != NULL);
    for (int tails = 0; tails < 2; tails++)
        for (double size = 1e-12; size < 1e12; size *= 1e4) {
            size_t clamped = 0;
            for (size_t i = 0; i < N; i++) {
                const double u = tails == 0 ? test_normal(&r) : test_normal(&r) * exp(test_normal(&r));
                v[i] = (float)exp(2.0 * test_normal(&r));
                m[i] = (float)(size * u * sqrt((double)v[i]));
            }
            const ckpi_reach reach = sample(m, v);
            assert_true((double)reach.largest > size);
            assert_true(tails != 0 || ((double)reach.step > size / 14.0 && (double)reach.step < size / 10.0));
            for (size_t i = 0; i < N; i++)
                clamped += fabs((double)m[i]) / sqrt((double)v[i]) > 127.0 * (double)reach.step;
            assert_true(clamped < N / 500);
        }
    free(m);
    free(v);
}

/* All zero, few that are not zero, one whom the sample misses, none that is finite, without v. */
static void
odd_ones(void **state)
{
    (void)state;
    float *m = calloc(N, sizeof *m);
    assert_non_null(m);
    ckpi_reach r = sample(m, NULL);
    assert_true(r.step == 0.0F && r.largest == 0.0F);
    m[777] = -1e-30F;
    r = sample(m, NULL);
    assert_true(r.step > 0.0F && r.largest == 1e-30F);
    for (size_t i = 0; i < N; i++)
        m[i] = i % 1000 == 0 ? 1.0F : 0.0F;
    r = sample(m, NULL);
    assert_true(r.step > 0.01F && r.step < 0.1F);
    for (size_t i = 0; i < N; i++)
        m[i] = i % 2 == 0 ? NAN : INFINITY;
    r = sample(m, NULL);
    assert_true(r.step == 0.0F && r.largest == 0.0F);
    for (size_t i = 0; i < N; i++)
        m[i] = 3e38F;
    r = sample(m, NULL);
    assert_true(r.step > 0.0F && isfinite(r.step) && isfinite(r.largest));
    free(m);
    const ckpi_enc_in none = {.kc = 1.0F};
    ckpi_moments_sample(&r, &none);
    assert_true(r.step == 0.0F);
}

/* A matrix of one direction, a vector, a matrix of nothing. */
static void
pieces_have_their_own(void **state)
{
    enum { ROWS = 200, COLS = 300, LONG = 5000 };
    ckpi_piece piece[3] = {{0, 0, ROWS * COLS}, {1, 0, LONG}, {2, 0, 64 * 64}};
    const size_t cols[3] = {COLS, 0, 64};
    const float step[3] = {0.5F, 2.0F, 1.0F}, share[3] = {0.05F, 0.05F, 0.05F};
    ckpi_group g = {.has_v = true, .piece = piece, .n_pieces = 3, .n = ROWS * COLS + LONG + 64 * 64};
    (void)state;
    test_rng r = test_rng_new("pieces");
    ckpi_scratch *ws = ckpi_scratch_new();
    ckpi_factors fac;
    ckpi_moments m;
    int8_t *u = calloc((size_t)g.n, 1);
    assert_non_null(u);
    for (size_t i = 0; i < ROWS * COLS; i++)
        u[i] = (int8_t)((i / COLS % 2 == 0 ? 30 : -30) * (i % COLS % 3 == 0 ? 1 : -1) + (int)test_below(&r, 9));
    for (size_t i = 0; i < LONG; i++)
        u[ROWS * COLS + i] = (int8_t)test_below(&r, 256);
    assert_ok(ckpi_factors_alloc(&fac, piece, cols, 3, 512, NULL));
    assert_ok(ckpi_moments_code(&m, &g, &fac, u, step, share, ws, ckpi_cpu(), NULL));
    assert_true(m.low != NULL && m.low[0].rank == 1 && m.low[1].rank == 0 && m.low[2].rank == 0);
    float *y = malloc(ROWS * COLS * sizeof *y);
    assert_non_null(y);
    ckpi_low_values(&m.low[0], ROWS * COLS, y, ckpi_cpu());
    for (size_t i = 0; i < ROWS * COLS; i++)
        assert_true(fabs((double)y[i] - 0.5 * (double)u[i]) < 0.5 * 14.0);
    assert_true(m.mg[1] > 2.0F * 127.0F && m.mg[2] == 0.0F);
    for (size_t i = ROWS * COLS + LONG; i < g.n; i++)
        assert_int_equal(m.code[i], 0);
    /* as they were staged */
    assert_ok(ckpi_moments_code(&m, &g, &fac, u, step, NULL, ws, ckpi_cpu(), NULL));
    assert_true(m.low == NULL && m.code == u);
    assert_memory_equal(m.mg, step, sizeof step);
    /* momentum has no directions */
    g.has_v = false;
    assert_ok(ckpi_moments_code(&m, &g, &fac, u, step, share, ws, ckpi_cpu(), NULL));
    assert_true(m.low == NULL && m.mg[0] > 0.0F);
    free(y);
    free(u);
    ckpi_factors_free(&fac);
    ckpi_scratch_free(ws);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_follow_any_size), cmocka_unit_test(odd_ones), cmocka_unit_test(pieces_have_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
