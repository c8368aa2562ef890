/* SPDX-License-Identifier: Apache-2.0 */
/* What the encoders and decoders for AVX-512 with VBMI2 share. x86 only. */
#ifndef CKPI_CODEC_RANS_KERN_512_H
#define CKPI_CODEC_RANS_KERN_512_H
#include <immintrin.h>

#include "base/cpu.h"

#define TARGET CKPI_TARGET_VBMI2
#define INLINE TARGET static inline __attribute__((always_inline))

/* 32 lanes in natural order: the high and the low halves of their states. */
typedef struct half32 {
    __m512i h, l;
} half32;

INLINE half32
load_states(const uint32_t *x)
{
    const __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(x + 16);
    half32 s;
    s.l = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)), _mm512_cvtepi32_epi16(b), 1);
    s.h = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(_mm512_srli_epi32(a, 16))),
                             _mm512_cvtepi32_epi16(_mm512_srli_epi32(b, 16)), 1);
    return s;
}

INLINE void
store_states(uint32_t *x, half32 s)
{
    for (int i = 0; i < 2; i++) {
        const __m256i h = i == 0 ? _mm512_castsi512_si256(s.h) : _mm512_extracti64x4_epi64(s.h, 1);
        const __m256i l = i == 0 ? _mm512_castsi512_si256(s.l) : _mm512_extracti64x4_epi64(s.l, 1);
        const __m512i v = _mm512_or_si512(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16), _mm512_cvtepu16_epi32(l));
        _mm512_storeu_si512(x + 16 * i, v);
    }
}

/* tab[i] of 256 words; bit6, bit7: those bits of i. */
INLINE __m512i
look_up_words(const uint16_t *tab, __m512i i, __mmask32 bit6, __mmask32 bit7)
{
    __m512i v[4];
    for (int k = 0; k < 4; k++)
        v[k] = _mm512_permutex2var_epi16(_mm512_loadu_si512(tab + 64 * k), i, _mm512_loadu_si512(tab + 64 * k + 32));
    return _mm512_mask_mov_epi16(_mm512_mask_mov_epi16(v[0], bit6, v[1]), bit7, _mm512_mask_mov_epi16(v[2], bit6, v[3]));
}

/* Bit k of each number. */
INLINE __mmask32
bit_of(__m512i i, unsigned k)
{
    return _mm512_movepi16_mask(_mm512_sll_epi16(i, _mm_cvtsi32_si128((int)(15 - k))));
}

/* tab[i] of 256 bytes in four vectors. */
INLINE __m512i
look_up_256(const __m512i tab[4], __m512i i)
{
    const __m512i a = _mm512_permutex2var_epi8(tab[0], i, tab[1]), b = _mm512_permutex2var_epi8(tab[2], i, tab[3]);
    return _mm512_mask_mov_epi8(a, _mm512_movepi8_mask(i), b);
}

#endif
