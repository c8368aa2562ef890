/* SPDX-License-Identifier: Apache-2.0 */
/* Inside diff only: what a block's words are, the parameters that are recorded, and the kernels. The bytes: README.md. */
#ifndef CKPI_CODEC_DIFF_H
#define CKPI_CODEC_DIFF_H
#include <stdbool.h>
#include "codec/codec.h"

/* First byte of a payload. */
enum { CKPI_DIFF_STORED = 0, CKPI_DIFF_CODED = 1 };

/* Most leading bits, after the first, that a symbol carries. */
#define CKPI_DIFF_MSB_MAX 2

typedef struct ckpi_diff_par {
    unsigned width;     /* 1, 2, 4 or 8 */
    bool is_float;      /* sign and magnitude; else two's complement or unsigned */
    unsigned mant;      /* float: mantissa bits */
    unsigned msb;       /* leading bits of the difference in the symbol, after its first */
    unsigned contexts;  /* by the base's exponent: top, top - 1, ... the last one takes all below */
    unsigned top;
} ckpi_diff_par;

/*
 * Symbol of a difference d = ordered(new) - ordered(base), modulo 2^W: with a = |d|, its bit length bl and
 * rest = max(bl - 1 - msb, 0):  2 * ((rest << msb) + (a >> rest)) + (d's sign xor the base's sign), 0 for d = 0;
 * the low `rest` bits of a are kept as they are.
 */
typedef struct ckpi_diff_kern {
    uint32_t needs;
    /* does a leading part of n (whole vectors; the reference does all) and returns its length */
    size_t (*symbols)(const ckpi_diff_par *p, const void *words, const void *base, size_t n, uint8_t *sym, void *magnitude);
    void (*contexts)(const ckpi_diff_par *p, const void *base, size_t n, uint8_t *ctx);
    /* magnitude holds each |d| with its low bits; words = base + d */
    void (*words)(const ckpi_diff_par *p, void *words, const void *base, size_t n, const uint8_t *sym, const void *magnitude);
} ckpi_diff_kern;

const ckpi_diff_kern *ckpi_diff_kern_pick(unsigned width, uint32_t cpu);
void ckpi_diff_symbols(const ckpi_diff_par *p, const void *words, const void *base, size_t n, uint8_t *sym, void *magnitude, uint32_t cpu);

/* Most low bits that a symbol can have. */
static inline unsigned
ckpi_diff_rest_most(unsigned msb, unsigned width)
{
    return 8 * width - 1 - msb;
}

/* Number of low bits that go with each symbol, for one msb. Symbols that no width can have count as 0. */
void ckpi_diff_rest_bits(uint8_t rest[256], unsigned msb, unsigned width);

/* What the bits of a block are. False: not for this codec. */
bool ckpi_diff_par_of(ckpi_diff_par *p, const ckpi_block *b);

/* The low bits, as one string, lowest first, filled with zeros. Words are of `width` bytes. */
typedef struct ckpi_diff_bits {
    /* room: the string's exact size */
    void (*put)(uint8_t *dst, size_t room, const uint8_t *sym, const void *magnitude, size_t n, const uint8_t rest[256]);
    /* Fills magnitude with the leading part of each symbol (lead) and its bits, which begin at bit `pos` of src, and returns where
       they should end; beyond len they read as zeros. */
    uint64_t (*get)(void *magnitude, const uint8_t *src, size_t len, uint64_t pos, const uint8_t *sym, size_t n, const uint8_t rest[256],
                    const uint64_t lead[256]);
} ckpi_diff_bits;

const ckpi_diff_bits *ckpi_diff_bits_pick(unsigned width, uint32_t cpu);

/* Symbols, base and the string of bits make words, with the fastest kernels; magnitude is room for n words. Returns how many bits
   the string should have. */
uint64_t ckpi_diff_join(const ckpi_diff_par *p, void *words, const void *base, const uint8_t *src, size_t len, const uint8_t *sym, size_t n,
                        void *magnitude, uint32_t cpu);

/* The part of |d| that a symbol says, its low bits zero. */
void ckpi_diff_leads(uint64_t lead[256], const uint8_t rest[256], unsigned msb);
#endif
