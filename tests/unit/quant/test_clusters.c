/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters of optimizer states: what comes back, how near it is, what does not change, and what is refused. */
#include "quant/clusters.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/float.h"
#include "harness/check.h"
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "harness/seed.h"

enum { N = 20011 };

static const ckpi_clusters_kind kinds[] = {CKPI_CLUSTERS_AFFINE, CKPI_CLUSTERS_CENTRES};

typedef struct coded { ckpi_clusters c; uint16_t code[N]; ckpi_escapes esc; ckpi_clusters_loss loss; float back[N]; } coded;

static void
round_trip(coded *r, ckpi_clusters_kind kind, const float *x, size_t n)
{
    ckpi_scratch *ws = ckpi_scratch_new();
    r->esc = (ckpi_escapes){0};
    r->loss = (ckpi_clusters_loss){0};
    assert_ok(ckpi_clusters_encode(&r->c, kind, x, n, 7, r->code, &r->esc, &r->loss, ws, NULL));
    assert_true(ckpi_clusters_valid(&r->c));
    assert_ok(ckpi_clusters_decode(&r->c, r->code, n, r->back, NULL));
    for (size_t i = 0; i < n; i++)
        assert_true(isfinite(r->back[i]) && (kind == CKPI_CLUSTERS_AFFINE || r->code[i] < 256));
    ckpi_scratch_free(ws);
}

/* Second moments over thirty octaves: positive stays positive, near in its own size. */
static void
test_second_moments(void **state)
{
    (void)state;
    static float x[N];
    static coded r;
    test_rng g = test_rng_new("clusters v");
    for (size_t i = 0; i < N; i++)
        x[i] = i % 11 == 0 ? 0.0F : (float)exp2(-40.0 + 15.0 * test_normal(&g));
    round_trip(&r, CKPI_CLUSTERS_AFFINE, x, N);
    double rel = 0.0, most = 0.0, err2 = 0.0;
    for (size_t i = 0; i < N; i++) {
        assert_true((x[i] == 0) == (r.back[i] == 0) && r.back[i] >= 0);
        const double e = fabs((double)x[i] - (double)r.back[i]);
        err2 += e * e;
        rel += x[i] != 0 ? e / (double)x[i] : 0.0;
        most = x[i] != 0 ? fmax(most, e / (double)x[i]) : most;
    }
    assert_true(rel / N < 1e-3);
    assert_true(fabs(r.loss.rel / rel - 1.0) < 1e-12 && r.loss.max_rel == most && fabs(r.loss.err2 / err2 - 1.0) < 1e-12);
    assert_int_equal(r.loss.n, N);
    assert_int_equal(r.loss.n_rel, N - (N + 10) / 11);
    ckpi_escapes_free(&r.esc);
}

/* First moments: both signs. 16 bits lose a hundred times less than 8. */
static void
test_first_moments(void **state)
{
    (void)state;
    static float x[N];
    static coded r[2];
    test_rng g = test_rng_new("clusters m");
    double sum2 = 0.0;
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)(1e-3 * test_normal(&g) * exp(test_normal(&g)));
        sum2 += (double)x[i] * (double)x[i];
    }
    for (size_t k = 0; k < 2; k++) {
        round_trip(&r[k], kinds[k], x, N);
        ckpi_escapes_free(&r[k].esc);
    }
    assert_true(r[0].loss.rel / N < 2e-4);
    assert_true(sqrt(r[0].loss.err2 / sum2) < 5e-4);
    assert_true(sqrt(r[1].loss.err2 / sum2) < 2e-2);
    assert_true(r[1].loss.err2 > 100.0 * r[0].loss.err2);
    for (size_t i = 0; i < N; i++)
        assert_true(x[i] * r[0].back[i] >= 0);
}

/* Up to 255 values in buckets of their own come back exactly, of either kind; so do all zeros, one value, the largest and the least. */
static void
test_few_values(void **state)
{
    (void)state;
    static float x[N];
    static coded r;
    static const float odd[] = {0x1p-149F, -0x1p-149F, FLT_MAX, -FLT_MAX, 1.0F, -1.0F, 0x1p-126F};
    test_rng g = test_rng_new("clusters few");
    for (unsigned values = 0; values <= 255; values += values < 8 ? 1 : 13) {
        for (size_t i = 0; i < N; i++) {
            const unsigned k = values == 0 ? 0 : (unsigned)test_below(&g, values) + 1;
            x[i] = k == 0 ? 0.0F : k <= 7 ? odd[k - 1] : (k & 1 ? 1.0F : -1.0F) * (float)exp2((double)k / 4.0 - 50.0);
        }
        for (size_t k = 0; k < 2; k++) {
            round_trip(&r, kinds[k], x, N);
            for (size_t i = 0; i < N; i++)
                if (k == 0 || fabsf(x[i]) < 1e38F)       /* of a mean in fp32, the last bit */
                    assert_true(fabs((double)r.back[i] - (double)x[i]) <= (k == 0 ? 0.0 : 1e-7 * fabs((double)x[i])));
            ckpi_escapes_free(&r.esc);
        }
    }
}

