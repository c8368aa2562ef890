/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cluster_chunk.h"
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "engine/params.h"
#include "engine/replay.h"
#include "engine/values.h"

/* ---- parameters --------------------------------------------------------------------------------------------------- */

static void
put_f64(ckpi_buf *b, double x)
{
    uint64_t bits;
    (void)memcpy(&bits, &x, sizeof bits);
    ckpi_buf_u64(b, bits);
}

static void
put_piece(ckpi_buf *b, const ckpi_clusters *c, const ckpi_clusters_loss *loss)
{
    ckpi_buf_varint(b, c->k);
    put_f64(b, loss->n != 0 ? loss->err2 / (double)loss->n : 0.0);
    put_f64(b, loss->n_rel != 0 ? loss->rel / (double)loss->n_rel : 0.0);
    for (uint32_t l = 0; l < c->k; l++)
        ckpi_buf_f32(b, c->low[l]);
    for (uint32_t l = 0; c->kind == CKPI_CLUSTERS_AFFINE && l < c->k; l++)
        ckpi_buf_f32(b, c->step[l]);
}

ckpi_clusters_kind
ckpi_cluster_get_kind(ckpi_rd *r)
{
    const uint8_t kind = ckpi_rd_u8(r);
    if (kind != CKPI_CLUSTERS_AFFINE && kind != CKPI_CLUSTERS_CENTRES)
        ckpi_rd_fail(r, "kind of clusters");
    return (ckpi_clusters_kind)kind;
}

void
ckpi_cluster_get(ckpi_rd *r, ckpi_clusters_kind kind, ckpi_cluster_piece *out)
{
    ckpi_clusters *c = &out->clusters;

    *c = (ckpi_clusters){.kind = kind, .k = (uint32_t)ckpi_rd_varint(r, CKPI_CLUSTERS_MAX)};
    out->mse = ckpi_f64_from_bits(ckpi_rd_u64(r));
    out->mre = ckpi_f64_from_bits(ckpi_rd_u64(r));
    for (uint32_t l = 0; ckpi_rd_ok(r) && l < c->k; l++)
        c->low[l] = ckpi_rd_f32(r);
    for (uint32_t l = 0; kind == CKPI_CLUSTERS_AFFINE && ckpi_rd_ok(r) && l < c->k; l++)
        c->step[l] = ckpi_rd_f32(r);
    if (ckpi_rd_ok(r) && !ckpi_clusters_valid(c))
        ckpi_rd_fail(r, "clusters, 1 to 256 of finite values");
}

/* ---- coding --------------------------------------------------------------------------------------------------------- */

static ckpi_block
block_of(ckpi_clusters_kind kind, const void *data, size_t n)
{
    const bool affine = kind == CKPI_CLUSTERS_AFFINE;
    return (ckpi_block){.data = data, .n = n, .width = affine ? 2 : 1, .dtype = affine ? CKP_U16 : CKP_U8};
}

/* Words of labels alone, as bytes; in place. */
static void
narrow(uint16_t *code, size_t n)
{
    uint8_t *byte = (uint8_t *)code;
    for (size_t i = 0; i < n; i++)
        byte[i] = (uint8_t)code[i];
}

static ckp_status
put_payload(ckpi_encoded *e, const ckpi_block *b, ckpi_effort effort, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t cap = ckpi_codec_pick_bound(b);
    size_t len = 0;
    bool used_base = false;

    if (!ckpi_buf_reserve(&e->body, cap))
        return ckpi_buf_status(&e->body, err, "a chunk");
    const ckp_status st = ckpi_codec_pick(b, effort, e->body.data + e->body.len, cap, &len, &e->c.codec, &used_base, ws, cpu, err);
    e->body.len += st == CKP_OK ? len : 0;
    return st;
}

