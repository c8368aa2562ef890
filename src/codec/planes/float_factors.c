/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row and column factors: means of log2 |x| (a float's magnitude bits, read as an integer, are nearly its logarithm), in
 * quarters of an octave above the smallest. Optimizer state and many weights are close to row factor times column factor.
 */
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/planes/float.h"

enum {
    SUM_FINE = 4,         /* sums are kept in 1/16 octave */
    REACH = 16            /* octaves: values further below their row's peak count as that: a zero would outweigh a hundred others */
};

static uint32_t
floor_below(uint32_t peak)
{
    const uint32_t sixteenths = peak << (SUM_FINE - CKPI_FLOAT_FINE), reach = REACH << SUM_FINE;
    return sixteenths > reach ? sixteenths - reach : 0;
}

/* Means of sums in 1/16 octave, rounded to quarters, as bytes above the smallest. */
static void
to_bytes(uint8_t *out, const uint32_t *mean, size_t n)
{
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        least = CKPI_MIN(least, mean[i]);
    for (size_t i = 0; i < n; i++) {
        const uint32_t quarters = (mean[i] - least + 2) >> (SUM_FINE - CKPI_FLOAT_FINE);
        out[i] = (uint8_t)CKPI_MIN(quarters, 255u);
    }
}

ckp_status
ckpi_float_factors(const ckpi_float_plan *p, const void *data, uint8_t *row, uint8_t *col, const uint32_t *peak, ckpi_scratch *ws,
                   uint32_t cpu, ckp_error *err)
{
    const ckpi_float_kern *kern = ckpi_float_kern_pick(p->type.width, cpu);
    const size_t mark = ckpi_scratch_mark(ws);
    uint32_t *rows = ckpi_scratch_get(ws, p->rows * sizeof *rows), *cols = ckpi_scratch_get(ws, p->row_len * sizeof *cols);
    uint32_t *spare = ckpi_scratch_get(ws, p->row_len * sizeof *cols);
    if (rows == NULL || cols == NULL || spare == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for factors of %zu rows", p->rows);
    memset(cols, 0, p->row_len * sizeof *cols);
    memset(spare, 0, p->row_len * sizeof *spare);

    uint32_t summed = 0, last = 0;
    for (size_t i = 0; i < p->rows; i++) {
        const size_t n = ckpi_float_row_size(p, i);
        if (ckpi_float_row_class(p, i) != CKPI_ROW_ZERO) {
            const uint8_t *at = (const uint8_t *)data + i * p->row_len * p->type.width;
            last = (uint32_t)(kern->sum(n == p->row_len ? cols : spare, at, n, p->type.mant - SUM_FINE, floor_below(peak[i])) / n);
            summed += n == p->row_len;
        }
        rows[i] = last; /* a zero row repeats its neighbour's: cheapest to code */
    }
    /* A short last row has no say in columns: it would count in some and not in others. */
    for (size_t j = 0; j < p->row_len; j++)
        cols[j] /= summed != 0 ? summed : 1;
    to_bytes(row, rows, p->rows);
    to_bytes(col, cols, p->row_len);
    ckpi_scratch_release(ws, mark);
    return CKP_OK;
}
