/* SPDX-License-Identifier: Apache-2.0 */
/* Thresholds keep a share, whatever the size of moments and however they are distributed. */
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "engine/engine.h"
#include "engine/pack2.h"
#include "engine/threshold.h"
#include "harness/check.h"
#include "harness/seed.h"

enum { N = 60000 };

typedef struct moments { float m[N], v[N]; } moments;

static ckpi_reach
sample(const float *m, const float *v, double share)
{
    const ckpi_enc_in in = {.grid = {.n = N, .cols = 300, .rows = N / 300, .vstep = 512, .has_v = v != NULL}, .m = m, .v = v, .kc = 1.0F};
    ckpi_ctx *ctx = NULL;
    ckpi_reach r;
    assert_ok(ckpi_ctx_new(&ctx, 1, false, NULL));
    assert_ok(ckpi_threshold_sample(&r, &in, share, ctx->ws[0], NULL));
    ckpi_ctx_free(ctx);
    return r;
}

static double
beyond(const float *m, const float *v, float t)
{
    size_t n = 0;
    for (size_t i = 0; i < N; i++)
        n += fabs((double)m[i]) / (v != NULL ? sqrt((double)v[i]) : 1.0) > (double)t;
    return (double)n / N;
}

static void
a_share_is_kept_at_any_size(void **state)
{
    (void)state;
    test_rng r = test_rng_new("threshold");
    moments *x = malloc(sizeof *x);
    assert_non_null(x);
    for (int tails = 0; tails < 3; tails++)
        for (double size = 1e-12; size < 1e12; size *= 1e4) {
            for (size_t i = 0; i < N; i++) {
                const double u = tails == 0 ? test_normal(&r) : tails == 1 ? test_unit(&r) - 0.5 : test_normal(&r) * exp(test_normal(&r));
                x->v[i] = (float)exp(2.0 * test_normal(&r));
                x->m[i] = (float)(size * u * sqrt((double)x->v[i]));
            }
            const double kept = beyond(x->m, x->v, sample(x->m, x->v, 0.02).threshold);
            assert_true(kept > 0.008 && kept < 0.04);
        }
    free(x);
}

/* All zero, all of one size, few that are not zero, none that is finite, one that is far out. */
static void
odd_ones(void **state)
{
    (void)state;
    moments *x = calloc(1, sizeof *x);
    assert_non_null(x);
    ckpi_reach r = sample(x->m, NULL, 0.01);
    assert_true(r.threshold > 0.0F && r.largest == 0.0F);
    for (size_t i = 0; i < N; i++)
        x->m[i] = i % 2 == 0 ? 3e-3F : -3e-3F;
    r = sample(x->m, NULL, 0.01);
    assert_true(beyond(x->m, NULL, r.threshold) == 1.0);
    x->m[777] = 1e6F;
    assert_true(beyond(x->m, NULL, sample(x->m, NULL, 0.01).threshold) == 1.0);
    for (size_t i = 0; i < N; i++)
        x->m[i] = i % 1000 == 0 ? 1.0F : 0.0F;
    r = sample(x->m, NULL, 0.01);
    assert_true(r.threshold > 0.0F && r.threshold < 1.0F);
    for (size_t i = 0; i < N; i++)
        x->m[i] = NAN;
    r = sample(x->m, NULL, 0.01);
    assert_true(r.threshold > 0.0F && r.largest == 0.0F);
    free(x);
}

static void
following_comes_back_to_the_share(void **state)
{
    (void)state;
    test_rng r = test_rng_new("follow");
    float *m = malloc(N * sizeof *m);
    assert_non_null(m);
    for (size_t i = 0; i < N; i++)
        m[i] = (float)test_normal(&r);
    for (float t = 0.3F; t < 40.0F; t *= 5.0F) {
        float at = t;
        for (int save = 0; save < 12; save++)
            at = ckpi_threshold_follow(at, (uint64_t)(beyond(m, NULL, at) * N + 0.5), N, 0.01);
        /* what keeps more than a fifth is left as it is */
        assert_true(beyond(m, NULL, t) > 0.2 ? at == t : fabs(beyond(m, NULL, at) - 0.01) < 0.004);
    }
    free(m);
}

static void
kept_are_counted(void **state)
{
    (void)state;
    test_rng r = test_rng_new("count");
    int8_t code[300];
    uint8_t packed[CKPI_PACK2_BYTES(300)];
    for (size_t n = 0; n <= 300; n++) {
        uint64_t want = 0;
        for (size_t i = 0; i < n; i++) {
            code[i] = (int8_t)((int)test_below(&r, 3) - 1);
            want += code[i] != 0;
        }
        ckpi_pack2(packed, code, n);
        assert_int_equal(ckpi_threshold_kept(packed, n), want);
    }
}

static void
a_kept_value_stands_for_so_much_at_most(void **state)
{
    (void)state;
    assert_true(ckpi_threshold_bound(3.0F, 0.5F, 1.0F) == 3.0F);
    assert_true(ckpi_threshold_bound(1e6F, 0.5F, 1.0F) == 16.0F);
    assert_true(ckpi_threshold_bound(1e6F, 0.5F, 2.0F) == 8.0F);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_is_kept_at_any_size), cmocka_unit_test(odd_ones),         cmocka_unit_test(following_comes_back_to_the_share),
        cmocka_unit_test(kept_are_counted),            cmocka_unit_test(a_kept_value_stands_for_so_much_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