/* What is not finite is an escape, by its bits, and disturbs nobody. */
static void
test_escapes(void **state)
{
    (void)state;
    static float x[N], clean[N];
    static coded r, want;
    static const uint32_t odd[] = {0x7fc00000, 0xff800000, 0x7f800000, 0x7f800001, 0xffffffff};
    test_rng g = test_rng_new("clusters escapes");
    size_t n = 0;
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)test_normal(&g);
        if (i % 97 == 5)
            x[i] = ckpi_f32_from_bits(odd[i % CHECK_COUNT(odd)]);
        else
            clean[n++] = x[i];
    }
    for (size_t k = 0; k < 2; k++) {
        round_trip(&r, kinds[k], x, N);
        round_trip(&want, kinds[k], clean, n);
        assert_memory_equal(&r.c, &want.c, sizeof r.c);
        assert_int_equal(r.esc.n, N - n);
        assert_int_equal(r.loss.n_nan + r.loss.n_inf, N - n);
        for (size_t i = 0; i < r.esc.n; i++)
            assert_int_equal(r.esc.at[i].bits, ckpi_f32_bits(x[r.esc.at[i].index - 7]));
        ckpi_escapes_free(&r.esc);
        ckpi_escapes_free(&want.esc);
    }
    for (size_t i = 0; i < 100; i++)
        x[i] = NAN;
    round_trip(&r, CKPI_CLUSTERS_AFFINE, x, 100);
    assert_int_equal(r.esc.n, 100);
    assert_int_equal(r.c.k, 1);
    ckpi_escapes_free(&r.esc);
}

/* No value is better off in a neighbouring cluster's centre by more than a bucket's width; and clusters beat even ones in value and in logarithm. */
static void
test_better_than_even(void **state)
{
    (void)state;
    static float x[N];
    static coded r;
    test_rng g = test_rng_new("clusters even");
    for (size_t i = 0; i < N; i++)
        x[i] = (float)exp2(4.0 * test_normal(&g));
    round_trip(&r, CKPI_CLUSTERS_CENTRES, x, N);
    ckpi_escapes_free(&r.esc);
    double low = INFINITY, high = 0.0, even = 0.0, in_log = 0.0;
    for (size_t i = 0; i < N; i++) {
        low = fmin(low, (double)x[i]);
        high = fmax(high, (double)x[i]);
    }
    for (size_t i = 0; i < N; i++) {
        const double a = low + (floor(((double)x[i] - low) / (high - low) * 255.999) + 0.5) * (high - low) / 256.0;
        const double l = log2((double)x[i] / low) / log2(high / low), b = low * exp2((floor(l * 255.999) + 0.5) / 256.0 * log2(high / low));
        even += (a - (double)x[i]) * (a - (double)x[i]);
        in_log += (b - (double)x[i]) * (b - (double)x[i]);
    }
    assert_true(r.loss.err2 < 0.5 * even && r.loss.err2 < 0.5 * in_log);
}

static void
test_refused(void **state)
{
    (void)state;
    ckpi_clusters c = {.kind = CKPI_CLUSTERS_AFFINE, .k = 3, .low = {1, 2, 3}, .step = {0.5F, 0, 0.25F}};
    uint16_t code[4] = {0x0000, 0xff02, 0x1001, 0x0003};
    float x[4];
    assert_true(ckpi_clusters_valid(&c));
    assert_ok(ckpi_clusters_decode(&c, code, 3, x, NULL));
    assert_true(x[0] == 1 && x[1] == 3 + 255 * 0.25F && x[2] == 2);
    assert_status(ckpi_clusters_decode(&c, code, 4, x, NULL), CKP_ECORRUPT);
#define BAD(change)                           \
    do {                                      \
        ckpi_clusters b = c;                  \
        b.change;                             \
        assert_false(ckpi_clusters_valid(&b)); \
    } while (0)
    BAD(k = 0);
    BAD(k = 257);
    BAD(kind = (ckpi_clusters_kind)3);
    BAD(low[1] = NAN);
    BAD(low[2] = INFINITY);
    BAD(step[0] = -1);
    BAD(step[0] = NAN);
    BAD(step[2] = FLT_MAX);
#undef BAD
}

/* Nothing is read or written beyond the ends. */
static void
test_flush(void **state)
{
    (void)state;
    test_rng g = test_rng_new("clusters flush");
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t n = 1; n < 40; n++) {
        float *x = (float *)(void *)guard_alloc(n * sizeof *x), *back = (float *)(void *)guard_alloc(n * sizeof *back);
        uint16_t *code = (uint16_t *)(void *)guard_alloc(n * sizeof *code);
        for (size_t i = 0; i < n; i++)
            x[i] = (float)test_normal(&g);
        for (size_t k = 0; k < 2; k++) {
            ckpi_clusters c;
            ckpi_escapes esc = {0};
            ckpi_clusters_loss loss = {0};
            assert_ok(ckpi_clusters_encode(&c, kinds[k], x, n, 0, code, &esc, &loss, ws, NULL));
            assert_ok(ckpi_clusters_decode(&c, code, n, back, NULL));
            ckpi_escapes_free(&esc);
        }
        guard_free(x);
        guard_free(back);
        guard_free(code);
    }
    ckpi_scratch_free(ws);
}

static ckp_status
with_memory(void *user)
{
    float *x = user;
    static coded r;
    ckpi_scratch *ws = ckpi_scratch_new();
    if (ws == NULL)
        return CKP_ENOMEM;
    r.esc = (ckpi_escapes){0};
    r.loss = (ckpi_clusters_loss){0};
    const ckp_status st = ckpi_clusters_encode(&r.c, CKPI_CLUSTERS_AFFINE, x, 1000, 0, r.code, &r.esc, &r.loss, ws, NULL);
    ckpi_escapes_free(&r.esc);
    ckpi_scratch_free(ws);
    return st;
}

static void
test_memory(void **state)
{
    (void)state;
    float x[1000];
    for (size_t i = 0; i < 1000; i++)
        x[i] = i % 100 == 0 ? NAN : (float)i;
    (void)failalloc_run(with_memory, x, 3, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_moments), cmocka_unit_test(test_first_moments), cmocka_unit_test(test_few_values), cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_better_than_even), cmocka_unit_test(test_refused), cmocka_unit_test(test_flush), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
