/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks to test codecs with: what training makes, and what it should never make. */
#ifndef CKP_TESTS_CODEC_GEN_H
#define CKP_TESTS_CODEC_GEN_H
#include "codec/codec.h"
#include "harness/seed.h"

typedef enum gen_pattern {
    GEN_ZERO,
    GEN_CONSTANT,
    GEN_NORMAL,      /* weights */
    GEN_SCALED,      /* rows and columns of very different size, like second moments; never negative */
    GEN_SHORT,       /* some rows hold values of fewer mantissa bits, some are zero */
    GEN_FEW,         /* few distinct values */
    GEN_SPARSE,      /* mostly zero */
    GEN_EDGE,        /* NaN payloads, infinities, denormals, both zeros, extremes */
    GEN_RANDOM,      /* every bit */
    GEN_REPEAT,      /* the same stretch again and again */
    GEN_PATTERNS
} gen_pattern;

const char *gen_name(gen_pattern g);
/* n elements of dtype (any that ckpi_dtype_get knows, of whole bytes) in rows of cols (0: none). */
void gen_fill(test_rng *r, gen_pattern g, ckp_dtype dtype, void *dst, size_t n, size_t cols);
/* A base for data: near it (some steps of training back), equal but for few words, or unrelated. */
typedef enum gen_base { GEN_BASE_NEAR, GEN_BASE_FEW, GEN_BASE_OTHER, GEN_BASES } gen_base;
void gen_base_fill(test_rng *r, gen_base g, ckp_dtype dtype, void *base, const void *data, size_t n);
/* Bytes of the smallest number inside an element: what a block's width is. */
unsigned gen_width(ckp_dtype dtype);
#endif
