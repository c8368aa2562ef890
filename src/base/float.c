/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All conversions work on bit patterns, so neither the FP environment nor the ISA can change a result; signalling NaNs
 * stay as they are on the way up (a hardware conversion would make them quiet).
 * The array functions are the scalar ones in a loop that compilers vectorize, built once more for AVX2.
 */
#define _GNU_SOURCE
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/float.h"
#include <float.h>
#if CKPI_X86
#include <immintrin.h>
#endif

CKPI_NO_CONTRACT

#define INLINE static inline __attribute__((always_inline))

uint32_t
ckpi_f32_bits(float f)
{
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    return b;
}

float
ckpi_f32_from_bits(uint32_t b)
{
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}

double
ckpi_f64_from_bits(uint64_t b)
{
    double f;
    memcpy(&f, &b, sizeof f);
    return f;
}

INLINE uint32_t
up_bf16(uint32_t b)
{
    return b << 16;
}

INLINE uint32_t
down_bf16(uint32_t x)
{
    const uint32_t nan = x >> 16 | 0x40;
    const uint32_t rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16;
    return (x & 0x7fffffff) > 0x7f800000 ? nan : rounded;
}

INLINE uint32_t
up_f16(uint32_t h)
{
    const uint32_t sign = (h & 0x8000) << 16;
    const uint32_t a = (h & 0x7fff) << 13;
    const uint32_t normal = a + (112u << 23);
    const uint32_t special = a | 0x7f800000;
    /* A denormal is an integer times 2^-24: below 2^10, so the conversion to float is exact. */
    const float small = (float)(int32_t)(h & 0x3ff);
    const uint32_t denormal = ckpi_f32_bits(small) - ((h & 0x3ff) != 0 ? 24u << 23 : 0);
    uint32_t r = (h & 0x7c00) == 0 ? denormal : normal;
    r = (h & 0x7c00) == 0x7c00 ? special : r;
    return sign | r;
}

INLINE uint32_t
down_f16(uint32_t x)
{
    const uint32_t sign = x >> 16 & 0x8000;
    const uint32_t a = x & 0x7fffffff;
    /* 2^-14 and up: drop 13 bits and move the bias from 127 to 15; a carry out of the significand is right as it is. */
    const uint32_t normal = (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13;
    /* Below: the significand with its hidden bit, in units of 2^-24. A shift of 25 leaves nothing, whatever the value. */
    const uint32_t shift = CKPI_MIN(126 - CKPI_MIN(a >> 23, 112u), 25u);
    const uint32_t significand = (a & 0x7fffff) | 0x800000;
    const uint32_t denormal = (significand + ((1u << (shift - 1)) - 1) + (significand >> shift & 1)) >> shift;
    uint32_t r = a < 0x38800000 ? denormal : normal;
    r = a >= 0x477ff000 ? 0x7c00 : r;   /* 65520, halfway to 2^16, rounds up to infinity */
    r = a > 0x7f800000 ? (0x7e00 | (a >> 13 & 0x3ff)) : r;
    return sign | r;
}

float
ckpi_bf16_to_f32(uint16_t b)
{
    return ckpi_f32_from_bits(up_bf16(b));
}

uint16_t
ckpi_f32_to_bf16(float f)
{
    return (uint16_t)down_bf16(ckpi_f32_bits(f));
}

float
ckpi_f16_to_f32(uint16_t h)
{
    return ckpi_f32_from_bits(up_f16(h));
}

uint16_t
ckpi_f32_to_f16(float f)
{
    return (uint16_t)down_f16(ckpi_f32_bits(f));
}

/* Words in memory order; memcpy is a plain load, which byte-wise loads are not for every vectorizer. */
INLINE uint16_t
load16(const uint8_t *p)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
#else
    return ckpi_ld16(p);
#endif
}

INLINE void
store16(uint8_t *p, uint16_t v)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(p, &v, sizeof v);
#else
    ckpi_st16(p, v);
#endif
}

#define UP_LOOP(name, attr, one)                             \
    attr static void name(float *dst, const uint8_t *src, size_t n) \
    {                                                        \
        for (size_t i = 0; i < n; i++) {                     \
            const uint32_t bits = one(load16(src + 2 * i));  \
            memcpy(dst + i, &bits, sizeof bits);             \
        }                                                    \
    }

