/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaving optimizer state out of a file's state. What an optimizer keeps for each parameter (moments, step counters) goes as a whole: torch
 * takes an optimizer without any as a fresh one, but fails on one that has its counters and no moments. Its groups (learning rates and the
 * like) stay.
 */
#include <stdlib.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "io/io.h"
#include "io/match_find.h"
#include "state/state.h"

typedef struct cutter {
    ckp_state *s;
    ckpi_nodes t;
    bool *cut;                   /* by node: a dict that becomes empty */
    uint32_t *to;                /* new number of each tensor, CKPI_NO_TENSOR: it goes */
} cutter;

/* The "state" of each optimizer; false when there is nothing in any. */
static bool
find_cuts(cutter *c)
{
    bool any = false;
    for (uint32_t i = 0; i < c->t.n; i++) {
        if (!ckpi_find_is_optimizer(&c->t, i))
            continue;
        const uint32_t state = ckpi_node_get(&c->t, i, "state");
        c->cut[state] = c->t.v[state].count != 0;
        any = any || c->cut[state];
    }
    return any;
}

/* What only the cut parts refer to. */
static void
find_tensors(cutter *c, ckpi_dropped *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->t.n; i++)
        if (c->t.v[i].type == CKP_TREE_TENSOR)
            c->to[c->t.v[i].tensor] = CKPI_NO_TENSOR;
    for (uint32_t i = 0; i < c->t.n; i = c->cut[i] ? c->t.v[i].end : i + 1)
        if (c->t.v[i].type == CKP_TREE_TENSOR)
            c->to[c->t.v[i].tensor] = 0;
    for (size_t i = 0; i < c->s->n; i++) {
        if (c->to[i] != CKPI_NO_TENSOR) {
            c->to[i] = n++;
            continue;
        }
        out->tensors++;
        out->bytes += c->s->t[i].alias_of == CKPI_NO_TENSOR ? c->s->t[i].bytes : 0;
    }
}

/* The tree once more, with empty dicts for the cut ones and tensors under their new numbers. */
static ckp_status
write_tree(cutter *c, const ckpi_buf *old, ckp_error *err)
{
    ckp_tree_reader r;
    ckp_tree_node node;
    ckp_status st;
    uint32_t i = 0, skip = 0;    /* skip: nodes before it are left out */

    ckp_tree_reader_init(&r, old->data, old->len);
    for (; (st = ckp_tree_next(&r, &node, err)) == CKP_OK; i++) {
        if (i < skip)
            continue;
        if (c->cut[i]) {
            node.count = 0;
            skip = c->t.v[i].end;
        }
        if (node.type == CKP_TREE_TENSOR)
            node.tensor = c->to[node.tensor];
        st = ckp_state_tree_put(c->s, &node, err);
        if (st != CKP_OK)
            return st;
    }
    return st == CKP_ENOTFOUND ? CKP_OK : st;
}

static ckp_status
rewrite(cutter *c, ckp_error *err)
{
    ckpi_buf old = c->s->tree;   /* owned here: the state gets a new one */

    c->s->tree = (ckpi_buf)CKPI_BUF_INIT;
    ckp_state_tree_clear(c->s);
    ckp_status st = write_tree(c, &old, err);
    if (st == CKP_OK)
        st = ckpi_state_drop(c->s, c->to, err);
    ckpi_buf_free(&old);
    return st;
}

ckp_status
ckpi_drop_optimizers(ckp_state *s, ckpi_dropped *out, ckp_error *err)
{
    cutter c = {.s = s};

    *out = (ckpi_dropped){0};
    if (s->tree.len == 0 || s->n == 0)
        return CKP_OK;
    ckp_status st = ckpi_nodes_load(&c.t, s->tree.data, s->tree.len, err);
    if (st != CKP_OK)
        return st;
    c.cut = ckpi_calloc(c.t.n + 1, sizeof *c.cut);
    c.to = ckpi_calloc(s->n, sizeof *c.to);
    if (c.cut == NULL || c.to == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "leaving optimizer state out: out of memory");
    } else if (find_cuts(&c)) {
        find_tensors(&c, out);
        st = rewrite(&c, err);
    }
    free(c.cut);
    free(c.to);
    ckpi_nodes_free(&c.t);
    return st;
}
