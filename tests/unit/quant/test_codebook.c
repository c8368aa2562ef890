/* SPDX-License-Identifier: Apache-2.0 */
/* Codebooks: the best there is (against trying all), the nearest centre on every ISA, few values exactly, when to keep one. */
#include "mill.h"
#include <math.h>
#include <stdlib.h>
#include "harness/failalloc.h"
#include "quant/codebook.h"

enum { N = 20011 };

static ckpi_points
points_of_floats(const float *x, size_t n, float from, float below, ckpi_scratch *ws)
{
    ckpi_sketch *s = ckpi_sketch_new();
    ckpi_points p;
    assert_ok(ckpi_sketch_add(s, x, n, ws, ckpi_cpu(), NULL));
    assert_ok(ckpi_points_of(&p, s, from, below, ws, NULL));
    ckpi_sketch_free(s);
    return p;
}

static void
draw_points(test_rng *r, ckpi_points *p, size_t n)
{
    float x = -3;
    p->n = n;
    for (size_t i = 0; i < n; i++) {
        x += (float)(0.01 + test_unit(r));
        p->x[i] = test_below(r, 50) == 0 ? x + 500 : x;
        x = p->x[i];
        p->weight[i] = 1 + (double)test_below(r, 1000);
    }
}

/* Least error of k cells over points [0, n), by trying all. */
static double
brute(const ckpi_points *p, size_t n, unsigned k)
{
    if (n == 0)
        return 0;
    double least = INFINITY;
    for (size_t i = k == 1 ? 0 : n; i-- > (k == 1 ? 0 : (size_t)k - 1) || k == 1;) {
        const size_t begin = k == 1 ? 0 : i;
        double w = 0, x = 0, e = 0;
        for (size_t j = begin; j < n; j++) {
            w += p->weight[j];
            x += p->weight[j] * (double)p->x[j];
        }
        for (size_t j = begin; j < n; j++)
            e += p->weight[j] * ((double)p->x[j] - x / w) * ((double)p->x[j] - x / w);
        least = fmin(least, e + (k == 1 ? 0 : brute(p, begin, k - 1)));
        if (k == 1)
            break;
    }
    return least;
}

static double
energy(const ckpi_points *p)
{
    double sum = 0;
    for (size_t i = 0; i < p->n; i++)
        sum += p->weight[i] * (double)p->x[i] * (double)p->x[i];
    return sum;
}

static void
test_best(void **state)
{
    (void)state;
    test_rng r = test_rng_new("codebook best");
    float x[14];
    double weight[14];
    ckpi_scratch *ws = ckpi_scratch_new();
    for (unsigned round = 0; round < 60; round++) {
        ckpi_points p = {.x = x, .weight = weight};
        draw_points(&r, &p, 1 + round % 14);
        ckpi_codebook_fit f;
        assert_ok(ckpi_codebook_fit_all(&f, &p, 5, ws, NULL));
        assert_int_equal(f.most, p.n < 5 ? p.n : 5);
        for (uint32_t k = 1; k <= f.most; k++) {
            ckpi_codebook cb;
            ckpi_codebook_take(&cb, &f, k);
            assert_int_equal(cb.k, k);
            assert_true(ckpi_codebook_valid(&cb));
            /* differences of sums of squares: exact to some ulps of those */
            const double want = brute(&p, p.n, k), tiny = 1e-9 * brute(&p, p.n, 1) + 1e-14 * energy(&p);
            assert_true(fabs(f.error[k] - want) <= tiny);
            assert_true(fabs(ckpi_codebook_error(&cb, &p) - want) <= 1e-6 * brute(&p, p.n, 1) + 1e-12);
        }
        ckpi_scratch_reset(ws);
    }
    ckpi_scratch_free(ws);
}

