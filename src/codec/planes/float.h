/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside planes only: how a chunk of floats is split (the plan), made by float_plan.c, written by float_enc.c, read by
 * float_dec.c. The bytes: README.md.
 */
#ifndef CKPI_CODEC_FLOAT_H
#define CKPI_CODEC_FLOAT_H
#include "base/buf.h"
#include "base/bytes.h"
#include "base/cursor.h"
#include "codec/codec.h"
#include "codec/planes/float_kern.h"

/* Predictions are in quarters of an octave: a factor costs about 4 bits a row, an octave's rounding would cost more than it saves. */
#define CKPI_FLOAT_FINE 2

typedef struct ckpi_float_type {
    unsigned width;      /* bytes */
    unsigned mant;       /* mantissa bits */
    unsigned exp;        /* exponent bits */
} ckpi_float_type;

typedef enum ckpi_row_class {
    CKPI_ROW_FULL = 0,
    CKPI_ROW_CUT = 1,    /* the low `cut` bits of each element are zero: fp16 or bf16 values in fp32 */
    CKPI_ROW_ZERO = 2,   /* all words are zero: no symbols at all */
    CKPI_ROW_CLASSES = 3
} ckpi_row_class;

typedef struct ckpi_float_plan {
    ckpi_float_type type;
    size_t n;
    size_t row_len;      /* elements of a row; the last may be shorter */
    size_t rows;
    unsigned keep;       /* mantissa bits in the symbol, 0 to CKPI_FLOAT_FINE */
    unsigned esc;
    unsigned cut;
    bool has_sign, sign;
    int32_t start;       /* added to symbols, so that the frequent ones end just below esc */
    const uint8_t *row;  /* factor of each row, NULL: none */
    const uint8_t *col;  /* factor of each column, NULL: none */
    const uint8_t *klass;/* ckpi_row_class of each row, NULL: all full */
    const uint8_t *zeros;/* row_len zero bytes, in col's place */
    size_t count[CKPI_ROW_CLASSES]; /* elements of each class */
} ckpi_float_plan;

/* Whether a block's elements are floats that can be split. */
bool ckpi_float_type_of(const ckpi_block *b, ckpi_float_type *type);

static inline uint64_t
ckpi_float_word(const ckpi_float_type *t, const void *words, size_t i)
{
    const uint8_t *at = (const uint8_t *)words + i * t->width;
    return t->width == 2 ? ckpi_ld16(at) : t->width == 4 ? ckpi_ld32(at) : ckpi_ld64(at);
}

static inline unsigned
ckpi_float_low_bits(const ckpi_float_plan *p)
{
    return p->type.mant - p->keep;
}

/* Bits that one element of a class stores besides its symbol. */
static inline unsigned
ckpi_float_rest_bits(const ckpi_float_plan *p, ckpi_row_class c)
{
    return ckpi_float_low_bits(p) - (c == CKPI_ROW_CUT ? p->cut : 0) + (p->has_sign ? 1 : 0);
}

static inline size_t
ckpi_float_row_size(const ckpi_float_plan *p, size_t i)
{
    return i + 1 < p->rows ? p->row_len : p->n - i * p->row_len;
}

static inline ckpi_row_class
ckpi_float_row_class(const ckpi_float_plan *p, size_t i)
{
    return p->klass != NULL ? (ckpi_row_class)p->klass[i] : CKPI_ROW_FULL;
}

/* Parameters of the kernels for row i. */
ckpi_float_row ckpi_float_row_of(const ckpi_float_plan *p, size_t i);
/* Sets count[] from klass; false when a class is unknown. */
bool ckpi_float_count(ckpi_float_plan *p);

/* Looks at the block and decides; factors and classes live in ws. */
CKP_MUST_USE ckp_status ckpi_float_plan_make(ckpi_float_plan *p, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* Row and column factors (float_factors.c): rows that are zero throughout are left out. row and col: p->rows, p->row_len bytes;
   peak: the largest magnitude of each row, in quarters of an octave. */
CKP_MUST_USE ckp_status ckpi_float_factors(const ckpi_float_plan *p, const void *data, uint8_t *row, uint8_t *col, const uint32_t *peak,
                                           ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

CKP_MUST_USE ckp_status ckpi_float_encode(ckpi_buf *out, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_float_decode(ckpi_rd *in, const ckpi_block *b, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
#endif
