/* SPDX-License-Identifier: Apache-2.0 */
/* The low bits of differences as one string of bits. Eight bytes are written and read at a time, except near the end. */
#include "base/bytes.h"
#include "codec/diff/diff.h"

void
ckpi_diff_rest_bits(uint8_t rest[256], unsigned msb, unsigned width)
{
    const unsigned most = 8 * width - 1 - (8 * width > 1 + msb ? msb : 0);
    for (unsigned s = 0; s < 256; s++) {
        const unsigned t = s >> 1, bits = t < (2u << msb) ? 0 : (t >> msb) - 1;
        rest[s] = (uint8_t)(bits <= most ? bits : 0);
    }
}

static uint64_t
load(const void *words, size_t i, unsigned width)
{
    const uint8_t *at = (const uint8_t *)words + i * width;
    switch (width) {
    case 1: return *at;
    case 2: return ckpi_ld16(at);
    case 4: return ckpi_ld32(at);
    default: return ckpi_ld64(at);
    }
}

static void
store(void *words, size_t i, unsigned width, uint64_t v)
{
    uint8_t *at = (uint8_t *)words + i * width;
    switch (width) {
    case 1: *at = (uint8_t)v; break;
    case 2: ckpi_st16(at, (uint16_t)v); break;
    case 4: ckpi_st32(at, (uint32_t)v); break;
    default: ckpi_st64(at, v); break;
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

size_t
ckpi_diff_bits_put(uint8_t *dst, const uint8_t *sym, const void *magnitude, size_t n, unsigned width, const uint8_t rest[256])
{
    bit_writer w = {.at = dst};
    for (size_t i = 0; i < n; i++) {
        const unsigned count = rest[sym[i]], low = CKPI_MIN(count, 32u);
        const uint64_t v = load(magnitude, i, width);
        put_bits(&w, v, low);
        if (count > 32)
            put_bits(&w, v >> 32, count - 32);
    }
    if (w.fill != 0)
        *w.at++ = (uint8_t)w.word;
    return (size_t)(w.at - dst);
}

/* count <= 56 bits from bit `pos` on; beyond the end there are zeros. */
static inline uint64_t
get_bits(const uint8_t *src, size_t len, uint64_t pos, unsigned count)
{
    const size_t at = (size_t)(pos >> 3);
    uint64_t word = 0;
    if (at + 8 <= len)
        word = ckpi_ld64(src + at);
    else
        for (size_t i = 0; at + i < len; i++)
            word |= (uint64_t)src[at + i] << (8 * i);
    return (word >> (pos & 7)) & ((UINT64_C(1) << count) - 1);
}

void
ckpi_diff_bits_get(void *magnitude, const uint8_t *src, size_t len, const uint8_t *sym, size_t n, unsigned width, const uint8_t rest[256],
                   unsigned msb)
{
    uint64_t pos = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned count = rest[sym[i]], low = CKPI_MIN(count, 32u), t = sym[i] >> 1;
        uint64_t v = get_bits(src, len, pos, low);
        if (count > 32)
            v |= get_bits(src, len, pos + 32, count - 32) << 32;
        pos += count;
        const uint64_t lead = count == 0 ? t : (1u << msb) + (t & ((1u << msb) - 1));
        store(magnitude, i, width, lead << count | v);
    }
}
