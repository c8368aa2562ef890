/* SPDX-License-Identifier: Apache-2.0 */
/* Whole steps through the public header. */
#include <stdlib.h>
#include "base/pool.h"
#include "harness/check.h"
#include "harness/failalloc.h"
#include "unit/optim/param.h"

static const ckp_adamw plain = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .seed = 5};

static void
do_step(ckp_optim *o, param *x, uint64_t step)
{
    ckp_error err;
    x->t.step = step;
    assert_ok(ckp_optim_adamw(o, &x->t, 1, &err));
}

/* torch's formula in doubles, with moments that are not rounded. */
static void
exact_step(const ckp_adamw *h, uint64_t step, size_t n, double *p, double *m, double *v, const float *g)
{
    const double c1 = 1 - pow(h->beta1, (double)step), c2 = 1 - pow(h->beta2, (double)step);
    for (size_t i = 0; i < n; i++) {
        const double decay = h->lr * h->weight_decay;
        const double gi = (h->maximize ? -(double)g[i] : (double)g[i]) + (h->coupled ? h->weight_decay * p[i] : 0.0);
        m[i] = h->beta1 * m[i] + (1 - h->beta1) * gi;
        v[i] = h->beta2 * v[i] + (1 - h->beta2) * gi * gi;
        p[i] = p[i] * (h->coupled ? 1.0 : 1 - decay) - h->lr * (m[i] / c1) / (sqrt(v[i] / c2) + h->eps);
    }
}

/* The first step is exact; 8 bits stay near for long; fewer drift more, but keep the direction. */
static void
follows_the_formula(void **state)
{
    static const struct { unsigned bits; double limit; } cases[] = {{8, 0.12}, {6, 0.3}, {5, 0.4}, {4, 0.6}, {3, 0.9}, {2, 1.5}};
    enum { N = 40 * 33, STEPS = 60 };
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (size_t k = 0; k < 2 * CHECK_COUNT(cases); k++) {
        const unsigned bits = cases[k / 2].bits;
        ckp_adamw how = plain;
        how.maximize = k / 2 % 2 == 1;
        how.coupled = k % 2 == 1;        /* Adam */
        param x = make(&how, N, 33, true, bits, bits);
        static double p[N], m[N], v[N];
        memset(m, 0, sizeof m);
        memset(v, 0, sizeof v);
        for (size_t i = 0; i < N; i++)
            p[i] = (double)(((float *)x.t.p)[i] = 0.01f * (float)(i % 10));
        double moved = 0, apart = 0;
        for (uint64_t step = 1; step <= STEPS; step++) {
            gradient(&x, step, 1e-3);
            do_step(o, &x, step);
            exact_step(&how, step, N, p, m, v, x.t.g);
            if (step == 1 && bits == 8)
                for (size_t i = 0; i < N; i++)
                    assert_true(fabs((double)((float *)x.t.p)[i] - p[i]) < 1e-7);
        }
        for (size_t i = 0; i < N; i++) {
            const double start = (double)(0.01f * (float)(i % 10));
            moved += (p[i] - start) * (p[i] - start);
            apart += pow((double)((float *)x.t.p)[i] - p[i], 2);
        }
        assert_true(sqrt(apart / moved) < cases[k / 2].limit);
        assert_true(x.t.m_corr == 1 - pow(0.9, STEPS) || fabs(x.t.m_corr - (1 - pow(0.9, STEPS))) < 1e-14);
        drop(&x);
    }
    ckp_optim_free(o);
}

/* Any number of threads, and blocks on their own (no column factors), give the same bits. */
static void
threads_and_parts_agree(void **state)
{
    enum { COLS = 2048, ROWS = 100 };
    ckp_optim *one, *four;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&one, 1, &err));
    assert_ok(ckp_optim_new(&four, 4, &err));
    param a = make(&plain, COLS * ROWS, COLS, false, 4, 3), b = make(&plain, COLS * ROWS, COLS, false, 4, 3);
    const size_t cut = 37;
    for (uint64_t step = 1; step <= 5; step++) {
        gradient(&a, step, 1e-2);
        gradient(&b, step, 1e-2);
        do_step(one, &a, step);
        ckp_optim_tensor part[2] = {b.t, b.t};
        part[0].numel = cut * COLS;
        part[1].numel -= cut * COLS;
        part[1].first = cut * COLS;
        part[1].p = (float *)b.t.p + cut * COLS;
        part[1].g = (const float *)b.t.g + cut * COLS;
        part[1].m += ckp_optim_state_bytes(cut * COLS, COLS, 4);
        part[1].v += ckp_optim_state_bytes(cut * COLS, COLS, 3);
        part[1].row += cut;
        part[0].step = part[1].step = step;
        assert_ok(ckp_optim_adamw(four, part, 2, &err));
        b.t.m_corr = part[0].m_corr;
        b.t.v_corr = part[1].v_corr;
    }
    same_state(&a, &b);
    drop(&a);
    drop(&b);
    ckp_optim_free(one);
    ckp_optim_free(four);
}

