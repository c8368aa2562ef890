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

/* Linear probing: there is always a free slot, as a third stays empty. */
static void
insert(ckpi_hslot *slot, size_t cap, uint64_t hash, uint32_t row1)
{
    size_t i = (size_t)hash & (cap - 1);
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
    for (size_t i = 0; i < ix->cap; i++)
        if (ix->slot[i].row1 != 0)
            insert(slot, cap, ix->slot[i].hash, ix->slot[i].row1);
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
        const ckpi_hslot *s = &ix->slot[((size_t)hash + *probe) & (ix->cap - 1)];
        if (s->row1 == 0)
            break;
        ++*probe;
        if (s->hash == hash)
            return s->row1 - 1;
    }
    return CKPI_HINDEX_NONE;
}
