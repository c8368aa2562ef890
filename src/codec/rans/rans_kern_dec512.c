/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders for AVX-512 with VBMI2. A vector holds 32 lanes in natural order as two vectors of 16-bit numbers: H, the high halves
 * of the states, and L, the low halves, which are the slots. One step:
 *
 *     share f and offset d = L - start of the symbol that owns slot L     (small_, class_, wide_, any_step)
 *     H:L = f * H + d                                                     mulhi, mullo, add with carry
 *     where H = 0: H = L, L = the next word                               blend, expand
 *
 * Two vectors (64 lanes) are stepped side by side: a step is a long chain of short instructions.
 */
#include "base/cpu.h"

#if CKPI_X86
#include <string.h>

#include "codec/rans/rans_kern_x86.h"
#include "codec/rans/rans_kern_512.h"

/* H:L = f * H + d and renormalization; returns the place behind the words it took. */
INLINE const uint8_t *
advance(half32 *s, __m512i f, __m512i d, const uint8_t *p)
{
    const __m512i hi = _mm512_mulhi_epu16(s->h, f);
    const __m512i lo = _mm512_add_epi16(_mm512_mullo_epi16(s->h, f), d);
    const __mmask32 carry = _mm512_cmplt_epu16_mask(lo, d);
    const __m512i h = _mm512_mask_sub_epi16(hi, carry, hi, _mm512_set1_epi16(-1));
    const __mmask32 need = _kandn_mask32(carry, _mm512_testn_epi16_mask(hi, hi));
    s->h = _mm512_mask_mov_epi16(h, need, lo);
    s->l = _mm512_mask_expand_epi16(lo, need, _mm512_loadu_si512(p));
    return p + 2 * (size_t)(unsigned)_mm_popcnt_u32(need);
}

/* 64 bytes from two vectors of 16-bit numbers below 256. */
INLINE __m512i
narrow(__m512i a, __m512i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)), _mm512_cvtepi16_epi8(b), 1);
}

INLINE void
put_symbols(uint8_t *dst, __m512i symbols, unsigned lanes)
{
    if (lanes == 64)
        _mm512_storeu_si512(dst, symbols);
    else
        _mm256_storeu_si256((__m256i *)dst, _mm512_castsi512_si256(symbols));
}

/* ---- up to 64 symbols, found by three rounds of comparing with three limits each ---------------------------------- */

typedef struct small_tab {
    __m512i a1, a2, a3;       /* limits of ranks 16, 32, 48 */
    __m512i b1, b2, b3;       /* by rank / 16, or for all: limits of ranks +4, +8, +12 */
    __m512i c1, c2, c3;       /* by rank / 4: limits of ranks +1, +2, +3 */
    __m512i f[2], start[2];   /* by rank */
    __m512i symbol;           /* bytes, by rank */
} small_tab;

TARGET static void
small_init(small_tab *t, const ckpi_rans_model *m)
{
    uint16_t limit[64], b[3][32] = {{0}}, c[3][32] = {{0}}, f[64] = {0}, start[64] = {0};
    uint8_t symbol[64] = {0};
    memset(limit, 0xff, sizeof limit); /* no slot lies above 65535 */
    unsigned r = 0;
    for (unsigned i = 0; i < 256; i++) {
        const unsigned s = (m->first + i) & 255;
        if (m->freq[s] == 0)
            continue;
        symbol[r] = (uint8_t)s;
        f[r] = m->freq[s];
        start[r] = m->start[s];
        limit[r++] = (uint16_t)(m->start[s] - 1); /* the rank is at least r where the slot is above; rank 0 is never asked */
    }
    for (unsigned k = 0; k < 3; k++) {
        for (unsigned i = 0; i < 32; i++) /* the same everywhere when there is no round before this one */
            b[k][i] = limit[16 * (m->distinct > 16 ? i & 3 : 0) + 4 * (k + 1)];
        for (unsigned i = 0; i < 16; i++)
            c[k][i] = limit[4 * i + k + 1];
    }
    t->a1 = _mm512_set1_epi16((short)limit[16]);
    t->a2 = _mm512_set1_epi16((short)limit[32]);
    t->a3 = _mm512_set1_epi16((short)limit[48]);
    t->b1 = _mm512_loadu_si512(b[0]);
    t->b2 = _mm512_loadu_si512(b[1]);
    t->b3 = _mm512_loadu_si512(b[2]);
    t->c1 = _mm512_loadu_si512(c[0]);
    t->c2 = _mm512_loadu_si512(c[1]);
    t->c3 = _mm512_loadu_si512(c[2]);
    for (unsigned i = 0; i < 2; i++) {
        t->f[i] = _mm512_loadu_si512(f + 32 * i);
        t->start[i] = _mm512_loadu_si512(start + 32 * i);
    }
    t->symbol = _mm512_loadu_si512(symbol);
}