/* More levels are never worse; one outlier costs the others nothing but its level. */
static void
test_outlier(void **state)
{
    (void)state;
    test_rng r = test_rng_new("codebook outlier");
    float *x = malloc(N * sizeof *x);
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t i = 0; i < N; i++)
        x[i] = (float)test_normal(&r);
    ckpi_points p = points_of_floats(x, N, 0, INFINITY, ws);
    ckpi_codebook_fit plain, far;
    assert_ok(ckpi_codebook_fit_all(&plain, &p, 32, ws, NULL));
    x[77] = -1e30f;
    ckpi_points q = points_of_floats(x, N, 0, INFINITY, ws);
    assert_ok(ckpi_codebook_fit_all(&far, &q, 32, ws, NULL));
    for (uint32_t k = 2; k <= 32; k++) {
        assert_true(plain.error[k] < plain.error[k - 1]);
        if (k > 2)
            assert_true(far.error[k] < 1.01 * plain.error[k - 1] && far.error[k] > 0.99 * plain.error[k - 1]);
    }
    ckpi_codebook cb;
    ckpi_codebook_take(&cb, &far, 32);
    assert_true(cb.centre[0] < -0.99e30f && cb.centre[1] > -10);
    ckpi_scratch_free(ws);
    free(x);
}

static void
test_few_points(void **state)
{
    (void)state;
    ckpi_scratch *ws = ckpi_scratch_new();
    ckpi_codebook_fit f;
    ckpi_codebook cb;
    ckpi_points none = points_of_floats(NULL, 0, 0, INFINITY, ws);
    assert_ok(ckpi_codebook_fit_all(&f, &none, 32, ws, NULL));
    ckpi_codebook_take(&cb, &f, 32);
    assert_true(cb.k == 0 && ckpi_codebook_valid(&cb) && ckpi_codebook_error(&cb, &none) == 0);
    static const float some[] = {0, 0, 3, NAN, INFINITY, -0.0f, -7, 0x1p-140f};
    ckpi_points p = points_of_floats(some, CHECK_COUNT(some), 0, INFINITY, ws);
    assert_int_equal(p.n, 4);
    assert_true(p.x[1] == 0 && p.weight[1] == 3);
    assert_ok(ckpi_codebook_fit_all(&f, &p, 32, ws, NULL));
    ckpi_codebook_take(&cb, &f, 32);
    assert_true(cb.k == 4 && cb.centre[1] == 0 && ckpi_codebook_valid(&cb));
    p = points_of_floats(some, CHECK_COUNT(some), 1, 4, ws);
    assert_true(p.n == 1 && p.x[0] > 2.97f && p.x[0] < 3.03f);
    assert_status(ckpi_codebook_fit_all(&f, &p, 0, ws, NULL), CKP_EINVAL);
    assert_status(ckpi_codebook_fit_all(&f, &p, 33, ws, NULL), CKP_EINVAL);
    ckpi_scratch_free(ws);
}

/* The paper's weights move levels outwards. */
static void
test_mix(void **state)
{
    (void)state;
    test_rng r = test_rng_new("codebook mix");
    float *x = malloc(N * sizeof *x);
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t i = 0; i < N; i++)
        x[i] = (float)test_normal(&r);
    ckpi_points p = points_of_floats(x, N, 0, INFINITY, ws);
    ckpi_codebook plain, mixed;
    ckpi_codebook_fit f;
    assert_ok(ckpi_codebook_fit_all(&f, &p, 8, ws, NULL));
    ckpi_codebook_take(&plain, &f, 8);
    ckpi_points_mix(&p, 0.2);
    assert_ok(ckpi_codebook_fit_all(&f, &p, 8, ws, NULL));
    ckpi_codebook_take(&mixed, &f, 8);
    assert_true(mixed.centre[7] > plain.centre[7] && mixed.centre[0] < plain.centre[0]);
    ckpi_scratch_free(ws);
    free(x);
}

/* ---- assignment --------------------------------------------------------------------------------------------------------- */

static ckpi_codebook
draw_codebook(test_rng *r, uint32_t k)
{
    ckpi_codebook cb = {.k = k};
    float x = -2;
    for (uint32_t i = 0; i < k; i++) {
        x = test_below(r, 5) == 0 ? nextafterf(x, INFINITY) : x + (float)(test_unit(r) * 8 / k);
        cb.centre[i] = x > -2 ? x : nextafterf(x, INFINITY);
        x = cb.centre[i];
    }
    return cb;
}

static void
draw_values(test_rng *r, float *x, size_t n, const ckpi_codebook *cb)
{
    static const float odd[] = {0, -0.0f, NAN, INFINITY, -INFINITY, 0x1p-149f, -0x1p-130f, 3.4e38f, -3.4e38f};
    for (size_t i = 0; i < n; i++) {
        const uint64_t kind = test_below(r, 12);
        if (kind == 0)
            x[i] = odd[test_below(r, CHECK_COUNT(odd))];
        else if (kind < 3 && cb->k != 0)
            x[i] = cb->centre[test_below(r, cb->k)];
        else if (kind < 4 && cb->k > 1) {
            const size_t at = test_below(r, cb->k - 1);
            x[i] = cb->centre[at] * 0.5f + cb->centre[at + 1] * 0.5f;
        } else
            x[i] = (float)(2 * test_normal(r));
    }
}

