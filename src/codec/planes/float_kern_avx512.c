/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 (BW, DQ, VL): words of 2 and 4 bytes; whole vectors only. */
#include "base/cpu.h"
#include "codec/planes/float_kern_rows.h"
#if CKPI_X86
#include <immintrin.h>

#define TARGET CKPI_TARGET_AVX512
#define INLINE static inline __attribute__((always_inline)) CKPI_TARGET_AVX512

INLINE uint16_t
load16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

INLINE uint32_t
load32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

#define NAME(f) f##_16
#define WORD uint16_t
#define LOAD load16
#include "codec/planes/float_look.inc"
#define NAME(f) f##_32
#define TARGET CKPI_TARGET_AVX512
#define WORD uint32_t
#define LOAD load32
#include "codec/planes/float_look.inc"
#define TARGET CKPI_TARGET_AVX512

/* A row's parameters as vectors of 32-bit lanes. */
typedef struct row32 {
    __m512i add, magnitude, mask, esc;
    __m128i col_shift, low_bits, cut, kept;
} row32;

INLINE row32
row32_of(const ckpi_float_row *r)
{
    return (row32){
        .add = _mm512_set1_epi32((int)(uint32_t)r->add),
        .magnitude = _mm512_set1_epi32(0x7FFFFFFF),
        .mask = _mm512_set1_epi32((int)((1u << r->low_bits) - 1)),
        .esc = _mm512_set1_epi32((int)r->esc),
        .col_shift = _mm_cvtsi32_si128((int)r->col_shift),
        .low_bits = _mm_cvtsi32_si128((int)r->low_bits),
        .cut = _mm_cvtsi32_si128((int)r->cut),
        .kept = _mm_cvtsi32_si128((int)(r->low_bits - r->cut)),
    };
}

INLINE __m512i
widen8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE __m128i
narrow8(__m512i v)
{
    return _mm512_cvtepi32_epi8(v);
}

/* Three low bytes of each of 16 lanes, as 48 bytes. */
INLINE void
store24(uint8_t *dst, __m512i v)
{
    const __m512i within = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const __m512i across = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
    const __m512i packed = _mm512_permutexvar_epi32(across, _mm512_shuffle_epi8(v, within));
    _mm512_mask_storeu_epi32(dst, 0x0FFF, packed);
}

INLINE __m512i
load24(const uint8_t *src)
{
    const __m512i apart = _mm512_setr_epi32(0, 1, 2, 15, 3, 4, 5, 15, 6, 7, 8, 15, 9, 10, 11, 15);
    const __m512i within = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(apart, _mm512_maskz_loadu_epi32(0x0FFF, src)), within);
}

INLINE void
store_rest32(unsigned low_bytes, __m512i rest, uint8_t *low, uint8_t *top, size_t i)
{
    if (low_bytes == 3)
        store24(low + 3 * i, rest);
    else if (low_bytes == 2)
        _mm256_storeu_si256((__m256i *)(void *)(low + 2 * i), _mm512_cvtepi32_epi16(rest));
    else if (low_bytes == 1)
        _mm_storeu_si128((__m128i *)(void *)(low + i), narrow8(rest));
    if (top != NULL)
        _mm_storeu_si128((__m128i *)(void *)(top + i), narrow8(_mm512_srl_epi32(rest, _mm_cvtsi32_si128((int)(8 * low_bytes)))));
}

INLINE __m512i
load_rest32(unsigned low_bytes, const uint8_t *low, const uint8_t *top, size_t i)
{
    __m512i rest = _mm512_setzero_si512();
    if (low_bytes == 3)
        rest = load24(low + 3 * i);
    else if (low_bytes == 2)
        rest = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(low + 2 * i)));
    else if (low_bytes == 1)
        rest = widen8(low + i);
    if (top != NULL)
        rest = _mm512_or_si512(rest, _mm512_sll_epi32(widen8(top + i), _mm_cvtsi32_si128((int)(8 * low_bytes))));
    return rest;
}

