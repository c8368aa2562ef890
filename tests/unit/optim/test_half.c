/* SPDX-License-Identifier: Apache-2.0 */
/* Master weights in bf16 and 8 or 16 more bits: nothing is lost of 32, 24 are without bias, and stale bits do no harm. */
#include "optim/half.h"
#include "base/float.h"
#include "optim/kern.h"
#include "unit/optim/param.h"

enum { N = 1 << 16 };

static uint32_t
bits_of(uint16_t p, const void *rest, unsigned rest_bits)
{
    float x;
    ckpi_split_up(&x, &p, rest, rest_bits, 1);
    return ckpi_f32_bits(x);
}

static void
sixteen_bits_lose_nothing(void **state)
{
    static const uint32_t edges[] = {0, 0x80000000u, 1, 0x7fff, 0x8000, 0x8001, 0x80008000u, 0x007fffff, 0x3f808000, 0x3f7fffff, 0xbf7f8000u, 0x7f7f7fff, 0xff7f7fffu};
    test_rng r = test_rng_new("sixteen_bits_lose_nothing");
    (void)state;
    for (size_t i = 0; i < N; i++) {
        const uint32_t bits = i < CHECK_COUNT(edges) ? edges[i] : (uint32_t)test_u64(&r);
        const float x = ckpi_f32_from_bits(bits);
        uint16_t p;
        int16_t rest;
        ckpi_split_down(&p, &rest, 16, &x, 1, 0);
        if ((bits & 0x7fffffffu) <= 0x7f7f7fffu) {
            assert_int_equal(bits_of(p, &rest, 16), bits);
            assert_int_equal(p, (bits + 0x8000u) >> 16);             /* to nearest */
        } else if (isfinite(x)) {
            assert_true(isfinite(ckpi_f32_from_bits(bits_of(p, &rest, 16))));
        } else
            assert_true(rest == 0 && isnan(ckpi_f32_from_bits((uint32_t)p << 16)) == isnan(x) && p >> 15 == bits >> 31);
    }
}

static void
eight_bits_are_unbiased(void **state)
{
    static float x[N];
    static uint16_t p[N];
    static int8_t rest[N];
    test_rng r = test_rng_new("eight_bits_are_unbiased");
    (void)state;
    for (int round = 0; round < 20; round++) {
        const uint32_t bits = (uint32_t)test_u64(&r) & 0xbfffffffu;
        const int unit = ((int)(bits >> 23 & 0xff) - 127) - 15;      /* exponent of the last of 24 bits */
        if ((bits & 0x7f800000u) < 0x08000000u)
            continue;
        for (size_t i = 0; i < N; i++)
            x[i] = ckpi_f32_from_bits(bits);
        ckpi_split_down(p, rest, 8, x, N, (uint32_t)test_u64(&r));
        double mean = 0;
        for (size_t i = 0; i < N; i++) {
            const double off = ldexp((double)ckpi_f32_from_bits(bits_of(p[i], &rest[i], 8)) - (double)x[i], -unit);
            assert_true(fabs(off) < 1.0);
            mean += off / N;
        }
        assert_true(fabs(mean) < 4 * 0.5 / 256);
    }
    /* Near the largest number there is nothing above to round to. */
    static const uint32_t ends[] = {0x7f7fffff, 0xff7fffffu, 0x7f7fff01};
    for (size_t i = 0; i < CHECK_COUNT(ends); i++) {
        const float end = ckpi_f32_from_bits(ends[i]);
        for (uint32_t z = 0; z < 50; z++) {
            ckpi_split_down(p, rest, 8, &end, 1, z);
            assert_true(isfinite(ckpi_f32_from_bits(bits_of(p[0], rest, 8))));
        }
    }
}

/* Someone else wrote the weight: it stays what it is within half of its last place. */
static void
stale_bits_do_no_harm(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < N; p++)
        for (int rest = -128; rest < 128; rest += 51) {
            const int8_t narrow = (int8_t)rest;
            const int16_t wide = (int16_t)(rest * 256);
            const uint32_t bits = bits_of((uint16_t)p, &narrow, 8);
            assert_int_equal(bits, bits_of((uint16_t)p, &wide, 16));
            assert_int_equal(bits >> 31, p >> 15);
            if ((p & 0x7f80) == 0x7f80)
                assert_int_equal(bits, p << 16);
            else {
                assert_true((bits & 0x7f800000u) != 0x7f800000u);
                assert_true(((bits + 0x8000u) >> 16) - p <= 1);      /* half a place: the other neighbour at most */
            }
        }
}