/* rank + how many of three limits the slot is above */
INLINE __m512i
above(__m512i slot, __m512i rank, __m512i l1, __m512i l2, __m512i l3)
{
    const __m512i minus1 = _mm512_set1_epi16(-1);
    const __mmask32 k1 = _mm512_cmpgt_epu16_mask(slot, l1), k2 = _mm512_cmpgt_epu16_mask(slot, l2),
                    k3 = _mm512_cmpgt_epu16_mask(slot, l3);
    rank = _mm512_mask_sub_epi16(rank, k1, rank, minus1);
    rank = _mm512_mask_sub_epi16(rank, k2, rank, minus1);
    return _mm512_mask_sub_epi16(rank, k3, rank, minus1);
}

INLINE __m512i
small_step(const small_tab *t, unsigned symbols, half32 *s, const uint8_t **p)
{
    __m512i r = _mm512_setzero_si512();
    if (symbols > 16) {
        r = above(s->l, r, t->a1, t->a2, t->a3);
        r = above(s->l, _mm512_slli_epi16(r, 2), _mm512_permutexvar_epi16(r, t->b1), _mm512_permutexvar_epi16(r, t->b2),
                  _mm512_permutexvar_epi16(r, t->b3));
    } else if (symbols > 4) {
        r = above(s->l, r, t->b1, t->b2, t->b3);
    }
    r = above(s->l, _mm512_slli_epi16(r, 2), _mm512_permutexvar_epi16(r, t->c1), _mm512_permutexvar_epi16(r, t->c2),
              _mm512_permutexvar_epi16(r, t->c3));
    const __m512i f = symbols > 32 ? _mm512_permutex2var_epi16(t->f[0], r, t->f[1]) : _mm512_permutexvar_epi16(r, t->f[0]);
    const __m512i start = symbols > 32 ? _mm512_permutex2var_epi16(t->start[0], r, t->start[1]) : _mm512_permutexvar_epi16(r, t->start[0]);
    *p = advance(s, f, _mm512_sub_epi16(s->l, start), *p);
    return r;
}

INLINE size_t
small_loop(const small_tab *tab, unsigned symbols, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **words,
           const uint8_t *safe)
{
    const small_tab t = *tab;
    const uint8_t *p = *words;
    half32 s0 = load_states(x), s1 = s0;
    if (lanes == 64)
        s1 = load_states(x + 32);
    size_t g = 0;
    for (; g < groups && p <= safe; g++) {
        const __m512i r0 = small_step(&t, symbols, &s0, &p);
        const __m512i r1 = lanes == 64 ? small_step(&t, symbols, &s1, &p) : r0;
        put_symbols(dst + g * lanes, _mm512_permutexvar_epi8(narrow(r0, r1), t.symbol), lanes);
    }
    store_states(x, s0);
    if (lanes == 64)
        store_states(x + 32, s1);
    *words = p;
    return g;
}

TARGET size_t
ckpi_rans_dec_small_vbmi2(const ckpi_rans_dec *d, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **p,
                          const uint8_t *safe)
{
    small_tab t;
    small_init(&t, d->m);
    const unsigned n = d->m->distinct;
    if (lanes == 64)
        return n <= 4    ? small_loop(&t, 4, dst, groups, x, 64, p, safe)
               : n <= 16 ? small_loop(&t, 16, dst, groups, x, 64, p, safe)
               : n <= 32 ? small_loop(&t, 32, dst, groups, x, 64, p, safe)
                         : small_loop(&t, 64, dst, groups, x, 64, p, safe);
    return n <= 4    ? small_loop(&t, 4, dst, groups, x, 32, p, safe)
           : n <= 16 ? small_loop(&t, 16, dst, groups, x, 32, p, safe)
           : n <= 32 ? small_loop(&t, 32, dst, groups, x, 32, p, safe)
                     : small_loop(&t, 64, dst, groups, x, 32, p, safe);
}

