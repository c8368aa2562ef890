/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 and AVX-512 kernels for words of 2 and 4 bytes. */
#include <string.h>
#include "base/cpu.h"
#include "codec/diff/diff_kern_rows.h"
#if CKPI_X86
#include <immintrin.h>

#define INLINE512 static inline __attribute__((always_inline)) CKPI_TARGET_AVX512
#define INLINE256 static inline __attribute__((always_inline)) CKPI_TARGET_AVX2

static inline uint16_t
load16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

static inline uint32_t
load32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static inline void
store16(void *p, uint16_t v)
{
    memcpy(p, &v, 2);
}

static inline void
store32(void *p, uint32_t v)
{
    memcpy(p, &v, 4);
}

#define WORD uint16_t
#define LOAD load16
#define STORE store16
#define NAME(f) f##_16_512
#define TARGET CKPI_TARGET_AVX512
#include "codec/diff/diff_simple.inc"
#undef NAME
#define NAME(f) f##_16_256
#define TARGET CKPI_TARGET_AVX2
#include "codec/diff/diff_simple.inc"
#undef NAME
#undef WORD
#undef LOAD
#undef STORE

#define WORD uint32_t
#define LOAD load32
#define STORE store32
#define NAME(f) f##_32_512
#define TARGET CKPI_TARGET_AVX512
#include "codec/diff/diff_simple.inc"
#undef NAME
#define NAME(f) f##_32_256
#define TARGET CKPI_TARGET_AVX2
#include "codec/diff/diff_simple.inc"
#undef NAME
#undef WORD
#undef LOAD
#undef STORE

/* ---- AVX-512 ----------------------------------------------------------------------------------------------------- */

/* Symbols of 16 magnitudes, in 32-bit lanes; flip: 0 or 1. */
INLINE512 __m128i
symbols_512(__m512i a, __m512i flip, unsigned msb)
{
    const __m512i length = _mm512_sub_epi32(_mm512_set1_epi32(31 - (int)msb), _mm512_lzcnt_epi32(a));
    const __m512i rest = _mm512_max_epi32(length, _mm512_setzero_si512());
    const __m512i t = _mm512_add_epi32(_mm512_sll_epi32(rest, _mm_cvtsi32_si128((int)msb)), _mm512_srlv_epi32(a, rest));
    const __m512i sym = _mm512_add_epi32(_mm512_add_epi32(t, t), flip);
    return _mm512_maskz_cvtepi32_epi8(_mm512_test_epi32_mask(a, a), sym);
}

/* A negative float's other bits are complemented: its own inverse. */
INLINE512 __m512i
ordered_512(__m512i w, __m512i is_float)
{
    return _mm512_xor_si512(w, _mm512_and_si512(_mm512_srai_epi32(w, 31), is_float));
}

static CKPI_TARGET_AVX512 size_t
symbols_32_512(const ckpi_diff_par *p, const void *words, const void *base, size_t n, uint8_t *sym, void *magnitude)
{
    const __m512i magnitudes = _mm512_set1_epi32(p->is_float ? INT32_MAX : 0), signs = _mm512_set1_epi32(p->is_float ? INT32_MIN : 0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512i x = _mm512_loadu_si512((const uint8_t *)base + 4 * i), y = _mm512_loadu_si512((const uint8_t *)words + 4 * i);
        const __m512i d = _mm512_sub_epi32(ordered_512(y, magnitudes), ordered_512(x, magnitudes));
        const __m512i a = _mm512_abs_epi32(d), flip = _mm512_srli_epi32(_mm512_xor_si512(d, _mm512_and_si512(x, signs)), 31);
        _mm_storeu_si128((__m128i *)(void *)(sym + i), symbols_512(a, flip, p->msb));
        _mm512_storeu_si512((uint8_t *)magnitude + 4 * i, a);
    }
    return i;
}

INLINE256 __m256i
ordered16_256(__m256i w, __m256i is_float)
{
    return _mm256_xor_si256(w, _mm256_and_si256(_mm256_srai_epi16(w, 15), is_float));
}

static CKPI_TARGET_AVX512 size_t
symbols_16_512(const ckpi_diff_par *p, const void *words, const void *base, size_t n, uint8_t *sym, void *magnitude)
{
    const __m256i magnitudes = _mm256_set1_epi16(p->is_float ? INT16_MAX : 0), signs = _mm256_set1_epi16(p->is_float ? INT16_MIN : 0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)((const uint8_t *)base + 2 * i));
        const __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)((const uint8_t *)words + 2 * i));
        const __m256i d = _mm256_sub_epi16(ordered16_256(y, magnitudes), ordered16_256(x, magnitudes));
        const __m256i a = _mm256_abs_epi16(d), flip = _mm256_srli_epi16(_mm256_xor_si256(d, _mm256_and_si256(x, signs)), 15);
        _mm_storeu_si128((__m128i *)(void *)(sym + i), symbols_512(_mm512_cvtepu16_epi32(a), _mm512_cvtepu16_epi32(flip), p->msb));
        _mm256_storeu_si256((__m256i *)(void *)((uint8_t *)magnitude + 2 * i), a);
    }
    return i;
}

