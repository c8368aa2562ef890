/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "codec/mask/mask_kern_x86.h"

const ckpi_mask_ops *
ckpi_mask_pick(uint32_t cpu)
{
#if CKPI_X86
    if ((cpu & CKPI_CPU_VBMI2) != 0)
        return &ckpi_mask_ops_vbmi2;
    if ((cpu & CKPI_CPU_AVX2) != 0)
        return &ckpi_mask_ops_avx2;
#endif
    (void)cpu;
    return &ckpi_mask_ops_ref;
}
