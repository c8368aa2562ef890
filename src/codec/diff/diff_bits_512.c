/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen or thirty-two words at a time from symbols, base and low bits, for words of 4 and 2 bytes: where each begins is a sum over those before it, a
 * permutation of bytes brings it into its lane, and a double shift to the lane's foot. Needs VBMI2.
 */
#include "base/bytes.h"
#include "base/cpu.h"
#include "codec/diff/diff_bits_rows.h"
#if CKPI_X86
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline)) CKPI_TARGET_VBMI2

/* Lane i: the sum of lanes 0 to i. */
INLINE __m512i
sums(__m512i v)
{
    const __m512i zero = _mm512_setzero_si512();
    v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 15));
    v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 14));
    v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 12));
    return _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 8));
}

/* Low bits of each symbol, by the arithmetic behind ckpi_diff_rest_bits. */
INLINE __m128i
rest_of(__m128i sym, unsigned msb, unsigned most)
{
    const __m128i t = _mm_and_si128(_mm_srl_epi16(sym, _mm_cvtsi32_si128((int)msb + 1)), _mm_set1_epi8((char)(0xFF >> (msb + 1))));
    const __m128i rest = _mm_subs_epu8(t, _mm_set1_epi8(1));
    return _mm_maskz_mov_epi8(_mm_cmple_epu8_mask(rest, _mm_set1_epi8((char)most)), rest);
}

INLINE unsigned
total_of(__m128i bytes)
{
    const __m128i two = _mm_sad_epu8(bytes, _mm_setzero_si128());
    return (unsigned)(_mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 2));
}

/* Magnitudes of 16 symbols whose bits begin at bit `from` (below 8) of src, 64 readable bytes. */
INLINE __m512i
magnitudes(const uint8_t *src, unsigned from, __m512i t, __m512i rest, unsigned msb)
{
    const __m512i begin = _mm512_add_epi32(_mm512_sub_epi32(sums(rest), rest), _mm512_set1_epi32((int)from));
    const __m512i spread = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    const __m512i first = _mm512_shuffle_epi8(_mm512_srli_epi32(begin, 3), spread);
    const __m512i place = _mm512_add_epi8(first, _mm512_set1_epi32(0x03020100));
    const __m512i bytes = _mm512_loadu_si512(src);
    const __m512i foot = _mm512_permutexvar_epi8(place, bytes), next = _mm512_permutexvar_epi8(_mm512_add_epi8(place, _mm512_set1_epi8(4)), bytes);
    const __m512i bits = _mm512_shrdv_epi32(foot, next, _mm512_and_si512(begin, _mm512_set1_epi32(7)));
    const __m512i mask = _mm512_sub_epi32(_mm512_sllv_epi32(_mm512_set1_epi32(1), rest), _mm512_set1_epi32(1));
    const __m512i lead = _mm512_sub_epi32(t, _mm512_sll_epi32(rest, _mm_cvtsi32_si128((int)msb)));
    return _mm512_or_si512(_mm512_sllv_epi32(lead, rest), _mm512_and_si512(bits, mask));
}

/* As NAME(words) in diff_simple.inc. */
INLINE void
store_words32(const ckpi_diff_par *p, uint8_t *words, const uint8_t *base, __m512i a, __m512i t2)
{
    const __m512i magnitude = _mm512_set1_epi32(p->is_float ? INT32_MAX : 0), sign = _mm512_set1_epi32(p->is_float ? INT32_MIN : 0);
    const __m512i x = _mm512_loadu_si512(base), flip = _mm512_slli_epi32(t2, 31);
    const __m512i negative = _mm512_srai_epi32(_mm512_xor_si512(flip, _mm512_and_si512(x, sign)), 31);
    const __m512i from = _mm512_xor_si512(x, _mm512_and_si512(_mm512_srai_epi32(x, 31), magnitude));
    const __m512i o = _mm512_add_epi32(from, _mm512_sub_epi32(_mm512_xor_si512(a, negative), negative));
    _mm512_storeu_si512(words, _mm512_xor_si512(o, _mm512_and_si512(_mm512_srai_epi32(o, 31), magnitude)));
}

static CKPI_TARGET_VBMI2 size_t
join_32(const ckpi_diff_par *p, uint8_t *words, const uint8_t *base, const uint8_t *src, size_t len, const uint8_t *sym, size_t n,
        uint64_t *bits)
{
    const unsigned most = ckpi_diff_rest_most(p->msb, 4);
    uint64_t pos = 0;
    size_t i = 0;
    /* 16 times 31 bits and 7 before them end within 64 bytes */
    for (; i + 16 <= n && (pos >> 3) + 64 <= len; i += 16) {
        const __m128i s = _mm_loadu_si128((const __m128i *)(const void *)(sym + i)), rest = rest_of(s, p->msb, most);
        const __m512i wide = _mm512_cvtepu8_epi32(s);
        const __m512i a = magnitudes(src + (pos >> 3), (unsigned)pos & 7, _mm512_srli_epi32(wide, 1), _mm512_cvtepu8_epi32(rest), p->msb);
        store_words32(p, words + 4 * i, base + 4 * i, a, wide);
        pos += total_of(rest);
    }
    *bits = pos;
    return i;
}

/* ---- words of 2 bytes: the same in 32 lanes of 16 bits ----------------------------------------------------------- */

