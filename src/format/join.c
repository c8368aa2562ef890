/* SPDX-License-Identifier: Apache-2.0 */
#include "format/join.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"
#include "format/file_priv.h"

ckpi_id
ckpi_join_content(const ckpi_id *shard, size_t n)
{
    return ckpi_hash128(shard, n * sizeof *shard);
}

void
ckpi_join_free(ckpi_join *j)
{
    for (size_t p = 0; j->row != NULL && p < j->n_parts; p++)
        free(j->row[p]);
    free(j->row);
    ckpi_table_free(j->table);
    *j = (ckpi_join){0};
}

/* ---- one table ---------------------------------------------------------------------------------------------------- */

typedef enum holds { HOLDS_NOTHING, HOLDS_PART, HOLDS_ALL } holds;

static holds
what_it_holds(const ckpi_rec *r)
{
    if (r->flat && r->numel == 0)        /* another's, also where there is nothing to hold */
        return HOLDS_NOTHING;
    if (ckpi_rec_whole(r))
        return HOLDS_ALL;
    return r->numel == 0 ? HOLDS_NOTHING : HOLDS_PART;
}

/* Where each row of the joined table comes from. */
typedef struct source { size_t part; uint32_t row; char *name; } source;    /* name: a new one, owned; NULL: the row's */

typedef struct joining {
    ckpi_fmt_file *const *part;
    size_t n, lead;
    source *from;
    size_t n_rows, cap;
    ckpi_hindex names;           /* of rows that keep their names */
} joining;

static const ckpi_rec *
rec_of(const joining *g, size_t slot)
{
    return &g->part[g->from[slot].part]->table->rec[g->from[slot].row];
}

static size_t
slot_of(const joining *g, const char *name)
{
    const uint64_t hash = ckpi_hash64(name, strlen(name));
    uint32_t slot;
    for (size_t at = 0; (slot = ckpi_hindex_next(&g->names, hash, &at)) != CKPI_HINDEX_NONE;)
        if (strcmp(rec_of(g, slot)->name, name) == 0)
            return slot;
    return SIZE_MAX;
}

