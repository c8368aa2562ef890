/* SPDX-License-Identifier: Apache-2.0 */
/* Floats to buckets: the reference, and AVX2 and AVX-512. */
#include "quant/sketch_kern.h"
#include "base/cpu.h"
#include "quant/num.h"
#include "quant/sketch.h"
#if CKPI_X86
#include <immintrin.h>
#endif

CKPI_NO_CONTRACT

size_t
ckpi_sketch_slots_ref(uint16_t *slot, const float *x, const float *y, size_t n)
{
    size_t zeros = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t b = y == NULL ? f32_bits(x[i]) : f32_bits(x[i] * y[i]) & 0x7fffffffu;
        slot[i] = (uint16_t)(b >> CKPI_SKETCH_SHIFT);
        zeros += (b & 0x7fffffffu) == 0;
    }
    return zeros;
}

#if CKPI_X86
CKPI_TARGET_AVX2 static inline __m256i
bits8(const float *x, const float *y)
{
    const __m256 v = _mm256_loadu_ps(x);
    if (y == NULL)
        return _mm256_castps_si256(v);
    return _mm256_and_si256(_mm256_castps_si256(_mm256_mul_ps(v, _mm256_loadu_ps(y))), _mm256_set1_epi32(0x7fffffff));
}

CKPI_TARGET_AVX2 size_t
ckpi_sketch_slots_avx2(uint16_t *slot, const float *x, const float *y, size_t n)
{
    __m256i zeros = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i a = bits8(x + i, y != NULL ? y + i : NULL), b = bits8(x + i + 8, y != NULL ? y + i + 8 : NULL);
        zeros = _mm256_sub_epi32(zeros, _mm256_cmpeq_epi32(_mm256_add_epi32(a, a), _mm256_setzero_si256()));
        zeros = _mm256_sub_epi32(zeros, _mm256_cmpeq_epi32(_mm256_add_epi32(b, b), _mm256_setzero_si256()));
        const __m256i both = _mm256_packus_epi32(_mm256_srli_epi32(a, CKPI_SKETCH_SHIFT), _mm256_srli_epi32(b, CKPI_SKETCH_SHIFT));
        _mm256_storeu_si256((__m256i *)(void *)(slot + i), _mm256_permute4x64_epi64(both, 0xd8));
    }
    uint32_t lanes[8];
    _mm256_storeu_si256((__m256i *)(void *)lanes, zeros);
    size_t sum = ckpi_sketch_slots_ref(slot + i, x + i, y != NULL ? y + i : NULL, n - i);
    for (unsigned k = 0; k < 8; k++)
        sum += lanes[k];
    return sum;
}

CKPI_TARGET_AVX512 size_t
ckpi_sketch_slots_avx512(uint16_t *slot, const float *x, const float *y, size_t n)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    size_t zeros = 0, i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        __m512i b = _mm512_castps_si512(v);
        if (y != NULL)
            b = _mm512_and_si512(_mm512_castps_si512(_mm512_mul_ps(v, _mm512_loadu_ps(y + i))), magnitude);
        zeros += (size_t)_mm_popcnt_u32(_mm512_testn_epi32_mask(b, magnitude));
        _mm256_storeu_si256((__m256i *)(void *)(slot + i), _mm512_cvtepi32_epi16(_mm512_srli_epi32(b, CKPI_SKETCH_SHIFT)));
    }
    return zeros + ckpi_sketch_slots_ref(slot + i, x + i, y != NULL ? y + i : NULL, n - i);
}
#endif

ckpi_sketch_slots_fn *
ckpi_sketch_pick(uint32_t cpu)
{
#if CKPI_X86
    if (cpu & CKPI_CPU_AVX512)
        return ckpi_sketch_slots_avx512;
    if (cpu & CKPI_CPU_AVX2)
        return ckpi_sketch_slots_avx2;
#endif
    (void)cpu;
    return ckpi_sketch_slots_ref;
}
