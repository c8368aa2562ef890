/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "base/float.h"
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#if CKPI_X86
#include <immintrin.h>
#endif

static void
bf16_up_is_exact(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 0x10000; b++)
        assert_int_equal(ckpi_f32_bits(ckpi_bf16_to_f32((uint16_t)b)), b << 16);
}

/* From the definition: sign * significand * 2^exponent. NaN payloads move up as they are, quiet or signalling. */
static void
f16_up_is_exact(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const uint32_t exponent = h >> 10 & 31, significand = h & 0x3ff;
        const uint32_t got = ckpi_f32_bits(ckpi_f16_to_f32((uint16_t)h));
        if (exponent == 31) {
            assert_int_equal(got, (h & 0x8000) << 16 | 0x7f800000 | significand << 13);
            continue;
        }
        double v = exponent == 0 ? ldexp(significand, -24) : ldexp(significand + 1024, (int)exponent - 25);
        v = (h & 0x8000) != 0 ? -v : v;
        assert_int_equal(got, ckpi_f32_bits((float)v));
    }
}

/* The neighbours of x in the 16-bit format, found by trying: the nearest wins, the even one on a tie. */
static uint16_t
nearest_even(float x, float (*up)(uint16_t), uint16_t infinity)
{
    uint16_t lo = 0, hi = infinity;
    const double a = fabs((double)x);
    while (hi - lo > 1) {
        const uint16_t mid = (uint16_t)((lo + hi) / 2);
        if ((double)up(mid) <= a)
            lo = mid;
        else
            hi = mid;
    }
    /* Infinity stands where the next value would be. */
    const double vlo = up(lo);
    const double vhi = hi == infinity ? 2 * vlo - up((uint16_t)(lo - 1)) : (double)up(hi);
    const double dlo = a - vlo, dhi = vhi - a;
    const uint16_t r = dlo < dhi || (dlo == dhi && (lo & 1) == 0) ? lo : hi;
    return (uint16_t)(r | (signbit(x) ? 0x8000 : 0));
}

static void
check_down(uint32_t bits)
{
    const float x = ckpi_f32_from_bits(bits);
    if (isnan(x)) {
        assert_int_equal(ckpi_f32_to_bf16(x), bits >> 16 | 0x40);
        assert_int_equal(ckpi_f32_to_f16(x), (bits >> 16 & 0x8000) | 0x7e00 | (bits >> 13 & 0x3ff));
    } else if (isinf(x)) {
        assert_int_equal(ckpi_f32_to_bf16(x), bits >> 16);
        assert_int_equal(ckpi_f32_to_f16(x), (bits >> 16 & 0x8000) | 0x7c00);
    } else {
        assert_int_equal(ckpi_f32_to_bf16(x), nearest_even(x, ckpi_bf16_to_f32, 0x7f80));
        assert_int_equal(ckpi_f32_to_f16(x), nearest_even(x, ckpi_f16_to_f32, 0x7c00));
    }
}

static void
down_rounds_to_nearest_even(void **state)
{
    (void)state;
    test_rng rng = test_rng_new("down");
    /* every 16-bit value, the ties around it, and one bit to either side of each tie */
    for (uint32_t h = 0; h < 0x7c00; h += 1) {
        const uint32_t f = ckpi_f32_bits(ckpi_f16_to_f32((uint16_t)h));
        const uint32_t next = ckpi_f32_bits(ckpi_f16_to_f32((uint16_t)(h + 1)));
        const uint32_t tie = h < 0x7bff ? ckpi_f32_bits((ckpi_f32_from_bits(f) + ckpi_f32_from_bits(next)) / 2) : 0x477ff000;
        check_down(f);
        check_down(tie - 1);
        check_down(tie);
        check_down(tie + 1);
        check_down(tie | 0x80000000);
    }
    for (uint32_t top = 0; top < 0x10000; top += 7) {
        check_down(top << 16 | 0x7fff);
        check_down(top << 16 | 0x8000);
        check_down(top << 16 | 0x8001);
    }
    for (int i = 0; i < 200000; i++)
        check_down((uint32_t)test_u64(&rng));
    static const uint32_t edges[] = {0, 0x80000000, 1, 0x7fffff, 0x800000, 0x33000000, 0x33000001, 0x32ffffff, 0x7f7fffff,
                                     0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000, 0xffc00001, 0x7fffffff, 0x7f802000};
    for (size_t i = 0; i < CHECK_COUNT(edges); i++)
        check_down(edges[i]);
}

