/* SPDX-License-Identifier: Apache-2.0 */
#include "io/match_find.h"
#include <string.h>
#include "base/alloc.h"

static bool
ends_with(const ckpi_node *n, const char *end)
{
    const size_t k = strlen(end);
    return n->u.s.n >= k && memcmp(n->u.s.p + n->u.s.n - k, end, k) == 0;
}

bool
ckpi_find_is_model(const ckpi_nodes *t, uint32_t i)
{
    bool tensors = false;
    if (!ckpi_node_is_dict(t, i))
        return false;
    uint32_t key = i + 1;
    for (uint64_t k = 0; k < t->v[i].count; k++) {
        const uint32_t value = t->v[key].end, inner = ckpi_node_inner(t, value);
        if (t->v[key].type != CKP_TREE_STR)
            return false;
        if (t->v[inner].type == CKP_TREE_TENSOR)
            tensors = true;
        else if (t->v[inner].type != CKP_TREE_NAMED && !ends_with(&t->v[key], "_extra_state"))
            return false;
        key = t->v[value].end;
    }
    return tensors;
}

bool
ckpi_find_is_optimizer(const ckpi_nodes *t, uint32_t i)
{
    const uint32_t state = ckpi_node_get(t, i, "state"), groups = ckpi_node_get(t, i, "param_groups");
    if (state == CKPI_NO_NODE || groups == CKPI_NO_NODE || !ckpi_node_is_dict(t, state) || t->v[groups].type != CKP_TREE_LIST ||
        t->v[groups].count == 0)
        return false;
    uint32_t at = groups + 1;
    for (uint64_t k = 0; k < t->v[groups].count; k++, at = t->v[at].end) {
        const uint32_t params = ckpi_node_get(t, at, "params");
        if (params == CKPI_NO_NODE || t->v[params].type != CKP_TREE_LIST)
            return false;
    }
    return true;
}

uint32_t *
ckpi_find_parents(const ckpi_nodes *t)
{
    uint32_t *parent = ckpi_malloc(t->n, sizeof *parent);
    if (parent == NULL)
        return NULL;
    uint32_t open = CKPI_NO_NODE;
    for (uint32_t i = 0; i < t->n; i++) {
        while (open != CKPI_NO_NODE && t->v[open].end <= i)
            open = parent[open];
        parent[i] = open;
        if (t->v[i].end > i + 1)
            open = i;
    }
    return parent;
}

static unsigned
rank_of(const ckpi_node *key)
{
    static const char *const names[] = {"model", "state_dict", "model_state_dict", "module", "net", "network", "model_state", "weights", "params"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (key->type == CKP_TREE_STR && key->u.s.n == strlen(names[i]) && memcmp(key->u.s.p, names[i], key->u.s.n) == 0)
            return i;
    return CKPI_RANK_UNKNOWN;
}

/* Kept in order of rank. */
static size_t
insert(ckpi_candidate *out, size_t n, ckpi_candidate c)
{
    if (n == CKPI_CANDIDATES_MAX)
        return n;
    size_t at = n;
    for (; at > 0 && out[at - 1].rank > c.rank; at--)
        out[at] = out[at - 1];
    out[at] = c;
    return n + 1;
}

/* Models among the values of a dict, or one level deeper. */
static size_t
models_in(const ckpi_nodes *t, uint32_t dict, bool deeper, ckpi_candidate *out, size_t n)
{
    uint32_t key = dict + 1;
    for (uint64_t k = 0; k < t->v[dict].count; k++) {
        const uint32_t value = t->v[key].end, inner = ckpi_node_inner(t, value);
        if (!deeper && ckpi_find_is_model(t, inner))
            n = insert(out, n, (ckpi_candidate){inner, rank_of(&t->v[key])});
        else if (deeper && ckpi_node_is_dict(t, inner) && !ckpi_find_is_optimizer(t, inner))
            n = models_in(t, inner, false, out, n);
        key = t->v[value].end;
    }
    return n;
}

size_t
ckpi_find_models(const ckpi_nodes *t, const uint32_t *parent, uint32_t optimizer, ckpi_candidate out[CKPI_CANDIDATES_MAX])
{
    for (uint32_t at = parent[optimizer]; at != CKPI_NO_NODE; at = parent[at]) {
        if (!ckpi_node_is_dict(t, at))
            continue;
        size_t n = models_in(t, at, false, out, 0);
        if (n == 0)
            n = models_in(t, at, true, out, 0);
        if (n != 0)
            return n;
    }
    return 0;
}
