/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of the coder. They take pointers and counts, allocate nothing and know no status.
 *
 * A lane's state x lies in [2^16, 2^32). Coding a symbol with share f and start c out of 2^16:
 *     if x >> 16 >= f: put the low 16 bits of x as a word, x >>= 16
 *     x = (x / f << 16) + x % f + c
 * Symbol i belongs to lane i mod lanes. The encoder goes from the last symbol to the first and its words downwards in memory, so the
 * decoder goes forward in both. rans_kern_ref.c is the contract; every other kernel gives the same words, states and symbols.
 */
#ifndef CKPI_CODEC_RANS_KERN_H
#define CKPI_CODEC_RANS_KERN_H
#include "codec/rans/rans_model.h"

enum {
    CKPI_RANS_LANES_MAX = 64,
    CKPI_RANS_WIDE_LANES = 32,  /* from here on there are wide kernels: 32 and 64 lanes */
    CKPI_RANS_WORDS_SLACK = 64  /* bytes below the words that a wide encoder may overwrite */
};
#define CKPI_RANS_LOW ((uint32_t)1 << 16)

/* What a decoder looks up, made from the model once a stream. */
typedef struct ckpi_rans_dec {
    const ckpi_rans_model *m;
    const uint8_t *slot; /* byte value by a slot's upper m->bits bits, and 3 bytes that may be read */
} ckpi_rans_dec;

/* Decode symbols [from, to) of a stream with `lanes` (a power of two) states x. *p: the next word; words end at end.
   False when words run out. */
bool ckpi_rans_dec_ref(const ckpi_rans_dec *d, uint8_t *dst, size_t from, size_t to, uint32_t *x, unsigned lanes, const uint8_t **p,
                       const uint8_t *end);
/* Encode symbols [from, to), last first, writing words below p; returns the new p. */
uint8_t *ckpi_rans_enc_ref(const ckpi_rans_model *m, const uint8_t *src, size_t from, size_t to, uint32_t *x, unsigned lanes, uint8_t *p);

/*
 * Wide kernels do `groups` whole groups of `lanes` symbols, lanes being 32 or 64, and keep states in x.
 * dec may read CKPI_RANS_READ bytes from each place p <= safe, starts no group beyond safe, and returns how many it did.
 * enc goes downwards from the last group and may write CKPI_RANS_WORDS_SLACK bytes below its result.
 * Either is NULL for a model that it is not made for.
 */
enum { CKPI_RANS_READ = 128 };
typedef size_t ckpi_rans_dec_fn(const ckpi_rans_dec *d, uint8_t *dst, size_t groups, uint32_t *x, unsigned lanes, const uint8_t **p,
                                const uint8_t *safe);
typedef uint8_t *ckpi_rans_enc_fn(const ckpi_rans_model *m, const uint8_t *src, size_t groups, uint32_t *x, unsigned lanes, uint8_t *p);

/* The best kernel for a feature word and a model; NULL: none, use the reference. */
ckpi_rans_dec_fn *ckpi_rans_dec_pick(const ckpi_rans_model *m, uint32_t cpu);
ckpi_rans_enc_fn *ckpi_rans_enc_pick(const ckpi_rans_model *m, uint32_t cpu);
#endif
