/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of low.h: integers, or floats element by element, so that each ISA gives the same bits. low_kern.inc has their one body. */
#ifndef CKPI_QUANT_LOW_KERN_H
#define CKPI_QUANT_LOW_KERN_H
#include "base/cpu.h"
#include "quant/low.h"

#define CKPI_LOW_UNIT 4              /* residuals are counted in so many parts of a step of u ... */
#define CKPI_LOW_TOP 1023            /* ... and clamped there */

/*
 * rows_by   a[4 i + k] = sum over j of u[i][j] * b[k * stride + j]          whole rows only; all sums fit an int32
 * cols_by   c[k * stride + j] = sum over i of u[i][j] * a[4 i + k]          likewise
 * sums      y[j] = (float)(sum over k < rank of a[k] * b[k][j]) * gain, n of one row; b[k] at b + k * stride
 * rest      r[j] = rint((u[j] - y[j]) * UNIT), clamped to +-TOP; y NULL: 0
 * squares   sum of u * u
 * three     code[j] = 1 where r[j] > t, -1 where r[j] < -t, else 0; sums over all n
 */
typedef struct ckpi_low_sums { int64_t kept, size, all; } ckpi_low_sums;     /* codes that are not 0, sum of |r| there, sum of r * r */

#define CKPI_LOW_KERNELS(isa)                                                                                              \
    void ckpi_low_rows_by_##isa(const int8_t *u, size_t rows, size_t cols, const int16_t *b, size_t stride, int32_t *a);   \
    void ckpi_low_cols_by_##isa(const int8_t *u, size_t rows, size_t cols, const int16_t *a, size_t stride, int32_t *c);   \
    void ckpi_low_sums_##isa(const int8_t *a, const int8_t *b, size_t stride, unsigned rank, size_t n, float gain, float *y); \
    void ckpi_low_rest_##isa(const int8_t *u, const float *y, size_t n, int16_t *r);                                       \
    int64_t ckpi_low_squares_##isa(const int8_t *u, size_t n);                                                             \
    void ckpi_low_three_##isa(const int16_t *r, size_t n, int16_t t, int8_t *code, ckpi_low_sums *sums);

CKPI_LOW_KERNELS(ref)
#if CKPI_X86
CKPI_LOW_KERNELS(avx2)
CKPI_LOW_KERNELS(avx512)
#endif

typedef struct ckpi_low_ops {
    void (*rows_by)(const int8_t *u, size_t rows, size_t cols, const int16_t *b, size_t stride, int32_t *a);
    void (*cols_by)(const int8_t *u, size_t rows, size_t cols, const int16_t *a, size_t stride, int32_t *c);
    void (*sums)(const int8_t *a, const int8_t *b, size_t stride, unsigned rank, size_t n, float gain, float *y);
    void (*rest)(const int8_t *u, const float *y, size_t n, int16_t *r);
    int64_t (*squares)(const int8_t *u, size_t n);
    void (*three)(const int16_t *r, size_t n, int16_t t, int8_t *code, ckpi_low_sums *sums);
} ckpi_low_ops;

const ckpi_low_ops *ckpi_low_pick(uint32_t cpu);
/* y of the first n elements of row i; rank above 0. */
void ckpi_low_row(const ckpi_low *low, size_t i, size_t n, float *y, const ckpi_low_ops *ops);
#endif