/* ---- shares by number of one bits: nine classes, and a division inside the class ------------------------------------ */

typedef struct class_tab {
    __m512i limit[9];      /* of classes 1 to 8 */
    __m512i f, start, inv; /* by class; inv = floor(65535 / f) */
    __m512i first;         /* rank of the class's first byte */
    __m512i order[4];      /* byte by rank */
} class_tab;

TARGET static void
class_init(class_tab *t, const ckpi_rans_model *m)
{
    uint16_t f[32] = {0}, start[32] = {0}, inv[32] = {0}, first[32] = {0};
    for (unsigned k = 0; k < 9; k++) {
        const unsigned s = ckpi_rans_pop_order[ckpi_rans_pop_first[k]];
        f[k] = m->freq[s];
        start[k] = m->start[s];
        inv[k] = f[k] == 0 ? 0 : (uint16_t)(65535u / f[k]);
        first[k] = ckpi_rans_pop_first[k];
        /* A class without shares begins where the next one does, and classes behind the last one at 2^16, that is 0. */
        t->limit[k] = _mm512_set1_epi16((short)(k == 0 || (start[k] == 0 && k > 0) ? 0xffff : start[k] - 1));
    }
    t->f = _mm512_loadu_si512(f);
    t->start = _mm512_loadu_si512(start);
    t->inv = _mm512_loadu_si512(inv);
    t->first = _mm512_loadu_si512(first);
    for (unsigned i = 0; i < 4; i++)
        t->order[i] = _mm512_loadu_si512(ckpi_rans_pop_order + 64 * i);
}

/* Returns the symbols' ranks. */
INLINE __m512i
class_step(const class_tab *t, half32 *s, const uint8_t **p)
{
    const __m512i minus1 = _mm512_set1_epi16(-1), slot = s->l;
    const __m512i lo = above(slot, _mm512_setzero_si512(), t->limit[1], t->limit[2], t->limit[3]);
    const __m512i hi = above(slot, above(slot, _mm512_setzero_si512(), t->limit[4], t->limit[5], t->limit[6]), t->limit[7], t->limit[8],
                             minus1);
    const __m512i k = _mm512_add_epi16(lo, hi);
    const __m512i f = _mm512_permutexvar_epi16(k, t->f);
    const __m512i in = _mm512_sub_epi16(slot, _mm512_permutexvar_epi16(k, t->start));
    /* in / f, at most one too small */
    __m512i j = _mm512_mulhi_epu16(in, _mm512_permutexvar_epi16(k, t->inv));
    __m512i d = _mm512_sub_epi16(in, _mm512_mullo_epi16(j, f));
    const __mmask32 more = _mm512_cmpge_epu16_mask(d, f);
    d = _mm512_mask_sub_epi16(d, more, d, f);
    j = _mm512_mask_sub_epi16(j, more, j, minus1);
    *p = advance(s, f, d, *p);
    return _mm512_add_epi16(j, _mm512_permutexvar_epi16(k, t->first));
}

INLINE size_t
class_loop(const class_tab *tab, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **words, const uint8_t *safe)
{
    const class_tab t = *tab;
    const uint8_t *p = *words;
    half32 s0 = load_states(x), s1 = s0;
    if (lanes == 64)
        s1 = load_states(x + 32);
    size_t g = 0;
    for (; g < groups && p <= safe; g++) {
        const __m512i r0 = class_step(&t, &s0, &p);
        const __m512i r1 = lanes == 64 ? class_step(&t, &s1, &p) : r0;
        put_symbols(dst + g * lanes, look_up_256(t.order, narrow(r0, r1)), lanes);
    }
    store_states(x, s0);
    if (lanes == 64)
        store_states(x + 32, s1);
    *words = p;
    return g;
}

TARGET size_t
ckpi_rans_dec_class_vbmi2(const ckpi_rans_dec *d, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **p,
                          const uint8_t *safe)
{
    class_tab t;
    class_init(&t, d->m);
    return lanes == 64 ? class_loop(&t, dst, groups, x, 64, p, safe) : class_loop(&t, dst, groups, x, 32, p, safe);
}

