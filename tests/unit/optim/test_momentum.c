/* SPDX-License-Identifier: Apache-2.0 */
/* SGD with momentum and Lion: every ISA gives the reference's bits, and whole steps through the public header. */
#include <stdlib.h>
#include "base/cpu.h"
#include "base/float.h"
#include "harness/failalloc.h"
#include "optim/kern.h"
#include "unit/optim/param.h"

static const unsigned widths[] = {2, 3, 4, 5, 6, 8};
static const ckp_momentum sgd = {.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.05, .seed = 5};
static const ckp_momentum lion = {.lr = 1e-3, .momentum = 0.99, .weight_decay = 0.1, .lion = true, .beta1 = 0.9, .seed = 5};

static param
of(const ckp_momentum *how, uint64_t numel, uint64_t cols, unsigned bits)
{
    param x = make(NULL, numel, cols, false, bits, 0);
    guard_free(x.t.row);
    x.rows *= (size_t)(cols + 63) / 64;
    x.t.row = zeros(x.rows);
    x.t.momentum = how;
    return x;
}

static ckp_status
try_step(ckp_optim *o, param *x, uint64_t step, ckp_error *err)
{
    x->t.step = step;
    return ckp_optim_momentum(o, &x->t, 1, err);
}

static void
do_step(ckp_optim *o, param *x, uint64_t step)
{
    ckp_error err;
    assert_ok(try_step(o, x, step, &err));
}

static ckp_optim *
threads(unsigned n)
{
    ckp_optim *o;
    ckp_error err;
    assert_ok(ckp_optim_new(&o, n, &err));
    return o;
}

/* ---- kernels ---- */

enum { MAX = 200 };

/* A row, each array flush against an unmapped page. */
typedef struct row {
    size_t n;
    float *p, *g;
    int8_t *m;
    uint8_t *factor;
} row;

static row
row_of(test_rng *r, size_t n, unsigned bits, bool strange)
{
    static const uint32_t odd[] = {0, 0x80000000u, 1, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x53800000u, 0x537fffffu, 0x00800000u, 0x49000000u};
    const int top = (1 << (bits - 1)) - 1;
    const size_t blocks = (n + 63) / 64;
    row x = {n, (float *)guard_alloc(4 * n), (float *)guard_alloc(4 * n), (int8_t *)guard_alloc(n), guard_alloc(blocks)};
    for (size_t i = 0; i < blocks; i++)
        x.factor[i] = (uint8_t)(17 + test_below(r, 184));
    for (size_t i = 0; i < n; i++) {
        x.p[i] = (float)test_normal(r);
        x.g[i] = ldexpf((float)test_normal(r), (int)test_below(r, 24) - 20);
        if (strange && test_below(r, 3) == 0)
            x.g[i] = ckpi_f32_from_bits(odd[test_below(r, CHECK_COUNT(odd))]);
        x.m[i] = (int8_t)((int)test_below(r, 2u * (unsigned)top + 1u) - top);
    }
    return x;
}

static row
copy_of(const row *x)
{
    return (row){x->n, (float *)guard_copy(x->p, 4 * x->n), (float *)guard_copy(x->g, 4 * x->n), (int8_t *)guard_copy(x->m, x->n),
                 guard_copy(x->factor, (x->n + 63) / 64)};
}

static void
drop_row(const row *x)
{
    guard_free(x->p);
    guard_free(x->g);
    guard_free(x->m);
    guard_free(x->factor);
}

static ckpi_o_mseen
run(const ckpi_o_ops *ops, const row *x, const ckpi_o_mpar *par, uint32_t z)
{
    const ckpi_o_mrow r = {x->factor, z, x->p, x->g, x->m};
    return ops->momentum(x->n, par, &r);
}