#define DOWN_LOOP(name, attr, one)                           \
    attr static void name(uint8_t *dst, const float *src, size_t n) \
    {                                                        \
        for (size_t i = 0; i < n; i++) {                     \
            uint32_t bits;                                   \
            memcpy(&bits, src + i, sizeof bits);             \
            store16(dst + 2 * i, (uint16_t)one(bits));       \
        }                                                    \
    }

UP_LOOP(bf16_up_any, , up_bf16)
UP_LOOP(f16_up_any, , up_f16)
DOWN_LOOP(bf16_down_any, , down_bf16)
DOWN_LOOP(f16_down_any, , down_f16)

#if CKPI_X86
/* GCC and clang vectorize loops at -O3; at -O2 gcc leaves them scalar, which is only slower. */
UP_LOOP(bf16_up_avx2, CKPI_TARGET_AVX2, up_bf16)
UP_LOOP(f16_up_avx2, CKPI_TARGET_AVX2, up_f16)
DOWN_LOOP(bf16_down_avx2, CKPI_TARGET_AVX2, down_bf16)

/* VCVTPS2PH does what down_f16 does, NaNs included; the rounding is in the instruction, FTZ and DAZ do not matter to it. */
CKPI_TARGET_AVX2 static void
f16_down_avx2(uint8_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(void *)(dst + 2 * i), h);
    }
    f16_down_any(dst + 2 * i, src + i, n - i);
}

#define PICK(name) ((ckpi_cpu() & CKPI_CPU_AVX2) != 0 ? name##_avx2 : name##_any)
#else
#define PICK(name) name##_any
#endif

void
ckpi_bf16_to_f32_n(float *dst, const void *src, size_t n)
{
    PICK(bf16_up)(dst, src, n);
}

void
ckpi_f16_to_f32_n(float *dst, const void *src, size_t n)
{
    PICK(f16_up)(dst, src, n);
}

void
ckpi_f32_to_bf16_n(void *dst, const float *src, size_t n)
{
    PICK(bf16_down)(dst, src, n);
}

void
ckpi_f32_to_f16_n(void *dst, const float *src, size_t n)
{
    PICK(f16_down)(dst, src, n);
}

#if CKPI_X86
ckpi_fpenv
ckpi_fp_enter(void)
{
    const ckpi_fpenv e = {_mm_getcsr()};
    _mm_setcsr(0x1f80);   /* the power-on state: all exceptions masked, nearest, no FTZ, no DAZ */
    return e;
}

void
ckpi_fp_leave(ckpi_fpenv e)
{
    _mm_setcsr((unsigned)e.saved);
}
#elif CKPI_ARM
ckpi_fpenv
ckpi_fp_enter(void)
{
    ckpi_fpenv e;
    __asm__ volatile("mrs %0, fpcr" : "=r"(e.saved));
    __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)));
    return e;
}

void
ckpi_fp_leave(ckpi_fpenv e)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(e.saved));
}
#else
ckpi_fpenv
ckpi_fp_enter(void)
{
    return (ckpi_fpenv){0};
}

void
ckpi_fp_leave(ckpi_fpenv e)
{
    (void)e;
}
#endif

/* Values come through volatile so that nothing is computed at compile time, under the compiler's rules instead of the CPU's. */
bool
ckpi_fp_selftest(void)
{
    /* (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11: a fused multiply-add would leave the 2^-24. */
    static const volatile float in[] = {0x1.001p+0f, 0x1.001p+0f, -0x1.002p+0f, FLT_MIN, FLT_MAX};
    const ckpi_fpenv env = ckpi_fp_enter();
    const float a = in[0], b = in[1], c = in[2], tiny = in[3], huge = in[4];
    const volatile float contracted = a * b + c;
    const volatile float half = tiny * 0.5f;        /* FTZ would give 0 */
    const volatile float back = half * 2.0f;        /* DAZ would give 0 */
    const volatile float over = huge * 2.0f;        /* excess precision would come back finite */
    const bool ok = contracted == 0.0f && half > 0.0f && back == tiny && over * 0.5f > huge;
    ckpi_fp_leave(env);
    return ok && FLT_EVAL_METHOD == 0;
}
