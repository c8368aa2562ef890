/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimal levels, by cells.inc. Prefix sums begin at the first point that is not negative and run outwards both ways, so an outlier's square is in no sum of
 * the cells inside of it, and differences of sums lose nothing that those cells could miss.
 */
#include "base/bytes.h"
#include "base/fail.h"
#include "quant/codebook.h"
#include "quant/num.h"

CKPI_NO_CONTRACT

/* ---- points ------------------------------------------------------------------------------------------------------------- */

static void
put_point(ckpi_points *p, float x, uint64_t count)
{
    if (count == 0)
        return;
    p->x[p->n] = x;
    p->weight[p->n++] = (double)count;
}

ckp_status
ckpi_points_of(ckpi_points *p, const ckpi_sketch *s, float from, float below, ckpi_scratch *ws, ckp_error *err)
{
    const size_t first = from > 0 ? f32_bits(from) >> CKPI_SKETCH_SHIFT : 0, end = below > 0 ? f32_bits(below) >> CKPI_SKETCH_SHIFT : 0;
    size_t most = 1;
    for (size_t i = first; i < end && i < CKPI_SKETCH_BUCKETS; i++)
        most += (s->count[0][i] != 0) + (size_t)(s->count[1][i] != 0);
    p->n = 0;
    p->x = ckpi_scratch_get(ws, most * sizeof *p->x);
    p->weight = ckpi_scratch_get(ws, most * sizeof *p->weight);
    if (p->x == NULL || p->weight == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "codebook: no memory for %zu points", most);
    const size_t top = CKPI_MIN(end, (size_t)CKPI_SKETCH_BUCKETS);
    for (size_t i = top; i > first; i--)
        put_point(p, -ckpi_sketch_middle(i - 1), s->count[1][i - 1]);
    if (first == 0 && end > 0)
        put_point(p, 0, s->zero);
    for (size_t i = first; i < top; i++)
        put_point(p, ckpi_sketch_middle(i), s->count[0][i]);
    return CKP_OK;
}

void
ckpi_points_mix(ckpi_points *p, double sigma)
{
    double most = 0, largest = 0;
    for (size_t i = 0; i < p->n; i++) {
        most = CKPI_MAX(most, p->weight[i]);
        largest = CKPI_MAX(largest, (double)f32_abs(p->x[i]));
    }
    size_t kept = 0;
    for (size_t i = 0; i < p->n; i++) {
        const double size = largest > 0 ? (double)f32_abs(p->x[i]) / largest : 0;
        const double weight = sigma * (p->weight[i] / most) + (1 - sigma) * size;
        p->x[kept] = p->x[i];
        p->weight[kept] = weight;
        kept += weight > 0;
    }
    p->n = kept;
}

/* ---- dynamic programming ------------------------------------------------------------------------------------------------ */

/* Squared error of points [i, j) around their mean. */
static inline double
cost(const ckpi_codebook_fit *f, size_t i, size_t j)
{
    const double w = f->sum[0][j] - f->sum[0][i], x = f->sum[1][j] - f->sum[1][i], xx = f->sum[2][j] - f->sum[2][i];
    const double e = xx - x * x / w;
    return e > 0 ? e : 0;
}

#define CELLS_OF ckpi_codebook_fit
#include "quant/cells.inc"

static void
sum_up(ckpi_codebook_fit *f)
{
    const ckpi_points *p = f->points;
    size_t zero = 0;
    while (zero < p->n && p->x[zero] < 0)
        zero++;
    for (unsigned k = 0; k < 3; k++)
        f->sum[k][zero] = 0;
    for (size_t j = zero; j < p->n; j++) {
        const double x = (double)p->x[j], wx = p->weight[j] * x;
        f->sum[0][j + 1] = f->sum[0][j] + p->weight[j];
        f->sum[1][j + 1] = f->sum[1][j] + wx;
        f->sum[2][j + 1] = f->sum[2][j] + wx * x;
    }
    for (size_t j = zero; j-- > 0;) {
        const double x = (double)p->x[j], wx = p->weight[j] * x;
        f->sum[0][j] = f->sum[0][j + 1] - p->weight[j];
        f->sum[1][j] = f->sum[1][j + 1] - wx;
        f->sum[2][j] = f->sum[2][j + 1] - wx * x;
    }
}

ckp_status
ckpi_codebook_fit_all(ckpi_codebook_fit *f, const ckpi_points *points, uint32_t most, ckpi_scratch *ws, ckp_error *err)
{
    const size_t n = points->n;
    if (most == 0 || most > CKPI_CODEBOOK_MAX || n > UINT16_MAX)
        return ckpi_fail(err, CKP_EINVAL, "codebook: %u levels for %zu points", (unsigned)most, n);
    *f = (ckpi_codebook_fit){.points = points, .most = (uint32_t)CKPI_MIN((size_t)most, n)};
    f->cut = ckpi_scratch_get(ws, most * (n + 1) * sizeof *f->cut);
    double *rows = ckpi_scratch_get(ws, 5 * (n + 1) * sizeof *rows);
    if (f->cut == NULL || rows == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "codebook: no memory for %zu points", n);
    for (unsigned k = 0; k < 3; k++)
        f->sum[k] = rows + k * (n + 1);
    sum_up(f);
    if (n != 0)
        fill_rows(f, n, f->most, f->cut, f->error, rows + 3 * (n + 1), rows + 4 * (n + 1));
    return CKP_OK;
}

void
ckpi_codebook_take(ckpi_codebook *cb, const ckpi_codebook_fit *f, uint32_t k)
{
    const size_t n = f->points->n;
    size_t end = n;
    cb->k = CKPI_MIN(k, f->most);
    for (uint32_t level = cb->k; level > 0; level--) {
        const size_t begin = f->cut[(size_t)(level - 1) * (n + 1) + end];
        cb->centre[level - 1] = (float)((f->sum[1][end] - f->sum[1][begin]) / (f->sum[0][end] - f->sum[0][begin]));
        end = begin;
    }
}
