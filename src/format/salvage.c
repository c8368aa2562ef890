/* SPDX-License-Identifier: Apache-2.0 */
/* A damaged file as what is left of it: its table, and the chunks that prove themselves. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "format/file_priv.h"
#include "format/frame.h"

/* Growing lists of what the scan finds; pieces are pointed to at the very end. */
typedef struct found { ckpi_chunk *chunk; size_t n, cap; ckpi_pieces pieces; } found;

static bool
keep(found *x, file_priv *priv, const ckpi_chunk *c)
{
    if (x->n == x->cap) {
        const size_t cap = x->cap != 0 ? 2 * x->cap : 64;
        ckpi_chunk *chunk = ckpi_realloc(x->chunk, cap, sizeof *chunk);
        if (chunk == NULL)
            return false;
        x->chunk = chunk;
        size_t *at = ckpi_realloc(priv->head_at, cap, sizeof *at);
        if (at == NULL)
            return false;
        priv->head_at = at;
        size_t *len = ckpi_realloc(priv->head_len, cap, sizeof *len);
        if (len == NULL)
            return false;
        priv->head_len = len;
        x->cap = cap;
    }
    for (size_t k = 0; k < c->n_pieces; k++)
        if (!ckpi_pieces_add(&x->pieces, c->piece[k]))
            return false;
    x->chunk[x->n++] = *c;
    return true;
}

/* The head as it stands in the file stands in for the index. */
static ckp_status
keep_head(ckpi_reader *r, file_priv *priv, const ckpi_chunk *c, size_t i, ckp_error *err)
{
    const size_t len = (size_t)(c->body_offset - c->offset) - CKPI_WIRE_FRAME_PREFIX - 8;
    priv->head_at[i] = priv->index.len;
    priv->head_len[i] = len;
    uint8_t *to = ckpi_buf_extend(&priv->index, len);
    if (to == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "salvage: out of memory");
    return ckpi_reader_read(r, c->offset + CKPI_WIRE_FRAME_PREFIX, to, len, err);
}

static ckp_status
scan_all(ckpi_fmt_file *f, ckpi_fmt_stream *s, bool has_base, found *x, uint64_t *skipped, ckp_error *err)
{
    ckpi_buf buf = CKPI_BUF_INIT;
    file_priv *priv = f->priv;
    ckp_status st = CKP_OK;
    bool done = false;

    while (st == CKP_OK && !done) {
        ckpi_chunk c;
        st = ckpi_fmt_stream_next(s, true, &buf, &c, &done, skipped, err);
        if (st != CKP_OK || done)
            break;
        if (!has_base && (c.flags & CKPI_CHUNK_USES_BASE))
            continue;            /* nothing to decode it with */
        /* as file.c bounds it: frames of a few bytes that each claim all tensors are none of a writer's */
        if (x->pieces.n + c.n_pieces > ckpi_fmt_stream_table(s)->n + priv->index.len + (size_t)(c.body_offset - c.offset)) {
            ++*skipped;
            continue;
        }
        if (!keep(x, priv, &c))
            st = ckpi_fail(err, CKP_ENOMEM, "salvage: out of memory for %zu chunks", x->n);
        else
            st = keep_head(f->r, priv, &c, x->n - 1, err);
    }
    ckpi_buf_free(&buf);
    return st;
}

static ckp_status
adopt_front(ckpi_fmt_file *f, const ckpi_fmt_stream *s, ckp_error *err)
{
    file_priv *priv = f->priv;
    size_t len = 0;
    const ckpi_table *t = ckpi_fmt_stream_table(s);
    const void *tree = ckpi_fmt_stream_tree(s, &len);

    f->info = *ckpi_fmt_stream_info(s);
    priv->front.table = ckpi_table_share((ckpi_table *)(uintptr_t)t);
    ckpi_buf_put(&priv->front.tree, tree, len);
    f->table = priv->front.table;
    f->table_id = f->table->id;
    f->tree = priv->front.tree.data;
    f->tree_len = priv->front.tree.len;
    return ckpi_buf_status(&priv->front.tree, err, "the state tree");
}

static void
adopt_chunks(ckpi_fmt_file *f, found *x)
{
    file_priv *priv = f->priv;
    ckpi_piece *next = x->pieces.at;

    priv->pieces = x->pieces.at;
    f->chunk = x->chunk;
    f->n_chunks = x->n;
    for (size_t i = 0; i < x->n; i++) {
        f->chunk[i].piece = next;
        f->chunk[i].params = f->chunk[i].escapes = f->chunk[i].payload = NULL;
        next += f->chunk[i].n_pieces;
    }
}

ckp_status
ckpi_fmt_salvage(ckpi_fmt_file **out, ckpi_reader *r, const ckpi_fmt_file *ref, uint64_t *skipped, ckp_error *err)
{
    ckpi_fmt_stream *s = NULL;
    found x = {0};
    ckpi_fmt_file *f = ckpi_calloc(1, sizeof *f);
    ckp_status st = CKP_OK;

    *out = NULL;
    *skipped = 0;
    if (f == NULL || (f->priv = ckpi_calloc(1, sizeof(file_priv))) == NULL) {
        free(f);
        ckpi_reader_free(r);
        return ckpi_fail(err, CKP_ENOMEM, "salvage: out of memory");
    }
    f->r = r;
    st = ckpi_fmt_stream_open(&s, r, err);
    if (st == CKP_OK && ckpi_fmt_stream_table(s) == NULL && ref != NULL)
        st = ckpi_fmt_stream_resolve(s, ref, err);
    if (st == CKP_OK && ckpi_fmt_stream_table(s) == NULL)
        st = ckpi_fail(err, CKP_EBASE, "a delta whose table is stored in its base: it needs its bases");
    if (st == CKP_OK)
        st = scan_all(f, s, ref != NULL, &x, skipped, err);
    if (st == CKP_OK)
        st = adopt_front(f, s, err);
    adopt_chunks(f, &x);         /* also on failure: they are freed with f */
    f->partial = true;
    if (st == CKP_OK) {
        *out = f;
        f = NULL;
    } else {
        ckpi_fail_file(err, ckpi_reader_name(r));
    }
    ckpi_fmt_stream_free(s);
    ckpi_fmt_close(f);
    return st;
}

void
ckpi_fmt_keep_chunks(ckpi_fmt_file *f, const bool *keep)
{
    file_priv *priv = f->priv;
    size_t n = 0;

    for (size_t i = 0; i < f->n_chunks; i++) {
        if (!keep[i])
            continue;
        f->chunk[n] = f->chunk[i];
        priv->head_at[n] = priv->head_at[i];
        priv->head_len[n] = priv->head_len[i];
        n++;
    }
    f->partial = f->partial || n != f->n_chunks;
    f->n_chunks = n;
}
