/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open-addressing index from 64-bit hashes to row numbers. It keeps no keys: the caller compares its own rows with what he looks for,
 * so one index serves names, aliases and numbers alike. Rows are never removed.
 */
#ifndef CKPI_STATE_HINDEX_H
#define CKPI_STATE_HINDEX_H
#include <stdbool.h>
#include <ckpress/base.h>

#define CKPI_HINDEX_NONE UINT32_MAX

typedef struct ckpi_hslot { uint64_t hash; uint32_t row1; } ckpi_hslot;     /* row1: row + 1, 0 is free */
typedef struct ckpi_hindex { ckpi_hslot *slot; size_t cap, n; } ckpi_hindex; /* zero-initialised is empty; cap: 0 or a power of two */

void ckpi_hindex_free(ckpi_hindex *ix);
/* False on lack of memory; the index is then as before. row < UINT32_MAX - 1. */
bool ckpi_hindex_put(ckpi_hindex *ix, uint64_t hash, uint32_t row);
/*
 * Rows with that hash, one a call, then CKPI_HINDEX_NONE. *probe is 0 before the first call.
 *     for (size_t at = 0; (row = ckpi_hindex_next(ix, hash, &at)) != CKPI_HINDEX_NONE;) if (same(row)) return row;
 */
uint32_t ckpi_hindex_next(const ckpi_hindex *ix, uint64_t hash, size_t *probe);
#endif
