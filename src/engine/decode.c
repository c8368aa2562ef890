/* SPDX-License-Identifier: Apache-2.0 */
/* Units to elements. Finding units: units.c; replaying them: replay.c. */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "engine/cluster_chunk.h"
#include "engine/decode.h"
#include "engine/encode.h"
#include "engine/replay.h"
#include "engine/values.h"

uint64_t
ckpi_chunk_bytes(const ckpi_table *t, const ckpi_chunk *c)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < c->n_pieces; k++) {
        uint64_t b = 0;
        (void)ckpi_dtype_bytes(t->rec[c->piece[k].tensor].dtype, c->piece[k].count, &b);
        sum += b;
    }
    return sum;
}

static ckp_status
check_hash(const ckpi_replay *r, const ckpi_chunk *k, const void *bytes, ckp_error *err)
{
    const uint64_t got = ckpi_hash64(bytes, (size_t)ckpi_chunk_bytes(r->c->table, k));
    if (got == k->decoded_hash)
        return CKP_OK;
    const ckp_status st = ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "decoded elements have hash %016llx, the frame says %016llx",
                                       (unsigned long long)got, (unsigned long long)k->decoded_hash);
    return ckpi_replay_fail(r, 0, k, st, err);
}

/* ---- lossless --------------------------------------------------------------------------------------------------- */

static size_t
cols_of(const ckpi_table *t, const ckpi_chunk *c)
{
    return c->n_pieces == 1 ? ckpi_matrix_cols(&t->rec[c->piece[0].tensor]) : 0;
}

ckp_status
ckpi_decode_plain(const ckpi_table *t, const ckpi_chunk *c, const void *base, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const ckpi_block b =
        ckpi_block_of((ckp_dtype)c->dtype, NULL, c->flags & CKPI_CHUNK_USES_BASE ? base : NULL, ckpi_chunk_bytes(t, c), cols_of(t, c));
    return ckpi_decode_payload(c, &b, dst, ws, cpu, err);
}

/* A lossless chunk of level 0, by replaying lossless chunks from the deepest one that needs no base. */
static ckp_status
plain(ckpi_replay *r, uint32_t chunk, uint8_t **out, ckp_error *err)
{
    const ckpi_chunk *head = &r->c->level[0].f->chunk[chunk];
    const size_t bytes = (size_t)ckpi_chunk_bytes(r->c->table, head);
    size_t depth = 0, at[2] = {chunk, 0};
    uint8_t *buf[2] = {ckpi_scratch_get(r->ws, bytes), NULL};
    ckp_status st = CKP_OK;

    for (const ckpi_chunk *k = head; k->flags & CKPI_CHUNK_USES_BASE; depth++)
        k = ckpi_lineage_like(r->c, depth + 1, k, NULL);       /* lineage.c has checked that it is there */
    if (depth != 0)
        buf[1] = ckpi_scratch_get(r->ws, bytes);
    if (buf[0] == NULL || (depth != 0 && buf[1] == NULL))
        return ckpi_fail(err, CKP_ENOMEM, "no memory to decode %zu bytes", bytes);
    for (size_t level = depth + 1; st == CKP_OK && level-- > 0;) {
        const size_t mark = ckpi_scratch_mark(r->ws);
        ckpi_chunk k;
        if (level != 0)
            (void)ckpi_lineage_like(r->c, level, head, &at[1]);
        st = ckpi_replay_read(r, level, at[level != 0], &k, err);
        if (st == CKP_OK && k.quant != CKPI_QUANT_NONE)
            st = ckpi_fail_at(err, CKP_ECORRUPT, k.offset, "a lossless chunk has a quantized base");
        if (st == CKP_OK)
            st = ckpi_decode_plain(r->c->table, &k, buf[(level + 1) & 1 ? 1 : 0], buf[level & 1 ? 1 : 0], r->ws, r->cpu, err);
        if (st != CKP_OK)
            (void)ckpi_replay_fail(r, level, &r->c->level[level].f->chunk[at[level != 0]], st, err);
        ckpi_scratch_release(r->ws, mark);
    }
    *out = buf[0];
    return st;
}

/* ---- giving out ------------------------------------------------------------------------------------------------- */

