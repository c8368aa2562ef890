/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2: the decoders of rans_kern.inc on 16 lanes, one by gather for large alphabets, and an encoder on eight 32-bit lanes. */
#include "base/cpu.h"

#if CKPI_X86
#include <immintrin.h>
#include <string.h>

#include "base/bytes.h"
#include "codec/rans/rans_kern_x86.h"
#include "codec/rans/rans_shuffle.h"

#define TARGET CKPI_TARGET_AVX2
#define INLINE TARGET static inline __attribute__((always_inline))
#define NAME(f) f##_avx2
#define PER 16
typedef __m256i vec;

#define SET1(v) _mm256_set1_epi16((short)(v))
#define ADD _mm256_add_epi16
#define SUB _mm256_sub_epi16
#define MULLO _mm256_mullo_epi16
#define MULHI _mm256_mulhi_epu16
#define IS_ZERO(v) _mm256_cmpeq_epi16(v, _mm256_setzero_si256())
#define SELECT(m, a, b) _mm256_blendv_epi8(b, a, m)
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)

#define FLIP(v) _mm256_xor_si256(v, _mm256_set1_epi16(-32768))
#define ABOVE_FLIPPED _mm256_cmpgt_epi16
#define ABOVE(a, b) _mm256_cmpgt_epi16(FLIP(a), FLIP(b))

INLINE void
put8(uint8_t *dst, vec v)
{
    _mm_storeu_si128((__m128i *)dst, _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
#define PUT8 put8

INLINE __m128i
words8(unsigned k, const uint8_t **p)
{
    const __m128i w = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)*p), _mm_loadu_si128((const __m128i *)ckpi_rans_expand8[k]));
    *p += 2 * (size_t)(unsigned)_mm_popcnt_u32(k);
    return w;
}

INLINE vec
expand(vec l, vec need, const uint8_t **p)
{
    const unsigned k = (unsigned)_mm_movemask_epi8(_mm_packs_epi16(_mm256_castsi256_si128(need), _mm256_extracti128_si256(need, 1)));
    const __m128i a = words8(k & 255, p), b = words8(k >> 8, p);
    return _mm256_blendv_epi8(l, _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1), need);
}
#define EXPAND expand

/* 16 numbers as two byte tables. */
typedef struct table {
    __m256i lo, hi;
} table;

TARGET static void
look_init(table *t, const uint16_t *words)
{
    uint8_t lo[16], hi[16];
    for (unsigned i = 0; i < 16; i++) {
        lo[i] = (uint8_t)words[i];
        hi[i] = (uint8_t)(words[i] >> 8);
    }
    t->lo = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)lo));
    t->hi = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)hi));
}

INLINE vec
look(const table *t, vec i)
{
    /* an index with its upper bit set gives zero */
    const vec lo = _mm256_shuffle_epi8(t->lo, _mm256_or_si256(i, _mm256_set1_epi16((short)0xff00)));
    const vec hi = _mm256_shuffle_epi8(t->hi, _mm256_or_si256(_mm256_slli_epi16(i, 8), _mm256_set1_epi16(0x00ff)));
    return _mm256_or_si256(lo, hi);
}
#define LOOK look
#define LOOK_INIT look_init

typedef struct big_table {
    table part[4];
} big_table;

TARGET static void
look_big_init(big_table *t, const uint16_t *words)
{
    for (unsigned k = 0; k < 4; k++)
        look_init(&t->part[k], words + 16 * k);
}