ckp_status
ckpi_cluster_code(ckpi_encoded *e, size_t *params_len, size_t *escapes_end, const ckpi_group *g, ckpi_stage *s, ckpi_effort effort, ckpi_scratch *ws,
                  uint32_t cpu, ckp_error *err)
{
    const size_t n = (size_t)g->n, mark = ckpi_scratch_mark(ws);
    const float *x = (const float *)(const void *)s->raw;
    uint16_t *code = ckpi_scratch_get(ws, n * sizeof *code);
    ckpi_clusters c;
    size_t at = 0;
    ckp_status st = code != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for the clusters of %zu values", n);

    s->mesc.n = 0;
    ckpi_buf_u8(&e->body, (uint8_t)s->clusters);
    for (size_t k = 0; st == CKP_OK && k < g->n_pieces; k++) {
        const size_t count = (size_t)g->piece[k].count;
        s->cluster_loss[k] = (ckpi_clusters_loss){0};
        st = ckpi_clusters_encode(&c, s->clusters, x + at, count, at, code + at, &s->mesc, &s->cluster_loss[k], ws, err);
        if (st == CKP_OK)
            put_piece(&e->body, &c, &s->cluster_loss[k]);
        at += count;
    }
    *params_len = e->body.len;
    ckpi_params_put_escapes(&e->body, s->mesc.at, s->mesc.n, 4);
    *escapes_end = e->body.len;
    if (st == CKP_OK)
        st = ckpi_buf_status(&e->body, err, "a chunk");
    if (st == CKP_OK && s->clusters == CKPI_CLUSTERS_CENTRES)
        narrow(code, n);
    if (st == CKP_OK) {
        const ckpi_block b = block_of(s->clusters, code, n);
        st = put_payload(e, &b, effort, ws, cpu, err);
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

/* ---- decoding ------------------------------------------------------------------------------------------------------- */

static ckp_status
decode_pieces(const ckpi_chunk *c, const uint16_t *code, float *out, ckp_error *err)
{
    ckpi_rd rd = ckpi_rd_init(c->params, c->params_len, c->body_offset);
    const ckpi_clusters_kind kind = ckpi_cluster_get_kind(&rd);
    ckpi_cluster_piece p;
    size_t at = 0;
    ckp_status st = CKP_OK;

    for (size_t k = 0; st == CKP_OK && k < c->n_pieces && ckpi_rd_ok(&rd); k++) {
        ckpi_cluster_get(&rd, kind, &p);
        if (ckpi_rd_ok(&rd))
            st = ckpi_clusters_decode(&p.clusters, code + at, (size_t)c->piece[k].count, out + at, err);
        at += (size_t)c->piece[k].count;
    }
    if (st != CKP_OK)
        return st;
    if (!ckpi_rd_ok(&rd))
        return ckpi_rd_error(&rd, err, "parameters of a chunk of clusters");
    return ckpi_rd_done(&rd) ? CKP_OK : ckpi_fail_at(err, CKP_ECORRUPT, rd.file_offset + rd.pos, "bytes after the parameters of a chunk of clusters");
}

ckp_status
ckpi_cluster_decode(const ckpi_chunk *c, float *out, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t n = (size_t)c->n, mark = ckpi_scratch_mark(ws);
    ckpi_rd rd = ckpi_rd_init(c->params, c->params_len, c->body_offset);
    const ckpi_clusters_kind kind = ckpi_cluster_get_kind(&rd);
    const ckpi_block b = block_of(kind, NULL, n);
    uint16_t *code = ckpi_scratch_get(ws, n * sizeof *code);
    ckpi_escapes esc = {0};

    ckp_status st = ckpi_rd_ok(&rd) ? CKP_OK : ckpi_rd_error(&rd, err, "parameters of a chunk of clusters");
    if (st == CKP_OK && code == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for the clusters of %zu values", n);
    if (st == CKP_OK)
        st = ckpi_decode_payload(c, &b, code, ws, cpu, err);
    if (st == CKP_OK && kind == CKPI_CLUSTERS_CENTRES)
        for (size_t i = n; i-- > 0;)          /* bytes to words, from behind */
            code[i] = ((const uint8_t *)code)[i];
    if (st == CKP_OK)
        st = decode_pieces(c, code, out, err);
    if (st == CKP_OK)
        st = ckpi_params_get_escapes(c->escapes, c->escapes_len, 4, c->n, &esc, c->body_offset + c->params_len, err);
    if (st == CKP_OK)
        ckpi_patch(out, 4, &esc);
    ckpi_escapes_free(&esc);
    ckpi_scratch_release(ws, mark);
    return st;
}
