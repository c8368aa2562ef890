/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of one rANS stream: which integer share of 2^16 each byte value has, and how that is written.
 * Shares are multiples of 2^(16 - bits): a table may be coarse and small, while the coder always works by 2^16. The low half of a
 * state is then the slot and the high half the factor, so that wide kernels need 16-bit lanes only. (Finer than the usual 2^12,
 * and the loss of dividing states of 16 to 32 bits by shares of 16 is below 0.15 %, measured.)
 *
 * A model is built from a histogram by the encoder, or read from a hostile stream by the decoder; either way its invariants hold:
 * every share is below 2^16, they add up to 2^16 and lie one behind the other without gaps.
 */
#ifndef CKPI_CODEC_RANS_MODEL_H
#define CKPI_CODEC_RANS_MODEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CKPI_RANS_MIN_BITS = 8,
    CKPI_RANS_MAX_BITS = 16,
    CKPI_RANS_BITS_STEP = 2,
    CKPI_RANS_SMALL = 64,     /* alphabets that wide kernels keep in registers */
    CKPI_RANS_WIDE_BITS = 12, /* bits of shares up to which they decode larger ones */
    CKPI_RANS_TABLE_MAX = 1536 /* bytes of any table: 256 shares of at most 33 + 15 bits */
};

/* Wire values: the low three bits of a stream's first byte. */
typedef enum ckpi_rans_kind {
    CKPI_RANS_STORED = 0,  /* the bytes themselves */
    CKPI_RANS_ONE = 1,     /* one byte value only */
    CKPI_RANS_SPAN = 2,    /* shares of a circular range of byte values */
    CKPI_RANS_CLASSES = 3, /* nine shares, by number of one bits */
    CKPI_RANS_BITS = 4     /* eight independent bits with one probability */
} ckpi_rans_kind;

typedef struct ckpi_rans_model {
    ckpi_rans_kind kind;
    unsigned bits;
    unsigned distinct;    /* byte values with a share */
    uint8_t first;        /* SPAN: the range's first byte value */
    unsigned span;        /* SPAN: its length, 2..256; ONE: 1 */
    unsigned top_class;   /* CLASSES, BITS: most one bits in any byte, 1..8 */
    unsigned p13;         /* BITS: probability of a one, in 1/8192 */
    uint16_t freq[256];   /* by byte value; 0: does not occur */
    uint16_t start[256];  /* sum of the shares before it in order */
} ckpi_rans_model;

/* Byte values by (number of one bits, value), its inverse, and where each class begins and how long it is. */
extern const uint8_t ckpi_rans_pop_order[256];
extern const uint8_t ckpi_rans_pop_rank[256];
extern const uint8_t ckpi_rans_pop_first[10];
extern const uint8_t ckpi_rans_pop_size[9];

/* The model that makes n bytes with this histogram smallest, its table included. *bytes: what the stream will take, states
   excluded, rounded up. n > 0. */
void ckpi_rans_model_pick(ckpi_rans_model *m, const uint32_t hist[256], size_t n, uint64_t *bytes);

/* The table's bytes; dst holds CKPI_RANS_TABLE_MAX. Not for STORED. */
size_t ckpi_rans_model_write(const ckpi_rans_model *m, uint8_t *dst);
/* kind and bits are set; reads the rest from at most len bytes. False when it breaks an invariant. *used: bytes taken. */
bool ckpi_rans_model_read(ckpi_rans_model *m, const uint8_t *src, size_t len, size_t *used);

/* The first three fill freq, start and distinct, in multiples of 2^(16 - bits) on the way in.
 *
 * CLASSES or BITS, from shares by class; share[0] is what the others leave. False: they leave none. */
bool ckpi_rans_model_classes(ckpi_rans_model *m, uint16_t share[9]);
/* The classes' shares of a BITS model; false as above. */
bool ckpi_rans_model_binomial(ckpi_rans_model *m);
/* SPAN, from the shares in freq, in the order of the range. */
void ckpi_rans_model_range(ckpi_rans_model *m);
#endif
