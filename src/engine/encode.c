/* SPDX-License-Identifier: Apache-2.0 */
/* One group's stage to its chunks. */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/float.h"
#include "base/limits.h"
#include "engine/cluster_chunk.h"
#include "engine/dynaquant.h"
#include "engine/encode.h"
#include "engine/moments.h"
#include "engine/values.h"

void
ckpi_encoded_reset(ckpi_encoded *e)
{
    free(e->piece);
    ckpi_buf_clear(&e->body);
    *e = (ckpi_encoded){.body = e->body};
}

/* Pieces of the group under other tensors: its moments. */
static ckp_status
set_pieces(ckpi_encoded *e, const ckpi_group *g, const uint32_t *tensor, ckp_error *err)
{
    e->piece = ckpi_malloc(g->n_pieces, sizeof *e->piece);
    if (e->piece == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for the pieces of a chunk");
    for (size_t k = 0; k < g->n_pieces; k++) {
        e->piece[k] = g->piece[k];
        if (tensor != NULL)
            e->piece[k].tensor = tensor[k];
    }
    e->c.piece = e->piece;
    e->c.n_pieces = g->n_pieces;
    e->c.n = g->n;
    return CKP_OK;
}

/* Where params end, and where escapes end, in the body: pointers are set at the very end, since the body moves as it grows. */
typedef struct seams { size_t params, escapes; } seams;

static void
set_pointers(ckpi_encoded *e, seams at)
{
    e->c.params = e->body.data;
    e->c.params_len = at.params;
    e->c.escapes = e->body.data + at.params;
    e->c.escapes_len = at.escapes - at.params;
    e->c.payload = e->body.data + at.escapes;
    e->c.payload_len = e->body.len - at.escapes;
}

void
ckpi_encoded_fit(ckpi_encoded *e)
{
    ckpi_buf_fit(&e->body);
    if (e->body.data != NULL)
        set_pointers(e, (seams){e->c.params_len, e->c.params_len + e->c.escapes_len});
}

/* ---- lossless --------------------------------------------------------------------------------------------------- */

/* A chunk's bytes as the codecs see them: complex numbers as their parts, packed ones as bytes. */
ckpi_block
ckpi_block_of(ckp_dtype dt, const void *data, const void *base, uint64_t bytes, size_t cols)
{
    const ckpi_dtype_info *d = ckpi_dtype_get(dt);
    const unsigned width = d->part_bytes != 0 ? d->part_bytes : 1;
    ckp_dtype part = dt;

    if (d->kind == CKPI_KIND_COMPLEX)
        part = dt == CKP_C32 ? CKP_F16 : dt == CKP_C64 ? CKP_F32 : dt == CKP_C128 ? CKP_F64 : CKP_F128;
    return (ckpi_block){.data = data, .base = base, .n = (size_t)(bytes / width), .width = width, .dtype = part, .cols = cols};
}

static ckp_status
encode_bytes(ckpi_encoded *e, const ckpi_block *b, ckpi_effort effort, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t cap = ckpi_codec_pick_bound(b);
    size_t len = 0;
    uint8_t id = 0;
    bool used_base = false;

    if (!ckpi_buf_reserve(&e->body, cap))
        return ckpi_buf_status(&e->body, err, "a chunk");
    const ckp_status st = ckpi_codec_pick(b, effort, e->body.data + e->body.len, cap, &len, &id, &used_base, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    e->body.len += len;
    e->c.codec = id;
    e->c.flags = used_base ? CKPI_CHUNK_USES_BASE : 0;
    return CKP_OK;
}

/* Length of a row where the chunk is part of one matrix. */
static size_t
context_cols(const ckpi_table *t, const ckpi_group *g)
{
    return g->n_pieces == 1 ? ckpi_matrix_cols(&t->rec[g->piece[0].tensor]) : 0;
}

static ckp_status
encode_lossless(ckpi_pred *pred, size_t g, ckpi_stage *s, ckpi_effort effort, bool keep_raw, uint32_t cpu, ckpi_encoded *e, ckpi_scratch *ws,
                ckp_error *err)
{
    const ckpi_group *grp = &pred->layout->g[g];
    const uint8_t *base = s->w_key ? NULL : pred->raw[g];
    const ckpi_block b = ckpi_block_of(grp->dtype, s->raw, base, grp->bytes, context_cols(pred->table, grp));

    ckp_status st = set_pieces(e, grp, NULL, err);
    if (st == CKP_OK)
        st = encode_bytes(e, &b, effort, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    e->c.role = (uint8_t)grp->role;
    e->c.dtype = (uint8_t)grp->dtype;
    e->c.decoded_hash = ckpi_hash64(s->raw, (size_t)grp->bytes);
    set_pointers(e, (seams){0, 0});
    if (keep_raw) {              /* the old base becomes the next stage's memory */
        uint8_t *old = pred->raw[g];
        pred->raw[g] = s->raw;
        s->raw = old;
    } else {                     /* what an earlier save left is no base of the next one */
        ckpi_aligned_free(pred->raw[g]);
        pred->raw[g] = NULL;
    }
    return CKP_OK;
}

/* Moments in clusters. The hash is of what a decoder makes of them, which proves the chunk before it is written. */
static ckp_status
encode_clusters(ckpi_pred *pred, size_t g, ckpi_stage *s, ckpi_effort effort, uint32_t cpu, ckpi_encoded *e, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &pred->layout->g[g];
    const size_t mark = ckpi_scratch_mark(ws);
    seams at = {0, 0};

    ckp_status st = set_pieces(e, grp, NULL, err);
    e->c.role = (uint8_t)grp->role;
    e->c.quant = CKPI_QUANT_CLUSTER;
    e->c.dtype = (uint8_t)grp->dtype;
    if (st == CKP_OK)
        st = ckpi_cluster_code(e, &at.params, &at.escapes, grp, s, effort, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    set_pointers(e, at);
    float *back = ckpi_scratch_get(ws, (size_t)grp->bytes);
    st = back != NULL ? ckpi_cluster_decode(&e->c, back, ws, cpu, err) : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu values", (size_t)grp->n);
    if (st == CKP_OK)
        e->c.decoded_hash = ckpi_hash64(back, (size_t)grp->bytes);
    ckpi_scratch_release(ws, mark);
    ckpi_aligned_free(pred->raw[g]);      /* what an earlier save left is no base of anything */
    pred->raw[g] = NULL;
    return st;
}

/* ---- lossy ------------------------------------------------------------------------------------------------------ */

typedef struct lossy {
    ckpi_pred *pred;
    const ckpi_group *grp;
    ckpi_recon *rec;
    ckpi_stage *s;
    ckpi_effort effort;
    uint32_t cpu;
    ckpi_scratch *ws;
} lossy;

/* Codes behind what the body holds, and the hash of what they decode to. */
static ckp_status
put_codes(const lossy *x, ckpi_encoded *e, seams at, const int8_t *codes, ckp_error *err)
{
    const ckpi_block b = {.data = codes, .n = (size_t)x->grp->n, .width = 1, .dtype = CKP_I8};
    const size_t cap = ckpi_codec_pick_bound(&b);
    size_t len = 0;

    if (!ckpi_buf_reserve(&e->body, cap))
        return ckpi_buf_status(&e->body, err, "a chunk");
    const ckp_status st = ckpi_codec_codes(codes, (size_t)x->grp->n, e->body.data + e->body.len, cap, &len, &e->c.codec, x->ws, x->cpu, err);
    if (st != CKP_OK)
        return st;
    e->body.len += len;
    set_pointers(e, at);
    return CKP_OK;
}

static ckp_status
hash_values(const lossy *x, ckpi_encoded *e, const ckpi_values *c, ckp_status (*make)(const ckpi_values *, void *, ckpi_scratch *, ckp_error *),
            ckp_error *err)
{
    const size_t bytes = c->n * (c->dtype == CKP_F32 ? 4 : 2), mark = ckpi_scratch_mark(x->ws);
    void *tmp = ckpi_scratch_get(x->ws, bytes);

    if (tmp == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to check %zu elements", c->n);
    const ckp_status st = make(c, tmp, x->ws, err);
    if (st == CKP_OK)
        e->c.decoded_hash = ckpi_hash64(tmp, bytes);
    ckpi_scratch_release(x->ws, mark);
    return st;
}

/* The reconstruction is what a decoder gives, but for escapes and other dtypes: no copy of it is made to be hashed. */
static ckp_status
hash_weights(const lossy *x, ckpi_encoded *e, const ckpi_values *c, ckp_error *err)
{
    if (c->dtype != CKP_F32 || c->esc->n != 0)
        return hash_values(x, e, c, ckpi_values_w, err);
    e->c.decoded_hash = ckpi_hash64(x->rec->wrec, c->n * sizeof *x->rec->wrec);
    return CKP_OK;
}

static ckpi_values
values_of(const lossy *x, ckp_dtype dt, const ckpi_escapes *esc)
{
    return (ckpi_values){.piece = x->grp->piece, .n_pieces = x->grp->n_pieces, .n = (size_t)x->grp->n, .dtype = dt, .rec = x->rec,
                         .has_v = x->grp->has_v, .esc = esc, .cpu = x->cpu};
}

static size_t
width_of(ckp_dtype dt)
{
    return dt == CKP_F32 ? 4 : 2;
}

static void
head(ckpi_encoded *e, ckp_role role, ckpi_quant_id quant, ckp_dtype dt, bool uses_base)
{
    e->c.role = (uint8_t)role;
    e->c.quant = (uint8_t)quant;
    e->c.dtype = (uint8_t)dt;
    e->c.flags = uses_base ? CKPI_CHUNK_USES_BASE : 0;
}

/* Codes of v as the chunk has them: of a key all of them, of a delta differences, unpacked into ws. */
static ckp_status
codes_of_v(const lossy *x, const int8_t **codes, ckp_error *err)
{
    ckpi_unpack2 from = {0};
    size_t at = 0;

    *codes = x->rec->vcode;
    if (x->s->key)
        return CKP_OK;
    int8_t *diff = ckpi_scratch_get(x->ws, (size_t)x->grp->n);
    if (diff == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %llu codes", (unsigned long long)x->grp->n);
    for (size_t k = 0; k < x->grp->n_pieces; k++) {
        ckpi_pack2_take(&x->s->vdiff, &from, diff + at, (size_t)x->grp->piece[k].count, x->cpu);
        at += (size_t)x->grp->piece[k].count;
    }
    *codes = diff;
    return CKP_OK;
}

static ckp_status
encode_v(const lossy *x, ckpi_encoded *e, ckp_error *err)
{
    const ckpi_values c = values_of(x, x->grp->v_dtype, &x->s->vesc);
    const int8_t *codes = NULL;

    ckp_status st = set_pieces(e, x->grp, x->grp->v, err);
    if (st == CKP_OK)
        st = codes_of_v(x, &codes, err);
    if (st != CKP_OK)
        return st;
    head(e, CKP_ROLE_V, CKPI_QUANT_V, c.dtype, !x->s->key);
    ckpi_buf_u8(&e->body, x->s->key ? CKPI_PAR_FACTORS : CKPI_PAR_MOVES);
    if (x->s->key)
        ckpi_params_put_factors(&e->body, &x->rec->fac, x->ws, x->cpu);
    else
        ckpi_params_put_moves(&e->body, x->s->moves, x->rec->fac.mem_n, x->ws, x->cpu);
    ckpi_params_put_lifts(&e->body, &x->rec->fac);
    const size_t params = e->body.len;
    ckpi_params_put_escapes(&e->body, x->s->vesc.at, x->s->vesc.n, width_of(c.dtype));
    st = put_codes(x, e, (seams){params, e->body.len}, codes, err);
    return st == CKP_OK ? hash_values(x, e, &c, ckpi_values_v, err) : st;
}

static ckp_status
encode_m(const lossy *x, ckpi_encoded *e, ckp_error *err)
{
    ckpi_values c = values_of(x, x->grp->m_dtype, &x->s->mesc);
    const bool own_factors = !x->grp->has_v;

    ckpi_moments m;

    ckp_status st = set_pieces(e, x->grp, x->grp->m, err);
    if (st == CKP_OK)
        st = ckpi_moments_code(&m, x->grp, &x->rec->fac, x->s->mcode, x->s->mg, x->s->mthree ? x->s->mshare : NULL, x->ws, x->cpu, err);
    if (st != CKP_OK)
        return st;
    c.mcode = m.code;
    c.mg = m.mg;
    c.low = m.low;
    head(e, x->grp->m_role, CKPI_QUANT_M, c.dtype, own_factors && !x->s->key);
    const unsigned scale = !own_factors ? CKPI_PAR_SCALE_V : x->s->key ? CKPI_PAR_FACTORS : CKPI_PAR_SCALE_BASE;
    ckpi_buf_u8(&e->body, (uint8_t)(scale | (m.low != NULL ? CKPI_PAR_DIRECTIONS : 0)));
    for (size_t k = 0; k < x->grp->n_pieces; k++)
        ckpi_buf_f32(&e->body, m.mg[k]);
    if (own_factors && x->s->key)
        ckpi_params_put_factors(&e->body, &x->rec->fac, x->ws, x->cpu);
    if (m.low != NULL)
        ckpi_params_put_directions(&e->body, m.low, x->grp->n_pieces, x->ws, x->cpu);
    const size_t params = e->body.len;
    ckpi_params_put_escapes(&e->body, x->s->mesc.at, x->s->mesc.n, width_of(c.dtype));
    st = put_codes(x, e, (seams){params, e->body.len}, m.code, err);
    return st == CKP_OK ? hash_values(x, e, &c, ckpi_values_m, err) : st;
}

static bool
one_qmul(const ckpi_wstep *s, size_t n)
{
    for (size_t k = 1; k < n; k++)
        if (ckpi_f32_bits(s[k].qmul) != ckpi_f32_bits(s[0].qmul))
            return false;
    return true;
}

static void
put_steps(ckpi_buf *b, const ckpi_wstep *s, size_t n, bool scaled)
{
    const bool one = one_qmul(s, n);

    ckpi_buf_u8(b, (uint8_t)((scaled ? CKPI_PAR_SCALE_V : 0) | (one ? 0 : CKPI_PAR_QMULS)));
    for (size_t k = 0; k < (one ? 1 : n); k++)
        ckpi_buf_f32(b, s[k].qmul);
    for (size_t k = 0; k < n; k++) {
        ckpi_buf_f32(b, s[k].qlo);
        ckpi_buf_f32(b, s[k].qhi);
    }
}

static ckp_status
encode_w(const lossy *x, ckpi_encoded *e, ckp_error *err)
{
    const ckpi_values c = values_of(x, x->grp->dtype, &x->s->wesc);

    ckp_status st = set_pieces(e, x->grp, NULL, err);
    if (st != CKP_OK)
        return st;
    head(e, x->grp->role, CKPI_QUANT_W, c.dtype, !x->s->w_key);
    put_steps(&e->body, x->s->wstep, x->grp->n_pieces, x->grp->has_v || x->grp->has_m);
    const size_t params = e->body.len;
    ckpi_params_put_escapes(&e->body, x->s->wesc.at, x->s->wesc.n, width_of(c.dtype));
    st = put_codes(x, e, (seams){params, e->body.len}, x->s->wcode, err);
    return st == CKP_OK ? hash_weights(x, e, &c, err) : st;
}

/* The base's indices, for a delta whose base has some. */
static const ckpi_indices *
base_indices(const lossy *x)
{
    return !x->s->key && x->rec->idx.code != NULL ? &x->rec->idx : NULL;
}

static ckp_status
encode_indices(const lossy *x, ckpi_encoded *e, ckp_error *err)
{
    const ckpi_values c = values_of(x, x->grp->dtype, &x->s->wesc);
    const size_t mark = ckpi_scratch_mark(x->ws);
    ckpi_dq_coded coded = {0};

    ckp_status st = set_pieces(e, x->grp, NULL, err);
    if (st == CKP_OK)
        st = ckpi_dq_code(&coded, x->grp, &x->s->idx, base_indices(x), x->ws, x->cpu, err);
    if (st != CKP_OK)
        goto done;
    head(e, x->grp->role, CKPI_QUANT_INDEX, c.dtype, coded.uses_base);
    e->c.codec = coded.codec;
    ckpi_buf_put(&e->body, coded.params.data, coded.params.len);
    const size_t params = e->body.len;
    ckpi_params_put_escapes(&e->body, x->s->wesc.at, x->s->wesc.n, width_of(c.dtype));
    const size_t escapes = e->body.len;
    ckpi_buf_put(&e->body, coded.payload, coded.payload_len);
    st = ckpi_buf_status(&e->body, err, "a chunk");
    set_pointers(e, (seams){params, escapes});
    if (st == CKP_OK)
        st = hash_weights(x, e, &c, err);
done:
    ckpi_buf_free(&coded.params);
    ckpi_scratch_release(x->ws, mark);
    return st;
}

/* The final save's weights: losslessly, predicted from the reconstruction. */
static ckp_status
encode_exact_w(const lossy *x, ckpi_encoded *e, ckp_error *err)
{
    const size_t n = (size_t)x->grp->n, mark = ckpi_scratch_mark(x->ws);
    void *base = NULL;

    ckp_status st = set_pieces(e, x->grp, NULL, err);
    if (st == CKP_OK && !x->s->w_key) {
        base = ckpi_scratch_get(x->ws, (size_t)x->grp->bytes);
        if (base == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory for the base of %zu weights", n);
        ckpi_floats_to(x->grp->dtype, base, x->rec->wrec, n);
    }
    const ckpi_block b = ckpi_block_of(x->grp->dtype, x->s->raw, base, x->grp->bytes, context_cols(x->pred->table, x->grp));
    if (st == CKP_OK)
        st = encode_bytes(e, &b, x->effort, x->ws, x->cpu, err);
    ckpi_scratch_release(x->ws, mark);
    if (st != CKP_OK)
        return st;
    e->c.role = (uint8_t)x->grp->role;
    e->c.dtype = (uint8_t)x->grp->dtype;
    e->c.decoded_hash = ckpi_hash64(x->s->raw, (size_t)x->grp->bytes);
    set_pointers(e, (seams){0, 0});
    return CKP_OK;
}

static ckp_status
encode_weights(const lossy *x, ckpi_encoded *e, ckp_error *err)
{
    return x->s->exact_w ? encode_exact_w(x, e, err) : x->s->indexed ? encode_indices(x, e, err) : encode_w(x, e, err);
}

/* Weights as the decoder will have them, where the pass has not left them in the reconstruction. */
static void
move_base(const lossy *x)
{
    const ckpi_indices old = x->rec->idx;

    if (x->s->exact_w)
        ckpi_floats_from(x->grp->dtype, x->rec->wrec, x->s->raw, (size_t)x->grp->n);
    if (x->s->indexed) {
        x->rec->idx = x->s->idx;
        x->s->idx = old;         /* its memory serves the next pass */
    } else {
        ckpi_indices_free(&x->rec->idx);
    }
}

ckp_status
ckpi_encode_group(ckpi_pred *pred, size_t g, ckpi_stage *s, ckpi_effort effort, bool keep_raw, uint32_t cpu,
                  ckpi_encoded out[CKPI_CHUNKS_PER_GROUP], size_t *n, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &pred->layout->g[g];
    const lossy x = {pred, grp, &pred->rec[g], s, effort, cpu, ws};
    ckp_status st = CKP_OK;

    *n = 0;
    for (size_t k = 0; k < CKPI_CHUNKS_PER_GROUP; k++)
        ckpi_encoded_reset(&out[k]);
    if (!grp->lossy) {
        *n = 1;
        if (grp->clustered)
            return encode_clusters(pred, g, s, effort, cpu, &out[0], ws, err);
        return encode_lossless(pred, g, s, effort, keep_raw, cpu, &out[0], ws, err);
    }
    if (grp->has_v)
        st = encode_v(&x, &out[(*n)++], err);
    if (st == CKP_OK && grp->has_m)
        st = encode_m(&x, &out[(*n)++], err);
    if (st == CKP_OK)
        st = encode_weights(&x, &out[(*n)++], err);
    if (st == CKP_OK)
        move_base(&x);
    return st;
}

ckp_status
ckpi_encode_weights_size(ckpi_pred *pred, size_t g, ckpi_stage *s, ckpi_effort effort, uint32_t cpu, uint64_t *bytes, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &pred->layout->g[g];
    const lossy x = {pred, grp, &pred->rec[g], s, effort, cpu, ws};
    ckpi_encoded e = {.body = CKPI_BUF_INIT};
    ckp_status st = CKP_OK;

    if (grp->lossy) {
        st = encode_weights(&x, &e, err);
    } else {
        const ckpi_block b = ckpi_block_of(grp->dtype, s->raw, s->w_key ? NULL : pred->raw[g], grp->bytes, context_cols(pred->table, grp));
        st = encode_bytes(&e, &b, effort, ws, cpu, err);
    }
    *bytes = e.body.len;
    ckpi_encoded_reset(&e);
    ckpi_buf_free(&e.body);
    return st;
}
