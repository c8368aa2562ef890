/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2: words of 2 and 4 bytes, whole vectors only. Lanes of 16 bits throughout the narrow parts: two vectors of words make one. */
#include "base/cpu.h"
#include "codec/planes/float_kern_rows.h"
#if CKPI_X86
#include <immintrin.h>

#define TARGET CKPI_TARGET_AVX2
#define INLINE static inline __attribute__((always_inline)) CKPI_TARGET_AVX2

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
#define TARGET CKPI_TARGET_AVX2
#define WORD uint32_t
#define LOAD load32
#include "codec/planes/float_look.inc"
#define TARGET CKPI_TARGET_AVX2

INLINE __m256i
load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void
store(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

/* Values of at most 16 bits: 2 x 8 lanes of 32 to 16 lanes of 16, in order; and of at most 8 bits to bytes. */
INLINE __m256i
narrow32(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
}

INLINE void
store_bytes(uint8_t *p, __m256i v)
{
    const __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storeu_si128((__m128i *)(void *)p, packed);
}

INLINE __m256i
load_bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE __m256i
load_bytes32(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* ---- words of 4 bytes -------------------------------------------------------------------------------------------- */

typedef struct row32 {
    __m256i add, magnitude, mask, esc;
    __m128i col_shift, low_bits, cut, kept;
} row32;

INLINE row32
row32_of(const ckpi_float_row *r)
{
    return (row32){
        .add = _mm256_set1_epi32((int)(uint32_t)r->add),
        .magnitude = _mm256_set1_epi32(0x7FFFFFFF),
        .mask = _mm256_set1_epi32((int)((1u << r->low_bits) - 1)),
        .esc = _mm256_set1_epi32((int)r->esc),
        .col_shift = _mm_cvtsi32_si128((int)r->col_shift),
        .low_bits = _mm_cvtsi32_si128((int)r->low_bits),
        .cut = _mm_cvtsi32_si128((int)r->cut),
        .kept = _mm_cvtsi32_si128((int)(r->low_bits - r->cut)),
    };
}

typedef struct split8 {
    __m256i sym, rest;
} split8;

INLINE split8
split_words(const ckpi_float_row *r, const row32 *v, const uint8_t *words, const uint8_t *col)
{
    const __m256i word = load(words), pred = _mm256_sll_epi32(load_bytes32(col), v->col_shift);
    const __m256i sum = _mm256_sub_epi32(_mm256_add_epi32(_mm256_and_si256(word, v->magnitude), v->add), pred);
    __m256i rest = _mm256_srl_epi32(_mm256_and_si256(sum, v->mask), v->cut);
    if (r->has_sign)
        rest = _mm256_or_si256(rest, _mm256_sll_epi32(_mm256_srli_epi32(word, 31), v->kept));
    return (split8){_mm256_min_epu32(_mm256_srl_epi32(sum, v->low_bits), v->esc), rest};
}

/* Three low bytes of each of 8 lanes: two stores of 16 bytes, of which 12 count; the caller's room ends 8 elements later. */
INLINE void
store24(uint8_t *dst, __m256i v)
{
    const __m256i within = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const __m256i packed = _mm256_shuffle_epi8(v, within);
    const __m256i joined = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
    _mm256_maskstore_epi32((int *)(void *)dst, _mm256_setr_epi32(-1, -1, -1, -1, -1, -1, 0, 0), joined);
}

INLINE __m256i
load24(const uint8_t *src)
{
    const __m256i joined = _mm256_maskload_epi32((const int *)(const void *)src, _mm256_setr_epi32(-1, -1, -1, -1, -1, -1, 0, 0));
    const __m256i apart = _mm256_permutevar8x32_epi32(joined, _mm256_setr_epi32(0, 1, 2, 7, 3, 4, 5, 7));
    return _mm256_shuffle_epi8(apart, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1)));
}

INLINE void
store_rest(const ckpi_float_row *r, __m256i a, __m256i b, uint8_t *low, uint8_t *top, size_t i)
{
    const __m256i bytes = _mm256_set1_epi32(0xFF), halves = _mm256_set1_epi32(0xFFFF);
    const __m128i above = _mm_cvtsi32_si128((int)(8 * r->low_bytes));
    if (r->low_bytes == 3) {
        store24(low + 3 * i, a);
        store24(low + 3 * i + 24, b);
    } else if (r->low_bytes == 2) {
        store(low + 2 * i, narrow32(_mm256_and_si256(a, halves), _mm256_and_si256(b, halves)));
    } else if (r->low_bytes == 1) {
        store_bytes(low + i, narrow32(_mm256_and_si256(a, bytes), _mm256_and_si256(b, bytes)));
    }
    if (top != NULL)
        store_bytes(top + i, narrow32(_mm256_srl_epi32(a, above), _mm256_srl_epi32(b, above)));
}

static TARGET size_t
split_32(const ckpi_float_row *r, const void *words, size_t n, uint8_t *sym, uint8_t *low, uint8_t *top, size_t *escapes)
{
    const row32 v = row32_of(r);
    const __m256i esc = _mm256_set1_epi16((short)r->esc);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const split8 a = split_words(r, &v, (const uint8_t *)words + 4 * i, r->col + i);
        const split8 b = split_words(r, &v, (const uint8_t *)words + 4 * i + 32, r->col + i + 8);
        const __m256i s = narrow32(a.sym, b.sym);
        store_bytes(sym + i, s);
        *escapes += (unsigned)__builtin_popcount((unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi16(s, esc))) / 2;
        store_rest(r, a.rest, b.rest, low, top, i);
    }
    return i;
}

