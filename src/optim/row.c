/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/row.h"
#include "base/float.h"

CKPI_NO_CONTRACT

/* Octaves to add to a row's factor. */
static int
octaves(const ckpi_vgrid *vg, uint32_t raw_max, uint32_t row)
{
    if (raw_max > vg->top)
        return (int)((raw_max - vg->top + (1u << vg->mant) - 1) >> vg->mant);
    return raw_max != 0 && raw_max + (2u << vg->mant) <= vg->top && row > CKPI_O_ROW_MIN ? -1 : 0;
}

/* m's code where v is `was` under the old factor and code 1 under one that is `up` octaves higher. */
static int8_t
follow(const ckpi_mgrid *mg, unsigned mant, int8_t k, uint32_t was, int up, uint32_t x)
{
    /* Any exponent does that keeps all in range: only the ratio matters. */
    const uint32_t f = 100;
    const float s = ckpi_f32_from_bits(ckpi_o_root_bits(f << 22));
    const uint32_t now = f + (1u >> mant) + (uint32_t)up - (was >> mant);
    const float m = ckpi_mgrid_value(mg, k) * CKPI_O_AGAIN * s;
    return ckpi_o_m_code(mg, m, ckpi_f32_from_bits(ckpi_o_per_root_bits(now << 22)), x);
}

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

bool
ckpi_o_row_stays(const ckpi_vgrid *vg, uint32_t raw_max, uint32_t row)
{
    return row != 0 && octaves(vg, raw_max, row) == 0;
}

bool
ckpi_o_row_end(const ckpi_mgrid *mg, const ckpi_vgrid *vg, size_t n, uint32_t z, uint32_t raw_max, const uint16_t *raw, int8_t *m, uint8_t *code,
               uint8_t *row)
{
    const uint32_t old = *row != 0 ? *row : CKPI_O_ROW_MIN;
    const int up = octaves(vg, raw_max, old), shift = up * (1 << vg->mant);
    if (raw_max == 0 || up == 0)
        narrow(code, raw, n);
    else
        for (size_t i = 0; i < n; i++) {
            const int c = raw[i] - shift;
            code[i] = (uint8_t)(raw[i] == 0 ? 0 : c < 1 ? 1 : c);
            if (raw[i] != 0 && c < 1 && m[i] != 0)
                m[i] = follow(mg, vg->mant, m[i], raw[i], up, ckpi_o_random(~z + (uint32_t)i * CKPI_O_WALK));
        }
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