/* renamed: a second whole tensor of its name. */
static ckp_status
new_slot(joining *g, size_t part, uint32_t row, bool renamed, ckp_error *err)
{
    const char *name = g->part[part]->table->rec[row].name;
    source *s = &g->from[g->n_rows];
    *s = (source){part, row, NULL};
    if (renamed) {
        const size_t room = strlen(name) + 32;
        s->name = ckpi_malloc(room, 1);
        if (s->name == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", g->n);
        (void)snprintf(s->name, room, "shard-%05zu/%s", part, name);
        if (strlen(s->name) > CKPI_MAX_NAME)
            return ckpi_fail(err, CKP_ELIMIT, "%.64s...: a name that is too long with its shard's in front", name);
    } else if (!ckpi_hindex_put(&g->names, ckpi_hash64(name, strlen(name)), (uint32_t)g->n_rows)) {
        return ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", g->n);
    }
    g->n_rows++;
    return CKP_OK;
}

static ckp_status
add_row(joining *g, size_t part, uint32_t row, uint32_t *out, ckp_error *err)
{
    const ckpi_rec *r = &g->part[part]->table->rec[row];
    const size_t slot = part == g->lead ? SIZE_MAX : slot_of(g, r->name);
    if (what_it_holds(r) == HOLDS_PART) {
        const ckp_status st = ckpi_fail(err, CKP_EUNSUPPORTED, "shard %zu holds a piece of it only: it can be read in a group of %zu ranks, as it was written", part, g->n);
        ckpi_fail_tensor(err, r->name);
        return st;
    }
    *out = (uint32_t)(slot != SIZE_MAX ? slot : g->n_rows);
    if (slot == SIZE_MAX)
        return new_slot(g, part, row, false, err);
    if (what_it_holds(r) == HOLDS_NOTHING)
        return CKP_OK;
    if (what_it_holds(rec_of(g, slot)) == HOLDS_NOTHING && rec_of(g, slot)->alias_of == CKPI_NO_TENSOR) {
        g->from[slot] = (source){part, row, NULL};
        return CKP_OK;
    }
    *out = (uint32_t)g->n_rows;
    return new_slot(g, part, row, true, err);
}

static ckp_status
add_part(joining *g, ckpi_join *j, size_t part, ckp_error *err)
{
    const ckpi_table *t = g->part[part]->table;
    ckp_status st = CKP_OK;
    j->row[part] = ckpi_malloc(t->n + 1, sizeof **j->row);
    if (j->row[part] == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", g->n);
    for (uint32_t i = 0; i < t->n && st == CKP_OK; i++)
        st = add_row(g, part, i, &j->row[part][i], err);
    return st;
}

static const uint64_t *
dims(ckpi_table *t, const ckpi_rec *r, bool *ok)
{
    uint64_t *d = ckpi_table_dims(t, r->ndim);
    *ok = *ok && d != NULL;
    if (d != NULL && r->ndim != 0)
        memcpy(d, r->shape, r->ndim * sizeof *d);
    return d;
}

/* Rows of one part that others of it name: by their new numbers. */
static uint32_t
renumbered(const ckpi_join *j, size_t part, uint32_t row)
{
    return row == CKPI_NO_TENSOR ? row : j->row[part][row];
}

static ckp_status
fill_row(const joining *g, ckpi_join *j, size_t slot, ckp_error *err)
{
    const source *s = &g->from[slot];
    const ckpi_rec *from = rec_of(g, slot);
    ckpi_rec *r = &j->table->rec[slot];
    const char *name = s->name != NULL ? s->name : from->name;
    bool ok = true;
    if (!ckpi_rec_whole(from)) {
        const ckp_status st = ckpi_fail(err, CKP_EUNSUPPORTED, "no shard of %zu holds it", g->n);
        ckpi_fail_tensor(err, from->name);
        return st;
    }
    *r = (ckpi_rec){.role = from->role, .dtype = from->dtype, .owner = renumbered(j, s->part, from->owner),
                    .alias_of = renumbered(j, s->part, from->alias_of), .copy_of = renumbered(j, s->part, from->copy_of), .ndim = from->ndim};
    r->shape = dims(j->table, from, &ok);
    r->name = ckpi_table_name(j->table, name, strlen(name));
    return ok && r->name != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", g->n);
}

ckp_status
ckpi_join_new(ckpi_join *j, ckpi_fmt_file *const *part, size_t n, size_t lead, ckp_error *err)
{
    joining g = {.part = part, .n = n, .lead = lead};
    ckp_status st = CKP_OK;
    *j = (ckpi_join){.row = ckpi_calloc(n, sizeof *j->row), .n_parts = n};
    for (size_t p = 0; p < n; p++)
        g.cap += part[p]->table->n;
    if (g.cap > CKPI_MAX_TENSORS)
        st = ckpi_fail(err, CKP_ELIMIT, "the shards have %zu tensors together", g.cap);
    g.from = st == CKP_OK ? ckpi_calloc(g.cap + 1, sizeof *g.from) : NULL;
    if (st == CKP_OK && (j->row == NULL || g.from == NULL))
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", n);
    if (st == CKP_OK)
        st = add_part(&g, j, lead, err);
    for (size_t p = 0; p < n && st == CKP_OK; p++)
        if (p != lead)
            st = add_part(&g, j, p, err);
    if (st == CKP_OK && (j->table = ckpi_table_alloc(g.n_rows)) == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", n);
    for (size_t i = 0; i < g.n_rows && st == CKP_OK; i++)
        st = fill_row(&g, j, i, err);
    if (st == CKP_OK)
        st = ckpi_table_rehash(j->table, err);
    for (size_t i = 0; g.from != NULL && i < g.cap; i++)
        free(g.from[i].name);
    free(g.from);
    ckpi_hindex_free(&g.names);
    if (st != CKP_OK)
        ckpi_join_free(j);
    return st;
}

/* ---- one file ------------------------------------------------------------------------------------------------------- */

typedef struct sizes { size_t chunks, pieces, errs; uint64_t length; } sizes;

static sizes
count(ckpi_fmt_file *const *part, size_t n)
{
    sizes s = {0};
    for (size_t p = 0; p < n; p++) {
        if (part[p] == NULL)
            continue;
        s.chunks += part[p]->n_chunks;
        s.errs += part[p]->n_errs;
        s.length += part[p]->length;
        for (size_t i = 0; i < part[p]->n_chunks; i++)
            s.pieces += part[p]->chunk[i].n_pieces;
    }
    return s;
}

static void
take_chunks(ckpi_fmt_file *f, const ckpi_fmt_file *part, const uint32_t *row, ckpi_piece **next)
{
    for (size_t i = 0; i < part->n_chunks; i++) {
        ckpi_chunk *c = &f->chunk[f->n_chunks++];
        *c = part->chunk[i];
        c->piece = *next;
        for (size_t k = 0; k < c->n_pieces; k++) {
            **next = part->chunk[i].piece[k];
            (*next)->tensor = row[(*next)->tensor];
            (*next)++;
        }
    }
    for (size_t i = 0; i < part->n_errs; i++) {
        f->errs[f->n_errs] = part->errs[i];
        f->errs[f->n_errs++].tensor = row[part->errs[i].tensor];
    }
}

static int
by_tensor(const void *a, const void *b)
{
    const ckpi_errrec *x = a, *y = b;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* As a file has them: in the order of the tensors, one of each. Of a tensor in several shards the larger errors count. */
static void
order_errs(ckpi_fmt_file *f)
{
    size_t n = 0;

    if (f->n_errs > 1)
        qsort(f->errs, f->n_errs, sizeof *f->errs, by_tensor);
    for (size_t i = 0; i < f->n_errs; i++) {
        const ckpi_errrec *e = &f->errs[i];
        ckpi_errrec *last = n != 0 ? &f->errs[n - 1] : NULL;
        if (last == NULL || last->tensor != e->tensor) {
            f->errs[n++] = *e;
            continue;
        }
        last->max_rel = e->max_rel > last->max_rel ? e->max_rel : last->max_rel;
        last->rms_rel = e->rms_rel > last->rms_rel ? e->rms_rel : last->rms_rel;
        last->n_nan += e->n_nan;
        last->n_inf += e->n_inf;
    }
    f->n_errs = n;
}

static ckp_status
fill_joined(ckpi_fmt_file *f, const ckpi_join *j, ckpi_fmt_file **part, size_t lead, const char *name, ckp_error *err)
{
    file_priv *priv = f->priv;
    const sizes s = count(part, j->n_parts);
    ckpi_id *content = ckpi_calloc(j->n_parts, sizeof *content);
    f->chunk = ckpi_calloc(s.chunks, sizeof *f->chunk);
    f->errs = ckpi_calloc(s.errs, sizeof *f->errs);
    priv->pieces = ckpi_calloc(s.pieces, sizeof *priv->pieces);
    ckp_status st = content != NULL && f->chunk != NULL && f->errs != NULL && priv->pieces != NULL
                  ? ckpi_reader_mem(&f->r, "", 0, name, err) : ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", j->n_parts);
    ckpi_piece *next = priv->pieces;
    for (size_t p = 0, k = 0; p < j->n_parts && st == CKP_OK; p++) {
        if (part[p] == NULL)
            continue;
        content[k++] = part[p]->content;
        f->content = ckpi_join_content(content, k);
        f->info.features |= part[p]->info.features;
        take_chunks(f, part[p], j->row[p], &next);
    }
    order_errs(f);
    if (st == CKP_OK && part[lead] != NULL) {
        f->tree = part[lead]->tree;
        f->tree_len = part[lead]->tree_len;
    }
    f->length = s.length;
    free(content);
    return st;
}

ckp_status
ckpi_fmt_join(ckpi_fmt_file **out, const ckpi_join *j, ckpi_fmt_file **part, size_t lead, const ckpi_file_info *info, const char *name,
              ckp_error *err)
{
    ckpi_fmt_file *f = ckpi_calloc(1, sizeof *f);
    file_priv *priv = ckpi_calloc(1, sizeof *priv);
    ckpi_fmt_file **own = ckpi_calloc(j->n_parts, sizeof *own);
    *out = NULL;
    if (f == NULL || priv == NULL || own == NULL) {
        free(f);
        free(priv);
        free(own);
        for (size_t p = 0; p < j->n_parts; p++)
            ckpi_fmt_close(part[p]);
        return ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", j->n_parts);
    }
    memcpy(own, part, j->n_parts * sizeof(ckpi_fmt_file *));
    priv->part = own;
    priv->n_parts = j->n_parts;
    priv->front.table = ckpi_table_share(j->table);
    *f = (ckpi_fmt_file){.info = *info, .table = j->table, .table_id = j->table->id, .priv = priv};
    const ckp_status st = fill_joined(f, j, own, lead, name, err);
    if (st == CKP_OK)
        *out = f;
    else
        ckpi_fmt_close(f);
    return st;
}