static void
isas_agree(void **state)
{
    static const uint32_t words[] = {CKPI_CPU_AVX2, CKPI_CPU_AVX2 | CKPI_CPU_AVX512, CKPI_CPU_NEON};
    test_rng r = test_rng_new("isas_agree");
    (void)state;
    for (int round = 0; round < 600; round++) {
        const unsigned bits = widths[test_below(&r, 6)];
        const uint32_t z = (uint32_t)test_u64(&r);
        ckpi_o_mpar par = {.sign = round % 3 ? 1.0f : -1.0f, .l2 = round % 4 ? 0.0f : 0.01f, .am = 0.9f, .bm = 0.3f, .cm = 0.95f, .cg = 0.1f, .decay = 0.99f,
                           .lr = 0.01f, .lion = round % 2 == 1, .m = ckpi_momentum_grid_of(bits)};
        ckpi_o_mpar_tables(&par);
        row ref = row_of(&r, (size_t)test_below(&r, MAX), bits, round % 5 == 0);
        const row start = copy_of(&ref);
        const ckpi_o_mseen seen = run(ckpi_o_pick(0), &ref, &par, z);
        for (size_t w = 0; w < CHECK_COUNT(words); w++) {
            if ((ckpi_cpu() & words[w]) != words[w])
                continue;
            row fast = copy_of(&start);
            const ckpi_o_mseen s = run(ckpi_o_pick(words[w]), &fast, &par, z);
            assert_int_equal(s.raised, seen.raised);
            assert_int_equal(s.unusable, seen.unusable);
            assert_memory_equal(fast.p, ref.p, 4 * ref.n);
            assert_memory_equal(fast.m, ref.m, ref.n);
            assert_memory_equal(fast.factor, ref.factor, (ref.n + 63) / 64);
            drop_row(&fast);
        }
        drop_row(&ref);
        drop_row(&start);
    }
}

/* The smallest factor under which the largest element fits: nothing is cut off, and half of it would not do. */
static void
factors_just_fit(void **state)
{
    test_rng r = test_rng_new("factors_just_fit");
    (void)state;
    for (int round = 0; round < 3000; round++) {
        const ckpi_mgrid g = ckpi_momentum_grid_of(widths[test_below(&r, 6)]);
        const float x = ldexpf(1.0f + (float)test_unit(&r), (int)test_below(&r, 120) - 60);
        const uint32_t e = ckpi_o_factor_of(&g, ckpi_f32_bits(x));
        const double top = (double)ckpi_mgrid_value(&g, (int)g.top) * ldexp(1.0, (int)e - 127);
        assert_true((double)x <= top && (double)x > top / 2);
    }
    const ckpi_mgrid g = ckpi_momentum_grid_of(4);
    assert_int_equal(ckpi_o_factor_of(&g, 0), CKPI_O_ROW_MIN);
    assert_int_equal(ckpi_o_factor_of(&g, ckpi_f32_bits(0x1p100f)), CKPI_O_FACTOR_MAX);
}

/* ---- whole steps ---- */

static void
exact_step(const ckp_momentum *h, uint64_t step, size_t n, double *p, double *m, const float *g)
{
    for (size_t i = 0; i < n; i++) {
        double gi = h->maximize ? -(double)g[i] : (double)g[i];
        if (h->lion) {
            const double u = h->beta1 * m[i] + (1 - h->beta1) * gi;
            p[i] = p[i] * (1 - h->lr * h->weight_decay) - h->lr * (double)((u > 0) - (u < 0));
            m[i] = h->momentum * m[i] + (1 - h->momentum) * gi;
            continue;
        }
        gi += h->weight_decay * p[i];
        m[i] = step == 1 ? gi : h->momentum * m[i] + (1 - h->dampening) * gi;
        p[i] -= h->lr * (h->nesterov ? gi + h->momentum * m[i] : m[i]);
    }
}

