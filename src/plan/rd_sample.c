/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of whole rows, spread evenly: coders see neighbours as in the whole tensor, and embeddings are not judged by their first words.
 */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "plan/rd_sample.h"

/* Of a weight: a small share, but enough for its distribution to show. */
enum { SHARE = 400, AT_LEAST = 8192, AT_MOST = 65536, RUNS = 16 };

typedef struct build {
    ckpi_rdplan *rd;
    ckpi_layout *l;
    const ckpi_pred *pred;
    size_t cap;
} build;

static ckp_status
no_memory(const build *b, ckp_error *err)
{
    return ckpi_fail(err, CKP_ENOMEM, "no memory to plan %zu tensors", b->pred->table->n);
}

/* A unit and its group, both empty; room for n tensors and as many runs each. */
static ckp_status
add_unit(build *b, const ckpi_group *like, size_t n_tensors, ckp_error *err)
{
    if (b->rd->n_units == b->cap) {
        const size_t cap = b->cap != 0 ? 2 * b->cap : 32;
        ckpi_rdplan_unit *u = ckpi_realloc(b->rd->unit, cap, sizeof *u);
        if (u == NULL)
            return no_memory(b, err);
        b->rd->unit = u;
        ckpi_group *g = ckpi_realloc(b->l->g, cap, sizeof *g);
        if (g == NULL)
            return no_memory(b, err);
        b->l->g = g;
        b->cap = b->l->cap = cap;
    }
    ckpi_rdplan_unit *u = &b->rd->unit[b->rd->n_units++];
    ckpi_group *g = &b->l->g[b->l->n++];
    *u = (ckpi_rdplan_unit){.fine = like->fine, .tensor = ckpi_malloc(n_tensors, sizeof *u->tensor)};
    *g = *like;
    g->has_m = like->has_m && !like->has_v;
    g->n_pieces = 0;
    g->n = g->bytes = 0;
    g->piece = ckpi_malloc(n_tensors * RUNS, sizeof *g->piece);
    g->m = ckpi_malloc(n_tensors * RUNS, sizeof *g->m);
    g->v = ckpi_malloc(n_tensors * RUNS, sizeof *g->v);
    return u->tensor != NULL && g->piece != NULL && g->m != NULL && g->v != NULL ? CKP_OK : no_memory(b, err);
}

static void
add_run(const build *b, ckpi_group *g, uint32_t tensor, uint64_t first, uint64_t count)
{
    const ckpi_layout *whole = b->pred->layout;

    g->piece[g->n_pieces] = (ckpi_piece){tensor, first, count};
    g->m[g->n_pieces] = whole->m_of[tensor];
    g->v[g->n_pieces] = whole->v_of[tensor];
    g->n_pieces++;
    g->n += count;
}

/* At most `want` elements of a tensor, or little more where a row is longer. */
static void
add_runs(const build *b, ckpi_group *g, uint32_t tensor, uint64_t want)
{
    const ckpi_rec *r = &b->pred->table->rec[tensor];
    const uint64_t own_cols = ckpi_matrix_cols(r), cols = own_cols != 0 ? own_cols : CKPI_BLOCK;
    const uint64_t rows = r->numel / cols, all = CKPI_MIN(want, (uint64_t)AT_MOST);

    if (r->numel <= 2 * all || rows < 2 * RUNS) {
        const uint64_t some = own_cols != 0 && !g->fine ? CKPI_MAX(all / cols, 1) * cols : all;
        add_run(b, g, tensor, 0, CKPI_MIN(r->numel, r->numel <= 2 * all ? r->numel : some));
        return;
    }
    const uint64_t runs = CKPI_MAX(1, CKPI_MIN((uint64_t)RUNS, all / cols));
    const uint64_t length = CKPI_MAX(1, all / runs / cols);
    for (uint64_t k = 0; k < runs; k++)
        add_run(b, g, tensor, runs > 1 ? (rows - length) / (runs - 1) * k * cols : 0, length * cols);
}