static bool
is_kept(const ckpi_partition *part, float x, float score, bool scored)
{
    return !isfinite(x) || fabsf(x) >= part->keep_from || (scored && !(score < part->keep_score_from));
}

static void
check_codes(const ckpi_codebook *cb, const ckpi_partition *part, const float *x, const float *g, size_t n, const int8_t *code)
{
    for (size_t i = 0; i < n; i++) {
        const float score = g == NULL ? 0 : part->g_is_score ? fabsf(g[i]) : fabsf(g[i] * x[i]);
        if (is_kept(part, x[i], score, g != NULL)) {
            assert_int_equal(code[i], cb->k + 1);
            continue;
        }
        if ((part->prune_by_score && g != NULL ? score : fabsf(x[i])) < part->prune_below) {
            assert_int_equal(code[i], 0);
            continue;
        }
        assert_in_range(code[i], 1, cb->k != 0 ? cb->k : 1);
        for (uint32_t k = 0; k < cb->k; k++) {
            const double mine = fabs((double)x[i] - (double)cb->centre[code[i] - 1]), other = fabs((double)x[i] - (double)cb->centre[k]);
            assert_true(mine <= other * (1 + 1e-6) + 1e-6); /* the border is rounded */
        }
    }
}

static void
check_decode(const ckpi_codebook *cb, const float *x, const int8_t *code, size_t n, const uint16_t *kept, size_t n_kept)
{
    float *back = malloc((n + 1) * sizeof *back);
    assert_ok(ckpi_codebook_decode(cb, code, n, kept, n_kept, back, NULL));
    for (size_t i = 0; i < n; i++) {
        if (code[i] == 0)
            assert_true(back[i] == 0 && !signbit(back[i]));
        else if ((uint32_t)code[i] <= cb->k)
            assert_true(back[i] == cb->centre[code[i] - 1]);
        else if (isfinite(x[i]))
            assert_true(isfinite(back[i]) && fabs((double)back[i] - (double)x[i]) <= 0.004 * fabs((double)x[i]) + 1e-38);
        else
            assert_true(isnan(x[i]) ? isnan(back[i]) : back[i] == x[i]);
    }
    if (n_kept != 0)
        assert_status(ckpi_codebook_decode(cb, code, n, kept, n_kept - 1, back, NULL), CKP_ECORRUPT);
    assert_status(ckpi_codebook_decode(cb, code, n, kept, n_kept + 1, back, NULL), CKP_ECORRUPT);
    int8_t *bad = malloc(n + 1);
    memcpy(bad, code, n);
    for (unsigned k = 0; n != 0 && k < 2; k++) {
        bad[n / 2] = k ? -1 : (int8_t)(cb->k + 2);
        assert_status(ckpi_codebook_decode(cb, bad, n, kept, n_kept, back, NULL), CKP_ECORRUPT);
    }
    free(bad);
    free(back);
}

static void
one_assignment(test_rng *r, uint32_t k, size_t n, const ckpi_partition *part, bool scored)
{
    uint32_t cpus[8];
    const size_t levels = mill_cpus(cpus, CHECK_COUNT(cpus));
    const ckpi_codebook cb = draw_codebook(r, k);
    float *x = (float *)guard_alloc(n * sizeof *x), *g = scored ? (float *)guard_alloc(n * sizeof *g) : NULL;
    int8_t *code[2] = {(int8_t *)guard_alloc(n), (int8_t *)guard_alloc(n)};
    uint16_t *kept[2] = {(uint16_t *)guard_alloc(2 * n), (uint16_t *)guard_alloc(2 * n)};
    size_t count[2] = {0};
    draw_values(r, x, n, &cb);
    if (scored)
        draw_values(r, g, n, &cb);
    for (size_t i = 0; i < levels; i++) {
        const size_t at = i != 0;
        count[at] = ckpi_codebook_assign(&cb, part, x, g, n, code[at], kept[at], cpus[i]);
        if (n == 0)
            continue;
        assert_int_equal(count[at], count[0]);
        assert_memory_equal(code[at], code[0], n);
        if (count[0] != 0)
            assert_memory_equal(kept[at], kept[0], count[0] * sizeof(uint16_t));
    }
    check_codes(&cb, part, x, g, n, code[0]);
    check_decode(&cb, x, code[0], n, kept[0], count[0]);
    for (unsigned i = 0; i < 2; i++) {
        guard_free(code[i]);
        guard_free(kept[i]);
    }
    guard_free(x);
    guard_free(g);
}

