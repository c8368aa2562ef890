/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/low_kern.h"
#include <string.h>
#include "base/float.h"

CKPI_NO_CONTRACT

#define TARGET
#define NAME(kernel) ckpi_low_##kernel##_ref
#include "quant/low_kern.inc"
#undef TARGET
#undef NAME

#if CKPI_X86
#define TARGET CKPI_TARGET_AVX2
#define NAME(kernel) ckpi_low_##kernel##_avx2
#include "quant/low_kern.inc"
#undef TARGET
#undef NAME

#define TARGET CKPI_TARGET_AVX512
#define NAME(kernel) ckpi_low_##kernel##_avx512
#include "quant/low_kern.inc"
#undef TARGET
#undef NAME
#endif

#define OPS(isa) {ckpi_low_rows_by_##isa, ckpi_low_cols_by_##isa, ckpi_low_sums_##isa, ckpi_low_rest_##isa, ckpi_low_squares_##isa, ckpi_low_three_##isa}

const ckpi_low_ops *
ckpi_low_pick(uint32_t cpu)
{
    static const ckpi_low_ops ref = OPS(ref);
#if CKPI_X86
    static const ckpi_low_ops avx2 = OPS(avx2), avx512 = OPS(avx512);
    if (cpu & CKPI_CPU_AVX512)
        return &avx512;
    if (cpu & CKPI_CPU_AVX2)
        return &avx2;
#else
    (void)cpu;
#endif
    return &ref;
}
