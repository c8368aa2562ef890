/* SPDX-License-Identifier: Apache-2.0 */
/* Bump allocation for a table's names and shapes: many small pieces, freed together. Private to the room. */
#ifndef CKPI_FORMAT_ARENA_H
#define CKPI_FORMAT_ARENA_H
#include <stddef.h>

typedef struct ckpi_arena_block ckpi_arena_block;
typedef struct ckpi_arena { ckpi_arena_block *last; size_t used, size; } ckpi_arena;    /* zero-initialised is empty */

void *ckpi_arena_get(ckpi_arena *a, size_t bytes);      /* 8-byte aligned; NULL on lack of memory */
void ckpi_arena_free(ckpi_arena *a);
#endif
