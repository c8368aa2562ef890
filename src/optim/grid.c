/* SPDX-License-Identifier: Apache-2.0 */
/* Grids by width; docs/decisions/0018 has what was tried. */
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
    g.h = rows[bits].top / ckpi_mgrid_value(&g, (int)g.top) / 1.20710678f / CKPI_O_AGAIN;
    return g;
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

void
ckpi_o_par_tables(ckpi_o_par *p)
{
    for (int i = 0; i < 16; i++) {
        p->m_by_code[i] = p->m.narrow ? ckpi_mgrid_times(&p->m, i < 8 ? i : i - 16, p->am) : 0.0f;
        p->v_by_code[i] = i == 0 ? 0.0f : p->av * (float)(1u << i);
        p->root_by_code[i] = ckpi_f32_from_bits(ckpi_o_root_bits((uint32_t)i << 22));
    }
}
