/* SPDX-License-Identifier: Apache-2.0 */
/* Codes at other widths: the same moments, rounded without bias, and the same bits whoever does it. */
#include <ckpress/optim_policy.h>
#include <math.h>
#include "harness/check.h"
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "harness/seed.h"

static const unsigned widths[] = {2, 3, 4, 5, 6, 8};
static const ckp_adamw how = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .seed = 5};

typedef struct param {
    ckp_optim_tensor t;
    size_t rows;
} param;

static uint8_t *
codes_of(const param *x, unsigned bits)
{
    return guard_alloc((size_t)ckp_optim_state_bytes(x->t.numel, x->t.cols, bits));
}

/* Mean 0, deviation 0.6, by arithmetic that is the same everywhere. */
static double
spread(test_rng *r)
{
    return test_unit(r) + test_unit(r) + test_unit(r) + test_unit(r) - 2.0;
}

/* A parameter whose moments are those of some steps: m a part of sqrt(v), v over several octaves. */
static param
make(uint64_t numel, uint64_t cols, bool by_column, unsigned m_bits, unsigned v_bits, test_rng *r)
{
    param x = {.rows = (size_t)((numel + cols - 1) / cols)};
    ckp_error err;
    x.t = (ckp_optim_tensor){.name = "w", .how = &how, .step = 9, .numel = numel, .cols = cols, .m_bits = m_bits, .v_bits = v_bits, .m_corr = 0.5, .v_corr = 0.25};
    x.t.m = codes_of(&x, m_bits);
    x.t.v = codes_of(&x, v_bits);
    x.t.row = guard_alloc(x.rows);
    x.t.col = by_column ? (int8_t *)guard_alloc((size_t)cols) : NULL;
    float *m = (float *)guard_alloc((size_t)numel * 4), *v = (float *)guard_alloc((size_t)numel * 4);
    for (uint64_t i = 0; i < numel; i++) {
        const double size = 0x1p-10 * (double)(1 + i % cols % 5) / (double)(1u << i / cols % 3), u = 0.3 + test_unit(r);
        v[i] = i % 19 == 3 ? 0.0f : (float)(size * size * u * u);
        m[i] = i % 19 == 3 ? 0.0f : (float)(0.5 * size * spread(r));
    }
    assert_ok(ckp_optim_write(&x.t, m, v, &err));
    guard_free(m);
    guard_free(v);
    return x;
}

static void
drop(param *x)
{
    guard_free(x->t.m);
    guard_free(x->t.v);
    guard_free(x->t.row);
    guard_free(x->t.col);
}

static void
recode(ckp_optim *o, param *x, unsigned m_bits, unsigned v_bits)
{
    ckp_error err;
    uint8_t *m = x->t.m, *v = x->t.v, *new_m = m_bits != x->t.m_bits ? codes_of(x, m_bits) : m, *new_v = v_bits != x->t.v_bits ? codes_of(x, v_bits) : v;
    assert_ok(ckp_optim_recode(o, &x->t, m_bits, v_bits, new_m, new_v, &err));
    assert_true(x->t.m == new_m && x->t.v == new_v && x->t.m_bits == m_bits && x->t.v_bits == v_bits);
    if (new_m != m)
        guard_free(m);
    if (new_v != v)
        guard_free(v);
}

enum { N = 60 * 70 - 13, COLS = 70 };

/* v stays exactly what it is where the grid gets finer, m where its scale and grid stay. */
static void
finer_grids_keep_v(void **state)
{
    test_rng r = test_rng_new("finer_grids_keep_v");
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (size_t a = 0; a < CHECK_COUNT(widths); a++)
        for (size_t b = a; b < CHECK_COUNT(widths); b++) {
            static float m[N], v[N], m2[N], v2[N];
            param x = make(N, COLS, a % 2 == 0, 4, widths[a], &r);
            assert_ok(ckp_optim_read(&x.t, m, v, &err));
            recode(o, &x, 4, widths[b]);
            assert_ok(ckp_optim_read(&x.t, m2, v2, &err));
            assert_memory_equal(v, v2, sizeof v);
            assert_memory_equal(m, m2, sizeof m);
            recode(o, &x, 8, widths[b]);
            assert_ok(ckp_optim_read(&x.t, m2, v2, &err));
            assert_memory_equal(v, v2, sizeof v);
            for (size_t i = 0; i < N; i++)
                assert_true(fabs((double)(m2[i] - m[i])) <= 0.06 * sqrt((double)v[i]) + 1e-20);
            drop(&x);
        }
    ckp_optim_free(o);
}

