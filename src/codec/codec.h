/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec room: lossless coding of one chunk's numbers. One registry row a codec; the engine knows codecs by id only,
 * and the tests run every row through the same mill (tests/registry).
 *
 * A codec sees a block: n elements of `width` bytes, little-endian, optionally the same n elements of the base, and the
 * length of a row, which serves as context only. It allocates nothing but from the scratch it is given.
 */
#ifndef CKPI_CODEC_H
#define CKPI_CODEC_H
#include <stdbool.h>
#include "base/alloc.h"
#include "base/dtype.h"

/* Wire ids: pinned for ever (docs/format.md, "codecs"). */
typedef enum ckpi_codec_id {
    CKPI_CODEC_RAW = 1,    /* the bytes themselves */
    CKPI_CODEC_ZERO = 2,   /* every byte is zero (with a base: equal to the base); no payload */
    CKPI_CODEC_RANS = 3,   /* order-0 rANS of bytes (width 1; wider elements as bytes) */
    CKPI_CODEC_PLANES = 4, /* byte (or exponent / sign+mantissa) planes, each raw, constant, Huffman or rANS, with contexts */
    CKPI_CODEC_MASK = 5,   /* non-zero mask by rANS, then the non-zero values; with a base: XOR or difference against it is masked */
    CKPI_CODEC_DIFF = 6,   /* ordered-integer difference with the base under the base's exponent as context */
    CKPI_CODEC_LZ = 7,     /* zstd */
    CKPI_CODEC_REARRANGED = 8 /* small integers under the base's value at the same place as context */
} ckpi_codec_id;

typedef struct ckpi_block {
    const void *data;      /* n * width bytes, any alignment (encode only; NULL for decode) */
    const void *base;      /* n * width bytes, or NULL */
    size_t n;
    unsigned width;        /* bytes of an element: 1, 2, 4, 8, 16 or 32; a complex number is given as its parts */
    ckp_dtype dtype;       /* of an element: floats get exponent handling; CKP_I8 for quantizer codes */
    size_t cols;           /* elements of a row when the data is a matrix, else 0; n need not be a multiple */
} ckpi_block;

typedef struct ckpi_codec {
    uint8_t id;
    const char *name;
    bool needs_base;       /* meaningless without */
    bool takes_base;       /* uses one when it is there */
    /* whether this codec can code such a block at all (width, dtype, base) */
    bool (*fits)(const ckpi_block *b);
    /* upper bound of the encoded size; never more than n * width + 64 + a 1/64 of it */
    size_t (*bound)(const ckpi_block *b);
    /* Encode into dst (cap >= bound). cpu: feature word (base/cpu.h), masked in tests; same bytes for every word. */
    ckp_status (*encode)(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
    /* Decode exactly n elements into dst; b->data is NULL. Every byte of src is hostile: CKP_ECORRUPT with the offset inside src. */
    ckp_status (*decode)(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
} ckpi_codec;

const ckpi_codec *ckpi_codec_find(uint8_t id);          /* NULL when unknown */
const ckpi_codec *ckpi_codec_at(size_t i);              /* iterate the registry; NULL at the end */

/* How hard to look. FAST: what a save in training uses. SMALL: the command's choice when asked. */
typedef enum ckpi_effort { CKPI_EFFORT_FAST = 0, CKPI_EFFORT_DEFAULT = 1, CKPI_EFFORT_SMALL = 2 } ckpi_effort;

/*
 * Encode a block with the codec that a trial on a sample finds smallest; *id says which. Never more than n * width + 64 bytes:
 * raw is the fall-back. dst needs ckpi_codec_pick_bound(b).
 */
size_t ckpi_codec_pick_bound(const ckpi_block *b);
CKP_MUST_USE ckp_status ckpi_codec_pick(const ckpi_block *b, ckpi_effort effort, uint8_t *dst, size_t cap, size_t *len, uint8_t *id,
                                        bool *used_base, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* Decode by id; unknown id is CKP_EUNSUPPORTED. */
CKP_MUST_USE ckp_status ckpi_codec_decode(uint8_t id, const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws,
                                          uint32_t cpu, ckp_error *err);

/*
 * Quantizer codes (int8, mostly zero): the lossy path's own entry. Picks among ZERO, MASK and RANS by counting, without a trial;
 * at least as small as the best of them within 1 %. Same decode as above.
 */
CKP_MUST_USE ckp_status ckpi_codec_codes(const int8_t *codes, size_t n, uint8_t *dst, size_t cap, size_t *len, uint8_t *id, ckpi_scratch *ws,
                                         uint32_t cpu, ckp_error *err);
#endif
