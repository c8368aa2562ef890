/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of rows and columns: how they follow v. */
#ifndef CKPI_OPTIM_ROW_H
#define CKPI_OPTIM_ROW_H
#include "optim/kern.h"

/*
 * The factor of a row after raw codes are known: raised until the largest fits, lowered by one where two octaves are free. v keeps its value
 * under the new factor, but where it would be below code 1: it becomes that, and m, whose scale is v, is rounded again.
 * row: 0 where the row never had a v; code: the row's codes of v. Returns whether it was raised over an earlier factor.
 */
bool ckpi_o_row_end(const ckpi_mgrid *mg, const ckpi_vgrid *vg, size_t n, uint32_t z, uint32_t raw_max, const uint16_t *raw, int8_t *m, uint8_t *code,
                    uint8_t *row);

/* The row keeps its factor: its codes are the raw ones. */
bool ckpi_o_row_stays(const ckpi_vgrid *vg, uint32_t raw_max, uint32_t row);

/* Codes of v as raw ones. */
void ckpi_o_widen(uint16_t *raw, const uint8_t *code, size_t n);

/* Sums of exponents by column, from which the columns' factors follow: integers, so that parts of a parameter may be added up. */
typedef struct ckpi_o_colsum { int64_t sum; uint64_t count; } ckpi_o_colsum;

void ckpi_o_cols_of_floats(ckpi_o_colsum *c, size_t n, const float *x, bool square);      /* exponents of x or of x * x */
void ckpi_o_cols_of_codes(ckpi_o_colsum *c, size_t n, const uint8_t *v, const int8_t *col, uint32_t row, unsigned mant);
/* Each column's mean exponent less that of all. */
void ckpi_o_cols_fit(const ckpi_o_colsum *c, size_t n, int8_t *col);
#endif
