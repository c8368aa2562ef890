/* SPDX-License-Identifier: Apache-2.0 */
#include "io/nodes.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"

/* A tree of a million values may come out of a kilobyte. */
#define NODES_MAX ((size_t)1 << 26)

typedef struct open_node { uint32_t at; uint64_t left; } open_node;

uint64_t
ckpi_tree_children(const ckp_tree_node *n)
{
    switch (n->type) {
    case CKP_TREE_NAMED: return 1;
    case CKP_TREE_DICT:
    case CKP_TREE_ORDERED_DICT: return 2 * n->count;
    default: return n->count;
    }
}

static ckpi_node
node_of(const ckp_tree_node *n)
{
    ckpi_node out = {.type = n->type, .count = n->count, .tensor = n->tensor};
    if (n->type == CKP_TREE_INT)
        out.u.i = n->i;
    else if (n->type == CKP_TREE_FLOAT)
        out.u.f = n->re;
    else {
        out.u.s.p = n->data;
        out.u.s.n = n->len;
    }
    return out;
}

static bool
add(ckpi_nodes *t, size_t *cap, const ckp_tree_node *n)
{
    if (t->n == *cap) {
        const size_t more = *cap == 0 ? 256 : *cap * 2;
        ckpi_node *v = ckpi_realloc(t->v, more, sizeof *v);
        if (v == NULL)
            return false;
        t->v = v;
        *cap = more;
    }
    t->v[t->n++] = node_of(n);
    return true;
}

ckp_status
ckpi_nodes_load(ckpi_nodes *out, const void *tree, size_t len, ckp_error *err)
{
    ckp_tree_reader r;
    ckp_tree_node n;
    open_node open[CKPI_MAX_TREE_DEPTH + 1];
    unsigned depth = 0;
    size_t cap = 0;
    ckp_status st;
    *out = (ckpi_nodes){0};
    ckp_tree_reader_init(&r, tree, len);
    while ((st = ckp_tree_next(&r, &n, err)) == CKP_OK) {
        if (out->n >= NODES_MAX)
            st = ckpi_fail(err, CKP_ELIMIT, "state tree: more than %zu values", NODES_MAX);
        else if (!add(out, &cap, &n))
            st = ckpi_fail(err, CKP_ENOMEM, "state tree: out of memory");
        if (st != CKP_OK)
            break;
        if (depth > 0)
            open[depth - 1].left--;
        /* The reader bounds the depth. */
        open[depth++] = (open_node){(uint32_t)out->n - 1, ckpi_tree_children(&n)};
        while (depth > 0 && open[depth - 1].left == 0)
            out->v[open[--depth].at].end = (uint32_t)out->n;
    }
    if (st != CKP_ENOTFOUND) {
        ckpi_nodes_free(out);
        return st;
    }
    return CKP_OK;
}

void
ckpi_nodes_free(ckpi_nodes *n)
{
    free(n->v);
    *n = (ckpi_nodes){0};
}

static bool
is(const ckpi_node *n, const char *text)
{
    return n->u.s.n == strlen(text) && memcmp(n->u.s.p, text, n->u.s.n) == 0;
}

uint32_t
ckpi_node_inner(const ckpi_nodes *t, uint32_t i)
{
    if (t->v[i].type != CKP_TREE_NAMED)
        return i;
    if (is(&t->v[i], "collections.OrderedDict") && t->v[i + 1].type == CKP_TREE_TUPLE && t->v[i + 1].count == 2)
        return i + 2;
    return is(&t->v[i], "torch.nn.Parameter") ? i + 1 : i;
}

bool
ckpi_node_is_dict(const ckpi_nodes *t, uint32_t i)
{
    return t->v[i].type == CKP_TREE_DICT || t->v[i].type == CKP_TREE_ORDERED_DICT;
}

bool
ckpi_node_is_text(const ckpi_nodes *t, uint32_t i, const char *text)
{
    return t->v[i].type == CKP_TREE_STR && is(&t->v[i], text);
}

uint32_t
ckpi_node_get(const ckpi_nodes *t, uint32_t dict, const char *key)
{
    if (!ckpi_node_is_dict(t, dict))
        return CKPI_NO_NODE;
    uint32_t at = dict + 1;
    for (uint64_t k = 0; k < t->v[dict].count; k++) {
        const uint32_t value = t->v[at].end;
        if (ckpi_node_is_text(t, at, key))
            return ckpi_node_inner(t, value);
        at = t->v[value].end;
    }
    return CKPI_NO_NODE;
}
