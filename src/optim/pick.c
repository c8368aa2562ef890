/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "optim/kern.h"

/* Best first; the last needs nothing. */
static const ckpi_o_ops rows[] = {
#if CKPI_X86
    {"avx512", CKPI_CPU_AVX512, ckpi_o_step_avx512, ckpi_o_step4_avx512, ckpi_o_momentum_avx512},
    {"avx2", CKPI_CPU_AVX2, ckpi_o_step_avx2, ckpi_o_step4_avx2, ckpi_o_momentum_avx2},
#endif
#if CKPI_ARM
    {"neon", CKPI_CPU_NEON, ckpi_o_step_neon, ckpi_o_step4_neon, ckpi_o_momentum_neon},
#endif
    {"ref", 0, ckpi_o_step_ref, ckpi_o_step4_ref, ckpi_o_momentum_ref},
};

const ckpi_o_ops *
ckpi_o_pick(uint32_t cpu)
{
    size_t i = 0;
    while ((cpu & rows[i].needs) != rows[i].needs)
        i++;
    return &rows[i];
}
