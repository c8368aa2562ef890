/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/low_kern.h"
#include <string.h>
#include "base/float.h"

CKPI_NO_CONTRACT

#define TARGET
#define NAME(kernel) ckpi_low_##kernel##_ref
#include "quant/low_kern.inc"

void
ckpi_low_cols_by_ref(const int8_t *u, size_t rows, size_t cols, const int16_t *a, size_t stride, int32_t *c)
{
    ckpi_low_cols_from_ref(0, u, rows, cols, a, stride, c);
}
#undef TARGET
#undef NAME

#if CKPI_X86
#include <immintrin.h>

#define TARGET CKPI_TARGET_AVX2
#define NAME(kernel) ckpi_low_##kernel##_avx2
#define VEC __m256i
#define V_COLS 16
#define V_WIDEN(p) _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define V_ZERO _mm256_setzero_si256
#define V_SET _mm256_set1_epi32
#define V_LOW _mm256_unpacklo_epi16
#define V_HIGH _mm256_unpackhi_epi16
#define V_MADD _mm256_madd_epi16
#define V_ADD _mm256_add_epi32
#include "quant/low_kern.inc"
#include "quant/low_cols.inc"
#undef TARGET
#undef NAME
#undef VEC
#undef V_COLS
#undef V_WIDEN
#undef V_ZERO
#undef V_SET
#undef V_LOW
#undef V_HIGH
#undef V_MADD
#undef V_ADD

#define TARGET CKPI_TARGET_AVX512
#define NAME(kernel) ckpi_low_##kernel##_avx512
#define VEC __m512i
#define V_COLS 32
#define V_WIDEN(p) _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define V_ZERO _mm512_setzero_si512
#define V_SET _mm512_set1_epi32
#define V_LOW _mm512_unpacklo_epi16
#define V_HIGH _mm512_unpackhi_epi16
#define V_MADD _mm512_madd_epi16
#define V_ADD _mm512_add_epi32
#include "quant/low_kern.inc"
#include "quant/low_cols.inc"
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
