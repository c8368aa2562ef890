/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that split floats into a symbol (exponent and top mantissa bits, less a prediction) and low bits, and merge them
 * again. They know words of 16, 32 and 64 bits, allocate nothing and cannot fail. float_kern_ref.c is the contract.
 *
 *     word      sign | exponent | mantissa
 *     magnitude        exponent | mantissa            (word without its sign)
 *     sum       magnitude + add - (col[j] << col_shift)      (modulo 2^W)
 *     symbol    min(sum >> low_bits, esc)             (one byte; esc: the true value is in a list)
 *     low       sum's low_bits bits >> cut, the sign above them when signs differ
 *     stored as `low_bytes` whole bytes an element, then the rest ("top", less than 8 bits) in a byte of its own
 */
#ifndef CKPI_CODEC_FLOAT_KERN_H
#define CKPI_CODEC_FLOAT_KERN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ckpi_float_row {
    uint64_t add;        /* prediction for the whole row and the range's start */
    const uint8_t *col;  /* prediction for each element, in units of 1 << col_shift */
    unsigned col_shift;
    unsigned low_bits;
    unsigned esc;
    unsigned cut;        /* low bits that are zero in the whole row */
    bool has_sign;       /* the sign is stored; else it is `sign` throughout */
    bool sign;
    unsigned low_bytes;
} ckpi_float_row;

/* What one pass over a row finds. */
typedef struct ckpi_float_scan {
    uint64_t any;        /* OR of the words */
    uint64_t all;        /* AND of the words */
    uint64_t peak;       /* the largest magnitude */
} ckpi_float_scan;

typedef struct ckpi_float_kern {
    uint32_t needs;
    /* Both do a leading part of n (whole vectors; the reference does all) and return its length. *escapes += symbols that are esc. */
    size_t (*split)(const ckpi_float_row *r, const void *words, size_t n, uint8_t *sym, uint8_t *low, uint8_t *top, size_t *escapes);
    size_t (*merge)(const ckpi_float_row *r, void *words, size_t n, const uint8_t *sym, const uint8_t *low, const uint8_t *top);
    void (*scan)(ckpi_float_scan *s, const void *words, size_t n);
    /* col[j] += magnitude >> shift, and returns the row's sum of the same; values below `floor` count as it */
    uint64_t (*sum)(uint32_t *col, const void *words, size_t n, unsigned shift, uint32_t floor);
} ckpi_float_kern;

/* The best kernels for words of `width` bytes (2, 4 or 8) that the feature word allows. */
const ckpi_float_kern *ckpi_float_kern_pick(unsigned width, uint32_t cpu);

/* A whole row. Split returns how many symbols are esc. low and top may be NULL where the row has none. */
size_t ckpi_float_split(unsigned width, uint32_t cpu, const ckpi_float_row *r, const void *words, size_t n, uint8_t *sym, uint8_t *low,
                        uint8_t *top);
void ckpi_float_merge(unsigned width, uint32_t cpu, const ckpi_float_row *r, void *words, size_t n, const uint8_t *sym, const uint8_t *low,
                      const uint8_t *top);
#endif
