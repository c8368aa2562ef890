/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel: a pure function of the feature word and the model. */
#include "base/cpu.h"
#include "codec/rans/rans_kern_x86.h"

typedef enum shape { SMALL, CLASS, WIDE, OTHER } shape;

static shape
shape_of(const ckpi_rans_model *m)
{
    if (m->kind != CKPI_RANS_SPAN)
        return CLASS;
    if (m->distinct <= CKPI_RANS_SMALL)
        return SMALL;
    return m->bits <= CKPI_RANS_WIDE_BITS ? WIDE : OTHER;
}

void
ckpi_rans_wide_table(const ckpi_rans_model *m, uint32_t tab[4096])
{
    for (unsigned s = 0; s < 256; s++) {
        const uint32_t f = m->freq[s] / 16u, start = m->start[s] / 16u;
        for (uint32_t i = 0; i < f; i++)
            tab[start + i] = f << 20 | start << 8 | s;
    }
}

ckpi_rans_dec_fn *
ckpi_rans_dec_pick(const ckpi_rans_model *m, uint32_t cpu)
{
#if CKPI_X86
    static ckpi_rans_dec_fn *const vbmi2[] = {ckpi_rans_dec_small_vbmi2, ckpi_rans_dec_class_vbmi2, ckpi_rans_dec_wide_vbmi2, NULL};
    if ((cpu & CKPI_CPU_VBMI2) != 0)
        return vbmi2[shape_of(m)];
#endif
    (void)m;
    (void)cpu;
    return NULL;
}

ckpi_rans_enc_fn *
ckpi_rans_enc_pick(const ckpi_rans_model *m, uint32_t cpu)
{
#if CKPI_X86
    static ckpi_rans_enc_fn *const vbmi2[] = {ckpi_rans_enc_small_vbmi2, ckpi_rans_enc_class_vbmi2, ckpi_rans_enc_wide_vbmi2,
                                              ckpi_rans_enc_wide_vbmi2};
    if ((cpu & CKPI_CPU_VBMI2) != 0)
        return vbmi2[shape_of(m)];
#endif
    (void)m;
    (void)cpu;
    return NULL;
}
