/* SPDX-License-Identifier: Apache-2.0 */
/* The low bits of differences as one string of bits. Eight bytes are written and read at a time, except near the end. */
#include <string.h>
#include "base/bytes.h"
#include "codec/diff/diff_bits_rows.h"

void
ckpi_diff_rest_bits(uint8_t rest[256], unsigned msb, unsigned width)
{
    const unsigned most = ckpi_diff_rest_most(msb, width);
    for (unsigned s = 0; s < 256; s++) {
        const unsigned t = s >> 1, bits = t < (2u << msb) ? 0 : (t >> msb) - 1;
        rest[s] = (uint8_t)(bits <= most ? bits : 0);
    }
}

void
ckpi_diff_leads(uint64_t lead[256], const uint8_t rest[256], unsigned msb)
{
    for (unsigned s = 0; s < 256; s++) {
        const unsigned t = s >> 1;
        lead[s] = rest[s] == 0 ? t : (uint64_t)((1u << msb) + (t & ((1u << msb) - 1))) << rest[s];
    }
}

typedef struct bit_writer {
    uint8_t *at;
    uint64_t word;
    unsigned fill;   /* bits in word, below 8 between calls */
} bit_writer;

/* count <= 56 */
static inline void
put_bits(bit_writer *w, uint64_t v, unsigned count)
{
    w->word |= (v & ((UINT64_C(1) << count) - 1)) << w->fill;
    w->fill += count;
    for (; w->fill >= 8; w->fill -= 8) {
        *w->at++ = (uint8_t)w->word;
        w->word >>= 8;
    }
}

static inline void
put_last(bit_writer *w)
{
    if (w->fill != 0)
        *w->at++ = (uint8_t)w->word;
}

/* count <= 56 bits from bit `pos` on; beyond the end there are zeros. */
static inline uint64_t
get_bits(const uint8_t *src, size_t len, uint64_t pos, unsigned count)
{
    const size_t at = (size_t)(pos >> 3);
    uint64_t word = 0;
    if (at < len && len - at >= 8)
        word = ckpi_ld64(src + at);
    else
        for (size_t i = 0; i < 8 && at + i < len; i++)
            word |= (uint64_t)src[at + i] << (8 * i);
    return (word >> (pos & 7)) & ((UINT64_C(1) << count) - 1);
}

static inline uint8_t
ld8(const void *p)
{
    return *(const uint8_t *)p;
}

static inline void
st8(void *p, uint8_t v)
{
    *(uint8_t *)p = v;
}

#define LOAD64 ckpi_ld64
#define STORE64 ckpi_st64
#define NAME(f) f##_8
#define TARGET
#define WORD uint8_t
#define GROUP 4
#define LOAD ld8
#define STORE st8
#include "codec/diff/diff_bits.inc"

#define NAME(f) f##_16
#define TARGET
#define WORD uint16_t
#define GROUP 3
#define LOAD ckpi_ld16
#define STORE ckpi_st16
#include "codec/diff/diff_bits.inc"

#define NAME(f) f##_32
#define TARGET
#define WORD uint32_t
#define GROUP 1
#define LOAD ckpi_ld32
#define STORE ckpi_st32
#include "codec/diff/diff_bits.inc"

/* Up to 63 bits at once: in two parts. */
static void
put_64(uint8_t *dst, size_t room, const uint8_t *sym, const void *magnitude, size_t n, const uint8_t rest[256])
{
    bit_writer w = {.at = dst};
    (void)room;
    for (size_t i = 0; i < n; i++) {
        const unsigned count = rest[sym[i]], low = CKPI_MIN(count, 32u);
        const uint64_t v = ckpi_ld64((const uint8_t *)magnitude + 8 * i);
        put_bits(&w, v, low);
        put_bits(&w, v >> 32, count - low);
    }
    put_last(&w);
}

static uint64_t
get_64(void *magnitude, const uint8_t *src, size_t len, uint64_t pos, const uint8_t *sym, size_t n, const uint8_t rest[256],
       const uint64_t lead[256])
{
    for (size_t i = 0; i < n; i++) {
        const unsigned count = rest[sym[i]], low = CKPI_MIN(count, 32u);
        const uint64_t v = get_bits(src, len, pos, low) | get_bits(src, len, pos + low, count - low) << 32;
        pos += count;
        ckpi_st64((uint8_t *)magnitude + 8 * i, lead[sym[i]] | v);
    }
    return pos;
}

#if CKPI_X86
/* The same bodies with BMI2's shifts and masks. */
#define NAME(f) f##_16_bmi2
#define TARGET CKPI_TARGET_AVX2
#define WORD uint16_t
#define GROUP 3
#define LOAD ckpi_ld16
#define STORE ckpi_st16
#include "codec/diff/diff_bits.inc"

#define NAME(f) f##_32_bmi2
#define TARGET CKPI_TARGET_AVX2
#define WORD uint32_t
#define GROUP 1
#define LOAD ckpi_ld32
#define STORE ckpi_st32
#include "codec/diff/diff_bits.inc"
#endif

const ckpi_diff_bits *
ckpi_diff_bits_pick(unsigned width, uint32_t cpu)
{
    static const ckpi_diff_bits ref[4] = {{put_8, get_8}, {put_16, get_16}, {put_32, get_32}, {put_64, get_64}};
#if CKPI_X86
    static const ckpi_diff_bits bmi2[2] = {{put_16_bmi2, get_16_bmi2}, {put_32_bmi2, get_32_bmi2}};
    if ((cpu & CKPI_CPU_AVX2) && (width == 2 || width == 4))
        return &bmi2[width / 4];
#else
    (void)cpu;
#endif
    return &ref[width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3];
}

uint64_t
ckpi_diff_join(const ckpi_diff_par *p, void *words, const void *base, const uint8_t *src, size_t len, const uint8_t *sym, size_t n,
               void *magnitude, uint32_t cpu)
{
    uint8_t rest[256];
    uint64_t lead[256], pos = 0;
    size_t done = 0;
    ckpi_diff_rest_bits(rest, p->msb, p->width);
    ckpi_diff_leads(lead, rest, p->msb);
#if CKPI_X86
    if ((cpu & CKPI_CPU_VBMI2) && (p->width == 2 || p->width == 4))
        done = ckpi_diff_join_vbmi2(p, words, base, src, len, sym, n, &pos);
#endif
    const size_t at = done * p->width;
    pos = ckpi_diff_bits_pick(p->width, cpu)->get(magnitude, src, len, pos, sym + done, n - done, rest, lead);
    ckpi_diff_kern_pick(p->width, cpu)->words(p, (uint8_t *)words + at, (const uint8_t *)base + at, n - done, sym + done, magnitude);
    return pos;
}
