/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel: a pure function of the feature word and the model. */
#include "base/cpu.h"
#include "codec/rans/rans_kern_arm.h"
#include "codec/rans/rans_kern_x86.h"

/* OTHER: many symbols with finer shares than a table of 4096 entries can hold. */
typedef enum shape { SMALL, MEDIUM, CLASS, WIDE, OTHER, SHAPES } shape;

static shape
shape_of(const ckpi_rans_model *m)
{
    if (m->kind != CKPI_RANS_SPAN)
        return CLASS;
    if (m->distinct <= 16)
        return SMALL;
    if (m->distinct <= CKPI_RANS_SMALL)
        return MEDIUM;
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
    const shape s = shape_of(m);
#if CKPI_X86
    static ckpi_rans_dec_fn *const vbmi2[SHAPES] = {
        [SMALL] = ckpi_rans_dec_small_vbmi2,
        [MEDIUM] = ckpi_rans_dec_small_vbmi2,
        [CLASS] = ckpi_rans_dec_class_vbmi2,
        [WIDE] = ckpi_rans_dec_wide_vbmi2,
        [OTHER] = ckpi_rans_dec_any_vbmi2,
    };
    static ckpi_rans_dec_fn *const avx2[SHAPES] = {
        [SMALL] = ckpi_rans_dec_small_avx2,
        [MEDIUM] = ckpi_rans_dec_medium_avx2,
        [CLASS] = ckpi_rans_dec_class_avx2,
        [WIDE] = ckpi_rans_dec_wide_avx2,
        [OTHER] = ckpi_rans_dec_any_avx2,
    };
    if ((cpu & CKPI_CPU_VBMI2) != 0)
        return vbmi2[s];
    if ((cpu & CKPI_CPU_AVX2) != 0)
        return s == MEDIUM && m->bits <= CKPI_RANS_WIDE_BITS ? ckpi_rans_dec_wide_avx2 : avx2[s];
#elif CKPI_ARM
    static ckpi_rans_dec_fn *const neon[SHAPES] = {
        [SMALL] = ckpi_rans_dec_small_neon,
        [MEDIUM] = ckpi_rans_dec_medium_neon,
        [CLASS] = ckpi_rans_dec_class_neon,
    };
    if ((cpu & CKPI_CPU_NEON) != 0)
        return neon[s];
#endif
    (void)s;
    (void)cpu;
    return NULL;
}

ckpi_rans_enc_fn *
ckpi_rans_enc_pick(const ckpi_rans_model *m, uint32_t cpu)
{
#if CKPI_X86
    const shape s = shape_of(m);
    if ((cpu & CKPI_CPU_VBMI2) != 0)
        return s == CLASS ? ckpi_rans_enc_class_vbmi2 : s <= MEDIUM ? ckpi_rans_enc_small_vbmi2 : ckpi_rans_enc_wide_vbmi2;
    if ((cpu & CKPI_CPU_AVX2) != 0)
        return ckpi_rans_enc_avx2;
#endif
    (void)m;
    (void)cpu;
    return NULL;
}
