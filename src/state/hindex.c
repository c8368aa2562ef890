/* SPDX-License-Identifier: Apache-2.0 */
#include "state/hindex.h"
#include <stdlib.h>
#include "base/alloc.h"

void
ckpi_hindex_free(ckpi_hindex *ix)
{
    free(ix->slot);
    *ix = (ckpi_hindex){0};
}

/*
 * Where looking for a hash begins. Names come from files, and hashes are everybody's: names whose hashes end alike are easily found. Where the
 * slots lie in memory is not known to who made a file, so what clashes here is not known either.
 */
static size_t
home(const ckpi_hslot *slot, size_t cap, uint64_t hash)
{
    const uint64_t mixed = (hash ^ (uint64_t)(uintptr_t)slot) * 0x9e3779b97f4a7c15u;
    return (size_t)((mixed >> 32) * cap >> 32);      /* its top bits: all bits of the hash weigh there */
}

/* Linear probing: there is always a free slot, as a third stays empty. */
static void
insert(ckpi_hslot *slot, size_t cap, uint64_t hash, uint32_t row1)
{
    size_t i = home(slot, cap, hash);
    while (slot[i].row1 != 0)
        i = (i + 1) & (cap - 1);
    slot[i] = (ckpi_hslot){hash, row1};
}

static bool
grow(ckpi_hindex *ix)
{
    const size_t cap = ix->cap == 0 ? 16 : ix->cap * 2;
    ckpi_hslot *slot = ckpi_calloc(cap, sizeof *slot);
    if (slot == NULL)
        return false;
    /* from a free slot on: rows of one hash stay in the order in which they came */
    size_t from = 0;
    while (from < ix->cap && ix->slot[from].row1 != 0)
        from++;
    for (size_t k = 0; k < ix->cap; k++) {
        const ckpi_hslot *s = &ix->slot[(from + k) & (ix->cap - 1)];
        if (s->row1 != 0)
            insert(slot, cap, s->hash, s->row1);
    }
    free(ix->slot);
    ix->slot = slot;
    ix->cap = cap;
    return true;
}

bool
ckpi_hindex_put(ckpi_hindex *ix, uint64_t hash, uint32_t row)
{
    if ((ix->n + 1) * 3 > ix->cap * 2 && !grow(ix))
        return false;
    insert(ix->slot, ix->cap, hash, row + 1);
    ix->n++;
    return true;
}

uint32_t
ckpi_hindex_next(const ckpi_hindex *ix, uint64_t hash, size_t *probe)
{
    while (ix->cap != 0) {
        const ckpi_hslot *s = &ix->slot[(home(ix->slot, ix->cap, hash) + *probe) & (ix->cap - 1)];
        if (s->row1 == 0)
            break;
        ++*probe;
        if (s->hash == hash)
            return s->row1 - 1;
    }
    return CKPI_HINDEX_NONE;
}
