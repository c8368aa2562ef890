/* SPDX-License-Identifier: Apache-2.0 */
/* The sketch: every counter on every ISA, quantiles within their promise, thresholds that cut off what they say, merging. */
#include "mill.h"
#include <math.h>
#include <stdlib.h>
#include "quant/sketch.h"

enum { LONG = 40000 };

typedef void fill_fn(test_rng *r, float *x, size_t n);

static void
fill_normal(test_rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(0.02 * test_normal(r));
}

static void
fill_wide(test_rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(test_normal(r) * exp2(20 * test_normal(r)));
}

static void
fill_zero(test_rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = test_below(r, 2) ? 0.0f : -0.0f;
}

static void
fill_two(test_rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = test_below(r, 3) ? -1.5f : 0.37f;
}

static void
fill_any(test_rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t b = (uint32_t)test_u64(r) & (test_below(r, 4) ? 0xffffffffu : 0x807fffffu);
        x[i] = ckpi_f32_from_bits(b);
    }
}

static fill_fn *const fills[] = {fill_normal, fill_wide, fill_zero, fill_two, fill_any};
static const size_t lengths[] = {0, 1, 2, 15, 16, 17, 2049, LONG};

static ckpi_sketch *
sketch_of(const float *x, const float *y, size_t n, uint32_t cpu)
{
    ckpi_sketch *s = ckpi_sketch_new();
    ckpi_scratch *ws = ckpi_scratch_new();
    assert_ok(y == NULL ? ckpi_sketch_add(s, x, n, ws, cpu, NULL) : ckpi_sketch_add_score(s, x, y, n, ws, cpu, NULL));
    ckpi_scratch_free(ws);
    return s;
}

/* By the page's words alone. */
static void
naive(ckpi_sketch *s, const float *x, const float *y, size_t n)
{
    ckpi_sketch_clear(s);
    for (size_t i = 0; i < n; i++) {
        const float v = y == NULL ? x[i] : fabsf(x[i] * y[i]);
        if (v == 0)
            s->zero++;
        else if (!isfinite(v))
            s->not_finite++;
        else
            s->count[v < 0 && fabsf(v) >= 0x1p-132f][(ckpi_f32_bits(v) & 0x7fffffffu) >> CKPI_SKETCH_SHIFT]++;
    }
}

static void
test_counters(void **state)
{
    (void)state;
    test_rng r = test_rng_new("sketch counters");
    uint32_t cpus[8];
    const size_t levels = mill_cpus(cpus, CHECK_COUNT(cpus));
    ckpi_sketch *want = ckpi_sketch_new();
    for (size_t f = 0; f < CHECK_COUNT(fills); f++) {
        for (size_t l = 0; l < CHECK_COUNT(lengths); l++) {
            const size_t n = lengths[l];
            float *x = (float *)guard_alloc(n * sizeof *x), *y = (float *)guard_alloc(n * sizeof *y);
            fills[f](&r, x, n);
            fills[(f + 1) % CHECK_COUNT(fills)](&r, y, n);
            for (size_t k = 0; k < 2 * levels; k++) {
                const float *second = k % 2 ? y : NULL;
                ckpi_sketch *s = sketch_of(x, second, n, cpus[k / 2]);
                naive(want, x, second, n);
                assert_memory_equal(s, want, sizeof *s);
                assert_true(ckpi_sketch_total(s) + s->not_finite == n);
                ckpi_sketch_free(s);
            }
            guard_free(x);
            guard_free(y);
        }
    }
    ckpi_sketch_free(want);
}

/* All in one, in two calls, or in two sketches. */
static void
test_merge(void **state)
{
    (void)state;
    test_rng r = test_rng_new("sketch merge");
    float *x = malloc(LONG * sizeof *x);
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t f = 0; f < CHECK_COUNT(fills); f++) {
        fills[f](&r, x, LONG);
        const size_t cut = test_below(&r, LONG);
        ckpi_sketch *one = sketch_of(x, NULL, LONG, 0), *two = sketch_of(x, NULL, cut, 0), *rest = sketch_of(x + cut, NULL, LONG - cut, 0);
        ckpi_sketch_merge(rest, two);
        assert_ok(ckpi_sketch_add(two, x + cut, LONG - cut, ws, ckpi_cpu(), NULL));
        assert_memory_equal(one, two, sizeof *one);
        assert_memory_equal(one, rest, sizeof *one);
        ckpi_sketch_free(one);
        ckpi_sketch_free(two);
        ckpi_sketch_free(rest);
    }
    ckpi_scratch_free(ws);
    free(x);
}

