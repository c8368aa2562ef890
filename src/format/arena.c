/* SPDX-License-Identifier: Apache-2.0 */
#include "format/arena.h"
#include <stdint.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/bytes.h"

struct ckpi_arena_block {
    ckpi_arena_block *before;
    uint64_t bytes[];
};

void *
ckpi_arena_get(ckpi_arena *a, size_t bytes)
{
    const size_t n = bytes / 8 + 1;      /* words; one more than needed costs less than a special case */
    if (n > a->size - a->used) {
        /* Blocks double up to 1 MiB, so that small tables stay small. */
        const size_t size = CKPI_MAX(n, CKPI_MIN(CKPI_MAX(a->size * 2, (size_t)128), (size_t)1 << 17));
        ckpi_arena_block *b = ckpi_malloc(1, sizeof *b + size * sizeof b->bytes[0]);
        if (b == NULL)
            return NULL;
        b->before = a->last;
        *a = (ckpi_arena){b, 0, size};
    }
    void *p = a->last->bytes + a->used;
    a->used += n;
    return p;
}

void
ckpi_arena_free(ckpi_arena *a)
{
    while (a->last != NULL) {
        ckpi_arena_block *before = a->last->before;
        free(a->last);
        a->last = before;
    }
    *a = (ckpi_arena){0};
}
