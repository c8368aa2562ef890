/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/fixed.h"
#include "base/float.h"
#include "engine/factors.h"

#define EVERY 8u                 /* rows, and shares of a row, of the sample */

static int16_t
to_unit(int32_t x)
{
    const int32_t half = CKPI_FAC_UNIT / 2;
    const int32_t q = (x >= 0 ? x + half : x - half) / CKPI_FAC_UNIT;
    return (int16_t)(q * CKPI_FAC_UNIT);
}

ckp_status
ckpi_factors_set(ckpi_fac *f, const float *x, bool from_m, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const ckp_status st = ckpi_quant_factors(x, from_m, f->n, f->cols, f->row, f->col, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    for (size_t i = 0; i < f->rows; i++)
        f->row[i] = to_unit(f->row[i]);
    for (size_t j = 0; !f->blocks && j < f->cols; j++)
        f->col[j] = to_unit(f->col[j]);
    return CKP_OK;
}

static int32_t
clamp(int32_t x, int32_t lo, int32_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* One factor towards its new value; 0 means that the sample had no positive element there. */
static void
follow_one(int16_t *fac, int32_t now, bool known, int8_t *diff)
{
    const int32_t off = now - *fac;
    *diff = 0;
    if (!known || (off < CKPI_FAC_SLACK && off > -CKPI_FAC_SLACK))
        return;
    const int32_t moves = CKPI_MAX(-127, CKPI_MIN(127, to_unit(off) / CKPI_FAC_UNIT));
    *diff = (int8_t)moves;
    *fac = (int16_t)(*fac + moves * CKPI_FAC_UNIT);
}

/* Columns from every eighth whole row. */
static ckp_status
sample_cols(const ckpi_fac *f, const float *v, int16_t *col, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t whole = f->n / f->cols, every = whole >= 8 * EVERY ? EVERY : 1, k = (whole + every - 1) / every;
    int16_t *row = ckpi_scratch_get(ws, (k + 1) * sizeof *row);

    if (row == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a sample of %zu rows", k);
    return ckpi_quant_factors_apart(v, every * f->cols, false, k * f->cols, f->cols, row, col, ws, cpu, err);
}

/* Rows from a block of columns in their middle; *bias is what those columns are off the mean column by. */
static ckp_status
sample_rows(const ckpi_fac *f, const float *v, const int16_t *col, int16_t *row, int32_t *bias, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t whole = f->n / f->cols, width = f->cols >= 16 * EVERY ? f->cols / EVERY / 16 * 16 : f->cols, at = (f->cols - width) / 2;
    int64_t sum = 0;

    for (size_t j = 0; j < width; j++)
        sum += col[at + j];
    *bias = (int32_t)(sum / (int64_t)width);
    return ckpi_quant_factors_apart(v + at, f->cols, false, whole * width, width, row, NULL, ws, cpu, err);
}

static ckp_status
follow_blocks(ckpi_fac *f, const float *v, int8_t *diff, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    int16_t *row = ckpi_scratch_get(ws, f->rows * sizeof *row);
    if (row == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu factors", f->rows);
    const ckp_status st = ckpi_quant_factors(v, false, f->n, f->cols, row, NULL, ws, cpu, err);
    for (size_t i = 0; st == CKP_OK && i < f->rows; i++)
        follow_one(&f->row[i], clamp(row[i], CKPI_VROW_MIN, CKPI_VROW_MAX), row[i] != 0, &diff[i]);
    return st;
}

static ckp_status
follow_matrix(ckpi_fac *f, const float *v, int8_t *diff, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    int16_t *row = ckpi_scratch_get(ws, f->rows * sizeof *row), *col = ckpi_scratch_get(ws, f->cols * sizeof *col);
    int32_t bias = 0;

    memset(diff, 0, f->rows + f->cols);
    if (f->n < f->cols)          /* one short row: nothing to learn */
        return CKP_OK;
    if (row == NULL || col == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu factors", f->rows + f->cols);
    ckp_status st = sample_cols(f, v, col, ws, cpu, err);
    if (st == CKP_OK)
        st = sample_rows(f, v, col, row, &bias, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    for (size_t i = 0; i < f->n / f->cols; i++)
        follow_one(&f->row[i], clamp(row[i] - bias, CKPI_VROW_MIN, CKPI_VROW_MAX), row[i] != 0, &diff[i]);
    for (size_t j = 0; j < f->cols; j++)
        follow_one(&f->col[j], clamp(col[j], -CKPI_VCOL_MAX, CKPI_VCOL_MAX), true, &diff[f->rows + j]);
    return CKP_OK;
}

ckp_status
ckpi_factors_follow(ckpi_fac *f, const float *v, int8_t *diff, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    const ckp_status st = f->blocks ? follow_blocks(f, v, diff, ws, cpu, err) : follow_matrix(f, v, diff, ws, cpu, err);
    ckpi_scratch_release(ws, mark);
    return st;
}

/* A prime near the square root of a chunk's elements: 2,000 elements of a full one, spread over rows and columns. */
#define LIFT_SAMPLE 509
#define LIFT_AHEAD (16 * LIFT_SAMPLE)

void
ckpi_factors_lift(ckpi_fac *f, const float *v)
{
    const size_t step = f->n > 8 * LIFT_SAMPLE ? LIFT_SAMPLE : 1;
    double sum = 0.0;
    uint64_t n = 0;

    for (size_t i = 0; i < f->n; i += step) {
        __builtin_prefetch(v + CKPI_MIN(i + LIFT_AHEAD, f->n - 1));
        const uint32_t bits = ckpi_f32_bits(v[i]);
        if (bits == 0 || bits >= 0x7f800000U)        /* zero, negative or not finite */
            continue;
        const int32_t l = ckpi_log2_half(v[i]) - f->row[i / f->cols] - (f->blocks ? 0 : f->col[i % f->cols]);
        const int32_t half = f->vstep / 2, c = (l + half >= 0 ? l + half : l + half - f->vstep + 1) / f->vstep;
        sum += (double)ckpi_exp2_fixed(4 * (l - c * f->vstep));
        n++;
    }
    f->lift = n != 0 ? clamp(ckpi_log2_half((float)(sum / (double)n)), -128, 127) : 0;
}

void
ckpi_factors_move(int16_t *fac, const int8_t *diff, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fac[i] = (int16_t)CKPI_MAX(INT16_MIN, CKPI_MIN(INT16_MAX, fac[i] + diff[i] * CKPI_FAC_UNIT));
}