/* A gradient a thousand times as large: rows are rewritten in the same step, and no later step is larger than an exact one's. */
static void
spikes_raise_rows(void **state)
{
    enum { N = 32 * 64 };
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (unsigned bits = 3; bits <= 8; bits += bits < 6 ? 1 : 2) {
        param x = make(&plain, N, 64, true, bits, bits);
        static double p[N], m[N], v[N];
        static float before[N];
        memset(p, 0, sizeof p);
        memset(m, 0, sizeof m);
        memset(v, 0, sizeof v);
        uint64_t raised = 0;
        for (uint64_t step = 1; step <= 40; step++) {
            double most = 0, exact = 0;
            gradient(&x, step, step == 30 ? 1.0 : 1e-3);
            memcpy(before, x.t.p, sizeof before);
            do_step(o, &x, step);
            static double was[N];
            memcpy(was, p, sizeof was);
            exact_step(&plain, step, N, p, m, v, x.t.g);
            for (size_t i = 0; i < N; i++) {
                most += pow((double)(((float *)x.t.p)[i] - before[i]), 2);
                exact += pow(p[i] - was[i], 2);
            }
            if (step >= 30)          /* later on what the noise of few bits adds counts too */
                assert_true(sqrt(most) <= (step < 37 ? 1.1 : 1.25) * sqrt(exact));
            if (step == 30)
                raised = x.t.raised;
        }
        assert_true(raised > 16);
        drop(&x);
    }
    ckp_optim_free(o);
}

/* NaN in a gradient: that element alone stands still, and its row's factor is what it was. */
static void
bad_gradients_stand_still(void **state)
{
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    param x = make(&plain, 16 * 40, 40, true, 4, 4);
    for (uint64_t step = 1; step <= 20; step++) {
        gradient(&x, step, 1e-3);
        float *g = (float *)(uintptr_t)x.t.g;
        g[3] = NAN;
        g[41] = step % 2 ? INFINITY : -0x1p100f;
        do_step(o, &x, step);
        assert_int_equal(x.t.unusable, 2);
        assert_true(((float *)x.t.p)[3] == 0.0f && ((float *)x.t.p)[41] == 0.0f);
        for (size_t i = 0; i < x.t.numel; i++)
            assert_true(isfinite(((float *)x.t.p)[i]));
    }
    float m[640], v[640];
    assert_ok(ckp_optim_read(&x.t, m, v, &err));
    assert_true(m[3] == 0 && v[3] == 0 && v[41] == 0);
    drop(&x);
    ckp_optim_free(o);
}

static void
parts_of_moments_are_the_whole(void **state)
{
    static const struct { uint64_t numel, cols; bool by_column; unsigned m, v; } at[] = {
        {50 * 70, 70, true, 4, 4}, {33 * 64, 64, true, 3, 5}, {7 * 129, 129, false, 8, 8}, {1, 1, false, 2, 2}, {300, 256, false, 6, 2}, {40 * 37 + 5, 37, true, 5, 3},
    };
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        param x = make(&plain, at[i].numel, at[i].cols, at[i].by_column, at[i].m, at[i].v);
        pull_is_read(&x);            /* before there is any */
        for (uint64_t step = 1; step <= 5; step++) {
            gradient(&x, step, 1e-3);
            do_step(o, &x, step);
        }
        pull_is_read(&x);
        drop(&x);
    }
    ckp_optim_free(o);
}

/* Moments out and in: to the grid's precision; and codes as bytes exactly. */
static void
state_goes_out_and_in(void **state)
{
    enum { N = 50 * 70 };
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    param x = make(&plain, N, 70, true, 6, 5), y = make(&plain, N, 70, true, 8, 8);
    for (uint64_t step = 1; step <= 30; step++) {
        gradient(&x, step, 1e-3);
        do_step(o, &x, step);
    }
    static float m[N], v[N], m2[N], v2[N];
    assert_ok(ckp_optim_read(&x.t, m, v, &err));
    y.t.step = 30;
    y.t.m_corr = x.t.m_corr;
    y.t.v_corr = x.t.v_corr;
    assert_ok(ckp_optim_write(&y.t, m, v, &err));
    assert_ok(ckp_optim_read(&y.t, m2, v2, &err));
    for (size_t i = 0; i < N; i++) {
        assert_true(fabs((double)(v2[i] - v[i])) <= 0.126 * (double)v[i]);
        assert_true(fabs((double)(m2[i] - m[i])) <= 0.1 * sqrt((double)v[i] / x.t.v_corr) + 1e-20);
    }
    v[7] = -1.0f;
    assert_status(ckp_optim_write(&y.t, m, v, &err), CKP_EINVAL);
    assert_string_equal(err.tensor, "w");
    static uint8_t code[N];
    uint8_t *packed = guard_alloc((size_t)ckp_optim_state_bytes(N, 70, 6));
    assert_ok(ckp_optim_unpack(code, x.t.m, N, 70, 6, true, &err));
    assert_ok(ckp_optim_pack(packed, code, N, 70, 6, &err));
    assert_memory_equal(packed, x.t.m, ckp_optim_state_bytes(N, 70, 6));
    guard_free(packed);
    drop(&x);
    drop(&y);
    ckp_optim_free(o);
}

