/* SPDX-License-Identifier: Apache-2.0 */
/* What a dtype is made of. */
#ifndef CKPI_BASE_DTYPE_H
#define CKPI_BASE_DTYPE_H
#include <stdbool.h>
#include <ckpress/base.h>

typedef enum ckpi_kind { CKPI_KIND_OPAQUE, CKPI_KIND_UINT, CKPI_KIND_INT, CKPI_KIND_FLOAT, CKPI_KIND_COMPLEX } ckpi_kind;

typedef struct ckpi_dtype_info {
    ckp_dtype id;
    const char *name;
    uint16_t bits;        /* storage bits of an element */
    ckpi_kind kind;
    uint8_t part_bytes;   /* bytes of the smallest number inside: c64 -> 4, f32 -> 4, packed -> 1 */
    uint8_t exp_bits;     /* of that number; 0 when not a float */
    uint8_t mant_bits;
    bool is_signed;
} ckpi_dtype_info;

const ckpi_dtype_info *ckpi_dtype_get(ckp_dtype dt);    /* NULL when unknown */
const ckpi_dtype_info *ckpi_dtype_at(size_t i);         /* iterate; NULL at the end */
/* Bytes of n elements; false on overflow or when a packed tensor does not end on a byte. */
bool ckpi_dtype_bytes(ckp_dtype dt, uint64_t n, uint64_t *bytes);
/* Product of a shape, checked. ndim 0 gives 1. */
bool ckpi_shape_numel(const uint64_t *shape, unsigned ndim, uint64_t *n);
#endif
