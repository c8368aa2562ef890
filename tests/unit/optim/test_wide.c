/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of parameters whose moments are floats. */
#include "harness/check.h"
#include "harness/failalloc.h"
#include "unit/optim/param.h"

enum { N = 1000, STEPS = 30 };

static const ckp_adamw plain = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .seed = 5};

static param
wide(const ckp_adamw *how, const ckp_momentum *momentum, uint64_t cols)
{
    param x = {.rows = 0};
    x.t = (ckp_optim_tensor){.name = "w", .how = how, .momentum = momentum, .numel = N, .cols = cols, .p_dtype = CKP_F32, .g_dtype = CKP_F32, .m_bits = 32, .v_bits = how != NULL ? 32 : 0};
    x.t.m = zeros(N * 4);
    x.t.v = how != NULL ? zeros(N * 4) : NULL;
    x.t.p = zeros(N * 4);
    x.t.g = zeros(N * 4);
    for (int i = 0; i < N; i++)
        ((float *)x.t.p)[i] = 0.01f * (float)(i % 10);
    return x;
}

static ckp_status
step_of(ckp_optim *o, ckp_optim_tensor *t, size_t n, ckp_error *err)
{
    return t->how != NULL ? ckp_optim_adamw(o, t, n, err) : ckp_optim_momentum(o, t, n, err);
}

static void
fill(param *x, uint64_t step)
{
    gradient(x, step, 1e-3);
    x->t.step = step;
}

/* torch's formula in doubles. */
static void
follows_the_formula(void **state)
{
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 2, &err));
    for (int k = 0; k < 4; k++) {
        ckp_adamw h = plain;
        h.coupled = k % 2 == 1;
        h.maximize = k / 2 == 1;
        param x = wide(&h, NULL, 64);
        static double p[N], m[N], v[N];
        memset(m, 0, sizeof m);
        memset(v, 0, sizeof v);
        for (int i = 0; i < N; i++)
            p[i] = (double)((float *)x.t.p)[i];
        for (uint64_t step = 1; step <= STEPS; step++) {
            fill(&x, step);
            assert_ok(ckp_optim_adamw(o, &x.t, 1, &err));
            const double c1 = 1 - pow(h.beta1, (double)step), c2 = 1 - pow(h.beta2, (double)step);
            for (int i = 0; i < N; i++) {
                const double g = (h.maximize ? -1 : 1) * (double)((const float *)x.t.g)[i] + (h.coupled ? h.weight_decay * p[i] : 0);
                m[i] = h.beta1 * m[i] + (1 - h.beta1) * g;
                v[i] = h.beta2 * v[i] + (1 - h.beta2) * g * g;
                p[i] = p[i] * (h.coupled ? 1 : 1 - h.lr * h.weight_decay) - h.lr * (m[i] / c1) / (sqrt(v[i] / c2) + h.eps);
            }
        }
        for (int i = 0; i < N; i++) {
            assert_true(fabs((double)((float *)x.t.p)[i] - p[i]) < 1e-5 * (fabs(p[i]) + 0.01));
            assert_true(fabs((double)((float *)(void *)x.t.m)[i] - m[i]) <= 1e-5 * fabs(m[i]) + 1e-8);
            assert_true(fabs((double)((float *)(void *)x.t.v)[i] - v[i]) <= 1e-5 * v[i]);
        }
        drop(&x);
    }
    ckp_optim_free(o);
}

/* Where a parameter is cut changes nothing, weights of 16 bits included: they are rounded by the element's own number. */
static void
cuts_do_not_matter(void **state)
{
    static const ckp_momentum rules[] = {
        {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01, .seed = 5},
        {.lr = 0.1, .momentum = 0.9, .nesterov = true, .maximize = true, .seed = 5},
        {.lr = 1e-3, .momentum = 0.99, .beta1 = 0.9, .lion = true, .weight_decay = 0.1, .seed = 5},
    };
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 3, &err));
    for (int k = 0; k < 8; k++) {
        const ckp_adamw *how = k % 4 == 3 ? &plain : NULL;
        const ckp_momentum *momentum = how == NULL ? &rules[k % 4] : NULL;
        const bool half = k >= 4;
        param x = wide(how, momentum, 1000), y = wide(how, momentum, 7);
        uint16_t *const p[2] = {zeros(N * 2), zeros(N * 2)};
        void *const p32[2] = {x.t.p, y.t.p};
        for (int i = 0; i < N; i++)
            p[0][i] = p[1][i] = 0x3f80;
        if (half) {
            x.t.p = p[0];
            y.t.p = p[1];
            x.t.p_dtype = y.t.p_dtype = CKP_BF16;
        }
        for (uint64_t step = 1; step <= STEPS; step++) {
            fill(&x, step);
            fill(&y, step);
            memcpy((void *)(uintptr_t)y.t.g, x.t.g, N * 4);      /* gradients of rows as short as y's would be others */
            assert_ok(step_of(o, &x.t, 1, &err));
            const size_t cut = 333, width = half ? 2 : 4;
            ckp_optim_tensor part[3] = {y.t, y.t, y.t};
            part[0].numel = cut;
            part[1].numel = 0;
            part[1].first = cut;
            part[1].p = part[1].m = part[1].v = NULL;
            part[1].g = NULL;
            part[2].numel -= cut;
            part[2].first = cut;
            part[2].p = (uint8_t *)y.t.p + width * cut;
            part[2].g = (const float *)y.t.g + cut;
            part[2].m += 4 * cut;
            part[2].v = y.t.v != NULL ? y.t.v + 4 * cut : NULL;
            assert_ok(step_of(o, part, 3, &err));
            y.t.m_corr = part[1].m_corr;
            assert_true(part[1].m_corr == x.t.m_corr);
            assert_memory_equal(x.t.p, y.t.p, width * N);
            assert_memory_equal(x.t.m, y.t.m, N * 4);
        }
        x.t.p = p32[0];
        y.t.p = p32[1];
        guard_free(p[0]);
        guard_free(p[1]);
        drop(&x);
        drop(&y);
    }
    ckp_optim_free(o);
}