static void
test_assign(void **state)
{
    (void)state;
    test_rng r = test_rng_new("codebook assign");
    static const uint32_t ks[] = {0, 1, 2, 3, 4, 8, 12, 16, 17, 31, 32};
    static const size_t lengths[] = {0, 1, 15, 16, 31, 33, 1000, 4099};
    static const ckpi_partition parts[] = {
        {0, false, INFINITY, INFINITY, false}, {0.5f, false, 3, INFINITY, false}, {0.2f, true, INFINITY, 4, false}, {0.2f, true, 2.5f, 3, false},
        {INFINITY, false, INFINITY, INFINITY, false}, {0, false, 0, 0, false}, {0.2f, true, 2.5f, 3, true}, {0.5f, false, INFINITY, 2, true},
    };
    for (size_t k = 0; k < CHECK_COUNT(ks); k++) {
        for (size_t l = 0; l < CHECK_COUNT(lengths); l++) {
            for (size_t p = 0; p < CHECK_COUNT(parts); p++) {
                one_assignment(&r, ks[k], lengths[l], &parts[p], false);
                one_assignment(&r, ks[k], lengths[l], &parts[p], true);
            }
        }
    }
}

/* ---- recentring, keeping ----------------------------------------------------------------------------------------------------- */

static void
recentre(ckpi_codebook *cb, const float *x, size_t n, size_t cut)
{
    static const ckpi_partition all = {0, false, INFINITY, INFINITY, false};
    int8_t *code = malloc(n + 1);
    uint16_t *kept = malloc(2 * n + 1);
    ckpi_level_sums a = {0}, b = {0};
    assert_int_equal(ckpi_codebook_assign(cb, &all, x, NULL, n, code, kept, ckpi_cpu()), 0);
    ckpi_level_sums_add(&a, x, code, cut);
    ckpi_level_sums_add(&b, x + cut, code + cut, n - cut);
    ckpi_level_sums_merge(&a, &b);
    ckpi_codebook_recentre(cb, &a);
    assert_true(ckpi_codebook_valid(cb));
    free(kept);
    free(code);
}

/* A tensor of up to k values, however odd, comes back exactly. */
static void
test_few_values(void **state)
{
    (void)state;
    test_rng r = test_rng_new("codebook few");
    float *x = malloc(N * sizeof *x);
    static const float values[] = {0.3f, -1.7f, 0, 1234.5f, 0x1.234567p-130f, 3e38f, -0x1p-100f};
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t many = 1; many <= CHECK_COUNT(values); many++) {
        for (size_t i = 0; i < N; i++)
            x[i] = values[test_below(&r, many)];
        ckpi_points p = points_of_floats(x, N, 0, INFINITY, ws);
        ckpi_codebook_fit f;
        ckpi_codebook cb;
        assert_ok(ckpi_codebook_fit_all(&f, &p, 8, ws, NULL));
        ckpi_codebook_take(&cb, &f, 8);
        assert_int_equal(cb.k, many);
        recentre(&cb, x, N, N / 3);
        for (size_t i = 0; i < many; i++) {
            bool found = false;
            for (uint32_t k = 0; k < cb.k; k++)
                found = found || cb.centre[k] == values[i];
            assert_true(found);
        }
        ckpi_scratch_reset(ws);
    }
    ckpi_scratch_free(ws);
    free(x);
}

static double
raw_error(const ckpi_codebook *cb, const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double least = INFINITY;
        for (uint32_t k = 0; k < cb->k; k++)
            least = fmin(least, ((double)x[i] - (double)cb->centre[k]) * ((double)x[i] - (double)cb->centre[k]));
        sum += least;
    }
    return sum;
}