/* ---- any alphabet with shares in multiples of 16: one gather by the slot's upper 12 bits --------------------------- */

/* f / 16 in bits 20-31, start / 16 in bits 8-19, the symbol in bits 0-7; both below 4096. */
INLINE __m512i
gather16(const uint32_t *tab, __m256i slots)
{
    return _mm512_i32gather_epi32(_mm512_srli_epi32(_mm512_cvtepu16_epi32(slots), 4), tab, 4);
}

INLINE __m128i
wide_part(const uint32_t *tab, __m256i slots, __m256i *f, __m256i *start)
{
    const __m512i e = gather16(tab, slots);
    *f = _mm512_cvtepi32_epi16(_mm512_slli_epi32(_mm512_srli_epi32(e, 20), 4));
    *start = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_and_si512(e, _mm512_set1_epi32(0xfff00)), 4));
    return _mm512_cvtepi32_epi8(e);
}

INLINE void
wide_step(const uint32_t *tab, half32 *s, const uint8_t **p, uint8_t *dst)
{
    __m256i f0, f1, c0, c1;
    _mm_storeu_si128((__m128i *)dst, wide_part(tab, _mm512_castsi512_si256(s->l), &f0, &c0));
    _mm_storeu_si128((__m128i *)(dst + 16), wide_part(tab, _mm512_extracti64x4_epi64(s->l, 1), &f1, &c1));
    const __m512i f = _mm512_inserti64x4(_mm512_castsi256_si512(f0), f1, 1), c = _mm512_inserti64x4(_mm512_castsi256_si512(c0), c1, 1);
    *p = advance(s, f, _mm512_sub_epi16(s->l, c), *p);
}

INLINE size_t
wide_loop(const uint32_t *tab, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **words, const uint8_t *safe)
{
    const uint8_t *p = *words;
    half32 s0 = load_states(x), s1 = s0;
    if (lanes == 64)
        s1 = load_states(x + 32);
    size_t g = 0;
    for (; g < groups && p <= safe; g++) {
        wide_step(tab, &s0, &p, dst + g * lanes);
        if (lanes == 64)
            wide_step(tab, &s1, &p, dst + g * lanes + 32);
    }
    store_states(x, s0);
    if (lanes == 64)
        store_states(x + 32, s1);
    *words = p;
    return g;
}

TARGET size_t
ckpi_rans_dec_wide_vbmi2(const ckpi_rans_dec *d, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **p,
                         const uint8_t *safe)
{
    uint32_t tab[4096];
    ckpi_rans_wide_table(d->m, tab);
    return lanes == 64 ? wide_loop(tab, dst, groups, x, 64, p, safe) : wide_loop(tab, dst, groups, x, 32, p, safe);
}

/* ---- anything else: four rounds of comparing find the symbol, and its share lies between two of the limits -------------- */

typedef struct any_tab {
    __m512i a[3];             /* limits of ranks 64, 128, 192 */
    __m512i b[3], c[3];       /* by rank / 64: of ranks +16, +32, +48; by rank / 16: of ranks +4, +8, +12 */
    __m512i d[5][2];          /* by rank / 4: of ranks +0 to +4 */
    __m512i symbol[4];        /* bytes, by rank */
} any_tab;

