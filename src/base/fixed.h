/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed-point log2 and its inverse (docs/format.md, "2^(k/512)").
 * log2 of sqrt(v) in 1/256 octave is what factors and codes of second moments are made of.
 */
#ifndef CKPI_BASE_FIXED_H
#define CKPI_BASE_FIXED_H
#include <stdint.h>

/* 2^(k/512) in f32, k in [0, 512): each entry is the exact power rounded to nearest even. */
extern const float ckpi_exp2_512[512];
/* 2^(k/512) for any k: table entry times an exact power of two; 0 below 2^-149, +Inf from 2^128 on. */
float ckpi_exp2_fixed(int32_t k512);
/*
 * Integer log2: 128 * log2(v), that is log2(sqrt v) in 1/256 octave, to 1.54 units (1.04 of the parabola, 0.5 of rounding), by integer
 * arithmetic on the bits of v alone (denormals are normalized first), so that every ISA agrees:
 *   e, x = exponent and 23-bit mantissa;  y = x + ((x * (2^23 - x)) >> 23) * 11 / 32;   L = (e << 7) + ((y + 2^15) >> 16)
 * v must be finite and positive.
 */
int32_t ckpi_log2_half(float v);
#endif