/* The array functions equal the scalar ones bit for bit: every length, any alignment, nothing beyond the end. */
static void
arrays_equal_scalars(void **state)
{
    (void)state;
    test_rng rng = test_rng_new("arrays");
    for (size_t n = 0; n < 70; n++) {
        uint8_t *words = guard_alloc(2 * n);
        float *floats = (float *)(void *)guard_alloc(4 * n);
        uint8_t *out16 = guard_alloc(2 * n);
        float *out32 = (float *)(void *)guard_alloc(4 * n);
        for (int round = 0; round < 20; round++) {
            test_bytes(&rng, words, 2 * n);
            for (size_t i = 0; i < n; i++) {
                uint32_t bits = (uint32_t)test_u64(&rng);
                if (round % 2 == 0)   /* many denormal halves, NaNs and infinities */
                    bits = (bits & 0x807fffff) | ((uint32_t)test_below(&rng, 2) ? 0x7f800000 : (uint32_t)(96 + test_below(&rng, 24)) << 23);
                memcpy(floats + i, &bits, 4);
            }
            ckpi_bf16_to_f32_n(out32, words, n);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(ckpi_f32_bits(out32[i]), (uint32_t)(words[2 * i] | words[2 * i + 1] << 8) << 16);
            ckpi_f16_to_f32_n(out32, words, n);
            for (size_t i = 0; i < n; i++) {
                const float one = ckpi_f16_to_f32((uint16_t)(words[2 * i] | words[2 * i + 1] << 8));
                assert_memory_equal(&out32[i], &one, 4);
            }
            ckpi_f32_to_bf16_n(out16, floats, n);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(out16[2 * i] | out16[2 * i + 1] << 8, ckpi_f32_to_bf16(floats[i]));
            ckpi_f32_to_f16_n(out16, floats, n);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(out16[2 * i] | out16[2 * i + 1] << 8, ckpi_f32_to_f16(floats[i]));
        }
        guard_free(words);
        guard_free(floats);
        guard_free(out16);
        guard_free(out32);
    }
}

static void
unaligned_words(void **state)
{
    (void)state;
    uint8_t raw[2 * 40 + 1], back[2 * 40 + 1];
    float f[40];
    test_rng rng = test_rng_new("unaligned");
    test_bytes(&rng, raw, sizeof raw);
    ckpi_bf16_to_f32_n(f, raw + 1, 40);
    ckpi_f32_to_bf16_n(back + 1, f, 40);
    for (size_t i = 0; i < 40; i++)
        if (!isnan(f[i]))
            assert_memory_equal(back + 1 + 2 * i, raw + 1 + 2 * i, 2);
}

static void
environment_is_set_and_restored(void **state)
{
    (void)state;
    assert_true(ckpi_fp_selftest());
#if CKPI_X86
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040 | 0x6000);   /* FTZ, DAZ, round toward zero */
    const unsigned odd = _mm_getcsr();
    assert_true(ckpi_fp_selftest());        /* brings its own environment */
    assert_int_equal(_mm_getcsr() & 0xffc0, odd & 0xffc0);
    const ckpi_fpenv e = ckpi_fp_enter();
    const volatile float tiny = 0x1p-126f;
    const volatile float half = tiny * 0.5f;
    assert_true(half > 0);
    ckpi_fp_leave(e);
    assert_int_equal(_mm_getcsr(), odd);
    /* Conversions do not depend on it. */
    const uint16_t denormal = ckpi_f32_to_f16(ckpi_f32_from_bits(0x33c00000));
    const float up = ckpi_f16_to_f32(1);
    _mm_setcsr(before);
    assert_int_equal(denormal, 2);
    assert_true(up == 0x1p-24f);
#endif
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_up_is_exact),
        cmocka_unit_test(f16_up_is_exact),
        cmocka_unit_test(down_rounds_to_nearest_even),
        cmocka_unit_test(arrays_equal_scalars),
        cmocka_unit_test(unaligned_words),
        cmocka_unit_test(environment_is_set_and_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
