/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols to parts and back. VBMI2 compresses and expands 64 bytes a part at a time; AVX2 has pext and pdep for eight. Both do
 * the leading part of a block and the plain loop the rest. Up to 64 bytes behind a part's place are written or read, whatever is there.
 */
#include "base/bytes.h"
#include "base/cpu.h"
#include "codec/count/count.h"
#include "codec/rearranged/rearranged.h"
#if CKPI_X86
#include <immintrin.h>
#endif

static void
parts_of(const ckpi_rearranged_plan *plan, uint8_t part[256])
{
    memset(part, 0, 256);
    for (unsigned k = 0; k < plan->own; k++)
        part[plan->value[k]] = (uint8_t)(k + 1);
}

#if CKPI_X86
CKPI_TARGET_VBMI2 static size_t
split_vbmi2(const ckpi_rearranged_plan *plan, uint8_t **at, const uint8_t *code, const uint8_t *base, size_t n)
{
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i b = _mm512_loadu_si512(base + i), s = _mm512_sub_epi8(_mm512_loadu_si512(code + i), b);
        __mmask64 rest = ~(__mmask64)0;
        for (unsigned k = 0; k < plan->own; k++) {
            const __mmask64 of = _mm512_cmpeq_epi8_mask(b, _mm512_set1_epi8((char)plan->value[k]));
            _mm512_storeu_si512(at[k + 1], _mm512_maskz_compress_epi8(of, s));
            at[k + 1] += (unsigned)_mm_popcnt_u64(of);
            rest &= ~of;
        }
        _mm512_storeu_si512(at[0], _mm512_maskz_compress_epi8(rest, s));
        at[0] += (unsigned)_mm_popcnt_u64(rest);
    }
    return i;
}

CKPI_TARGET_VBMI2 static size_t
merge_vbmi2(const ckpi_rearranged_plan *plan, const uint8_t **at, uint8_t *code, const uint8_t *base, size_t n)
{
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i b = _mm512_loadu_si512(base + i);
        __m512i s = _mm512_setzero_si512();
        __mmask64 rest = ~(__mmask64)0;
        for (unsigned k = 0; k < plan->own; k++) {
            const __mmask64 of = _mm512_cmpeq_epi8_mask(b, _mm512_set1_epi8((char)plan->value[k]));
            s = _mm512_mask_expand_epi8(s, of, _mm512_loadu_si512(at[k + 1]));
            at[k + 1] += (unsigned)_mm_popcnt_u64(of);
            rest &= ~of;
        }
        s = _mm512_mask_expand_epi8(s, rest, _mm512_loadu_si512(at[0]));
        at[0] += (unsigned)_mm_popcnt_u64(rest);
        _mm512_storeu_si512(code + i, _mm512_add_epi8(s, b));
    }
    return i;
}

/* Bytes of all ones where eight bytes of the base have a value, as four words of a vector's. */
#define EACH_WORD(body)                                                                                                                \
    do {                                                                                                                               \
        body(0);                                                                                                                       \
        body(1);                                                                                                                       \
        body(2);                                                                                                                       \
        body(3);                                                                                                                       \
    } while (0)

CKPI_TARGET_AVX2 static size_t
split_avx2(const ckpi_rearranged_plan *plan, uint8_t **at, const uint8_t *code, const uint8_t *base, size_t n)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(base + i));
        const __m256i s = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)(const void *)(code + i)), b);
        __m256i rest = _mm256_set1_epi8(-1);
        for (unsigned k = 0; k <= plan->own; k++) {
            const bool last = k == plan->own;
            const __m256i of = last ? rest : _mm256_cmpeq_epi8(b, _mm256_set1_epi8((char)plan->value[last ? 0 : k]));
            uint8_t *p = at[last ? 0 : k + 1];
            rest = _mm256_andnot_si256(of, rest);
#define PUT_WORD(w)                                                                                                                    \
    {                                                                                                                                  \
        const uint64_t m = (uint64_t)_mm256_extract_epi64(of, w), v = _pext_u64((uint64_t)_mm256_extract_epi64(s, w), m);               \
        memcpy(p, &v, 8);                                                                                                              \
        p += (unsigned)_mm_popcnt_u64(m) / 8;                                                                                          \
    }
            EACH_WORD(PUT_WORD);
            at[last ? 0 : k + 1] = p;
        }
    }
    return i;
}

