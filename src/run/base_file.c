/* SPDX-License-Identifier: Apache-2.0 */
/* A base model as the file that a run's key has for its base (base_model.h). */
#include <stdlib.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "engine/decode.h"
#include "run/base_model.h"

typedef struct making {
    const ckpi_base_model *b;
    const ckpi_table *t;
    ckpi_fmt_writer *fw;
    uint8_t *mem;                /* one chunk's elements */
    size_t cap;
} making;

static ckp_status
room(making *m, size_t bytes, ckp_error *err)
{
    if (bytes <= m->cap)
        return CKP_OK;
    ckpi_aligned_free(m->mem);
    m->mem = ckpi_aligned_alloc(bytes);
    m->cap = m->mem != NULL ? bytes : 0;
    return m->mem != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu bytes of a base model", bytes);
}

static ckp_status
put_chunk(making *m, uint8_t role, uint8_t dtype, ckpi_piece *piece, size_t n_pieces, ckp_error *err)
{
    ckpi_chunk c = {.role = role, .dtype = dtype, .quant = CKPI_QUANT_NONE, .codec = CKPI_CODEC_RAW, .piece = piece, .n_pieces = n_pieces};
    const size_t bytes = (size_t)ckpi_chunk_bytes(m->t, &c);

    ckp_status st = room(m, bytes, err);
    if (st == CKP_OK)
        st = ckpi_base_model_read(m->b, m->t, piece, n_pieces, m->mem, err);
    if (st != CKP_OK)
        return st;
    c.decoded_hash = ckpi_hash64(m->mem, bytes);
    c.payload = m->mem;
    c.payload_len = bytes;
    if (!ckpi_role_is_weight(role)) {
        c.codec = CKPI_CODEC_ZERO;
        c.payload_len = 0;
    }
    return ckpi_fmt_writer_chunk(m->fw, &c, err);
}

static ckp_status
begin(making *m, ckpi_writer *w, ckp_error *err)
{
    const ckpi_file_info info = {0};
    return ckpi_fmt_writer_new(&m->fw, w, &info, m->t, NULL, 0, NULL, NULL, 0, err);
}

static ckp_status
end(making *m, ckpi_writer *w, ckpi_fmt_sum *sum, ckp_error *err)
{
    const ckp_status st = ckpi_fmt_writer_finish(m->fw, NULL, 0, sum, err);
    return st == CKP_OK ? ckpi_writer_finish(w, err) : st;
}

static void
clean(making *m, ckpi_writer *w)
{
    ckpi_fmt_writer_free(m->fw);
    ckpi_writer_free(w);
    ckpi_aligned_free(m->mem);
}

ckp_status
ckpi_base_file_make(ckpi_base_file *out, const ckpi_base_model *b, const ckpi_table *t, const ckpi_chunk *like, size_t n, ckp_error *err)
{
    making m = {.b = b, .t = t};
    ckpi_writer *w = NULL;
    ckpi_reader *r = NULL;
    ckpi_fmt_sum sum;

    *out = (ckpi_base_file){0};
    ckp_status st = ckpi_writer_mem(&w, &out->bytes, err);
    if (st == CKP_OK)
        st = begin(&m, w, err);
    for (size_t i = 0; st == CKP_OK && i < n; i++)
        st = put_chunk(&m, like[i].role, like[i].dtype, like[i].piece, like[i].n_pieces, err);
    if (st == CKP_OK)
        st = end(&m, w, &sum, err);
    clean(&m, w);
    if (st == CKP_OK)
        st = ckpi_reader_mem(&r, out->bytes.data, out->bytes.len, ckpi_base_model_path(b), err);
    if (st == CKP_OK)
        st = ckpi_fmt_open(&out->f, r, err);
    if (st != CKP_OK)
        ckpi_buf_free(&out->bytes);
    return st;
}

/* The chunk of a group's moments. */
static ckp_status
put_moments(making *m, const ckpi_group *g, const uint32_t *of, ckp_dtype dtype, ckp_error *err)
{
    ckpi_piece *piece = ckpi_calloc(g->n_pieces, sizeof *piece);

    if (piece == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu pieces", g->n_pieces);
    for (size_t k = 0; k < g->n_pieces; k++)
        piece[k] = (ckpi_piece){of[k], g->piece[k].first, g->piece[k].count};
    const ckp_status st = put_chunk(m, (uint8_t)m->t->rec[of[0]].role, (uint8_t)dtype, piece, g->n_pieces, err);
    free(piece);
    return st;
}

ckp_status
ckpi_base_file_id(ckpi_id *out, const ckpi_base_model *b, const ckpi_table *t, const ckpi_layout *l, ckp_error *err)
{
    making m = {.b = b, .t = t};
    ckpi_writer *w = NULL;
    ckpi_fmt_sum sum;

    ckp_status st = ckpi_writer_null(&w, err);
    if (st == CKP_OK)
        st = begin(&m, w, err);
    for (size_t i = 0; st == CKP_OK && i < l->n; i++) {
        const ckpi_group *g = &l->g[i];
        if (g->lossy && g->has_v)
            st = put_moments(&m, g, g->v, g->v_dtype, err);
        if (st == CKP_OK && g->lossy && g->has_m)
            st = put_moments(&m, g, g->m, g->m_dtype, err);
        if (st == CKP_OK)
            st = put_chunk(&m, (uint8_t)g->role, (uint8_t)g->dtype, g->piece, g->n_pieces, err);
    }
    if (st == CKP_OK)
        st = end(&m, w, &sum, err);
    clean(&m, w);
    if (st == CKP_OK)
        *out = sum.content;
    return st;
}