/* low_bytes and has_sign are constants where it matters: the compiler makes a loop for each. */
INLINE size_t
split_32_as(const ckpi_float_row *r, const void *words, size_t n, uint8_t *sym, uint8_t *low, uint8_t *top, size_t *escapes,
            unsigned low_bytes, bool has_sign)
{
    const row32 v = row32_of(r);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512i word = _mm512_loadu_si512((const uint8_t *)words + 4 * i);
        const __m512i col = _mm512_sll_epi32(widen8(r->col + i), v.col_shift);
        const __m512i sum = _mm512_sub_epi32(_mm512_add_epi32(_mm512_and_si512(word, v.magnitude), v.add), col);
        const __m512i high = _mm512_srl_epi32(sum, v.low_bits);
        _mm_storeu_si128((__m128i *)(void *)(sym + i), narrow8(_mm512_min_epu32(high, v.esc)));
        *escapes += (unsigned)__builtin_popcount(_mm512_cmpge_epu32_mask(high, v.esc));
        __m512i rest = _mm512_srl_epi32(_mm512_and_si512(sum, v.mask), v.cut);
        if (has_sign)
            rest = _mm512_or_si512(rest, _mm512_sll_epi32(_mm512_srli_epi32(word, 31), v.kept));
        store_rest32(low_bytes, rest, low, top, i);
    }
    return i;
}

static TARGET size_t
split_32(const ckpi_float_row *r, const void *words, size_t n, uint8_t *sym, uint8_t *low, uint8_t *top, size_t *escapes)
{
    if (r->low_bytes == 2 && top != NULL && r->has_sign)
        return split_32_as(r, words, n, sym, low, top, escapes, 2, true);
    if (r->low_bytes == 2 && top != NULL)
        return split_32_as(r, words, n, sym, low, top, escapes, 2, false);
    return split_32_as(r, words, n, sym, low, top, escapes, r->low_bytes, r->has_sign);
}

INLINE size_t
merge_32_as(const ckpi_float_row *r, void *words, size_t n, const uint8_t *sym, const uint8_t *low, const uint8_t *top, unsigned low_bytes,
            bool has_sign)
{
    const row32 v = row32_of(r);
    const __m512i fixed = _mm512_set1_epi32(r->sign ? INT32_MIN : 0), kept = _mm512_srl_epi32(v.mask, v.cut);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512i rest = load_rest32(low_bytes, low, top, i);
        const __m512i col = _mm512_sub_epi32(_mm512_sll_epi32(widen8(r->col + i), v.col_shift), v.add);
        const __m512i sum = _mm512_or_si512(_mm512_sll_epi32(widen8(sym + i), v.low_bits),
                                            _mm512_sll_epi32(_mm512_and_si512(rest, kept), v.cut));
        const __m512i mag = _mm512_and_si512(_mm512_add_epi32(sum, col), v.magnitude);
        const __m512i sign = has_sign ? _mm512_slli_epi32(_mm512_srl_epi32(rest, v.kept), 31) : fixed;
        _mm512_storeu_si512((uint8_t *)words + 4 * i, _mm512_or_si512(mag, sign));
    }
    return i;
}

static TARGET size_t
merge_32(const ckpi_float_row *r, void *words, size_t n, const uint8_t *sym, const uint8_t *low, const uint8_t *top)
{
    if (r->low_bytes == 2 && top != NULL)
        return r->has_sign ? merge_32_as(r, words, n, sym, low, top, 2, true) : merge_32_as(r, words, n, sym, low, top, 2, false);
    return merge_32_as(r, words, n, sym, low, top, r->low_bytes, r->has_sign);
}

/* The same with 16-bit lanes. */
typedef struct row16 {
    __m512i add, magnitude, mask, esc;
    __m128i col_shift, low_bits, cut, kept, low_byte_bits;
} row16;

INLINE row16
row16_of(const ckpi_float_row *r)
{
    return (row16){
        .add = _mm512_set1_epi16((short)(uint16_t)r->add),
        .magnitude = _mm512_set1_epi16(0x7FFF),
        .mask = _mm512_set1_epi16((short)((1u << r->low_bits) - 1)),
        .esc = _mm512_set1_epi16((short)r->esc),
        .col_shift = _mm_cvtsi32_si128((int)r->col_shift),
        .low_bits = _mm_cvtsi32_si128((int)r->low_bits),
        .cut = _mm_cvtsi32_si128((int)r->cut),
        .kept = _mm_cvtsi32_si128((int)(r->low_bits - r->cut)),
        .low_byte_bits = _mm_cvtsi32_si128((int)(8 * r->low_bytes)),
    };
}

