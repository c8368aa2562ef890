/* SPDX-License-Identifier: Apache-2.0 */
/* Row and column factors: rounded means of integer logarithms, so that no order of summation shows. */
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "quant/num.h"

#define FETCHED 1024        /* elements */
#define FLUSH_ROWS 32768    /* |L| < 2^16: so many fit an int32 column sum */

typedef struct columns {
    int32_t *part;          /* of the rows since the last flush */
    int64_t *sum;
    uint32_t *count;
} columns;

static int32_t
mean(int64_t sum, uint64_t count)
{
    if (count == 0)
        return 0;
    const int64_t n = (int64_t)count, num = 2 * sum + n, den = 2 * n;
    return (int32_t)(num / den - (num % den < 0));
}

static int16_t
clamp(int32_t x, int32_t lo, int32_t hi)
{
    return (int16_t)CKPI_MAX(lo, CKPI_MIN(x, hi));
}

static bool
columns_init(columns *c, size_t cols, ckpi_scratch *ws)
{
    c->part = ckpi_scratch_get(ws, cols * sizeof *c->part);
    c->sum = ckpi_scratch_get(ws, cols * sizeof *c->sum);
    c->count = ckpi_scratch_get(ws, cols * sizeof *c->count);
    if (c->part == NULL || c->sum == NULL || c->count == NULL)
        return false;
    memset(c->part, 0, cols * sizeof *c->part);
    memset(c->sum, 0, cols * sizeof *c->sum);
    memset(c->count, 0, cols * sizeof *c->count);
    return true;
}

static void
columns_flush(columns *c, size_t cols)
{
    for (size_t j = 0; j < cols; j++) {
        c->sum[j] += c->part[j];
        c->part[j] = 0;
    }
}

static void
column_factors(const columns *c, size_t cols, int16_t *col)
{
    int64_t sum = 0;
    uint64_t count = 0;
    for (size_t j = 0; j < cols; j++) {
        sum += c->sum[j];
        count += c->count[j];
    }
    const int32_t all = mean(sum, count);
    for (size_t j = 0; j < cols; j++)
        col[j] = c->count[j] == 0 ? 0 : clamp(mean(c->sum[j], c->count[j]) - all, -CKPI_VCOL_MAX, CKPI_VCOL_MAX);
}

static int16_t
row_factor(const ckpi_q_ops *ops, const float *x, bool from_m, size_t n, columns *c)
{
    int64_t sum = 0;
    uint32_t count = 0;
    for (size_t j = 0; j < n; j += CKPI_Q_RUN)
        ops->logs(CKPI_MIN(CKPI_Q_RUN, n - j), x + j, from_m, &sum, &count, c == NULL ? NULL : c->part + j, c == NULL ? NULL : c->count + j);
    return from_m ? clamp(mean(sum, count), -126 * 256, 126 * 256) : clamp(mean(sum, count), CKPI_VROW_MIN, CKPI_VROW_MAX);
}

/* Rows of a sample are too far from each other for the hardware to see which comes next. */
static void
fetch(const float *row, size_t n)
{
    for (size_t j = 0; j < n; j += 16)
        __builtin_prefetch(row + j);
}

ckp_status
ckpi_quant_factors(const float *x, bool from_m, size_t n, size_t cols, int16_t *row, int16_t *col, ckpi_scratch *ws, uint32_t cpu,
                   ckp_error *err)
{
    return ckpi_quant_factors_apart(x, cols, from_m, n, cols, row, col, ws, cpu, err);
}

ckp_status
ckpi_quant_factors_apart(const float *x, size_t stride, bool from_m, size_t n, size_t cols, int16_t *row, int16_t *col, ckpi_scratch *ws, uint32_t cpu,
                         ckp_error *err)
{
    if (cols == 0 || n > UINT32_MAX)
        return ckpi_fail(err, CKP_EINVAL, "factors: %zu elements in rows of %zu", n, cols);
    const size_t used = CKPI_MIN(cols, n);
    const size_t mark = ckpi_scratch_mark(ws);
    columns c = {0};
    if (col != NULL)
        memset(col, 0, cols * sizeof *col);
    if (col != NULL && !columns_init(&c, used, ws)) {
        ckpi_scratch_release(ws, mark);
        return ckpi_fail(err, CKP_ENOMEM, "factors: no memory for %zu columns", used);
    }
    const ckpi_q_ops *ops = ckpi_q_pick(cpu);
    const ckpi_fpenv env = ckpi_fp_enter();
    const size_t ahead = CKPI_MAX(FETCHED / cols, (size_t)1);
    for (size_t i = 0, at = 0; at < n; i++, at += cols) {
        const size_t next = at + ahead * cols;
        if (stride != cols && next < n)
            fetch(x + (i + ahead) * stride, CKPI_MIN(cols, n - next));
        row[i] = row_factor(ops, x + i * stride, from_m, CKPI_MIN(cols, n - at), col == NULL ? NULL : &c);
        if (col != NULL && i % FLUSH_ROWS == FLUSH_ROWS - 1)
            columns_flush(&c, used);
    }
    if (col != NULL) {
        columns_flush(&c, used);
        column_factors(&c, used, col);
    }
    ckpi_fp_leave(env);
    ckpi_scratch_release(ws, mark);
    return CKP_OK;
}