INLINE __m512i
sums16(__m512i v)
{
    /* the last lane of the eighth before, and of two eighths before */
    const __m512i one = _mm512_set_epi16(23, 23, 23, 23, 23, 23, 23, 23, 15, 15, 15, 15, 15, 15, 15, 15, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0,
                                         0, 0);
    const __m512i two = _mm512_set_epi16(15, 15, 15, 15, 15, 15, 15, 15, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    v = _mm512_add_epi16(v, _mm512_bslli_epi128(v, 2));
    v = _mm512_add_epi16(v, _mm512_bslli_epi128(v, 4));
    v = _mm512_add_epi16(v, _mm512_bslli_epi128(v, 8));
    v = _mm512_add_epi16(v, _mm512_maskz_permutexvar_epi16(0xFFFFFF00, one, v));
    return _mm512_add_epi16(v, _mm512_maskz_permutexvar_epi16(0xFFFF0000, two, v));
}

INLINE __m512i
rest16_of(__m512i sym, unsigned msb, unsigned most)
{
    const __m512i rest = _mm512_subs_epu16(_mm512_srl_epi16(sym, _mm_cvtsi32_si128((int)msb + 1)), _mm512_set1_epi16(1));
    return _mm512_maskz_mov_epi16(_mm512_cmple_epu16_mask(rest, _mm512_set1_epi16((short)most)), rest);
}

/* end: sums of rest, so that each element's bits begin at end - rest */
INLINE __m512i
magnitudes16(const uint8_t *src, unsigned from, __m512i t, __m512i rest, __m512i end, unsigned msb)
{
    const __m512i begin = _mm512_add_epi16(_mm512_sub_epi16(end, rest), _mm512_set1_epi16((short)from));
    const __m512i spread = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14));
    const __m512i place = _mm512_add_epi8(_mm512_shuffle_epi8(_mm512_srli_epi16(begin, 3), spread), _mm512_set1_epi16(0x0100));
    const __m512i bytes = _mm512_loadu_si512(src);
    const __m512i foot = _mm512_permutexvar_epi8(place, bytes), next = _mm512_permutexvar_epi8(_mm512_add_epi8(place, _mm512_set1_epi8(2)), bytes);
    const __m512i bits = _mm512_shrdv_epi16(foot, next, _mm512_and_si512(begin, _mm512_set1_epi16(7)));
    const __m512i mask = _mm512_sub_epi16(_mm512_sllv_epi16(_mm512_set1_epi16(1), rest), _mm512_set1_epi16(1));
    const __m512i lead = _mm512_sub_epi16(t, _mm512_sll_epi16(rest, _mm_cvtsi32_si128((int)msb)));
    return _mm512_or_si512(_mm512_sllv_epi16(lead, rest), _mm512_and_si512(bits, mask));
}

INLINE void
store_words16(const ckpi_diff_par *p, uint8_t *words, const uint8_t *base, __m512i a, __m512i sym)
{
    const __m512i magnitude = _mm512_set1_epi16(p->is_float ? INT16_MAX : 0), sign = _mm512_set1_epi16(p->is_float ? INT16_MIN : 0);
    const __m512i x = _mm512_loadu_si512(base), flip = _mm512_slli_epi16(sym, 15);
    const __m512i negative = _mm512_srai_epi16(_mm512_xor_si512(flip, _mm512_and_si512(x, sign)), 15);
    const __m512i from = _mm512_xor_si512(x, _mm512_and_si512(_mm512_srai_epi16(x, 15), magnitude));
    const __m512i o = _mm512_add_epi16(from, _mm512_sub_epi16(_mm512_xor_si512(a, negative), negative));
    _mm512_storeu_si512(words, _mm512_xor_si512(o, _mm512_and_si512(_mm512_srai_epi16(o, 15), magnitude)));
}

static CKPI_TARGET_VBMI2 size_t
join_16(const ckpi_diff_par *p, uint8_t *words, const uint8_t *base, const uint8_t *src, size_t len, const uint8_t *sym, size_t n,
        uint64_t *bits)
{
    const unsigned most = ckpi_diff_rest_most(p->msb, 2);
    uint64_t pos = 0;
    size_t i = 0;
    /* 32 times 15 bits and 7 before them end within 64 bytes */
    for (; i + 32 <= n && (pos >> 3) + 64 <= len; i += 32) {
        const __m512i s = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(sym + i)));
        const __m512i rest = rest16_of(s, p->msb, most), end = sums16(rest);
        const __m512i a = magnitudes16(src + (pos >> 3), (unsigned)pos & 7, _mm512_srli_epi16(s, 1), rest, end, p->msb);
        store_words16(p, words + 2 * i, base + 2 * i, a, s);
        pos += (unsigned)_mm_extract_epi16(_mm512_extracti32x4_epi32(end, 3), 7);
    }
    *bits = pos;
    return i;
}

CKPI_TARGET_VBMI2 size_t
ckpi_diff_join_vbmi2(const ckpi_diff_par *p, void *words, const void *base, const uint8_t *src, size_t len, const uint8_t *sym, size_t n,
                     uint64_t *bits)
{
    return p->width == 4 ? join_32(p, words, base, src, len, sym, n, bits) : join_16(p, words, base, src, len, sym, n, bits);
}
#endif