INLINE __m512i
load_bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE void
store_bytes(uint8_t *p, __m512i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi16_epi8(v));
}

INLINE size_t
split_16_as(const ckpi_float_row *r, const void *words, size_t n, uint8_t *sym, uint8_t *low, uint8_t *top, size_t *escapes,
            unsigned low_bytes, bool has_sign)
{
    const row16 v = row16_of(r);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512i word = _mm512_loadu_si512((const uint8_t *)words + 2 * i);
        const __m512i col = _mm512_sll_epi16(load_bytes(r->col + i), v.col_shift);
        const __m512i sum = _mm512_sub_epi16(_mm512_add_epi16(_mm512_and_si512(word, v.magnitude), v.add), col);
        const __m512i high = _mm512_srl_epi16(sum, v.low_bits);
        store_bytes(sym + i, _mm512_min_epu16(high, v.esc));
        *escapes += (unsigned)__builtin_popcount(_mm512_cmpge_epu16_mask(high, v.esc));
        __m512i rest = _mm512_srl_epi16(_mm512_and_si512(sum, v.mask), v.cut);
        if (has_sign)
            rest = _mm512_or_si512(rest, _mm512_sll_epi16(_mm512_srli_epi16(word, 15), v.kept));
        if (low_bytes != 0)
            store_bytes(low + i, rest);
        if (top != NULL)
            store_bytes(top + i, _mm512_srl_epi16(rest, v.low_byte_bits));
    }
    return i;
}

static TARGET size_t
split_16(const ckpi_float_row *r, const void *words, size_t n, uint8_t *sym, uint8_t *low, uint8_t *top, size_t *escapes)
{
    if (r->low_bytes == 0 && top != NULL && r->has_sign)
        return split_16_as(r, words, n, sym, low, top, escapes, 0, true);
    return split_16_as(r, words, n, sym, low, top, escapes, r->low_bytes, r->has_sign);
}

INLINE size_t
merge_16_as(const ckpi_float_row *r, void *words, size_t n, const uint8_t *sym, const uint8_t *low, const uint8_t *top,
            unsigned low_bytes, bool has_sign)
{
    const row16 v = row16_of(r);
    const __m512i fixed = _mm512_set1_epi16(r->sign ? INT16_MIN : 0), kept = _mm512_srl_epi16(v.mask, v.cut);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m512i rest = low_bytes != 0 ? load_bytes(low + i) : _mm512_setzero_si512();
        if (top != NULL)
            rest = _mm512_or_si512(rest, _mm512_sll_epi16(load_bytes(top + i), v.low_byte_bits));
        const __m512i col = _mm512_sll_epi16(load_bytes(r->col + i), v.col_shift);
        const __m512i sum = _mm512_or_si512(_mm512_sll_epi16(load_bytes(sym + i), v.low_bits),
                                            _mm512_sll_epi16(_mm512_and_si512(rest, kept), v.cut));
        const __m512i mag = _mm512_and_si512(_mm512_add_epi16(_mm512_sub_epi16(sum, v.add), col), v.magnitude);
        const __m512i sign = has_sign ? _mm512_slli_epi16(_mm512_srl_epi16(rest, v.kept), 15) : fixed;
        _mm512_storeu_si512((uint8_t *)words + 2 * i, _mm512_or_si512(mag, sign));
    }
    return i;
}

static TARGET size_t
merge_16(const ckpi_float_row *r, void *words, size_t n, const uint8_t *sym, const uint8_t *low, const uint8_t *top)
{
    if (r->low_bytes == 0 && top != NULL && r->has_sign)
        return merge_16_as(r, words, n, sym, low, top, 0, true);
    return merge_16_as(r, words, n, sym, low, top, r->low_bytes, r->has_sign);
}

const ckpi_float_kern ckpi_float_kern_avx512[2] = {
    {CKPI_CPU_AVX512, split_16, merge_16, scan_16, sum_16},
    {CKPI_CPU_AVX512, split_32, merge_32, scan_32, sum_32},
};
#endif