/* limit[r]: one less than the start of rank r, so that -1 stands for 0 as well as for 2^16, where the last rank ends. */
TARGET static void
any_init(any_tab *t, const ckpi_rans_model *m)
{
    uint16_t limit[256 + 4], b[3][32] = {{0}}, c[3][32] = {{0}}, d[5][64];
    uint8_t symbol[256] = {0};
    memset(limit, 0xff, sizeof limit);
    unsigned r = 0;
    for (unsigned i = 0; i < 256; i++) {
        const unsigned s = (m->first + i) & 255;
        if (m->freq[s] == 0)
            continue;
        symbol[r] = (uint8_t)s;
        limit[r++] = (uint16_t)(m->start[s] - 1);
    }
    for (unsigned k = 0; k < 3; k++) {
        t->a[k] = _mm512_set1_epi16((short)limit[64 * (k + 1)]);
        for (unsigned i = 0; i < 4; i++)
            b[k][i] = limit[64 * i + 16 * (k + 1)];
        for (unsigned i = 0; i < 16; i++)
            c[k][i] = limit[16 * i + 4 * (k + 1)];
        t->b[k] = _mm512_loadu_si512(b[k]);
        t->c[k] = _mm512_loadu_si512(c[k]);
    }
    for (unsigned k = 0; k < 5; k++) {
        for (unsigned i = 0; i < 64; i++)
            d[k][i] = limit[4 * i + k];
        t->d[k][0] = _mm512_loadu_si512(d[k]);
        t->d[k][1] = _mm512_loadu_si512(d[k] + 32);
    }
    for (unsigned k = 0; k < 4; k++)
        t->symbol[k] = _mm512_loadu_si512(symbol + 64 * k);
}

/* Returns the symbols' ranks. */
INLINE __m512i
any_step(const any_tab *t, half32 *s, const uint8_t **p)
{
    const __m512i slot = s->l;
    __m512i r = above(slot, _mm512_setzero_si512(), t->a[0], t->a[1], t->a[2]), limit[5];
    r = above(slot, _mm512_slli_epi16(r, 2), _mm512_permutexvar_epi16(r, t->b[0]), _mm512_permutexvar_epi16(r, t->b[1]),
              _mm512_permutexvar_epi16(r, t->b[2]));
    r = above(slot, _mm512_slli_epi16(r, 2), _mm512_permutexvar_epi16(r, t->c[0]), _mm512_permutexvar_epi16(r, t->c[1]),
              _mm512_permutexvar_epi16(r, t->c[2]));
    for (unsigned k = 0; k < 5; k++)
        limit[k] = _mm512_permutex2var_epi16(t->d[k][0], r, t->d[k][1]);
    const __mmask32 k1 = _mm512_cmpgt_epu16_mask(slot, limit[1]), k2 = _mm512_cmpgt_epu16_mask(slot, limit[2]),
                    k3 = _mm512_cmpgt_epu16_mask(slot, limit[3]);
    const __m512i low = _mm512_mask_mov_epi16(_mm512_mask_mov_epi16(_mm512_mask_mov_epi16(limit[0], k1, limit[1]), k2, limit[2]), k3, limit[3]);
    const __m512i high = _mm512_mask_mov_epi16(_mm512_mask_mov_epi16(_mm512_mask_mov_epi16(limit[1], k1, limit[2]), k2, limit[3]), k3, limit[4]);
    const __m512i minus1 = _mm512_set1_epi16(-1);
    r = _mm512_slli_epi16(r, 2);
    r = _mm512_mask_sub_epi16(r, k1, r, minus1);
    r = _mm512_mask_sub_epi16(r, k2, r, minus1);
    r = _mm512_mask_sub_epi16(r, k3, r, minus1);
    *p = advance(s, _mm512_sub_epi16(high, low), _mm512_add_epi16(_mm512_sub_epi16(slot, low), minus1), *p);
    return r;
}

INLINE size_t
any_loop(const any_tab *tab, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **words, const uint8_t *safe)
{
    const any_tab t = *tab;
    const uint8_t *p = *words;
    half32 s0 = load_states(x), s1 = s0;
    if (lanes == 64)
        s1 = load_states(x + 32);
    size_t g = 0;
    for (; g < groups && p <= safe; g++) {
        const __m512i r0 = any_step(&t, &s0, &p);
        const __m512i r1 = lanes == 64 ? any_step(&t, &s1, &p) : r0;
        put_symbols(dst + g * lanes, look_up_256(t.symbol, narrow(r0, r1)), lanes);
    }
    store_states(x, s0);
    if (lanes == 64)
        store_states(x + 32, s1);
    *words = p;
    return g;
}

TARGET size_t
ckpi_rans_dec_any_vbmi2(const ckpi_rans_dec *d, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **p,
                        const uint8_t *safe)
{
    any_tab t;
    any_init(&t, d->m);
    return lanes == 64 ? any_loop(&t, dst, groups, x, 64, p, safe) : any_loop(&t, dst, groups, x, 32, p, safe);
}
#else
typedef int ckpi_rans_dec512_unused;
#endif