/* ---- AVX2 -------------------------------------------------------------------------------------------------------- */

/* Bit lengths less 1 + msb, at least 0. A number with no two ones side by side cannot round up to the next power of two. */
INLINE256 __m256i
rest_256(__m256i a, unsigned msb)
{
    const __m256i lone = _mm256_andnot_si256(_mm256_srli_epi32(a, 1), a);
    const __m256i exponent = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(lone)), 23), _mm256_set1_epi32(255));
    return _mm256_max_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(127 + (int)msb)), _mm256_setzero_si256());
}

/* Symbols of 8 magnitudes, in 32-bit lanes below 256. */
INLINE256 __m256i
symbols_256(__m256i a, __m256i flip, unsigned msb)
{
    const __m256i rest = rest_256(a, msb);
    const __m256i t = _mm256_add_epi32(_mm256_sll_epi32(rest, _mm_cvtsi32_si128((int)msb)), _mm256_srlv_epi32(a, rest));
    const __m256i sym = _mm256_add_epi32(_mm256_add_epi32(t, t), flip);
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(a, _mm256_setzero_si256()), sym);
}

INLINE256 void
store_symbols(uint8_t *dst, __m256i a, __m256i b)
{
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)(void *)dst, bytes);
}

INLINE256 __m256i
load_256(const void *p, size_t at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)((const uint8_t *)p + at));
}

static CKPI_TARGET_AVX2 size_t
symbols_32_256(const ckpi_diff_par *p, const void *words, const void *base, size_t n, uint8_t *sym, void *magnitude)
{
    const __m256i magnitudes = _mm256_set1_epi32(p->is_float ? INT32_MAX : 0), signs = _mm256_set1_epi32(p->is_float ? INT32_MIN : 0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i s[2];
        for (unsigned k = 0; k < 2; k++) {
            const __m256i x = load_256(base, 4 * i + 32 * k), y = load_256(words, 4 * i + 32 * k);
            const __m256i ox = _mm256_xor_si256(x, _mm256_and_si256(_mm256_srai_epi32(x, 31), magnitudes));
            const __m256i oy = _mm256_xor_si256(y, _mm256_and_si256(_mm256_srai_epi32(y, 31), magnitudes));
            const __m256i d = _mm256_sub_epi32(oy, ox), a = _mm256_abs_epi32(d);
            s[k] = symbols_256(a, _mm256_srli_epi32(_mm256_xor_si256(d, _mm256_and_si256(x, signs)), 31), p->msb);
            _mm256_storeu_si256((__m256i *)(void *)((uint8_t *)magnitude + 4 * i + 32 * k), a);
        }
        store_symbols(sym + i, s[0], s[1]);
    }
    return i;
}

static CKPI_TARGET_AVX2 size_t
symbols_16_256(const ckpi_diff_par *p, const void *words, const void *base, size_t n, uint8_t *sym, void *magnitude)
{
    const __m256i magnitudes = _mm256_set1_epi16(p->is_float ? INT16_MAX : 0), signs = _mm256_set1_epi16(p->is_float ? INT16_MIN : 0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i x = load_256(base, 2 * i), y = load_256(words, 2 * i);
        const __m256i d = _mm256_sub_epi16(ordered16_256(y, magnitudes), ordered16_256(x, magnitudes));
        const __m256i a = _mm256_abs_epi16(d), flip = _mm256_srli_epi16(_mm256_xor_si256(d, _mm256_and_si256(x, signs)), 15);
        const __m256i low = symbols_256(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                                        _mm256_cvtepu16_epi32(_mm256_castsi256_si128(flip)), p->msb);
        const __m256i high = symbols_256(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)),
                                         _mm256_cvtepu16_epi32(_mm256_extracti128_si256(flip, 1)), p->msb);
        store_symbols(sym + i, low, high);
        _mm256_storeu_si256((__m256i *)(void *)((uint8_t *)magnitude + 2 * i), a);
    }
    return i;
}

const ckpi_diff_kern ckpi_diff_kern_avx512[2] = {
    {CKPI_CPU_AVX512, symbols_16_512, contexts_16_512, words_16_512},
    {CKPI_CPU_AVX512, symbols_32_512, contexts_32_512, words_32_512},
};
const ckpi_diff_kern ckpi_diff_kern_avx2[2] = {
    {CKPI_CPU_AVX2, symbols_16_256, contexts_16_256, words_16_256},
    {CKPI_CPU_AVX2, symbols_32_256, contexts_32_256, words_32_256},
};
#endif
