/* SPDX-License-Identifier: Apache-2.0 */
#include "io/arena.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/checked.h"

#define ALIGN ((size_t)16)
#define SMALLEST ((size_t)4 << 10)
#define LARGEST ((size_t)256 << 10)

struct ckpi_io_arena_block {
    ckpi_io_arena_block *before;
    size_t used, size;         /* of the bytes behind this head */
};

#define HEAD ((sizeof(ckpi_io_arena_block) + ALIGN - 1) / ALIGN * ALIGN)

/* Blocks grow with what is held already: a tiny file costs a few KiB, a large one few calls of malloc. */
static ckpi_io_arena_block *
more(ckpi_io_arena *a, size_t bytes)
{
    size_t size = a->held < SMALLEST ? SMALLEST : a->held > LARGEST ? LARGEST : a->held;
    if (size < bytes)
        size = bytes;
    if (size > SIZE_MAX - HEAD)
        return NULL;
    ckpi_io_arena_block *b = ckpi_malloc(1, HEAD + size);
    if (b == NULL)
        return NULL;
    *b = (ckpi_io_arena_block){.before = a->last, .size = size};
    a->last = b;
    a->held += size;
    return b;
}

void *
ckpi_io_arena_get(ckpi_io_arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (!ckpi_mul_size(n, size, &bytes) || bytes > SIZE_MAX - ALIGN)
        return NULL;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    ckpi_io_arena_block *b = a->last;
    if (b == NULL || bytes > b->size - b->used)
        b = more(a, bytes);
    if (b == NULL)
        return NULL;
    void *p = (uint8_t *)b + HEAD + b->used;
    b->used += bytes;
    return p;
}

void *
ckpi_io_arena_copy(ckpi_io_arena *a, const void *p, size_t n)
{
    uint8_t *copy = n < SIZE_MAX ? ckpi_io_arena_get(a, n + 1, 1) : NULL;
    if (copy == NULL)
        return NULL;
    if (n != 0)
        memcpy(copy, p, n);
    copy[n] = 0;
    return copy;
}

void
ckpi_io_arena_free(ckpi_io_arena *a)
{
    while (a->last != NULL) {
        ckpi_io_arena_block *before = a->last->before;
        free(a->last);
        a->last = before;
    }
    a->held = 0;
}