/* The first step is exact; 8 bits stay near for long; fewer drift more: gradients are noise alone, whose sum is a small thing. */
static void
follows_the_formula(void **state)
{
    static const double limits[2][6] = {{2.2, 0.6, 0.25, 0.12, 0.06, 0.03}, {1.2, 1.2, 1.0, 0.6, 0.35, 0.12}};
    enum { N = 40 * 33, STEPS = 60 };
    ckp_optim *o = threads(1);
    (void)state;
    for (size_t k = 0; k < 4 * CHECK_COUNT(widths); k++) {
        ckp_momentum how = k % 4 == 0 ? lion : sgd;
        how.maximize = k / 4 % 2 == 1;
        how.nesterov = k % 4 == 2;
        how.dampening = k % 4 == 3 ? 0.5 : 0.0;
        param x = of(&how, N, 33, widths[k / 4]);
        static double p[N], m[N];
        float *mine = x.t.p;
        memset(m, 0, sizeof m);
        for (size_t i = 0; i < N; i++)
            p[i] = (double)(mine[i] = 0.01f * (float)(i % 10));
        double moved = 0, apart = 0;
        for (uint64_t step = 1; step <= STEPS; step++) {
            gradient(&x, step, 1e-3);
            do_step(o, &x, step);
            exact_step(&how, step, N, p, m, x.t.g);
            for (size_t i = 0; step == 1 && i < N; i++)
                assert_true(fabs((double)mine[i] - p[i]) < 1e-7);
        }
        for (size_t i = 0; i < N; i++) {
            moved += pow(p[i] - (double)(0.01f * (float)(i % 10)), 2);
            apart += pow((double)mine[i] - p[i], 2);
        }
        assert_true(sqrt(apart / moved) < limits[how.lion][k / 4]);
        assert_true(x.t.m_corr == 1.0 && x.t.v_corr == 0.0);
        drop(&x);
    }
    ckp_optim_free(o);
}

static void
threads_agree(void **state)
{
    ckp_optim *one = threads(1), *four = threads(4);
    (void)state;
    param a = of(&sgd, 2048 * 300, 2048, 4), b = of(&sgd, 2048 * 300, 2048, 4);
    for (uint64_t step = 1; step <= 6; step++) {
        gradient(&a, step, 1e-2);
        gradient(&b, step, 1e-2);
        do_step(one, &a, step);
        do_step(four, &b, step);
    }
    same_state(&a, &b);
    drop(&a);
    drop(&b);
    ckp_optim_free(one);
    ckp_optim_free(four);
}

/* Codes mean what the step made: at 8 bits within half of a step's width, after factors went up and down by far. */
static void
factors_follow(void **state)
{
    enum { N = 32 * 64 };
    static float m[N];
    static double p[N], exact[N];
    ckp_optim *o = threads(1);
    ckp_error err;
    ckp_momentum how = sgd;
    how.weight_decay = 0;
    how.momentum = 0.5;
    param x = of(&how, N, 64, 8);
    (void)state;
    for (uint64_t step = 1; step <= 90; step++) {
        gradient(&x, step, step == 40 ? 1e4 : 1e-3);
        do_step(o, &x, step);
        exact_step(&how, step, N, p, exact, x.t.g);
        if (step == 40)
            assert_true(x.t.raised == 32);
        assert_ok(ckp_optim_read(&x.t, m, NULL, &err));
        double apart = 0, all = 0;
        for (size_t i = 0; i < N; i++) {
            apart += pow((double)m[i] - exact[i], 2);
            all += exact[i] * exact[i];
        }
        assert_true(sqrt(apart / all) < 0.1);
    }
    drop(&x);
    ckp_optim_free(o);
}

static void
bad_gradients_stand_still(void **state)
{
    static float m[640];
    ckp_optim *o = threads(1);
    ckp_error err;
    (void)state;
    for (int rule = 0; rule < 2; rule++) {
        param x = of(rule == 0 ? &sgd : &lion, 640, 40, 4);
        const float *p = x.t.p;
        for (uint64_t step = 1; step <= 20; step++) {
            gradient(&x, step, 1e-3);
            float *g = (float *)(uintptr_t)x.t.g;
            g[3] = NAN;
            g[41] = step % 2 ? INFINITY : -0x1p100f;
            do_step(o, &x, step);
            assert_int_equal(x.t.unusable, 2);
            assert_true(p[3] == 0.0f && p[41] == 0.0f);
            for (size_t i = 0; i < 640; i++)
                assert_true(isfinite(p[i]));
        }
        assert_ok(ckp_optim_read(&x.t, m, NULL, &err));
        assert_true(m[3] == 0 && m[41] == 0);
        drop(&x);
    }
    ckp_optim_free(o);
}

