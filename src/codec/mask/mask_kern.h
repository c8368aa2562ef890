/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of the mask: which elements are not zero (bit i mod 8 of byte i / 8), and those elements closed up. With a base the
 * element is data XOR base. Elements are unsigned integers of 1, 2 or 4 bytes. mask_kern_ref.c is the contract.
 */
#ifndef CKPI_CODEC_MASK_KERN_H
#define CKPI_CODEC_MASK_KERN_H
#include <stddef.h>
#include <stdint.h>

enum { CKPI_MASK_SLACK = 64 }; /* bytes behind the values that a kernel may write (split) or read (join) */

/* n elements into (n + 7) / 8 mask bytes and the values; returns how many. values holds n elements plus the slack. */
typedef size_t ckpi_mask_split_fn(const uint8_t *data, const uint8_t *base, size_t n, uint8_t *mask, uint8_t *values);
/* The inverse; values holds as many elements as the mask has ones, plus the slack. Bits at and beyond n are zero. */
typedef void ckpi_mask_join_fn(uint8_t *dst, const uint8_t *base, size_t n, const uint8_t *mask, const uint8_t *values);

/* By log2 of the width. */
typedef struct ckpi_mask_ops {
    ckpi_mask_split_fn *split[3];
    ckpi_mask_join_fn *join[3];
} ckpi_mask_ops;

extern const ckpi_mask_ops ckpi_mask_ops_ref;
const ckpi_mask_ops *ckpi_mask_pick(uint32_t cpu);
#endif