/* Means of many elements of one kind before and after; the grid must hold them, or there is nothing to be unbiased about. */
static void
coarser_grids_are_unbiased(void **state)
{
    enum { MANY = 1 << 16 };
    static const struct { unsigned m, v, m2, v2; } cases[] = {{8, 8, 4, 8}, {8, 8, 3, 8}, {6, 8, 2, 8}, {8, 8, 8, 6}, {8, 8, 8, 5}, {8, 8, 4, 4}, {5, 6, 3, 3}};
    static float m[MANY], v[MANY];
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (size_t k = 0; k < CHECK_COUNT(cases); k++) {
        test_rng r = test_rng_new("coarser_grids_are_unbiased");
        param x = make(MANY, 256, false, cases[k].m, cases[k].v, &r);
        for (size_t i = 0; i < MANY; i++) {
            v[i] = 1.37f * 0.25f;
            m[i] = -0.21f * 0.5f;
        }
        assert_ok(ckp_optim_write(&x.t, m, v, &err));
        double was[2] = {0, 0}, now[2] = {0, 0}, squares[2] = {0, 0};
        assert_ok(ckp_optim_read(&x.t, m, v, &err));
        for (size_t i = 0; i < MANY; i++) {
            was[0] += (double)m[i] / MANY;
            was[1] += (double)v[i] / MANY;
        }
        recode(o, &x, cases[k].m2, cases[k].v2);
        assert_ok(ckp_optim_read(&x.t, m, v, &err));
        for (size_t i = 0; i < MANY; i++) {
            now[0] += (double)m[i] / MANY;
            now[1] += (double)v[i] / MANY;
            squares[0] += (double)m[i] * (double)m[i] / MANY;
            squares[1] += (double)v[i] * (double)v[i] / MANY;
        }
        for (int i = 0; i < 2; i++)
            assert_true(fabs(now[i] - was[i]) < 5 * sqrt(fabs(squares[i] - now[i] * now[i]) / MANY) + 1e-6);
        drop(&x);
    }
    ckp_optim_free(o);
}

static void
same(const param *a, const param *b)
{
    assert_memory_equal(a->t.m, b->t.m, ckp_optim_state_bytes(a->t.numel, a->t.cols, a->t.m_bits));
    assert_memory_equal(a->t.v, b->t.v, ckp_optim_state_bytes(a->t.numel, a->t.cols, a->t.v_bits));
    assert_memory_equal(a->t.row, b->t.row, a->rows);
}

/* Any number of threads, and parts by rows, give the same bits. */
static void
threads_and_parts_agree(void **state)
{
    enum { C = 1024, ROWS = 200, CUT = 77 };
    ckp_optim *one, *four;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&one, 1, &err));
    assert_ok(ckp_optim_new(&four, 4, &err));
    test_rng r = test_rng_new("threads_and_parts_agree"), r2 = r, r3 = r;
    param a = make(C * ROWS, C, true, 8, 8, &r), b = make(C * ROWS, C, true, 8, 8, &r2), c = make(C * ROWS, C, true, 8, 8, &r3);
    recode(one, &a, 3, 4);
    recode(four, &b, 3, 4);
    same(&a, &b);
    uint8_t *m = codes_of(&c, 3), *v = codes_of(&c, 4);
    for (int part = 0; part < 2; part++) {
        const uint64_t first = part == 0 ? 0 : CUT;
        ckp_optim_tensor t = c.t;
        t.first = first * C;
        t.numel = part == 0 ? CUT * C : (ROWS - CUT) * C;
        t.m += ckp_optim_state_bytes(first * C, C, 8);
        t.v += ckp_optim_state_bytes(first * C, C, 8);
        t.row += first;
        assert_ok(ckp_optim_recode(four, &t, 3, 4, m + ckp_optim_state_bytes(first * C, C, 3), v + ckp_optim_state_bytes(first * C, C, 4), &err));
    }
    guard_free(c.t.m);
    guard_free(c.t.v);
    c.t.m = m;
    c.t.v = v;
    c.t.m_bits = 3;
    c.t.v_bits = 4;
    same(&a, &c);
    drop(&a);
    drop(&b);
    drop(&c);
    ckp_optim_free(one);
    ckp_optim_free(four);
}

static uint32_t
hash(uint32_t h, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 16777619u;
    return h;
}

/* The same bits on every CPU: the suite runs once for each set of instructions. */
static void
bits_are_known(void **state)
{
    test_rng r = {20260101};
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 2, &err));
    param x = make(N, COLS, true, 8, 8, &r);
    uint32_t crc = 1;
    for (size_t k = 0; k < 8; k++) {
        recode(o, &x, widths[(k * 5 + 2) % 6], widths[(k * 7 + 3) % 6]);
        x.t.step++;
        crc = hash(crc, x.t.m, (size_t)ckp_optim_state_bytes(N, COLS, x.t.m_bits));
        crc = hash(crc, x.t.v, (size_t)ckp_optim_state_bytes(N, COLS, x.t.v_bits));
        crc = hash(crc, x.t.row, x.rows);
    }
    assert_int_equal(crc, 0xb1153999);
    drop(&x);
    ckp_optim_free(o);
}

