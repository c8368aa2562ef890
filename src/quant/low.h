/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First moments along a few directions of a matrix, and three values for what those leave (docs/decisions/0014).
 *
 * u = m / sqrt(v^) of a matrix has much of its energy in few directions. With small integers a and b,
 *     y[i][j] = (float)(a[0][i] * b[0][j] + ... + a[r - 1][i] * b[r - 1][j]) * gain          an integer, one conversion, one product
 *     m^      = ((float)code * mg + y) * s                                                   (quant.h)
 * where code is -1, 0 or 1. The decoder's arithmetic is the format; how directions and codes are found is the encoder's affair, and
 * deterministic: integers and double arithmetic in a fixed order.
 *
 * Directions: subspace iteration (Golub and Van Loan, Matrix Computations, section 8.2.4) on codes of u, then their principal axes.
 */
#ifndef CKPI_QUANT_LOW_H
#define CKPI_QUANT_LOW_H
#include "quant/quant.h"

#define CKPI_LOW_MAX 4              /* FORMAT: directions of a piece */
#define CKPI_LOW_SIDE 65536u        /* beyond so many rows or columns the encoder looks for none: sums of products fit 32 bits */

/* Directions of one piece. rank 0: none, and y = 0. */
typedef struct ckpi_low {
    size_t rows, cols;              /* of the whole piece, whose last row may be short */
    unsigned rank;
    float gain;
    const int8_t *a, *b;            /* rank runs of rows, and of cols */
} ckpi_low;

/* y of n elements, from the piece's first. */
void ckpi_low_values(const ckpi_low *low, size_t n, float *y, uint32_t cpu);

/*
 * Directions of u (n codes, |u| up to 127, as rows of cols): as many as pay, where a share of the elements will be kept beside them.
 * Gains are in steps of u. a and b are in ws. CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_low_fit(ckpi_low *out, const int8_t *u, size_t n, size_t cols, double share, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* What three values make of u less y. */
typedef struct ckpi_three {
    double size;                    /* of a kept value, in steps of u: <code * size, u - y> = <u - y, u - y>, as far as most says */
    uint64_t kept;
    double left;                    /* of the squares of u: the share that directions do not hold; 1 without */
} ckpi_three;

/*
 * The elements of largest |u - y|, as 1 or -1; all others 0. Kept: about share * root of what directions have left, at least one
 * unless all are zero. A kept value stands for no more than `most` times the smallest of them. CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_three_code(ckpi_three *out, const int8_t *u, size_t n, const ckpi_low *low, double share, double most, int8_t *code,
                                        ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
#endif