/* The histogram's error against the data's, and what recentring is worth; D(32) of a normal law is 0.0025; these sums of uniforms have thinner tails. */
static void
test_error(void **state)
{
    (void)state;
    enum { MANY = 400000 };
    test_rng r = test_rng_new("codebook error");
    float *x = malloc(MANY * sizeof *x);
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t i = 0; i < MANY; i++)
        x[i] = (float)test_normal(&r);
    ckpi_points p = points_of_floats(x, MANY, 0, INFINITY, ws);
    ckpi_codebook_fit f;
    ckpi_codebook cb;
    assert_ok(ckpi_codebook_fit_all(&f, &p, 32, ws, NULL));
    ckpi_codebook_take(&cb, &f, 32);
    const double before = raw_error(&cb, x, MANY);
    if (getenv("CKP_VERBOSE") != NULL)
        print_message("error of 32 levels: %g\n", before / MANY);
    assert_true(before > 0.00228 * MANY && before < 0.0025 * MANY);
    recentre(&cb, x, MANY, 1234);
    const double after = raw_error(&cb, x, MANY);
    assert_true(after <= before * 1.0001);
    ckpi_scratch_free(ws);
    free(x);
}

static void
test_keep(void **state)
{
    (void)state;
    test_rng r = test_rng_new("codebook keep");
    float *x = malloc(N * sizeof *x);
    ckpi_scratch *ws = ckpi_scratch_new();
    ckpi_codebook cb[3];
    ckpi_points p[3];
    for (unsigned k = 0; k < 3; k++) {
        ckpi_codebook_fit f;
        for (size_t i = 0; i < N; i++)
            x[i] = (float)(test_normal(&r) * (k == 2 ? 3 : 1));
        p[k] = points_of_floats(x, N, 0, INFINITY, ws);
        assert_ok(ckpi_codebook_fit_all(&f, &p[k], 16, ws, NULL));
        ckpi_codebook_take(&cb[k], &f, 16);
    }
    assert_false(ckpi_codebook_pays(&cb[0], &cb[0], &p[0], 2)); /* nothing to gain */
    assert_false(ckpi_codebook_pays(&cb[0], &cb[1], &p[1], 2)); /* the same law drawn again */
    assert_true(ckpi_codebook_pays(&cb[0], &cb[2], &p[2], 2));  /* three times as wide */
    assert_false(ckpi_codebook_pays(&cb[2], &cb[0], &p[2], 0)); /* a worse one, even for free */
    cb[1].k = 8;
    assert_true(ckpi_codebook_pays(&cb[0], &cb[1], &p[1], 2));
    ckpi_scratch_free(ws);
    free(x);
}

static void
test_valid(void **state)
{
    (void)state;
    ckpi_codebook cb = {.k = 3, .centre = {-1, 0, 1}};
    assert_true(ckpi_codebook_valid(&cb));
    cb.centre[2] = 0;
    assert_false(ckpi_codebook_valid(&cb));
    cb.centre[2] = NAN;
    assert_false(ckpi_codebook_valid(&cb));
    cb.centre[2] = INFINITY;
    assert_false(ckpi_codebook_valid(&cb));
    cb.k = 33;
    assert_false(ckpi_codebook_valid(&cb));
}

static ckp_status
fit_with_faults(void *user)
{
    const float *x = user;
    ckpi_points p;
    ckpi_codebook_fit f;
    ckpi_scratch *ws = ckpi_scratch_new();
    ckpi_sketch *s = ckpi_sketch_new();
    ckp_status st = ws != NULL && s != NULL ? CKP_OK : CKP_ENOMEM;
    if (st == CKP_OK)
        st = ckpi_sketch_add(s, x, N, ws, ckpi_cpu(), NULL);
    if (st == CKP_OK)
        st = ckpi_points_of(&p, s, 0, INFINITY, ws, NULL);
    if (st == CKP_OK)
        st = ckpi_codebook_fit_all(&f, &p, 32, ws, NULL);
    ckpi_sketch_free(s);
    ckpi_scratch_free(ws);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    test_rng r = test_rng_new("codebook no memory");
    float *x = malloc(N * sizeof *x);
    for (size_t i = 0; i < N; i++)
        x[i] = (float)test_normal(&r);
    failalloc_run(fit_with_faults, x, 3, 1);
    free(x);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best),   cmocka_unit_test(test_outlier),    cmocka_unit_test(test_few_points), cmocka_unit_test(test_mix),
        cmocka_unit_test(test_assign), cmocka_unit_test(test_few_values), cmocka_unit_test(test_error),      cmocka_unit_test(test_keep),
        cmocka_unit_test(test_valid),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
