/* SPDX-License-Identifier: Apache-2.0 */
/* What codes.c needs of the mask codec: the split, so that it can look before it decides, and the second half of encoding. */
#ifndef CKPI_CODEC_MASK_H
#define CKPI_CODEC_MASK_H
#include "codec/codec.h"

typedef struct ckpi_mask_parts {
    size_t n;             /* elements */
    unsigned width;       /* 1, 2 or 4 */
    size_t count;         /* how many are kept: those that are not zero, or all where a mask would not pay */
    uint8_t *mask;        /* (n + 7) / 8 bytes, in scratch */
    uint8_t *values;      /* count elements closed up, in scratch */
    uint32_t mask_hist[256], value_hist[256]; /* value_hist: width 1 only */
} ckpi_mask_parts;

/* Split data (XOR base) into parts; memory is from ws and stays the caller's to release. */
CKP_MUST_USE ckp_status ckpi_mask_split(ckpi_mask_parts *p, const void *data, const void *base, size_t n, unsigned width, ckpi_scratch *ws,
                                        uint32_t cpu, ckp_error *err);
/* Write the payload of a MASK chunk; cap is at least ckpi_mask_bound. */
CKP_MUST_USE ckp_status ckpi_mask_write(const ckpi_mask_parts *p, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu,
                                        ckp_error *err);
size_t ckpi_mask_bound(size_t n, unsigned width);
#endif
