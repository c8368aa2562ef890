/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fixed.h"
#include "base/float.h"
#include "harness/check.h"
#include "harness/seed.h"
#include <math.h>

/* The table is made by exact integers (tools/gen_exp2.py); long double, with 11 more bits, must agree. */
static void
table_is_rounded_correctly(void **state)
{
    (void)state;
    for (int k = 0; k < 512; k++) {
        const long double exact = exp2l((long double)k / 512);
        const float got = ckpi_exp2_512[k];
        const long double below = nextafterf(got, 0), above = nextafterf(got, 4);
        assert_true(fabsl(got - exact) < fabsl(below - exact));
        assert_true(fabsl(got - exact) < fabsl(above - exact));
        assert_true(got == (float)exact);
    }
    assert_true(ckpi_exp2_512[0] == 1.0f);
    assert_true(ckpi_exp2_512[256] == 0x1.6a09e6p+0f);
}

static void
exp2_is_monotonic_and_exact_at_octaves(void **state)
{
    (void)state;
    float before = -1;
    for (int32_t k = -151 * 512; k <= 129 * 512; k++) {
        const float v = ckpi_exp2_fixed(k);
        assert_true(v >= before);
        if (k >= -126 * 512 && k < 128 * 512)
            assert_true(v > before);
        if (k % 512 == 0 && k >= -149 * 512 && k < 128 * 512)
            assert_true(v == ldexpf(1.0f, k / 512));
        before = v;
    }
    assert_true(ckpi_exp2_fixed(-149 * 512 - 1) == 0);
    assert_true(ckpi_exp2_fixed(-149 * 512) == 0x1p-149f);
    assert_true(isinf(ckpi_exp2_fixed(128 * 512)));
    assert_true(isfinite(ckpi_exp2_fixed(128 * 512 - 1)));
    assert_true(isinf(ckpi_exp2_fixed(INT32_MAX)));
    assert_true(ckpi_exp2_fixed(INT32_MIN) == 0);
}

/* Denormal results are the table entry rounded once more, to nearest even. */
static void
exp2_denormals_round_to_nearest(void **state)
{
    (void)state;
    for (int32_t k = -149 * 512; k < -126 * 512; k++) {
        const int32_t index = k & 511;
        const float want = (float)ldexp((double)ckpi_exp2_512[index], (k - index) / 512);
        assert_true(ckpi_exp2_fixed(k) == want);
    }
}

static long double
log2_error(float v, int32_t got)
{
    return fabsl(got - 128 * log2l((long double)v));
}

static void
log2_half_error_is_bounded(void **state)
{
    (void)state;
    test_rng rng = test_rng_new("log2");
    /* every significand pattern of 12 bits at every exponent, denormals included, then random ones */
    for (uint32_t bits = 1; bits < 0x7f800000; bits += 0x7fd) {
        const float v = ckpi_f32_from_bits(bits);
        assert_true(log2_error(v, ckpi_log2_half(v)) <= 1.54L);
    }
    for (int i = 0; i < 200000; i++) {
        const float v = ckpi_f32_from_bits(1 + (uint32_t)test_below(&rng, i % 4 == 0 ? 0x7fffff : 0x7f7fffff));
        assert_true(log2_error(v, ckpi_log2_half(v)) <= 1.54L);
    }
}

static void
log2_half_of_powers_and_ends(void **state)
{
    (void)state;
    for (int e = -149; e < 128; e++)
        assert_int_equal(ckpi_log2_half(ldexpf(1.0f, e)), e * 128);
    assert_int_equal(ckpi_log2_half(0x1.fffffep+127f), 128 * 128);
}

static void
log2_half_is_monotonic(void **state)
{
    (void)state;
    int32_t before = INT32_MIN;
    for (uint32_t bits = 1; bits < 0x7f800000; bits += bits < 0x1000 ? 1 : 997) {
        const int32_t l = ckpi_log2_half(ckpi_f32_from_bits(bits));
        assert_true(l >= before);
        before = l;
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_rounded_correctly),
        cmocka_unit_test(exp2_is_monotonic_and_exact_at_octaves),
        cmocka_unit_test(exp2_denormals_round_to_nearest),
        cmocka_unit_test(log2_half_error_is_bounded),
        cmocka_unit_test(log2_half_of_powers_and_ends),
        cmocka_unit_test(log2_half_is_monotonic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
