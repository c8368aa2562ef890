/* SPDX-License-Identifier: Apache-2.0 */
/* What a file of tensors alone cannot hold of a state tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "io/foreign.h"
#include "io/match_find.h"

#define NAMED_MAX 3u             /* paths that are told */
#define PATH_ROOM 160

typedef struct finder {
    ckpi_nodes t;
    uint32_t *parent;
    bool *aside;                 /* keys of dicts and attributes: no values */
    uint64_t n;
    char *names;
    size_t cap;
} finder;

static bool
begins(const ckpi_node *n, const char *text)
{
    return n->u.s.n >= strlen(text) && memcmp(n->u.s.p, text, strlen(text)) == 0;
}

/* A step of the path: the key or the place of a child. "" where there is none to tell. */
static void
step_text(const finder *f, uint32_t child, char out[PATH_ROOM])
{
    const uint32_t up = f->parent[child];
    uint32_t at = up + 1;
    uint64_t k = 0;

    out[0] = '\0';
    if (ckpi_node_is_dict(&f->t, up)) {
        while (f->t.v[at].end != child)
            at = f->t.v[f->t.v[at].end].end;
        const ckpi_node *key = &f->t.v[at];
        if (key->type == CKP_TREE_STR)
            (void)snprintf(out, PATH_ROOM, "%.*s", (int)(key->u.s.n < PATH_ROOM ? key->u.s.n : PATH_ROOM - 1), key->u.s.p);
        else if (key->type == CKP_TREE_INT)
            (void)snprintf(out, PATH_ROOM, "%lld", (long long)key->u.i);
        else
            (void)snprintf(out, PATH_ROOM, "?");
        return;
    }
    for (; at != child; at = f->t.v[at].end)
        k++;
    if (f->t.v[up].type != CKP_TREE_NAMED)
        (void)snprintf(out, PATH_ROOM, "%llu", (unsigned long long)k);
}

/* From the leaf upwards; what finds no room at the front is left out. */
static void
path_text(const finder *f, uint32_t leaf, char out[PATH_ROOM])
{
    char part[PATH_ROOM], all[2 * PATH_ROOM];

    out[0] = '\0';
    for (uint32_t at = leaf; f->parent[at] != CKPI_NO_NODE; at = f->parent[at]) {
        step_text(f, at, part);
        if (part[0] == '\0')
            continue;
        const int n = snprintf(all, sizeof all, "%s%s%s", part, out[0] != '\0' ? "/" : "", out);
        if (n < 0 || n >= PATH_ROOM)
            return;
        (void)memcpy(out, all, (size_t)n + 1);
    }
}

static void
found(finder *f, uint32_t i)
{
    char path[PATH_ROOM];
    const size_t used = strlen(f->names);

    f->n++;
    if (f->n > NAMED_MAX + 1)
        return;
    path_text(f, i, path);
    const char *text = f->n > NAMED_MAX ? "..." : path[0] != '\0' ? path : "the root";
    if (used + strlen(text) + 3 <= f->cap)
        (void)snprintf(f->names + used, f->cap - used, "%s%s", used != 0 ? ", " : "", text);
}

static bool
is_leaf(const ckpi_node *n)
{
    return n->type <= CKP_TREE_BYTES || n->type == CKP_TREE_DTYPE || n->type == CKP_TREE_DEVICE || n->type == CKP_TREE_NUMPY_SCALAR ||
           n->type == CKP_TREE_TORCH_SIZE || n->type == CKP_TREE_BYTEARRAY;
}

static void
set_keys_aside(finder *f, uint32_t dict)
{
    uint32_t key = dict + 1;
    for (uint64_t k = 0; k < f->t.v[dict].count; k++) {
        f->aside[key] = true;
        key = f->t.v[f->t.v[key].end].end;
    }
}

/* Looks at node i; the node to look at next. */
static uint32_t
look(finder *f, uint32_t i)
{
    const ckpi_node *n = &f->t.v[i];

    if (f->aside[i])
        return n->end;
    if (ckpi_node_is_dict(&f->t, i))
        set_keys_aside(f, i);
    if (n->type == CKP_TREE_NAMED) {
        const uint32_t inner = ckpi_node_inner(&f->t, i);
        if (inner == i + 2)      /* an OrderedDict: its attributes say how a state_dict was made, which its keys say as well */
            f->aside[f->t.v[inner].end] = true;
        else if (begins(n, CKPI_TREE_SAFETENSORS))
            return n->end;
        else if (inner == i && (begins(n, "torch.") || begins(n, "numpy.") || begins(n, "builtins."))) {
            found(f, i);
            return n->end;
        }
        return i + 1;
    }
    if (!is_leaf(n))
        return i + 1;
    found(f, i);
    return n->end;
}

ckp_status
ckpi_tree_plain(const void *tree, size_t len, uint64_t *n, char *names, size_t cap, ckp_error *err)
{
    finder f = {.names = names, .cap = cap};

    *n = 0;
    names[0] = '\0';
    if (len == 0)
        return CKP_OK;
    ckp_status st = ckpi_nodes_load(&f.t, tree, len, err);
    if (st == CKP_ELIMIT) {      /* too many to look at: most of them are plain */
        *n = UINT32_MAX;
        (void)snprintf(names, cap, "...");
        ckpi_error_clear(err);
        return CKP_OK;
    }
    if (st != CKP_OK)
        return st;
    f.parent = ckpi_find_parents(&f.t);
    f.aside = ckpi_calloc(f.t.n + 1, sizeof *f.aside);
    if (f.parent == NULL || f.aside == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "state tree: out of memory");
    for (uint32_t i = 0; st == CKP_OK && i < f.t.n;)
        i = look(&f, i);
    *n = f.n;
    free(f.parent);
    free(f.aside);
    ckpi_nodes_free(&f.t);
    return st;
}
