/* SPDX-License-Identifier: Apache-2.0 */
/* One parameter for tests of whole steps, its memory flush against unmapped pages. */
#ifndef TEST_OPTIM_PARAM_H
#define TEST_OPTIM_PARAM_H
#include <ckpress/optim.h>
#include <math.h>
#include <string.h>
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"

/* One parameter with everything that it needs. */
typedef struct param {
    ckp_optim_tensor t;
    size_t rows;
} param;

static inline void *
zeros(size_t n)
{
    void *p = guard_alloc(n);
    if (n != 0)
        memset(p, 0, n);
    return p;
}

static inline param
make(const ckp_adamw *how, uint64_t numel, uint64_t cols, bool by_column, unsigned m_bits, unsigned v_bits)
{
    param x = {.rows = (size_t)((numel + cols - 1) / cols)};
    x.t = (ckp_optim_tensor){.name = "w", .how = how, .numel = numel, .cols = cols, .p_dtype = CKP_F32, .g_dtype = CKP_F32, .m_bits = m_bits, .v_bits = v_bits};
    x.t.m = zeros((size_t)ckp_optim_state_bytes(numel, cols, m_bits));
    x.t.v = zeros((size_t)ckp_optim_state_bytes(numel, cols, v_bits));
    x.t.row = zeros(x.rows);
    x.t.col = by_column ? zeros((size_t)cols) : NULL;
    x.t.p = zeros((size_t)numel * 4);
    x.t.g = zeros((size_t)numel * 4);
    return x;
}

static inline void
drop(param *x)
{
    guard_free(x->t.m);
    guard_free(x->t.v);
    guard_free(x->t.row);
    guard_free(x->t.col);
    guard_free(x->t.p);
    guard_free((void *)(uintptr_t)x->t.g);
}

/* Pieces of m and of v of any size, from any element on, are what all of it has there; memory for no more is written. */
static inline void
pull_is_read(const param *x)
{
    const uint64_t n = x->t.numel;
    ckp_error err;
    float *all[2] = {zeros((size_t)n * 4), zeros((size_t)n * 4)};
    assert_ok(ckp_optim_read(&x->t, all[0], x->t.v_bits != 0 ? all[1] : NULL, &err));
    test_rng r = {n + x->t.m_bits};
    for (int round = 0; round < 60; round++)
        for (int second = 0; second <= (x->t.v_bits != 0); second++) {
            ckp_status (*const pull)(void *, uint64_t, uint64_t, void *, ckp_error *) = second ? ckp_optim_pull_v : ckp_optim_pull_m;
            const uint64_t first = test_below(&r, n + 1), count = round % 3 == 0 ? n - first : test_below(&r, n - first + 1);
            float *part = zeros((size_t)count * 4);
            assert_ok(pull((void *)(uintptr_t)&x->t, first, count, part, &err));
            if (count != 0)
                assert_memory_equal(part, all[second] + first, count * 4);
            guard_free(part);
            assert_status(pull((void *)(uintptr_t)&x->t, first, n - first + 1, all[second], &err), CKP_EINVAL);
        }
    assert_status(ckp_optim_pull_v(NULL, 0, 0, NULL, &err), CKP_EINVAL);
    if (x->t.v_bits == 0)
        assert_status(ckp_optim_pull_v((void *)(uintptr_t)&x->t, 0, 1, all[1], &err), CKP_EINVAL);
    guard_free(all[0]);
    guard_free(all[1]);
}

static inline void
gradient(const param *x, uint64_t step, double size)
{
    test_rng r = {step * 1000003 + x->t.first};
    float *g = (float *)(uintptr_t)x->t.g;
    for (uint64_t i = 0; i < x->t.numel; i++)
        g[i] = (float)(size * exp2((double)(i % x->t.cols) / 7.0 - (double)(i / x->t.cols % 5)) * test_normal(&r));
}

static inline void
same_state(const param *a, const param *b)
{
    assert_memory_equal(a->t.p, b->t.p, a->t.numel * 4);
    assert_memory_equal(a->t.m, b->t.m, ckp_optim_state_bytes(a->t.numel, a->t.cols, a->t.m_bits));
    assert_memory_equal(a->t.v, b->t.v, ckp_optim_state_bytes(a->t.numel, a->t.cols, a->t.v_bits));
    assert_memory_equal(a->t.row, b->t.row, a->rows);
}
#endif
