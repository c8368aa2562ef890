/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact conversions, named roundings, and the floating-point environment.
 * bf16/f16 to f32 are exact; f32 to bf16/f16 round to nearest even, NaN stays NaN (quiet bit set, payload's top bits kept).
 */
#ifndef CKPI_BASE_FLOAT_H
#define CKPI_BASE_FLOAT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Put once, after the includes, into files that do float arithmetic. gcc has no such pragma; there -std=c11 (which implies
 * -ffp-contract=off) and our flags do it.
 */
#if defined(__clang__)
#define CKPI_NO_CONTRACT _Pragma("STDC FP_CONTRACT OFF")
#else
#define CKPI_NO_CONTRACT
#endif

float ckpi_bf16_to_f32(uint16_t b);
uint16_t ckpi_f32_to_bf16(float f);
float ckpi_f16_to_f32(uint16_t h);
uint16_t ckpi_f32_to_f16(float f);
/* Arrays; src little-endian uint16 words in memory order; any alignment. */
void ckpi_bf16_to_f32_n(float *dst, const void *src, size_t n);
void ckpi_f32_to_bf16_n(void *dst, const float *src, size_t n);
void ckpi_f16_to_f32_n(float *dst, const void *src, size_t n);
void ckpi_f32_to_f16_n(void *dst, const float *src, size_t n);

uint32_t ckpi_f32_bits(float f);
float ckpi_f32_from_bits(uint32_t b);
double ckpi_f64_from_bits(uint64_t b);

/* Round to nearest, denormals kept (FTZ and DAZ off), exceptions masked; leave() restores what enter() found. */
typedef struct ckpi_fpenv { uint64_t saved; } ckpi_fpenv;
ckpi_fpenv ckpi_fp_enter(void);
void ckpi_fp_leave(ckpi_fpenv e);
/* False if the compiler contracted a*b+c, used excess precision, or flushes denormals: results would differ between machines. */
bool ckpi_fp_selftest(void);
#endif