static int
rising(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void
assert_near(float got, float want)
{
    const float off = fabsf(got - want);
    if (fabsf(want) < 0x1p-132f)
        assert_true(off <= 0x1p-131f); /* neither sign nor place among the zeros is kept */
    else if (fabsf(want) < 0x1p-126f)
        assert_true(off <= 0x1p-133f);
    else
        assert_true(off <= fabsf(want) * 0.0079f);
}

static void
test_quantiles(void **state)
{
    (void)state;
    test_rng r = test_rng_new("sketch quantiles");
    static const double qs[] = {-1, 0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.9995, 1, 2};
    float *x = malloc(LONG * sizeof *x);
    for (size_t f = 0; f < CHECK_COUNT(fills); f++) {
        for (size_t l = 1; l < CHECK_COUNT(lengths); l++) {
            fills[f](&r, x, lengths[l]);
            size_t n = 0;
            for (size_t i = 0; i < lengths[l]; i++) {
                if (isfinite(x[i]))
                    x[n++] = x[i];
            }
            ckpi_sketch *s = sketch_of(x, NULL, n, ckpi_cpu());
            for (unsigned is_signed = 2; n != 0 && is_signed-- > 0;) {
                for (size_t i = 0; !is_signed && i < n; i++)
                    x[i] = fabsf(x[i]);
                qsort(x, n, sizeof *x, rising);
                for (size_t k = 0; k < CHECK_COUNT(qs); k++) {
                    const double q = fmin(fmax(qs[k], 0), 1);
                    assert_near(ckpi_sketch_quantile(s, qs[k], is_signed), x[(size_t)floor(q * (double)(n - 1))]);
                }
            }
            ckpi_sketch_free(s);
        }
    }
    free(x);
    ckpi_sketch *none = ckpi_sketch_new();
    assert_true(ckpi_sketch_quantile(none, 0.5, false) == 0 && ckpi_sketch_quantile(none, 0.5, true) == 0);
    ckpi_sketch_free(none);
}

static size_t
count_below(const float *x, size_t n, float t)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += fabsf(x[i]) < t;
    return count;
}

static void
test_thresholds(void **state)
{
    (void)state;
    test_rng r = test_rng_new("sketch thresholds");
    float *x = malloc(LONG * sizeof *x);
    for (size_t f = 0; f + 1 < CHECK_COUNT(fills); f++) { /* the finite ones */
        fills[f](&r, x, LONG);
        ckpi_sketch *s = sketch_of(x, NULL, LONG, ckpi_cpu());
        static const size_t most[] = {0, 1, 20, 4000, LONG / 2, LONG - 1, LONG};
        for (size_t k = 0; k < CHECK_COUNT(most); k++) {
            const float below = ckpi_sketch_below(s, most[k]), above = ckpi_sketch_above(s, most[k]);
            const float wider = ckpi_f32_from_bits(ckpi_f32_bits(below) + (1u << CKPI_SKETCH_SHIFT));
            const size_t under = count_below(x, LONG, below);
            assert_true(under <= most[k] && (isinf(below) || count_below(x, LONG, wider) > most[k]));
            assert_true(LONG - count_below(x, LONG, above) <= most[k]);
            assert_true(ckpi_sketch_from(s, below) == LONG - under);
            assert_true(ckpi_sketch_from(s, above) == LONG - count_below(x, LONG, above));
        }
        assert_true(ckpi_sketch_from(s, -1.0f) == LONG && ckpi_sketch_from(s, INFINITY) == 0);
        ckpi_sketch_free(s);
    }
    free(x);
}

/* Products of denormals and the like must not follow the caller's flush-to-zero. */
static void
test_denormals(void **state)
{
    (void)state;
    float g[20000], w[20000];
    for (size_t i = 0; i < CHECK_COUNT(g); i++) {
        g[i] = 0x1p-140f;
        w[i] = 0x1p10f;
    }
    for (uint32_t cpu = 0; cpu < 2; cpu++) {
        ckpi_sketch *s = sketch_of(g, w, CHECK_COUNT(g), cpu ? ckpi_cpu() : 0);
        assert_true(s->zero == 0 && s->count[0][4] == CHECK_COUNT(g));
        ckpi_sketch_free(s);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters),   cmocka_unit_test(test_merge),     cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_thresholds), cmocka_unit_test(test_denormals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