static void
run(ckp_optim *o, param *x, int rule)
{
    static const ckp_adamw adamw = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .seed = 3};
    static const ckp_momentum sgd = {.lr = 1e-3, .momentum = 0.9, .seed = 3};
    ckp_error err;
    if (rule == 0) {
        x->t.how = &adamw;
        assert_ok(ckp_optim_adamw(o, &x->t, 1, &err));
    } else {
        x->t.momentum = &sgd;
        assert_ok(ckp_optim_momentum(o, &x->t, 1, &err));
    }
}

/* bf16 and 16 bits take the very steps of f32; with 8 bits they stay near. */
static void
steps_are_those_of_f32(void **state)
{
    enum { ROWS = 30, COLS = 50, COUNT = ROWS * COLS };
    static uint16_t p[COUNT];
    static int16_t wide[COUNT];
    static int8_t narrow[COUNT];
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 2, &err));
    for (int k = 0; k < 4; k++) {
        const unsigned bits = k % 2 ? 8 : 16, v_bits = k < 2 ? 5 : 0;
        param exact = make(NULL, COUNT, COLS, v_bits != 0, 5, v_bits), split = make(NULL, COUNT, COLS, v_bits != 0, 5, v_bits);
        float *e = exact.t.p;
        for (size_t i = 0; i < COUNT; i++) {
            e[i] = ckpi_f32_from_bits((uint32_t)(p[i] = (uint16_t)(0x3f80 + i % 50)) << 16);
            wide[i] = narrow[i] = 0;
        }
        void *own = split.t.p;
        split.t.p = p;
        split.t.p_dtype = CKP_BF16;
        split.t.rest_bits = bits;
        split.t.rest = bits == 8 ? (void *)narrow : (void *)wide;
        for (uint64_t step = 1; step <= 40; step++) {
            gradient(&exact, step, 1e-2);
            gradient(&split, step, 1e-2);
            exact.t.step = split.t.step = step;
            run(o, &exact, k / 2);
            run(o, &split, k / 2);
        }
        for (size_t i = 0; i < COUNT; i++) {
            const void *rest = bits == 8 ? (const void *)&narrow[i] : (const void *)&wide[i];
            const float x = ckpi_f32_from_bits(bits_of(p[i], rest, bits));
            assert_true(bits == 16 ? ckpi_f32_bits(x) == ckpi_f32_bits(e[i]) : fabsf(x - e[i]) < 40 * 0x1p-15f);
        }
        split.t.p = own;
        drop(&exact);
        drop(&split);
    }
    ckp_optim_free(o);
}

static void
misuse_is_refused(void **state)
{
    ckp_optim *o;
    ckp_error err;
    const ckp_momentum sgd = {.lr = 1e-3, .momentum = 0.9};
    int8_t rest[64] = {0};
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    param x = make(NULL, 64, 64, false, 4, 0);
    x.t.momentum = &sgd;
    x.t.step = 1;
    x.t.rest = rest;
    x.t.rest_bits = 8;
    assert_status(ckp_optim_momentum(o, &x.t, 1, &err), CKP_EINVAL); /* f32 has no more bits */
    x.t.p_dtype = CKP_BF16;
    x.t.rest_bits = 4;
    assert_status(ckp_optim_momentum(o, &x.t, 1, &err), CKP_EINVAL);
    x.t.rest_bits = 8;
    x.t.rest = NULL;
    assert_status(ckp_optim_momentum(o, &x.t, 1, &err), CKP_EINVAL);
    drop(&x);
    ckp_optim_free(o);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits_lose_nothing),
        cmocka_unit_test(eight_bits_are_unbiased),
        cmocka_unit_test(stale_bits_do_no_harm),
        cmocka_unit_test(steps_are_those_of_f32),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
