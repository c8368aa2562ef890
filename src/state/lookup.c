/* SPDX-License-Identifier: Apache-2.0 */
#include "state/lookup.h"
#include <stdlib.h>
#include <string.h>
#include "state/view.h"

void
ckpi_lookup_free(void *lookup)
{
    ckpi_lookup *l = lookup;
    if (l == NULL)
        return;
    ckpi_hindex_free(&l->names);
    ckpi_hindex_free(&l->payloads);
    ckpi_hindex_free(&l->adam);
    free(l);
}

uint32_t
ckpi_state_find(const ckp_state *s, const char *name)
{
    const ckpi_lookup *l = s->by_name;
    const uint64_t hash = ckpi_hash64(name, strlen(name));
    uint32_t row;
    for (size_t at = 0; (row = ckpi_hindex_next(&l->names, hash, &at)) != CKPI_HINDEX_NONE;)
        if (row < s->n && strcmp(s->t[row].name, name) == 0)
            return row;
    return CKPI_NO_TENSOR;
}

/* Memory that the library cannot see (pull) or that holds nothing is nobody's alias. */
static bool
has_address(const ckpi_tensor *t)
{
    return t->data != NULL && t->pull == NULL && t->numel > 0;
}

static uint32_t
find_payload(const ckp_state *s, uint64_t hash, const ckpi_tensor *t)
{
    const ckpi_lookup *l = s->by_name;
    uint32_t row;
    for (size_t at = 0; (row = ckpi_hindex_next(&l->payloads, hash, &at)) != CKPI_HINDEX_NONE;)
        if (row < s->n && ckpi_view_same_payload(&s->t[row], t))
            return row;
    return CKPI_NO_TENSOR;
}

bool
ckpi_lookup_add(ckp_state *s, ckpi_tensor *row)
{
    ckpi_lookup *l = s->by_name;
    /* A failed add leaves stale rows behind in an index; the next tensor gets the same number, and every hit is compared. */
    if (has_address(row)) {
        const uint64_t hash = ckpi_view_payload_hash(row);
        row->alias_of = find_payload(s, hash, row);
        if (row->alias_of == CKPI_NO_TENSOR && !ckpi_hindex_put(&l->payloads, hash, (uint32_t)s->n))
            return false;
    }
    return ckpi_hindex_put(&l->names, ckpi_hash64(row->name, strlen(row->name)), (uint32_t)s->n);
}

bool
ckpi_lookup_renumber(ckpi_lookup *fresh, const ckp_state *s, const uint32_t *to)
{
    for (size_t i = 0; i < s->n; i++) {
        const ckpi_tensor *t = &s->t[i];
        if (to[i] == CKPI_NO_TENSOR)
            continue;
        if (t->alias_of == CKPI_NO_TENSOR && has_address(t) && !ckpi_hindex_put(&fresh->payloads, ckpi_view_payload_hash(t), to[i]))
            return false;
        if (!ckpi_hindex_put(&fresh->names, ckpi_hash64(t->name, strlen(t->name)), to[i]))
            return false;
    }
    return true;
}

static uint64_t
adam_hash(uint32_t owner)
{
    return ckpi_hash64(&owner, sizeof owner);
}

size_t
ckpi_lookup_adam(const ckp_state *s, uint32_t owner)
{
    const ckpi_lookup *l = s->by_name;
    uint32_t row;
    for (size_t at = 0; (row = ckpi_hindex_next(&l->adam, adam_hash(owner), &at)) != CKPI_HINDEX_NONE;)
        if (row < s->n_adam && s->adam[row].owner == owner)
            return row;
    return SIZE_MAX;
}

bool
ckpi_lookup_add_adam(ckp_state *s, uint32_t owner)
{
    ckpi_lookup *l = s->by_name;
    return ckpi_hindex_put(&l->adam, adam_hash(owner), (uint32_t)s->n_adam);
}
