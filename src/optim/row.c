/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/row.h"
#include "base/float.h"

CKPI_NO_CONTRACT

/* In pieces of a fixed size, which compilers turn into vectors. */
static void
narrow(uint8_t *code, const uint16_t *raw, size_t n)
{
    enum { PIECE = 32 };
    size_t i = 0;
    for (; i + PIECE <= n; i += PIECE)
        for (size_t j = 0; j < PIECE; j++)
            code[i + j] = (uint8_t)raw[i + j];
    for (; i < n; i++)
        code[i] = (uint8_t)raw[i];
}

void
ckpi_o_widen(uint16_t *raw, const uint8_t *code, size_t n)
{
    for (size_t i = 0; i < n; i++)
        raw[i] = code[i];
}

bool
ckpi_o_row_stays(const ckpi_vgrid *vg, uint32_t raw_max, uint32_t row)
{
    return row != 0 && ckpi_o_octaves(vg, raw_max, row) == 0;
}

bool
ckpi_o_row_end(const ckpi_mgrid *mg, const ckpi_vgrid *vg, size_t n, uint32_t z, uint32_t raw_max, const uint16_t *raw, int8_t *m, uint8_t *code,
               uint8_t *row)
{
    const uint32_t old = *row != 0 ? *row : CKPI_O_ROW_MIN;
    const int up = ckpi_o_octaves(vg, raw_max, old);
    if (raw_max == 0 || up == 0)
        narrow(code, raw, n);
    else
        for (size_t i = 0; i < n; i++)
            code[i] = ckpi_o_raised(mg, vg->mant, raw[i], up, ~z + (uint32_t)i * CKPI_O_WALK, &m[i]);
    const bool raised = up > 0 && *row != 0;
    if (raw_max != 0)
        *row = (uint8_t)((int)old + up);
    return raised;
}

void
ckpi_o_cols_of_floats(ckpi_o_colsum *c, size_t n, const float *x, bool square)
{
    for (size_t j = 0; j < n; j++) {
        const uint32_t bits = ckpi_f32_bits(square ? x[j] * x[j] : x[j]) & 0x7fffffffu;
        if (bits != 0 && bits < 0x7f800000u) {
            c[j].sum += bits >> 23;
            c[j].count++;
        }
    }
}

void
ckpi_o_cols_of_codes(ckpi_o_colsum *c, size_t n, const uint8_t *v, const int8_t *col, uint32_t row, unsigned mant)
{
    for (size_t j = 0; j < n; j++)
        if (v[j] != 0) {
            c[j].sum += (int64_t)row + col[j] + (v[j] >> mant);
            c[j].count++;
        }
}

/* a / b to nearest, b > 0. */
static int64_t
nearest(int64_t a, int64_t b)
{
    return (2 * a + (a < 0 ? -b : b)) / (2 * b);
}

void
ckpi_o_cols_fit(const ckpi_o_colsum *c, size_t n, int8_t *col)
{
    int64_t sum = 0, count = 0;
    for (size_t j = 0; j < n; j++) {
        sum += c[j].sum;
        count += (int64_t)c[j].count;
    }
    const int64_t mean = count != 0 ? nearest(256 * sum, count) : 0;      /* in parts of 256 */
    for (size_t j = 0; j < n; j++) {
        const int64_t own = c[j].count != 0 ? nearest(256 * c[j].sum, (int64_t)c[j].count) : mean;
        const int64_t d = nearest(own - mean, 256);
        col[j] = (int8_t)(d < -CKPI_O_COL ? -CKPI_O_COL : d > CKPI_O_COL - 1 ? CKPI_O_COL - 1 : d);
    }
}
