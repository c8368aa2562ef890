/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for what a parser makes of one file: many small pieces that are freed together. Pieces are aligned to 16 bytes and never move.
 * What is held is proportional to what was asked for, so a parser that asks for no more than its input paid for stays bounded.
 */
#ifndef CKPI_IO_ARENA_H
#define CKPI_IO_ARENA_H
#include <stddef.h>
#include <stdint.h>

typedef struct ckpi_io_arena_block ckpi_io_arena_block;
typedef struct ckpi_io_arena { ckpi_io_arena_block *last; size_t held; } ckpi_io_arena;   /* zero-initialised is empty */

void *ckpi_io_arena_get(ckpi_io_arena *a, size_t n, size_t size);      /* n * size bytes, not cleared; NULL on overflow or lack of memory */
void *ckpi_io_arena_copy(ckpi_io_arena *a, const void *p, size_t n);   /* and a NUL behind it */
void ckpi_io_arena_free(ckpi_io_arena *a);
#endif