static void
state_goes_out_and_in(void **state)
{
    enum { N = 50 * 70 };
    static float m[N], back[N];
    ckp_optim *o = threads(1);
    ckp_error err;
    (void)state;
    param x = of(&sgd, N, 70, 6), y = of(&sgd, N, 70, 8);
    for (uint64_t step = 1; step <= 30; step++) {
        gradient(&x, step, 1e-3);
        do_step(o, &x, step);
    }
    pull_is_read(&x);
    assert_ok(ckp_optim_read(&x.t, m, NULL, &err));
    y.t.step = 30;
    y.t.m_corr = 1;
    assert_ok(ckp_optim_write(&y.t, m, NULL, &err));
    assert_ok(ckp_optim_read(&y.t, back, NULL, &err));
    double apart = 0, all = 0;
    for (size_t i = 0; i < N; i++) {
        apart += pow((double)back[i] - (double)m[i], 2);
        all += (double)m[i] * (double)m[i];
    }
    assert_true(all > 0 && sqrt(apart / all) < 0.05);
    m[7] = INFINITY;
    assert_status(ckp_optim_write(&y.t, m, NULL, &err), CKP_EINVAL);
    assert_string_equal(err.tensor, "w");
    y.t.m_corr = 0;
    m[7] = 0;
    assert_status(ckp_optim_write(&y.t, m, NULL, &err), CKP_EINVAL);
    drop(&x);
    drop(&y);
    ckp_optim_free(o);
}

static void
misuse_is_refused(void **state)
{
    ckp_optim *o = threads(1);
    ckp_error err;
    ckp_momentum how = sgd;
    const ckp_adamw other = {.lr = 1e-3};
    (void)state;
    param x = of(&how, 64, 32, 4);
    gradient(&x, 1, 1);
#define REFUSED(change, undo)                                  \
    do {                                                       \
        change;                                                \
        assert_status(try_step(o, &x, 1, &err), CKP_EINVAL);   \
        assert_string_equal(err.tensor, "w");                  \
        undo;                                                  \
    } while (0)
    REFUSED(x.t.m_bits = 7, x.t.m_bits = 4);
    REFUSED(x.t.v_bits = 4, x.t.v_bits = 0);
    REFUSED(x.t.momentum = NULL, x.t.momentum = &how);
    REFUSED(x.t.g_dtype = CKP_I8, x.t.g_dtype = CKP_F32);
    REFUSED(how.lr = NAN, how.lr = 1);
    REFUSED(how.momentum = 1.1, how.momentum = 0.9);
    REFUSED(how.dampening = -0.1, how.dampening = 0);
    REFUSED(how.weight_decay = -1, how.weight_decay = 0);
    how.lion = true;
    REFUSED(how.beta1 = NAN, how.beta1 = 0.9);
    assert_status(ckp_optim_momentum(NULL, &x.t, 1, &err), CKP_EINVAL);
    assert_ok(ckp_optim_momentum(o, NULL, 0, &err));
    x.t.how = &other;                    /* a tensor without v is not AdamW's */
    assert_status(ckp_optim_adamw(o, &x.t, 1, &err), CKP_EINVAL);
    for (size_t i = 0; i < 64; i++)
        assert_true(((float *)x.t.p)[i] == 0.0f);
    x.t.how = NULL;
    x.t.numel = 0;
    do_step(o, &x, 1);
    x.t.numel = 64;
    drop(&x);
    ckp_optim_free(o);
}

static ckp_status
whole_use(void *user)
{
    static float m[64 * 40];
    param *x = user;
    ckp_optim *o;
    ckp_error err;
    ckp_status st = ckp_optim_new(&o, 2, &err);
    if (st != CKP_OK)
        return st;
    x->t.m_corr = 0;
    st = try_step(o, x, 1, &err);
    ckp_optim_free(o);
    if (st == CKP_OK)
        st = ckp_optim_read(&x->t, m, NULL, &err);
    return st == CKP_OK ? ckp_optim_write(&x->t, m, NULL, &err) : st;
}

static void
allocations_may_fail(void **state)
{
    param x = of(&lion, 64 * 40, 40, 5);
    (void)state;
    gradient(&x, 1, 1e-3);
    failalloc_run(whole_use, &x, 10, 1);
    drop(&x);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isas_agree),
        cmocka_unit_test(factors_just_fit),
        cmocka_unit_test(follows_the_formula),
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(factors_follow),
        cmocka_unit_test(bad_gradients_stand_still),
        cmocka_unit_test(state_goes_out_and_in),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