INLINE __m256i
load_rest(const ckpi_float_row *r, const uint8_t *low, const uint8_t *top, size_t i)
{
    __m256i rest = _mm256_setzero_si256();
    if (r->low_bytes == 3)
        rest = load24(low + 3 * i);
    else if (r->low_bytes == 2)
        rest = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(low + 2 * i)));
    else if (r->low_bytes == 1)
        rest = load_bytes32(low + i);
    if (top != NULL)
        rest = _mm256_or_si256(rest, _mm256_sll_epi32(load_bytes32(top + i), _mm_cvtsi32_si128((int)(8 * r->low_bytes))));
    return rest;
}

static TARGET size_t
merge_32(const ckpi_float_row *r, void *words, size_t n, const uint8_t *sym, const uint8_t *low, const uint8_t *top)
{
    const row32 v = row32_of(r);
    const __m256i fixed = _mm256_set1_epi32(r->sign ? INT32_MIN : 0), kept = _mm256_srl_epi32(v.mask, v.cut);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i rest = load_rest(r, low, top, i);
        const __m256i col = _mm256_sll_epi32(load_bytes32(r->col + i), v.col_shift);
        const __m256i sum = _mm256_or_si256(_mm256_sll_epi32(load_bytes32(sym + i), v.low_bits),
                                            _mm256_sll_epi32(_mm256_and_si256(rest, kept), v.cut));
        const __m256i mag = _mm256_and_si256(_mm256_add_epi32(_mm256_sub_epi32(sum, v.add), col), v.magnitude);
        const __m256i sign = r->has_sign ? _mm256_slli_epi32(_mm256_srl_epi32(rest, v.kept), 31) : fixed;
        store((uint8_t *)words + 4 * i, _mm256_or_si256(mag, sign));
    }
    return i;
}

/* ---- words of 2 bytes -------------------------------------------------------------------------------------------- */

typedef struct row16 {
    __m256i add, magnitude, mask, esc;
    __m128i col_shift, low_bits, cut, kept, low_byte_bits;
} row16;

INLINE row16
row16_of(const ckpi_float_row *r)
{
    return (row16){
        .add = _mm256_set1_epi16((short)(uint16_t)r->add),
        .magnitude = _mm256_set1_epi16(0x7FFF),
        .mask = _mm256_set1_epi16((short)((1u << r->low_bits) - 1)),
        .esc = _mm256_set1_epi16((short)r->esc),
        .col_shift = _mm_cvtsi32_si128((int)r->col_shift),
        .low_bits = _mm_cvtsi32_si128((int)r->low_bits),
        .cut = _mm_cvtsi32_si128((int)r->cut),
        .kept = _mm_cvtsi32_si128((int)(r->low_bits - r->cut)),
        .low_byte_bits = _mm_cvtsi32_si128((int)(8 * r->low_bytes)),
    };
}

static TARGET size_t
split_16(const ckpi_float_row *r, const void *words, size_t n, uint8_t *sym, uint8_t *low, uint8_t *top, size_t *escapes)
{
    const row16 v = row16_of(r);
    const __m256i byte = _mm256_set1_epi16(0xFF);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i word = load((const uint8_t *)words + 2 * i);
        const __m256i col = _mm256_sll_epi16(load_bytes(r->col + i), v.col_shift);
        const __m256i sum = _mm256_sub_epi16(_mm256_add_epi16(_mm256_and_si256(word, v.magnitude), v.add), col);
        const __m256i s = _mm256_min_epu16(_mm256_srl_epi16(sum, v.low_bits), v.esc);
        store_bytes(sym + i, s);
        *escapes += (unsigned)__builtin_popcount((unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi16(s, v.esc))) / 2;
        __m256i rest = _mm256_srl_epi16(_mm256_and_si256(sum, v.mask), v.cut);
        if (r->has_sign)
            rest = _mm256_or_si256(rest, _mm256_sll_epi16(_mm256_srli_epi16(word, 15), v.kept));
        if (r->low_bytes != 0)
            store_bytes(low + i, _mm256_and_si256(rest, byte));
        if (top != NULL)
            store_bytes(top + i, _mm256_srl_epi16(rest, v.low_byte_bits));
    }
    return i;
}

static TARGET size_t
merge_16(const ckpi_float_row *r, void *words, size_t n, const uint8_t *sym, const uint8_t *low, const uint8_t *top)
{
    const row16 v = row16_of(r);
    const __m256i fixed = _mm256_set1_epi16(r->sign ? INT16_MIN : 0), kept = _mm256_srl_epi16(v.mask, v.cut);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i rest = r->low_bytes != 0 ? load_bytes(low + i) : _mm256_setzero_si256();
        if (top != NULL)
            rest = _mm256_or_si256(rest, _mm256_sll_epi16(load_bytes(top + i), v.low_byte_bits));
        const __m256i col = _mm256_sll_epi16(load_bytes(r->col + i), v.col_shift);
        const __m256i sum = _mm256_or_si256(_mm256_sll_epi16(load_bytes(sym + i), v.low_bits),
                                            _mm256_sll_epi16(_mm256_and_si256(rest, kept), v.cut));
        const __m256i mag = _mm256_and_si256(_mm256_add_epi16(_mm256_sub_epi16(sum, v.add), col), v.magnitude);
        const __m256i sign = r->has_sign ? _mm256_slli_epi16(_mm256_srl_epi16(rest, v.kept), 15) : fixed;
        store((uint8_t *)words + 2 * i, _mm256_or_si256(mag, sign));
    }
    return i;
}

const ckpi_float_kern ckpi_float_kern_avx2[2] = {
    {CKPI_CPU_AVX2, split_16, merge_16, scan_16, sum_16},
    {CKPI_CPU_AVX2, split_32, merge_32, scan_32, sum_32},
};
#endif