static void
bad_gradients_stand_still(void **state)
{
    static const ckp_momentum sgd = {.lr = 0.1, .momentum = 0.9};
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (int k = 0; k < 2; k++) {
        param x = wide(k == 0 ? &plain : NULL, k == 0 ? NULL : &sgd, 64);
        float *const g = (float *)(uintptr_t)x.t.g, was[2] = {((float *)x.t.p)[3], ((float *)x.t.p)[500]};
        for (uint64_t step = 1; step <= 5; step++) {
            fill(&x, step);
            g[3] = NAN;
            g[500] = step % 2 ? INFINITY : -0x1p100f;
            assert_ok(step_of(o, &x.t, 1, &err));
            assert_int_equal(x.t.unusable, 2);
            assert_true(((float *)x.t.p)[3] == was[0] && ((float *)x.t.p)[500] == was[1] && ((float *)(void *)x.t.m)[3] == 0.0f);
        }
        for (int i = 0; i < N; i++)
            assert_true(isfinite(((float *)x.t.p)[i]));
        drop(&x);
    }
    /* no gradient, no epsilon, no step */
    ckp_adamw h = plain;
    h.eps = h.weight_decay = 0;
    param x = wide(&h, NULL, 64);
    x.t.step = 1;
    assert_ok(ckp_optim_adamw(o, &x.t, 1, &err));
    for (int i = 0; i < N; i++)
        assert_true(((float *)x.t.p)[i] == 0.01f * (float)(i % 10));
    drop(&x);
    ckp_optim_free(o);
}

static void
misuse_is_refused(void **state)
{
    static const ckp_momentum sgd = {.lr = 0.1, .momentum = 0.9};
    static const unsigned bits[][2] = {{32, 4}, {4, 32}, {32, 0}, {33, 33}};
    static int8_t col[64];
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    param x = wide(&plain, NULL, 64), y = wide(NULL, &sgd, 64);
    fill(&x, 1);
    fill(&y, 1);
    for (size_t k = 0; k < CHECK_COUNT(bits); k++) {
        ckp_optim_tensor t = x.t;
        t.m_bits = bits[k][0];
        t.v_bits = bits[k][1];
        assert_status(ckp_optim_adamw(o, &t, 1, &err), CKP_EINVAL);
        assert_string_equal(err.tensor, "w");
    }
    ckp_optim_tensor t[4] = {x.t, x.t, x.t, y.t};
    t[0].m = NULL;
    t[1].col = col;
    t[2].cols = 0;
    t[3].v_bits = 32;
    for (int k = 0; k < 4; k++)
        assert_status(step_of(o, &t[k], 1, &err), CKP_EINVAL);
    float m[N], v[N];
    assert_status(ckp_optim_read(&x.t, m, v, &err), CKP_EINVAL);
    assert_status(ckp_optim_sums(o, &x.t, 1, &err), CKP_EINVAL);
    for (int i = 0; i < N; i++)
        assert_true(((float *)x.t.p)[i] == 0.01f * (float)(i % 10));
    drop(&x);
    drop(&y);
    ckp_optim_free(o);
}

static ckp_status
whole_use(void *user)
{
    param *x = user;
    ckp_optim *o;
    ckp_error err;
    ckp_status st = ckp_optim_new(&o, 2, &err);
    if (st == CKP_OK)
        st = ckp_optim_adamw(o, &x->t, 1, &err);
    ckp_optim_free(o);
    return st;
}

static void
allocations_may_fail(void **state)
{
    param x = wide(&plain, NULL, 64);
    (void)state;
    fill(&x, 1);
    failalloc_run(whole_use, &x, 10, 1);
    drop(&x);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_formula),
        cmocka_unit_test(cuts_do_not_matter),
        cmocka_unit_test(bad_gradients_stand_still),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
