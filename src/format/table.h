/* SPDX-License-Identifier: Apache-2.0 */
/* What table.c and table_wire.c share. Private to the room. */
#ifndef CKPI_FORMAT_TABLE_H
#define CKPI_FORMAT_TABLE_H
#include <stdatomic.h>
#include "format/arena.h"
#include "format/format.h"
#include "state/hindex.h"

/* Behind ckpi_table.arena. */
typedef struct ckpi_table_priv {
    ckpi_arena arena;
    ckpi_hindex names;
    atomic_uint refs;         /* a chain of deltas shares its key's table */
} ckpi_table_priv;

ckpi_table *ckpi_table_alloc(size_t n);                  /* rows zeroed; NULL on lack of memory */
uint64_t *ckpi_table_dims(ckpi_table *t, size_t n);      /* room for n extents */
char *ckpi_table_name(ckpi_table *t, const void *p, size_t n);
/*
 * Derives numel and bytes of every row, indexes the names, and proves that the rows make sense together: unique names, boxes
 * and ranges inside their tensors, owners, aliases and copies that exist and fit. CKP_ECORRUPT names the row.
 */
CKP_MUST_USE ckp_status ckpi_table_check(ckpi_table *t, ckp_error *err);
/* Appends the table's bytes (docs/format.md, "Table"). */
void ckpi_table_encode(const ckpi_table *t, ckpi_buf *b);
CKP_MUST_USE ckp_status ckpi_table_decode(ckpi_table **out, const void *raw, size_t len, ckp_error *err);
/* A row whose elements lie in frames of this shard. */
static inline bool
ckpi_rec_stored(const ckpi_rec *r)
{
    return r->alias_of == CKPI_NO_TENSOR && r->copy_of == CKPI_NO_TENSOR && r->numel != 0;
}
#endif