/* A larger v than a narrow grid holds beside the row's others: their codes end at 1, and m stays near. */
static void
all_pairs_keep_moments_near(void **state)
{
    static const double steps[] = {0.5, 0.375, 0.2, 0.137, 0.109, 0.053};  /* largest of m's grid, in units of s */
    static float m[N], v[N], m2[N], v2[N];
    test_rng r = test_rng_new("all_pairs_keep_moments_near");
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 3, &err));
    for (size_t k = 0; k < 36 * 36; k += 1 + (size_t)test_below(&r, 12)) {
        param x = make(N, COLS, k % 2 == 0, widths[k % 6], widths[k / 6 % 6], &r);
        const double step = steps[k / 36 % 6];
        assert_ok(ckp_optim_read(&x.t, m, v, &err));
        recode(o, &x, widths[k / 36 % 6], widths[k / 216]);
        assert_ok(ckp_optim_read(&x.t, m2, v2, &err));
        for (size_t i = 0; i < N; i++) {
            assert_true((v[i] == 0) == (v2[i] == 0) && (v[i] != 0 || m2[i] == 0));
            assert_true((double)v2[i] >= 0.49 * (double)v[i]);
            /* within two steps of the grid (a row's factor may follow) under v's new scale, or cut off by it */
            const double s = 1.1 * sqrt((double)v2[i]), limit = 2 * step * s + (fabs((double)m[i]) > 0.3 * s ? fabs((double)m[i]) : 0);
            assert_true(fabs((double)(m2[i] - m[i])) <= limit + 1e-20);
        }
        drop(&x);
    }
    ckp_optim_free(o);
}

static void
misuse_is_refused(void **state)
{
    test_rng r = test_rng_new("misuse_is_refused");
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    param x = make(N, COLS, true, 4, 4, &r);
    uint8_t *m = codes_of(&x, 8), *v = codes_of(&x, 8);
    const ckp_optim_tensor before = x.t;
    const uint32_t crc = hash(0, x.t.m, (size_t)ckp_optim_state_bytes(N, COLS, 4));
    assert_status(ckp_optim_recode(NULL, &x.t, 8, 8, m, v, &err), CKP_EINVAL);
    assert_status(ckp_optim_recode(o, NULL, 8, 8, m, v, &err), CKP_EINVAL);
    assert_status(ckp_optim_recode(o, &x.t, 7, 8, m, v, &err), CKP_EINVAL);
    assert_string_equal(err.tensor, "w");
    assert_status(ckp_optim_recode(o, &x.t, 8, 0, m, v, &err), CKP_EINVAL);
    assert_status(ckp_optim_recode(o, &x.t, 8, 8, NULL, v, &err), CKP_EINVAL);
    assert_status(ckp_optim_recode(o, &x.t, 8, 8, x.t.m, v, &err), CKP_EINVAL);
    assert_string_equal(err.tensor, "w");
    assert_status(ckp_optim_recode(o, &x.t, 8, 8, m, x.t.v, &err), CKP_EINVAL);
    assert_status(ckp_optim_recode(o, &x.t, 8, 8, m, m, &err), CKP_EINVAL);
    assert_memory_equal(&before, &x.t, sizeof before);
    assert_int_equal(crc, hash(0, x.t.m, (size_t)ckp_optim_state_bytes(N, COLS, 4)));
    x.t.numel = 0;
    assert_ok(ckp_optim_recode(o, &x.t, 8, 8, m, v, &err));
    x.t = before;
    guard_free(m);
    guard_free(v);
    drop(&x);
    ckp_optim_free(o);
}

static ckp_status
whole_use(void *user)
{
    param *x = user;
    ckp_optim *o;
    ckp_error err;
    static uint8_t m[N], v[N];
    const ckp_optim_tensor before = x->t;
    ckp_status st = ckp_optim_new(&o, 2, &err);
    if (st != CKP_OK)
        return st;
    st = ckp_optim_recode(o, &x->t, 5, 3, m, v, &err);
    ckp_optim_free(o);
    if (st != CKP_OK)
        assert_memory_equal(&before, &x->t, sizeof before);
    x->t = before;
    return st;
}

static void
allocations_may_fail(void **state)
{
    test_rng r = test_rng_new("allocations_may_fail");
    (void)state;
    param x = make(N, COLS, true, 4, 4, &r);
    failalloc_run(whole_use, &x, 10, 1);
    drop(&x);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finer_grids_keep_v),
        cmocka_unit_test(coarser_grids_are_unbiased),
        cmocka_unit_test(threads_and_parts_agree),
        cmocka_unit_test(bits_are_known),
        cmocka_unit_test(all_pairs_keep_moments_near),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
