/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoders for AVX-512 with VBMI2, on the same two vectors of 16-bit halves as the decoders. One step, for 32 symbols:
 *
 *     share f, start c and 1/f, rounded down, of each symbol       (small_, class_, wide_symbols)
 *     where H >= f: put word L; L = H, H = 0                       compress
 *     q = H:L / f, r = H:L - q * f; H = q, L = r + c               by float: never too large, at most one too small
 *
 * Conversions and products round towards zero by the instruction itself, so neither the caller's rounding mode nor its traps matter:
 * H:L < f * 2^16 has a quotient below 2^16 and each of the three roundings loses less than 2^-23 of it.
 */
#include "base/cpu.h"

#if CKPI_X86
#include <string.h>

#include "codec/rans/rans_kern_512.h"
#include "codec/rans/rans_kern_x86.h"

enum { RZ = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC };

/* A remainder that is one f too large leaves 16 bits only for shares above this: 65536 / (1 + 3 / 128). */
enum { SHARE_BIG = 64000 };

typedef struct symbols32 {
    __m512i f, c;          /* share and start */
    __m512i rcp_lo, rcp_hi; /* halves of the bits of float(1 / f) */
} symbols32;

/* Bits of the largest float not above 1 / f, f in 1 .. 65535. */
static uint32_t
reciprocal(uint32_t f)
{
    if (f == 0)
        return 0;
    const unsigned k = 31u - (unsigned)__builtin_clz(f);
    const uint32_t m = (uint32_t)(((uint64_t)1 << (24 + k)) / f); /* 2^23 .. 2^24 */
    return ((126u - k) << 23) + m - (1u << 23);
}

INLINE __m512i
quotient(__m512i x, __m512i rcp)
{
    const __m512 q = _mm512_mul_round_ps(_mm512_cvt_roundepu32_ps(x, RZ), _mm512_castsi512_ps(rcp), RZ);
    return _mm512_cvtt_roundps_epu32(q, _MM_FROUND_NO_EXC);
}

/* Words of the lanes in need, closed up against p from below. */
INLINE uint8_t *
put_words(__m512i l, __mmask32 need, __m512i iota, uint8_t *p)
{
    const unsigned count = (unsigned)_mm_popcnt_u32(need);
    const __m512i packed = _mm512_maskz_compress_epi16(need, l);
    const __m512i at_top = _mm512_permutexvar_epi16(_mm512_add_epi16(iota, _mm512_set1_epi16((short)count)), packed);
    _mm512_storeu_si512(p - 64, at_top);
    return p - 2 * (size_t)count;
}

INLINE uint8_t *
encode_step(half32 *s, const symbols32 *y, bool big, __m512i iota, uint8_t *p)
{
    const __mmask32 need = _mm512_cmpge_epu16_mask(s->h, y->f);
    p = put_words(s->l, need, iota, p);
    const __m512i l = _mm512_mask_mov_epi16(s->l, need, s->h);
    const __m512i h = _mm512_maskz_mov_epi16(_knot_mask32(need), s->h);
    const __m512i q0 = quotient(_mm512_unpacklo_epi16(l, h), _mm512_unpacklo_epi16(y->rcp_lo, y->rcp_hi));
    const __m512i q1 = quotient(_mm512_unpackhi_epi16(l, h), _mm512_unpackhi_epi16(y->rcp_lo, y->rcp_hi));
    const __m512i q = _mm512_packus_epi32(q0, q1);
    const __m512i back = _mm512_mullo_epi16(q, y->f), r = _mm512_sub_epi16(l, back);
    __mmask32 more = _mm512_cmpge_epu16_mask(r, y->f);
    if (big) {
        const __m512i over = _mm512_sub_epi16(h, _mm512_mulhi_epu16(q, y->f));
        const __mmask32 borrow = _mm512_cmplt_epu16_mask(l, back);
        more = _kor_mask32(more, _mm512_cmpneq_epi16_mask(over, _mm512_maskz_set1_epi16(borrow, 1)));
    }
    s->h = _mm512_mask_sub_epi16(q, more, q, _mm512_set1_epi16(-1));
    s->l = _mm512_add_epi16(_mm512_mask_sub_epi16(r, more, r, y->f), y->c);
    return p;
}

INLINE __m512i
half_of(__m512i bytes, int i)
{
    return _mm512_cvtepu8_epi16(i == 0 ? _mm512_castsi512_si256(bytes) : _mm512_extracti64x4_epi64(bytes, 1));
}

INLINE __m512i
load_symbols(const uint8_t *src, unsigned lanes)
{
    return lanes == 64 ? _mm512_loadu_si512(src) : _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)src));
}

