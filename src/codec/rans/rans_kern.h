/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of the coder. They take pointers and counts, allocate nothing and know no status.
 *
 * State x of a lane lies in [2^16, 2^32). Coding symbol s with share f, start c out of 2^bits:
 *     if x >= f << (32 - bits): put the low 16 bits as a word, x >>= 16
 *     x = (x / f << bits) + x % f + c
 * Symbol i belongs to lane i mod lanes. The encoder goes from the last symbol to the first and its words downwards in memory, so the
 * decoder goes forward in both. rans_kern_ref.c is the contract; every other kernel gives the same words, states and symbols.
 */
#ifndef CKPI_CODEC_RANS_KERN_H
#define CKPI_CODEC_RANS_KERN_H
#include "codec/rans/rans_model.h"

enum {
    CKPI_RANS_LANES = 32,          /* lanes of the wide kernels */
    CKPI_RANS_WORDS_SLACK = 64     /* bytes below the words that a wide encoder may overwrite */
};
#define CKPI_RANS_LOW ((uint32_t)1 << 16)

/* What a decoder looks up, made from the model once a stream. */
typedef struct ckpi_rans_dec {
    const ckpi_rans_model *m;
    const uint8_t *slot;   /* byte value of each of the 2^bits slots */
    const uint32_t *wide;  /* wide kernels' own table, or NULL */
} ckpi_rans_dec;

/* Decode symbols [from, to) of a stream with `lanes` (a power of two) states x. *p: the next word; words end at end.
   False when words run out. */
bool ckpi_rans_dec_ref(const ckpi_rans_dec *d, uint8_t *dst, size_t from, size_t to, uint32_t *x, unsigned lanes, const uint8_t **p,
                       const uint8_t *end);
/* Encode symbols [from, to), last first, writing words below p; returns the new p. */
uint8_t *ckpi_rans_enc_ref(const ckpi_rans_model *m, const uint8_t *src, size_t from, size_t to, uint32_t *x, unsigned lanes, uint8_t *p);

/*
 * Wide kernels work on groups of 32 symbols. The decoder does as many whole groups as it can without reading at or beyond end,
 * and returns how many; the reference goes on from there. The encoder writes CKPI_RANS_WORDS_SLACK bytes below its result.
 */
typedef struct ckpi_rans_ops {
    const char *name;
    uint32_t needs;
    size_t (*dec)(const ckpi_rans_dec *d, uint8_t *dst, size_t groups, uint32_t x[32], const uint8_t **p, const uint8_t *end);
    uint8_t *(*enc)(const ckpi_rans_model *m, const uint8_t *src, size_t groups, uint32_t x[32], uint8_t *p);
} ckpi_rans_ops;

/* The best kernels for a feature word; NULL: none, use the reference. */
const ckpi_rans_ops *ckpi_rans_pick(uint32_t cpu);
#endif