static ckp_status
give(ckpi_replay *r, uint32_t chunk, ckp_status (*make)(const ckpi_values *, void *, ckpi_scratch *, ckp_error *), const ckpi_escapes *esc, bool has_v,
     ckpi_sink_fn sink, void *user, ckp_error *err)
{
    const ckpi_chunk *k = &r->c->level[0].f->chunk[chunk];
    const size_t mark = ckpi_scratch_mark(r->ws);
    void *out = ckpi_scratch_get(r->ws, (size_t)ckpi_chunk_bytes(r->c->table, k));
    const ckpi_values v = {.piece = r->piece, .n_pieces = r->n_pieces, .n = r->n, .dtype = (ckp_dtype)k->dtype, .rec = &r->rec,
                           .has_v = has_v, .mcode = r->mcode, .mg = r->mg, .low = r->low, .esc = esc, .cpu = r->cpu};

    if (out == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to decode %zu elements", r->n);
    ckp_status st = make(&v, out, r->ws, err);
    if (st != CKP_OK)
        (void)ckpi_replay_fail(r, 0, k, st, err);
    if (st == CKP_OK)
        st = check_hash(r, k, out, err);
    if (st == CKP_OK && sink != NULL)
        st = sink(user, k, out, err);
    ckpi_scratch_release(r->ws, mark);
    return st;
}

/* Reconstructions that are the very elements are hashed, and given, where they lie. */
static ckp_status
give_weights(ckpi_replay *r, uint32_t chunk, ckpi_sink_fn sink, void *user, ckp_error *err)
{
    const ckpi_chunk *k = &r->c->level[0].f->chunk[chunk];

    if (k->dtype != CKP_F32 || r->wesc.n != 0)
        return give(r, chunk, ckpi_values_w, &r->wesc, false, sink, user, err);
    const ckp_status st = check_hash(r, k, r->rec.wrec, err);
    return st == CKP_OK && sink != NULL ? sink(user, k, r->rec.wrec, err) : st;
}

static bool
is_clusters(const ckpi_lineage *c, const ckpi_unit *u)
{
    return u->w != CKPI_NO_CHUNK && c->level[0].f->chunk[u->w].quant == CKPI_QUANT_CLUSTER;
}

static ckp_status
decode_cluster_unit(ckpi_replay *r, ckpi_sink_fn sink, void *user, ckp_error *err)
{
    const size_t i = r->u->w;
    ckpi_chunk k;
    float *out = ckpi_scratch_get(r->ws, (size_t)ckpi_chunk_bytes(r->c->table, &r->c->level[0].f->chunk[i]));

    if (out == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to decode a chunk of clusters");
    ckp_status st = ckpi_replay_read(r, 0, i, &k, err);
    if (st == CKP_OK)
        st = ckpi_cluster_decode(&k, out, r->ws, r->cpu, err);
    if (st != CKP_OK)
        (void)ckpi_replay_fail(r, 0, &r->c->level[0].f->chunk[i], st, err);
    if (st == CKP_OK)
        st = check_hash(r, &r->c->level[0].f->chunk[i], out, err);
    return st == CKP_OK && sink != NULL ? sink(user, &r->c->level[0].f->chunk[i], out, err) : st;
}

/* One lossless chunk on lossless ones. Exact weights that stand on quantized ones are replayed like those. */
static bool
is_plain(const ckpi_lineage *c, const ckpi_unit *u)
{
    if (u->m != CKPI_NO_CHUNK || u->v != CKPI_NO_CHUNK)
        return false;
    const ckpi_chunk *k = &c->level[0].f->chunk[u->w];
    for (size_t level = 1; k->quant == CKPI_QUANT_NONE && (k->flags & CKPI_CHUNK_USES_BASE); level++)
        k = ckpi_lineage_like(c, level, k, NULL);
    return k->quant == CKPI_QUANT_NONE;
}

static ckp_status
decode_plain_unit(ckpi_replay *r, ckpi_sink_fn sink, void *user, ckp_error *err)
{
    const ckpi_chunk *k = &r->c->level[0].f->chunk[r->u->w];
    uint8_t *bytes = NULL;

    ckp_status st = plain(r, r->u->w, &bytes, err);
    if (st == CKP_OK)
        st = check_hash(r, k, bytes, err);
    return st == CKP_OK && sink != NULL ? sink(user, k, bytes, err) : st;
}

ckp_status
ckpi_decode_unit(const ckpi_lineage *c, const ckpi_unit *u, unsigned want, ckpi_sink_fn sink, void *user, ckpi_scratch *ws, uint32_t cpu,
                 ckp_error *err)
{
    ckpi_replay r = {.body = CKPI_BUF_INIT};
    ckp_status st;

    const bool clusters = is_clusters(c, u);
    if (clusters || is_plain(c, u)) {
        r.c = c;
        r.u = u;
        r.ws = ws;
        r.cpu = cpu;
        st = (clusters ? decode_cluster_unit : decode_plain_unit)(&r, sink, user, err);
        ckpi_replay_free(&r);
        return st;
    }
    st = ckpi_replay_init(&r, c, u, ws, cpu, err);
    if (st == CKP_OK)
        st = ckpi_replay_run(&r, want, err);
    if (st == CKP_OK && (want & CKPI_WANT_V) && u->v != CKPI_NO_CHUNK)
        st = give(&r, u->v, ckpi_values_v, &r.vesc, true, sink, user, err);
    if (st == CKP_OK && (want & CKPI_WANT_M) && u->m != CKPI_NO_CHUNK)
        st = give(&r, u->m, ckpi_values_m, &r.mesc, r.m_has_v, sink, user, err);
    if (st == CKP_OK && (want & CKPI_WANT_W) && u->w != CKPI_NO_CHUNK)
        st = give_weights(&r, u->w, sink, user, err);
    ckpi_factors_free(&r.rec.fac);
    ckpi_indices_free(&r.rec.idx);
    ckpi_replay_free(&r);
    return st;
}

ckp_status
ckpi_decode_into_pred(const ckpi_lineage *c, const ckpi_unit *u, ckpi_pred *pred, size_t g, bool keep_raw, ckpi_scratch *ws, uint32_t cpu,
                      ckp_error *err)
{
    const ckpi_group *grp = &pred->layout->g[g];
    ckpi_replay r = {.body = CKPI_BUF_INIT};
    ckp_status st;

    if (!grp->lossy) {
        uint8_t *bytes = NULL;
        if (!keep_raw || grp->clustered)
            return CKP_OK;
        r.c = c;
        r.u = u;
        r.ws = ws;
        r.cpu = cpu;
        st = plain(&r, u->w, &bytes, err);
        ckpi_aligned_free(pred->raw[g]);
        pred->raw[g] = NULL;
        if (st == CKP_OK && (pred->raw[g] = ckpi_aligned_alloc((size_t)grp->bytes)) == NULL)
            st = ckpi_fail(err, CKP_ENOMEM, "no memory for the base of %llu bytes", (unsigned long long)grp->bytes);
        if (st == CKP_OK)
            memcpy(pred->raw[g], bytes, (size_t)grp->bytes);
        ckpi_replay_free(&r);
        return st;
    }
    st = ckpi_recon_alloc(pred, g, err);
    if (st != CKP_OK)
        return st;
    r.rec.wrec = pred->rec[g].wrec;
    r.rec.vcode = pred->rec[g].vcode;
    st = ckpi_replay_init(&r, c, u, ws, cpu, err);
    if (st == CKP_OK)
        st = ckpi_replay_run(&r, CKPI_WANT_W, err);
    if (st == CKP_OK && r.fac_known) {
        ckpi_factors_free(&pred->rec[g].fac);
        pred->rec[g].fac = r.rec.fac;
    } else {
        ckpi_factors_free(&r.rec.fac);
    }
    ckpi_indices_free(&pred->rec[g].idx);
    pred->rec[g].idx = r.rec.idx;
    for (size_t i = 0; st == CKP_OK && i < pred->rec[g].n_sample; i++)
        pred->rec[g].sample[i] = r.rec.wrec[i * CKPI_SAMPLE];   /* the restored weights are the true ones now */
    ckpi_replay_free(&r);
    return st;
}
