/* SPDX-License-Identifier: Apache-2.0 */
/* Grids by width; docs/decisions/0018 and 0021 have what was tried. */
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
        p->root_by_code[i] = ckpi_o_float(ckpi_o_root_bits((uint32_t)i << 22));
    }
}

void
ckpi_o_mpar_tables(ckpi_o_mpar *p)
{
    m_table(p->m_by_code, &p->m, 1.0f);
}
