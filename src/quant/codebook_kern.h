/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the codebook: values to codes by comparison alone, so every ISA gives the same. codebook_kern.c holds all of them. */
#ifndef CKPI_QUANT_CODEBOOK_KERN_H
#define CKPI_QUANT_CODEBOOK_KERN_H
#include "quant/codebook.h"

/* Borders between levels: a value's level is one more than the number of borders that are not above it. +Inf from k - 1 on. */
typedef struct ckpi_borders {
    float at[CKPI_CODEBOOK_MAX];
    uint32_t n;               /* k - 1, or 0 */
    int8_t protect;           /* code of what is protected: k + 1 */
    ckpi_partition part;
} ckpi_borders;

typedef void ckpi_codebook_codes_fn(const ckpi_borders *b, const float *x, const float *g, size_t n, int8_t *code);

ckpi_codebook_codes_fn ckpi_codebook_codes_ref;
ckpi_codebook_codes_fn ckpi_codebook_codes_avx2;
ckpi_codebook_codes_fn ckpi_codebook_codes_avx512;

ckpi_codebook_codes_fn *ckpi_codebook_pick(uint32_t cpu);
#endif