/* Weights of 16 bits: many steps too small for one unit still move them. */
static void
small_steps_move_bf16(void **state)
{
    enum { N = 4096 };
    ckp_optim *o;
    ckp_error err;
    ckp_adamw how = plain;
    (void)state;
    how.lr = 1e-4;
    how.weight_decay = 0;
    assert_ok(ckp_optim_new(&o, 1, &err));
    param x = make(&how, N, 256, false, 8, 8);
    static uint16_t p[N], g[N];
    for (size_t i = 0; i < N; i++) {
        p[i] = 0x3f80;                   /* 1 */
        g[i] = 0x3c00;                   /* a bf16 of 2^-7 */
    }
    void *p32 = x.t.p;
    const void *g32 = x.t.g;
    x.t.p = p;
    x.t.g = g;
    x.t.p_dtype = x.t.g_dtype = CKP_BF16;
    for (uint64_t step = 1; step <= 100; step++)
        do_step(o, &x, step);
    double mean = 0;
    for (size_t i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)p[i] << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        mean += (double)f / N;
    }
    assert_true(fabs(mean - 0.99) < 0.001);
    x.t.p = p32;
    x.t.g = g32;
    drop(&x);
    ckp_optim_free(o);
}

static void
misuse_is_refused(void **state)
{
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_status(ckp_optim_new(NULL, 1, &err), CKP_EINVAL);
    assert_ok(ckp_optim_new(&o, 1, &err));
    ckp_adamw how = plain;
    param x = make(&how, 64, 32, true, 4, 4);
    x.t.step = 1;
    gradient(&x, 1, 1);
#define REFUSED(change, undo)                                            \
    do {                                                                 \
        change;                                                          \
        assert_status(ckp_optim_adamw(o, &x.t, 1, &err), CKP_EINVAL);    \
        assert_string_equal(err.tensor, "w");                            \
        undo;                                                            \
    } while (0)
    REFUSED(x.t.m_bits = 7, x.t.m_bits = 4);
    REFUSED(x.t.v_bits = 0, x.t.v_bits = 4);
    REFUSED(x.t.cols = 0, x.t.cols = 32);
    REFUSED(x.t.step = 0, x.t.step = 1);
    REFUSED(x.t.how = NULL, x.t.how = &how);
    REFUSED(x.t.p_dtype = CKP_F64, x.t.p_dtype = CKP_F32);
    REFUSED(x.t.g_dtype = CKP_I8, x.t.g_dtype = CKP_F32);
    REFUSED(how.lr = NAN, how.lr = 1);
    REFUSED(how.beta1 = 1, how.beta1 = 0.9);
    REFUSED(how.beta2 = -0.1, how.beta2 = 0.999);
    REFUSED(how.eps = INFINITY, how.eps = 1e-8);
    REFUSED(how.weight_decay = -1, how.weight_decay = 0);
    REFUSED(x.t.m_corr = 2, x.t.m_corr = 0);
    assert_status(ckp_optim_adamw(NULL, &x.t, 1, &err), CKP_EINVAL);
    assert_ok(ckp_optim_adamw(o, NULL, 0, &err));
    for (size_t i = 0; i < 64; i++)
        assert_true(((float *)x.t.p)[i] == 0.0f);
    do_step(o, &x, 1);
    x.t.numel = 0;
    do_step(o, &x, 1);
    x.t.numel = 64;
    drop(&x);
    ckp_optim_free(o);
    ckp_optim_free(NULL);
}

static ckp_status
whole_use(void *user)
{
    param *x = user;
    ckp_optim *o;
    ckp_error err;
    ckp_status st = ckp_optim_new(&o, 2, &err);
    if (st != CKP_OK)
        return st;
    x->t.step = 1;
    x->t.m_corr = x->t.v_corr = 0;
    st = ckp_optim_adamw(o, &x->t, 1, &err);
    ckp_optim_free(o);
    if (st == CKP_OK) {
        static float m[64 * 40], v[64 * 40];
        st = ckp_optim_read(&x->t, m, v, &err);
        if (st == CKP_OK)
            st = ckp_optim_write(&x->t, m, v, &err);
    }
    return st;
}

static void
allocations_may_fail(void **state)
{
    param x = make(&plain, 64 * 40, 40, true, 5, 5);
    (void)state;
    gradient(&x, 1, 1e-3);
    failalloc_run(whole_use, &x, 10, 1);
    drop(&x);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_formula),
        cmocka_unit_test(threads_and_parts_agree),
        cmocka_unit_test(spikes_raise_rows),
        cmocka_unit_test(bad_gradients_stand_still),
        cmocka_unit_test(parts_of_moments_are_the_whole),
        cmocka_unit_test(state_goes_out_and_in),
        cmocka_unit_test(small_steps_move_bf16),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