INLINE __m512i
make_iota(void)
{
    uint16_t v[32];
    for (unsigned i = 0; i < 32; i++)
        v[i] = (uint16_t)i;
    return _mm512_loadu_si512(v);
}

/* The largest share decides whether the remainder must be watched. */
static bool
has_big(const ckpi_rans_model *m)
{
    for (unsigned s = 0; s < 256; s++)
        if (m->freq[s] > SHARE_BIG)
            return true;
    return false;
}

/* What each encoder keeps of the states and how it walks the groups, down from the last; SYMBOLS(v, i) gives half i of a group. */
#define LOOP(PREPARE, SYMBOLS)                                                                                                         \
    const __m512i iota = make_iota();                                                                                                  \
    half32 s0 = load_states(x), s1 = s0;                                                                                               \
    if (lanes == 64)                                                                                                                   \
        s1 = load_states(x + 32);                                                                                                      \
    for (size_t g = groups; g-- > 0;) {                                                                                                \
        const __m512i bytes = load_symbols(src + g * lanes, lanes);                                                                    \
        PREPARE;                                                                                                                       \
        if (lanes == 64) {                                                                                                             \
            const symbols32 y1 = SYMBOLS(1);                                                                                           \
            p = encode_step(&s1, &y1, big, iota, p);                                                                                   \
        }                                                                                                                              \
        const symbols32 y0 = SYMBOLS(0);                                                                                               \
        p = encode_step(&s0, &y0, big, iota, p);                                                                                       \
    }                                                                                                                                  \
    store_states(x, s0);                                                                                                               \
    if (lanes == 64)                                                                                                                   \
        store_states(x + 32, s1);                                                                                                      \
    return p

/* Variants by constants: lanes and big. */
#define DISPATCH(LOOP_FN, TAB, ...)                                                                                                    \
    (lanes == 64 ? (has_big(m) ? LOOP_FN(TAB, src, groups, x, 64, p, true __VA_ARGS__)                                                 \
                               : LOOP_FN(TAB, src, groups, x, 64, p, false __VA_ARGS__))                                               \
                 : (has_big(m) ? LOOP_FN(TAB, src, groups, x, 32, p, true __VA_ARGS__)                                                 \
                               : LOOP_FN(TAB, src, groups, x, 32, p, false __VA_ARGS__)))

/* ---- up to 64 symbols: by rank -------------------------------------------------------------------------------------- */

typedef struct small_tab {
    __m512i rank[4]; /* bytes, by symbol */
    __m512i f[2], c[2], lo[2], hi[2];
} small_tab;

TARGET static void
small_init(small_tab *t, const ckpi_rans_model *m)
{
    uint8_t rank[256] = {0};
    uint16_t f[64] = {0}, c[64] = {0}, lo[64] = {0}, hi[64] = {0};
    unsigned r = 0;
    for (unsigned s = 0; s < 256; s++) {
        if (m->freq[s] == 0)
            continue;
        rank[s] = (uint8_t)r;
        f[r] = m->freq[s];
        c[r] = m->start[s];
        lo[r] = (uint16_t)reciprocal(m->freq[s]);
        hi[r] = (uint16_t)(reciprocal(m->freq[s]) >> 16);
        r++;
    }
    for (unsigned i = 0; i < 4; i++)
        t->rank[i] = _mm512_loadu_si512(rank + 64 * i);
    for (unsigned i = 0; i < 2; i++) {
        t->f[i] = _mm512_loadu_si512(f + 32 * i);
        t->c[i] = _mm512_loadu_si512(c + 32 * i);
        t->lo[i] = _mm512_loadu_si512(lo + 32 * i);
        t->hi[i] = _mm512_loadu_si512(hi + 32 * i);
    }
}

INLINE __m512i
look_up_small(const __m512i tab[2], __m512i r, bool two)
{
    return two ? _mm512_permutex2var_epi16(tab[0], r, tab[1]) : _mm512_permutexvar_epi16(r, tab[0]);
}

INLINE symbols32
small_symbols(const small_tab *t, __m512i r, bool two)
{
    const symbols32 y = {look_up_small(t->f, r, two), look_up_small(t->c, r, two), look_up_small(t->lo, r, two),
                         look_up_small(t->hi, r, two)};
    return y;
}

INLINE uint8_t *
small_loop(const small_tab *t, const uint8_t *src, size_t groups, uint32_t *x, unsigned lanes, uint8_t *p, bool big, bool two)
{
#define SMALL(i) small_symbols(t, half_of(rank, i), two)
    LOOP(const __m512i rank = look_up_256(t->rank, bytes), SMALL);
}

TARGET uint8_t *
ckpi_rans_enc_small_vbmi2(const ckpi_rans_model *m, const uint8_t *src, size_t groups, uint32_t *x, unsigned lanes, uint8_t *p)
{
    small_tab t;
    small_init(&t, m);
    return m->distinct > 32 ? DISPATCH(small_loop, &t, , true) : DISPATCH(small_loop, &t, , false);
}

