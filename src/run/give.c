/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "engine/values.h"
#include "run/give.h"

/* Part of one chunk that is given out in one go. */
typedef struct segment {
    uint32_t tensor;             /* as asked for (may be an alias) */
    uint64_t first, count;
    size_t slot;                 /* of the window's decoded chunks */
    uint64_t skip;               /* bytes into the decoded chunk */
    uint64_t len;                /* in the dtype of what was asked for */
    bool rounds;                 /* the chunk has the master's elements */
} segment;

typedef struct slot { uint32_t chunk; uint8_t *bytes; } slot;

typedef struct window {
    const ckp_checkpoint *ck;
    slot *slot;
    size_t n, cap;
    segment *seg;                /* grows: a chunk may hold many small tensors */
    size_t n_seg, cap_seg;
    ckpi_buf copy;               /* elements of a copy at hand */
    uint32_t cpu;
} window;

/* Where giving stands. */
typedef struct cursor { size_t range; uint64_t at; } cursor;

static ckp_status
keep_chunk(void *user, const ckpi_chunk *c, const void *bytes, ckp_error *err)
{
    const window *w = ((void **)user)[0];
    slot *s = ((void **)user)[1];
    const size_t len = (size_t)ckpi_chunk_bytes(w->ck->lin->table, c);

    s->bytes = ckpi_malloc(len, 1);
    if (s->bytes == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu decoded bytes", len);
    memcpy(s->bytes, bytes, len);
    return CKP_OK;
}

static ckp_status
decode_slot(void *user, size_t i, ckpi_scratch *ws, ckp_error *err)
{
    window *w = user;
    const uint32_t chunk = w->slot[i].chunk;
    const ckpi_unit *u = &w->ck->unit[w->ck->unit_of[chunk]];
    const unsigned want = chunk == u->w ? CKPI_WANT_W : chunk == u->m ? CKPI_WANT_M : CKPI_WANT_V;
    void *both[2] = {w, &w->slot[i]};

    return ckpi_decode_unit(w->ck->lin, u, want, keep_chunk, both, ws, w->cpu, err);
}

static segment *
add_segment(window *w)
{
    if (w->n_seg == w->cap_seg) {
        const size_t cap = w->cap_seg != 0 ? 2 * w->cap_seg : 64;
        segment *s = ckpi_realloc(w->seg, cap, sizeof *s);
        if (s == NULL)
            return NULL;
        w->seg = s;
        w->cap_seg = cap;
    }
    return &w->seg[w->n_seg++];
}

/* The slot of a chunk in this window; SIZE_MAX when it is full. */
static size_t
slot_for(window *w, uint32_t chunk)
{
    for (size_t i = w->n; i-- > 0;)
        if (w->slot[i].chunk == chunk)
            return i;
    if (w->n == w->cap)
        return SIZE_MAX;
    w->slot[w->n] = (slot){chunk, NULL};
    return w->n++;
}

/* The part of a range from `at` on that one chunk holds; false in *fits when the window is full. */
static ckp_status
next_segment(window *w, const ckpi_give_range *r, uint64_t at, segment *s, bool *fits, ckp_error *err)
{
    const ckpi_table *t = w->ck->lin->table;
    const ckpi_rec *rec = &t->rec[r->tensor];
    const uint32_t holder = ckpi_table_holder(t, r->tensor);
    const ckp_dtype dt = t->rec[holder].dtype;
    const ckpi_chunk_key *k = ckpi_lineage_find(w->ck->lin, 0, holder, at);

    if (k == NULL)
        return ckpi_fail(err, CKP_ENOTFOUND, "element %llu of %s is in no whole chunk", (unsigned long long)at, rec->name);
    const ckpi_chunk *c = &w->ck->lin->level[0].f->chunk[k->chunk];
    const ckpi_piece *p = &c->piece[k->piece];
    uint64_t before = 0, in = 0;
    (void)ckpi_dtype_bytes(dt, k->before, &before);
    *s = (segment){.tensor = r->tensor, .first = at, .count = CKPI_MIN(p->first + p->count, r->first + r->count) - at,
                   .rounds = dt != rec->dtype};
    (void)ckpi_dtype_bytes(dt, at - p->first, &in);
    (void)ckpi_dtype_bytes(rec->dtype, s->count, &s->len);
    s->skip = before + in;
    s->slot = slot_for(w, k->chunk);
    *fits = s->slot != SIZE_MAX;
    return CKP_OK;
}

/* Segments from the cursor on, until the window has as many chunks as it may. */
static ckp_status
fill_window(window *w, const ckpi_give_range *r, size_t n, cursor *cur, ckp_error *err)
{
    w->n = w->n_seg = 0;
    while (cur->range < n) {
        const ckpi_give_range *x = &r[cur->range];
        segment s;
        bool fits = true;
        if (cur->at == x->count) {
            cur->range++;
            cur->at = 0;
            continue;
        }
        const ckp_status st = next_segment(w, x, x->first + cur->at, &s, &fits, err);
        if (st != CKP_OK || !fits)
            return st;
        segment *to = add_segment(w);
        if (to == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory to order tensors");
        *to = s;
        cur->at += s.count;
    }
    return CKP_OK;
}

static ckp_status
give_segment(window *w, const segment *s, ckpi_give_fn fn, void *user, ckp_error *err)
{
    const uint8_t *bytes = w->slot[s->slot].bytes + s->skip;

    if (s->rounds) {
        ckpi_buf_clear(&w->copy);
        if (!ckpi_buf_reserve(&w->copy, (size_t)s->len))
            return ckpi_buf_status(&w->copy, err, "a copy's elements");
        ckpi_round_copy(w->ck->lin->table->rec[s->tensor].dtype, w->copy.data, bytes, (size_t)s->count);
        bytes = w->copy.data;
    }
    return fn(user, s->tensor, s->first, s->count, bytes, (size_t)s->len, err);
}

static ckp_status
empty_window(window *w, ckpi_give_fn fn, void *user, uint64_t *done, ckp_status st, ckp_error *err)
{
    for (size_t i = 0; st == CKP_OK && i < w->n_seg; i++) {
        const segment *s = &w->seg[i];
        st = give_segment(w, s, fn, user, err);
        *done += s->len;
    }
    for (size_t i = 0; i < w->n; i++) {
        free(w->slot[i].bytes);
        w->slot[i].bytes = NULL;
    }
    return st;
}

ckp_status
ckpi_give(const ckp_checkpoint *ck, const ckpi_give_range *r, size_t n, unsigned threads, ckpi_give_fn fn, void *user, ckp_progress_fn progress,
          void *progress_user, ckp_error *err)
{
    window w = {.ck = ck};
    cursor cur = {0, 0};
    ckpi_ctx *ctx = NULL;
    uint64_t done = 0, total = 0;

    ckp_status st = ckpi_ctx_new(&ctx, threads, false, err);
    if (st != CKP_OK)
        return st;
    w.cpu = ctx->cpu;
    w.cap = 2 * (size_t)ctx->workers;
    w.slot = ckpi_calloc(w.cap, sizeof *w.slot);
    if (w.slot == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to decode");
    for (size_t i = 0; st == CKP_OK && i < n; i++) {
        uint64_t b = 0;
        (void)ckpi_dtype_bytes(ck->lin->table->rec[r[i].tensor].dtype, r[i].count, &b);
        total += b;
    }
    while (st == CKP_OK && cur.range < n) {
        st = fill_window(&w, r, n, &cur, err);
        if (st == CKP_OK)
            st = ckpi_ctx_run(ctx, w.n, decode_slot, &w, err);
        st = empty_window(&w, fn, user, &done, st, err);
        if (st == CKP_OK && progress != NULL && progress(progress_user, done, total) != 0)
            st = ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
    }
    ckpi_buf_free(&w.copy);
    free(w.slot);
    free(w.seg);
    ckpi_ctx_free(ctx);
    return st;
}