/* All four tables, each where the index is its own: adding 112 with saturation sets the upper bit of indices from 16 on. */
INLINE vec
look_big(const big_table *t, vec i)
{
    const vec lo_only = _mm256_set1_epi16((short)0xff00), hi_only = _mm256_set1_epi16(0x00ff), add = _mm256_set1_epi8(112);
    const vec twice = _mm256_or_si256(i, _mm256_slli_epi16(i, 8));
    vec v = _mm256_setzero_si256();
    for (unsigned k = 0; k < 4; k++) {
        const vec at = _mm256_adds_epu8(_mm256_sub_epi8(twice, _mm256_set1_epi8((char)(16 * k))), add);
        v = _mm256_or_si256(v, _mm256_shuffle_epi8(t->part[k].lo, _mm256_or_si256(at, lo_only)));
        v = _mm256_or_si256(v, _mm256_shuffle_epi8(t->part[k].hi, _mm256_or_si256(at, hi_only)));
    }
    return v;
}
#define LOOK_BIG look_big
#define LOOK_BIG_INIT look_big_init

#include "codec/rans/rans_kern.inc"

/* ---- any alphabet with shares in multiples of 16 --------------------------------------------------------------------- */

INLINE void
wide_step(const uint32_t *tab, states_avx2 *s, unsigned at, uint8_t *dst, const uint8_t **p)
{
    const vec slot = LOAD(s->l + at), index = _mm256_srli_epi16(slot, 4), low8 = _mm256_set1_epi32(255);
    const __m256i a = _mm256_i32gather_epi32((const int *)tab, _mm256_cvtepu16_epi32(_mm256_castsi256_si128(index)), 4);
    const __m256i b = _mm256_i32gather_epi32((const int *)tab, _mm256_cvtepu16_epi32(_mm256_extracti128_si256(index, 1)), 4);
    /* packing works in halves of a vector: 0xD8 puts the quarters in order */
    const vec sym = _mm256_permute4x64_epi64(_mm256_packus_epi32(_mm256_and_si256(a, low8), _mm256_and_si256(b, low8)), 0xD8);
    const vec f = _mm256_permute4x64_epi64(_mm256_packus_epi32(_mm256_srli_epi32(a, 20), _mm256_srli_epi32(b, 20)), 0xD8);
    const __m256i low12 = _mm256_set1_epi32(4095);
    const vec c = _mm256_permute4x64_epi64(_mm256_packus_epi32(_mm256_and_si256(_mm256_srli_epi32(a, 8), low12),
                                                               _mm256_and_si256(_mm256_srli_epi32(b, 8), low12)), 0xD8);
    PUT8(dst, sym);
    advance_avx2(s, at, LOAD(s->h + at), _mm256_slli_epi16(f, 4), SUB(slot, _mm256_slli_epi16(c, 4)), p);
}

TARGET size_t
ckpi_rans_dec_wide_avx2(const ckpi_rans_dec *d, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **words,
                        const uint8_t *safe)
{
    uint32_t tab[4096];
    states_avx2 s;
    const uint8_t *p = *words;
    ckpi_rans_wide_table(d->m, tab);
    split_avx2(&s, x, lanes);
    size_t g = 0;
    for (; g < groups && p <= safe; g++)
        for (unsigned at = 0; at < lanes; at += PER)
            wide_step(tab, &s, at, dst + g * lanes + at, &p);
    join_avx2(x, &s, lanes);
    *words = p;
    return g;
}

/* ---- anything else: the symbol from the reference's table, share and start by symbol ------------------------------------ */

INLINE void
any_step(const ckpi_rans_dec *d, const uint32_t *fc, unsigned shift, states_avx2 *s, unsigned at, uint8_t *dst, const uint8_t **p)
{
    uint16_t f[PER], c[PER];
    for (unsigned i = 0; i < PER; i++) {
        const uint8_t y = d->slot[s->l[at + i] >> shift];
        dst[i] = y;
        f[i] = (uint16_t)(fc[y] >> 16);
        c[i] = (uint16_t)fc[y];
    }
    advance_avx2(s, at, LOAD(s->h + at), LOAD(f), SUB(LOAD(s->l + at), LOAD(c)), p);
}

