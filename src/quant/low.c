/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/low.h"
#include "base/bytes.h"
#include "base/float.h"
#include "quant/low_kern.h"

void
ckpi_low_row(const ckpi_low *low, size_t i, size_t n, float *y, const ckpi_low_ops *ops)
{
    int8_t a[CKPI_LOW_MAX] = {0};
    for (unsigned k = 0; k < CKPI_LOW_MAX && k < low->rank; k++)
        a[k] = low->a[k * low->rows + i];
    ops->sums(a, low->b, low->cols, low->rank, n, low->gain, y);
}

void
ckpi_low_values(const ckpi_low *low, size_t n, float *y, uint32_t cpu)
{
    const ckpi_low_ops *ops = ckpi_low_pick(cpu);
    if (low->rank == 0) {
        for (size_t j = 0; j < n; j++)
            y[j] = 0.0f;
        return;
    }
    const ckpi_fpenv env = ckpi_fp_enter();
    for (size_t i = 0, at = 0; at < n; i++, at += low->cols)
        ckpi_low_row(low, i, CKPI_MIN(low->cols, n - at), y + at, ops);
    ckpi_fp_leave(env);
}