/* ---- shares by number of one bits ------------------------------------------------------------------------------------ */

typedef struct class_tab {
    __m512i rank[4];         /* bytes, by symbol */
    __m512i f, c, lo, hi;    /* by class; c is the start that a rank of zero would have, modulo 2^16 */
} class_tab;

TARGET static void
class_init(class_tab *t, const ckpi_rans_model *m)
{
    uint16_t f[32] = {0}, c[32] = {0}, lo[32] = {0}, hi[32] = {0};
    for (unsigned k = 0; k < 9; k++) {
        const unsigned s = ckpi_rans_pop_order[ckpi_rans_pop_first[k]];
        f[k] = m->freq[s];
        c[k] = (uint16_t)(m->start[s] - (uint32_t)ckpi_rans_pop_first[k] * f[k]);
        lo[k] = (uint16_t)reciprocal(f[k]);
        hi[k] = (uint16_t)(reciprocal(f[k]) >> 16);
    }
    for (unsigned i = 0; i < 4; i++)
        t->rank[i] = _mm512_loadu_si512(ckpi_rans_pop_rank + 64 * i);
    t->f = _mm512_loadu_si512(f);
    t->c = _mm512_loadu_si512(c);
    t->lo = _mm512_loadu_si512(lo);
    t->hi = _mm512_loadu_si512(hi);
}

/* Number of one bits of each byte. */
INLINE __m512i
count_bits(__m512i bytes)
{
    const __m512i nibble = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m512i low = _mm512_set1_epi8(15);
    return _mm512_add_epi8(_mm512_shuffle_epi8(nibble, _mm512_and_si512(bytes, low)),
                           _mm512_shuffle_epi8(nibble, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low)));
}

INLINE symbols32
class_symbols(const class_tab *t, __m512i k, __m512i rank)
{
    symbols32 y;
    y.f = _mm512_permutexvar_epi16(k, t->f);
    y.c = _mm512_add_epi16(_mm512_permutexvar_epi16(k, t->c), _mm512_mullo_epi16(rank, y.f));
    y.rcp_lo = _mm512_permutexvar_epi16(k, t->lo);
    y.rcp_hi = _mm512_permutexvar_epi16(k, t->hi);
    return y;
}

INLINE uint8_t *
class_loop(const class_tab *t, const uint8_t *src, size_t groups, uint32_t *x, unsigned lanes, uint8_t *p, bool big)
{
#define CLASS(i) class_symbols(t, half_of(k, i), half_of(rank, i))
    LOOP(const __m512i rank = look_up_256(t->rank, bytes); const __m512i k = count_bits(bytes), CLASS);
}

TARGET uint8_t *
ckpi_rans_enc_class_vbmi2(const ckpi_rans_model *m, const uint8_t *src, size_t groups, uint32_t *x, unsigned lanes, uint8_t *p)
{
    class_tab t;
    class_init(&t, m);
    return DISPATCH(class_loop, &t, );
}

/* ---- any alphabet: tables of 256 words, eight vectors each ----------------------------------------------------------- */

typedef struct wide_tab {
    uint16_t f[256], c[256], lo[256], hi[256];
} wide_tab;

INLINE symbols32
wide_symbols(const wide_tab *t, __m512i i)
{
    const __mmask32 bit6 = bit_of(i, 6), bit7 = bit_of(i, 7);
    const symbols32 y = {look_up_words(t->f, i, bit6, bit7), look_up_words(t->c, i, bit6, bit7), look_up_words(t->lo, i, bit6, bit7),
                         look_up_words(t->hi, i, bit6, bit7)};
    return y;
}

INLINE uint8_t *
wide_loop(const wide_tab *t, const uint8_t *src, size_t groups, uint32_t *x, unsigned lanes, uint8_t *p, bool big)
{
#define WIDE(i) wide_symbols(t, half_of(bytes, i))
    LOOP((void)0, WIDE);
}

TARGET uint8_t *
ckpi_rans_enc_wide_vbmi2(const ckpi_rans_model *m, const uint8_t *src, size_t groups, uint32_t *x, unsigned lanes, uint8_t *p)
{
    wide_tab t;
    memcpy(t.f, m->freq, sizeof t.f);
    memcpy(t.c, m->start, sizeof t.c);
    for (unsigned s = 0; s < 256; s++) {
        t.lo[s] = (uint16_t)reciprocal(m->freq[s]);
        t.hi[s] = (uint16_t)(reciprocal(m->freq[s]) >> 16);
    }
    return DISPATCH(wide_loop, &t, );
}
#else
typedef int ckpi_rans_enc512_unused;
#endif