TARGET size_t
ckpi_rans_dec_any_avx2(const ckpi_rans_dec *d, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **words,
                       const uint8_t *safe)
{
    const unsigned shift = CKPI_RANS_MAX_BITS - d->m->bits;
    uint32_t fc[256];
    states_avx2 s;
    const uint8_t *p = *words;
    for (unsigned i = 0; i < 256; i++)
        fc[i] = (uint32_t)d->m->freq[i] << 16 | d->m->start[i];
    split_avx2(&s, x, lanes);
    size_t g = 0;
    for (; g < groups && p <= safe; g++)
        for (unsigned at = 0; at < lanes; at += PER)
            any_step(d, fc, shift, &s, at, dst + g * lanes + at, &p);
    join_avx2(x, &s, lanes);
    *words = p;
    return g;
}

/* ---- encoder: eight whole states a vector ---------------------------------------------------------------------------- */

typedef struct enc_entry {
    uint32_t fc;  /* f << 16 | c */
    uint32_t inv; /* floor(2^32 / f), 2^32 - 1 for f = 1: x * inv >> 32 is the quotient or one less */
} enc_entry;

/* The high halves of eight 32 x 32 bit products. */
INLINE __m256i
mulhi32(__m256i a, __m256i b)
{
    const __m256i even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

INLINE __m128
entry_pair(const enc_entry *t, unsigned a, unsigned b)
{
    return _mm_castpd_ps(_mm_loadh_pd(_mm_load_sd((const double *)(const void *)&t[a]), (const double *)(const void *)&t[b]));
}

INLINE uint8_t *
encode8(const enc_entry *t, const uint8_t *src, uint32_t *x, uint8_t *p)
{
    /* Eight loads and four shuffles are faster than two gathers. */
    const __m256 a = _mm256_insertf128_ps(_mm256_castps128_ps256(entry_pair(t, src[0], src[1])), entry_pair(t, src[4], src[5]), 1);
    const __m256 b = _mm256_insertf128_ps(_mm256_castps128_ps256(entry_pair(t, src[2], src[3])), entry_pair(t, src[6], src[7]), 1);
    const __m256i fc = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), inv = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
    const __m256i f = _mm256_srli_epi32(fc, 16), c = _mm256_and_si256(fc, _mm256_set1_epi32(0xffff));
    __m256i v = _mm256_loadu_si256((const __m256i *)x);

    const __m256i h = _mm256_srli_epi32(v, 16), stay = _mm256_cmpgt_epi32(f, h);
    const unsigned k = ~(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(stay)) & 255;
    const __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storeu_si128((__m128i *)(p - 16), _mm_shuffle_epi8(words, _mm_loadu_si128((const __m128i *)ckpi_rans_pack8[k])));
    p -= 2 * (size_t)(unsigned)_mm_popcnt_u32(k);
    v = _mm256_blendv_epi8(h, v, stay);

    const __m256i q = mulhi32(v, inv), r = _mm256_sub_epi32(v, _mm256_mullo_epi32(q, f));
    const __m256i fits = _mm256_cmpgt_epi32(f, r); /* r < 2 f < 2^17 */
    const __m256i more = _mm256_andnot_si256(fits, _mm256_sub_epi32(_mm256_set1_epi32(65536), f));
    v = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(q, 16), r), _mm256_add_epi32(c, more));
    _mm256_storeu_si256((__m256i *)x, v);
    return p;
}

TARGET uint8_t *
ckpi_rans_enc_avx2(const ckpi_rans_model *m, const uint8_t *src, size_t groups, uint32_t *x, unsigned lanes, uint8_t *p)
{
    enc_entry t[256];
    for (unsigned s = 0; s < 256; s++) {
        const uint32_t f = m->freq[s];
        t[s].fc = f << 16 | m->start[s];
        t[s].inv = f <= 1 ? UINT32_MAX : (uint32_t)(((uint64_t)1 << 32) / f);
    }
    for (size_t g = groups; g-- > 0;)
        for (unsigned at = lanes; at > 0;) {
            at -= 8;
            p = encode8(t, src + g * lanes + at, x + at, p);
        }
    return p;
}
#else
typedef int ckpi_rans_kern_avx2_unused;
#endif