static void
add_tensor(const build *b, ckpi_rdplan_unit *u, uint32_t tensor)
{
    const ckpi_pred *p = b->pred;

    u->tensor[u->n_tensors++] = tensor;
    u->n += p->table->rec[tensor].numel;
    u->fixed = p->step[tensor] != 0.0;
}

/* A tensor begins where its first piece is; the others follow in groups of their own. */
static bool
begins(const ckpi_group *g, size_t k)
{
    return g->piece[k].first == 0;
}

static ckp_status
one_unit(build *b, const ckpi_group *g, size_t k, ckp_error *err)
{
    const uint32_t t = g->piece[k].tensor;
    const ckp_status st = add_unit(b, g, 1, err);

    if (st != CKP_OK)
        return st;
    add_tensor(b, &b->rd->unit[b->rd->n_units - 1], t);
    add_runs(b, &b->l->g[b->l->n - 1], t, CKPI_MAX(b->pred->table->rec[t].numel / SHARE, (uint64_t)AT_LEAST));
    return CKP_OK;
}

/* The small tensors of one chunk: their codes share its tables, and none is worth a look of its own. */
static ckp_status
small_unit(build *b, const ckpi_group *g, ckp_error *err)
{
    size_t n = 0;
    for (size_t k = 0; k < g->n_pieces; k++)
        n += begins(g, k) && b->pred->step[g->piece[k].tensor] == 0.0;
    if (n == 0)
        return CKP_OK;
    const ckp_status st = add_unit(b, g, n, err);
    if (st != CKP_OK)
        return st;
    ckpi_rdplan_unit *u = &b->rd->unit[b->rd->n_units - 1];
    ckpi_group *s = &b->l->g[b->l->n - 1];
    for (size_t k = 0; k < g->n_pieces; k++) {
        const uint32_t t = g->piece[k].tensor;
        if (!begins(g, k) || b->pred->step[t] != 0.0)
            continue;
        add_tensor(b, u, t);
        if (s->n < AT_LEAST)
            add_runs(b, s, t, AT_LEAST);
    }
    return CKP_OK;
}

static ckp_status
build_group(build *b, const ckpi_group *g, ckp_error *err)
{
    ckp_status st = g->fine ? small_unit(b, g, err) : CKP_OK;
    for (size_t k = 0; st == CKP_OK && k < g->n_pieces; k++)
        if (begins(g, k) && (!g->fine || b->pred->step[g->piece[k].tensor] != 0.0))
            st = one_unit(b, g, k, err);
    return st;
}

ckp_status
ckpi_rdplan_sample(ckpi_rdplan *rd, ckpi_layout **sample, const ckpi_pred *pred, ckp_error *err)
{
    const ckpi_layout *whole = pred->layout;
    build b = {.rd = rd, .l = ckpi_calloc(1, sizeof *b.l), .pred = pred};

    *sample = NULL;
    if (b.l == NULL)
        return no_memory(&b, err);
    b.l->n_tensors = whole->n_tensors;
    b.l->m_of = ckpi_malloc(whole->n_tensors + 1, sizeof *b.l->m_of);
    b.l->v_of = ckpi_malloc(whole->n_tensors + 1, sizeof *b.l->v_of);
    ckp_status st = b.l->m_of != NULL && b.l->v_of != NULL ? CKP_OK : no_memory(&b, err);
    if (st == CKP_OK) {
        (void)memcpy(b.l->m_of, whole->m_of, whole->n_tensors * sizeof *b.l->m_of);
        (void)memcpy(b.l->v_of, whole->v_of, whole->n_tensors * sizeof *b.l->v_of);
    }
    for (size_t i = 0; st == CKP_OK && i < whole->n; i++)
        if (whole->g[i].lossy)
            st = build_group(&b, &whole->g[i], err);
    if (st == CKP_OK)
        *sample = b.l;
    else
        ckpi_layout_free(b.l);
    return st;
}
