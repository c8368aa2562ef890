/* SPDX-License-Identifier: Apache-2.0 */
/* Grids by width; docs/decisions/0018 and 0021 have what was tried. */
#include <math.h>
#include "base/float.h"
#include "optim/kern.h"

CKPI_NO_CONTRACT

ckpi_mgrid
ckpi_mgrid_of(unsigned bits)
{
    /* top: the largest |m| over the root of v's power of two */
    static const struct { unsigned mant; float top; } rows[9] = {
        [2] = {0, 0.5f}, [3] = {1, 0.75f}, [4] = {2, 1.0f}, [5] = {3, 1.5f}, [6] = {4, 2.5f}, [8] = {6, 5.0f},
    };
    ckpi_mgrid g = {.mant = rows[bits].mant, .top = (1u << (bits - 1)) - 1, .narrow = bits <= 4};
    g.h = rows[bits].top / ckpi_mgrid_value(&g, (int)g.top) / CKPI_O_UNIT;
    return g;
}

ckpi_mgrid
ckpi_momentum_grid_of(unsigned bits)
{
    static const unsigned mant[9] = {[4] = 1, [5] = 2, [6] = 3, [8] = 4};
    return (ckpi_mgrid){.mant = mant[bits], .top = (1u << (bits - 1)) - 1, .h = 1.0f, .narrow = bits <= 4};
}

uint32_t
ckpi_o_factor_of(const ckpi_mgrid *g, uint32_t max)
{
    const int32_t above = (int32_t)max - (int32_t)ckpi_f32_bits(ckpi_mgrid_value(g, (int)g->top)), octave = 1 << 23;
    const int32_t e = 127 + (above >= 0 ? (above + octave - 1) / octave : above / octave);
    return e < (int32_t)CKPI_O_ROW_MIN ? CKPI_O_ROW_MIN : e > (int32_t)CKPI_O_FACTOR_MAX ? CKPI_O_FACTOR_MAX : (uint32_t)e;
}

uint8_t
ckpi_o_factor_after(const ckpi_mgrid *g, uint32_t max, uint8_t was, ckpi_o_mseen *seen)
{
    const uint32_t now = ckpi_o_factor_of(g, max);
    seen->raised += was > CKPI_O_ROW_MIN && now > was;
    return (uint8_t)now;
}

float
ckpi_mgrid_times(const ckpi_mgrid *g, int k, float a)
{
    const uint32_t size = (uint32_t)(k < 0 ? -k : k);
    const float y = ckpi_f32_from_bits((size << (23 - g->mant)) + 0x3f800000u);
    return k < 0 ? -fmaf(y, a, -a) : fmaf(y, a, -a);
}

float
ckpi_mgrid_value(const ckpi_mgrid *g, int k)
{
    return ckpi_mgrid_times(g, k, 1.0f);
}

int8_t
ckpi_o_m_code(const ckpi_mgrid *g, float m, float per_s, uint32_t y)
{
    const unsigned shift = 23 - g->mant;
    const uint32_t t = ckpi_f32_bits(fmaf(fabsf(m), per_s, 1.0f)) + (y & ((1u << shift) - 1u));
    const int32_t size = (int32_t)(t >> shift) - (int32_t)(127u << g->mant);
    const int32_t k = size < (int32_t)g->top ? size : (int32_t)g->top;
    return (int8_t)(m < 0 ? -k : k);
}

ckpi_vgrid
ckpi_vgrid_of(unsigned bits)
{
    static const unsigned mant[9] = {[5] = 1, [6] = 2, [8] = 3};
    static const float noise[4] = {1.13f, 1.055f, 1.025f, 1.0f};
    return (ckpi_vgrid){mant[bits], (1u << bits) - 1, noise[mant[bits]]};
}

static void
m_table(float *by_code, const ckpi_mgrid *g, float am)
{
    for (int i = 0; i < 16; i++)
        by_code[i] = g->narrow ? ckpi_mgrid_times(g, i < 8 ? i : i - 16, am) : 0.0f;
}

void
ckpi_o_par_tables(ckpi_o_par *p)
{
    m_table(p->m_by_code, &p->m, p->am);
    for (int i = 0; i < 16; i++) {
        p->v_by_code[i] = i == 0 ? 0.0f : p->av * (float)(1u << i);
        p->root_by_code[i] = ckpi_f32_from_bits(ckpi_o_root_bits((uint32_t)i << 22));
    }
}

void
ckpi_o_mpar_tables(ckpi_o_mpar *p)
{
    m_table(p->m_by_code, &p->m, 1.0f);
}
