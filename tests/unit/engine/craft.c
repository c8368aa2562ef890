/* SPDX-License-Identifier: Apache-2.0 */
#include "craft.h"
#include <stdlib.h>

craft *
craft_open(const chain *c, size_t i)
{
    craft *x = calloc(1, sizeof *x);
    ckpi_lineage *l = chain_open(c, i);
    ckpi_buf body = CKPI_BUF_INIT;
    ckp_error err;
    x->f = l->level[0].f;
    x->n = x->f->n_chunks;
    x->at = calloc(x->n + 4, sizeof *x->at);
    for (size_t k = 0; k < x->n; k++) {
        craft_chunk *t = &x->at[k];
        ckpi_buf_clear(&body);
        assert_ok(ckpi_fmt_read_chunk(x->f, k, &body, &t->c, &err));
        assert_true(t->c.n_pieces <= CHECK_COUNT(t->piece));
        memcpy(t->piece, t->c.piece, t->c.n_pieces * sizeof *t->piece);
        craft_set(&t->params, t->c.params, t->c.params_len);
        craft_set(&t->escapes, t->c.escapes, t->c.escapes_len);
        craft_set(&t->payload, t->c.payload, t->c.payload_len);
    }
    ckpi_buf_free(&body);
    l->level[0].f = NULL;                        /* ours now */
    ckpi_lineage_free(l);
    return x;
}

void
craft_free(craft *x)
{
    for (size_t k = 0; k < x->n; k++) {
        ckpi_buf_free(&x->at[k].params);
        ckpi_buf_free(&x->at[k].escapes);
        ckpi_buf_free(&x->at[k].payload);
    }
    free(x->at);
    ckpi_fmt_close(x->f);
    free(x);
}

craft_chunk *
craft_find(craft *x, ckp_role role)
{
    for (size_t k = 0; k < x->n; k++)
        if (x->at[k].c.role == role)
            return &x->at[k];
    fail_msg("no chunk of role %d", (int)role);
    return NULL;
}

void
craft_drop(craft *x, craft_chunk *k)
{
    ckpi_buf_free(&k->params);
    ckpi_buf_free(&k->escapes);
    ckpi_buf_free(&k->payload);
    memmove(k, k + 1, (size_t)(x->at + x->n - k - 1) * sizeof *k);
    x->n--;
}

void
craft_set(ckpi_buf *part, const void *p, size_t n)
{
    ckpi_buf_clear(part);
    ckpi_buf_put(part, p, n);
    assert_ok(part->failed);
}

void
craft_write(const craft *x, bool cut, ckpi_buf *out)
{
    ckpi_writer *w = NULL;
    ckpi_fmt_writer *fw = NULL;
    ckpi_fmt_sum sum;
    ckp_error err;
    const bool ref = !ckpi_id_is_zero(x->f->info.table_content);
    ckpi_buf_clear(out);
    assert_ok(ckpi_writer_mem(&w, out, &err));
    /* a tree with another tree as dictionary is not what these tests are about */
    assert_ok(ckpi_fmt_writer_new(&fw, w, &x->f->info, x->f->table, x->f->tree, x->f->tree_len, ref ? x->f->table : NULL, x->f->tree, 0, &err));
    for (size_t k = 0; k < x->n; k++) {
        const craft_chunk *t = &x->at[k];
        ckpi_chunk c = t->c;
        c.piece = (ckpi_piece *)(uintptr_t)t->piece;
        c.params = t->params.data;
        c.params_len = t->params.len;
        c.escapes = t->escapes.data;
        c.escapes_len = t->escapes.len;
        c.payload = t->payload.data;
        c.payload_len = t->payload.len;
        if (ckpi_fmt_writer_chunk(fw, &c, &err) != CKP_OK)
            fail_msg("%s", err.text);
    }
    if (!cut && ckpi_fmt_writer_finish(fw, NULL, 0, &sum, &err) != CKP_OK)
        fail_msg("%s", err.text);
    ckpi_fmt_writer_free(fw);
    assert_ok(ckpi_writer_finish(w, &err));
    ckpi_writer_free(w);
}