CKPI_TARGET_AVX2 static size_t
merge_avx2(const ckpi_rearranged_plan *plan, const uint8_t **at, uint8_t *code, const uint8_t *base, size_t n)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(base + i));
        __m256i rest = _mm256_set1_epi8(-1);
        uint64_t word[4] = {0};
        for (unsigned k = 0; k <= plan->own; k++) {
            const bool last = k == plan->own;
            const __m256i of = last ? rest : _mm256_cmpeq_epi8(b, _mm256_set1_epi8((char)plan->value[last ? 0 : k]));
            const uint8_t *p = at[last ? 0 : k + 1];
            rest = _mm256_andnot_si256(of, rest);
#define GET_WORD(w)                                                                                                                    \
    {                                                                                                                                  \
        const uint64_t m = (uint64_t)_mm256_extract_epi64(of, w);                                                                       \
        uint64_t v;                                                                                                                    \
        memcpy(&v, p, 8);                                                                                                              \
        word[w] |= _pdep_u64(v, m);                                                                                                    \
        p += (unsigned)_mm_popcnt_u64(m) / 8;                                                                                          \
    }
            EACH_WORD(GET_WORD);
            at[last ? 0 : k + 1] = p;
        }
        const __m256i s = _mm256_loadu_si256((const __m256i *)(const void *)word);
        _mm256_storeu_si256((__m256i *)(void *)(code + i), _mm256_add_epi8(s, b));
    }
    return i;
}
#endif

void
ckpi_rearranged_split(const ckpi_rearranged_plan *plan, uint8_t **at, const uint8_t *code, const uint8_t *base, size_t n, uint32_t cpu)
{
    size_t i = 0;
    uint8_t part[256];
#if CKPI_X86
    if (cpu & CKPI_CPU_VBMI2)
        i = split_vbmi2(plan, at, code, base, n);
    else if (cpu & CKPI_CPU_AVX2)
        i = split_avx2(plan, at, code, base, n);
#else
    (void)cpu;
#endif
    parts_of(plan, part);
    for (; i < n; i++)
        *at[part[base[i]]]++ = (uint8_t)(code[i] - base[i]);
}

void
ckpi_rearranged_merge(const ckpi_rearranged_plan *plan, const uint8_t **at, uint8_t *code, const uint8_t *base, size_t n, uint32_t cpu)
{
    size_t i = 0;
    uint8_t part[256];
#if CKPI_X86
    if (cpu & CKPI_CPU_VBMI2)
        i = merge_vbmi2(plan, at, code, base, n);
    else if (cpu & CKPI_CPU_AVX2)
        i = merge_avx2(plan, at, code, base, n);
#else
    (void)cpu;
#endif
    parts_of(plan, part);
    for (; i < n; i++)
        code[i] = (uint8_t)(*at[part[base[i]]]++ + base[i]);
}

void
ckpi_rearranged_count(const ckpi_rearranged_plan *plan, const uint8_t *base, size_t n, size_t count[CKPI_REARRANGED_PARTS], uint32_t cpu)
{
    enum { BLOCK = 16384 }; /* stays in the first cache for all values */
    memset(count, 0, CKPI_REARRANGED_PARTS * sizeof *count);
    count[0] = n;
    for (size_t at = 0; at < n; at += BLOCK) {
        for (unsigned k = 0; k < plan->own; k++)
            count[k + 1] += ckpi_count_byte(base + at, CKPI_MIN((size_t)BLOCK, n - at), plan->value[k], cpu);
    }
    for (unsigned k = 0; k < plan->own; k++)
        count[0] -= count[k + 1];
}
