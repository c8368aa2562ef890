/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/count/count.h"
#include "base/cpu.h"
#if CKPI_X86
#include <immintrin.h>

/* Counters of one byte, summed up before they can overflow. */
static CKPI_TARGET_AVX2 size_t
count_avx2(const uint8_t *p, size_t vectors, unsigned value)
{
    const __m256i wanted = _mm256_set1_epi8((char)value), zero = _mm256_setzero_si256();
    __m256i sums = zero;
    while (vectors > 0) {
        __m256i lanes = zero;
        const size_t rounds = vectors < 255 ? vectors : 255;
        for (size_t i = 0; i < rounds; i++, p += 32)
            lanes = _mm256_sub_epi8(lanes, _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(const void *)p), wanted));
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(lanes, zero));
        vectors -= rounds;
    }
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return (size_t)(_mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1));
}
#endif

size_t
ckpi_count_byte(const uint8_t *p, size_t n, unsigned value, uint32_t cpu)
{
    size_t count = 0, i = 0;
#if CKPI_X86
    if (cpu & CKPI_CPU_AVX2) {
        count = count_avx2(p, n / 32, value);
        i = n / 32 * 32;
    }
#else
    (void)cpu;
#endif
    for (; i < n; i++)
        count += p[i] == value;
    return count;
}
