/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar arithmetic that the reference kernels and the bindings share. Each function equals one vector instruction bit for bit. */
#ifndef CKPI_QUANT_NUM_H
#define CKPI_QUANT_NUM_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "base/fixed.h"
#include "base/float.h"
#include "quant/kern.h"

#define CKPI_F32_INF_BITS 0x7f800000u

static inline uint32_t
f32_bits(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static inline float
f32_of(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static inline float
f32_abs(float x)
{
    return f32_of(f32_bits(x) & 0x7fffffffu);
}

static inline bool
f32_finite(float x)
{
    return (f32_bits(x) & 0x7fffffffu) < CKPI_F32_INF_BITS;
}

/* Second operand when either is NaN, as minps and maxps have it. */
static inline float
f32_min(float a, float b)
{
    return a < b ? a : b;
}

static inline float
f32_max(float a, float b)
{
    return a > b ? a : b;
}

/* Nearest integer, ties to even: the sum with 2^23 drops the fraction by its own rounding. NaN and large numbers stay. */
static inline float
f32_rint(float x)
{
    const float a = f32_abs(x);
    if (!(a < 0x1p23f))
        return x;
    const float r = (a + 0x1p23f) - 0x1p23f;
    return f32_of(f32_bits(r) | (f32_bits(x) & 0x80000000u));
}

static inline float
f32_floor(float x)
{
    const float r = f32_rint(x);
    return r > x ? r - 1.0f : r;
}

/* v = 2^ge * g with g in [1, 2); positive finite v, denormals too. */
static inline float
f32_split(float v, float *g)
{
    const bool tiny = v < 0x1p-126f;
    const uint32_t b = f32_bits(tiny ? v * 0x1p32f : v);
    *g = f32_of((b & 0x007fffffu) | 0x3f800000u);
    return (float)((int32_t)(b >> 23) - 127 - (tiny ? 32 : 0));
}

/* log2 sqrt v in 1/256 octave. */
static inline int32_t
f32_log_units(float v)
{
    float g;
    const float ge = f32_split(v, &g);
    return (int32_t)f32_rint((ge * 128.0f + CKPI_Q_A0 * 128.0f) + (CKPI_Q_A2 * 128.0f * g + CKPI_Q_A1 * 128.0f) * g);
}

/* ckpi_exp2_fixed without a call where the power is a normal number, as nearly all are: factors come by the thousand. */
static inline float
f32_exp2(int32_t k512)
{
    if (k512 < -126 * 512 || k512 >= 128 * 512)
        return ckpi_exp2_fixed(k512);
    const uint32_t biased = (uint32_t)(k512 + 126 * 512);
    return f32_of(f32_bits(ckpi_exp2_512[biased & 511]) + (biased >> 9 << 23) - (126u << 23));
}

static inline float
f32_round_to(float x, ckp_dtype dt)
{
    if (dt == CKP_BF16)
        return ckpi_bf16_to_f32(ckpi_f32_to_bf16(x));
    if (dt == CKP_F16)
        return ckpi_f16_to_f32(ckpi_f32_to_f16(x));
    return x;
}

static inline float
wstep_of(const ckpi_wstep *s, float rq)
{
    return f32_min(f32_max(s->qmul * rq, s->qlo), s->qhi);
}
#endif
