/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "engine/dynaquant.h"
#include "engine/replay.h"
#include "engine/values.h"

ckp_status
ckpi_replay_fail(const ckpi_replay *r, size_t level, const ckpi_chunk *k, ckp_status st, ckp_error *err)
{
    /* quantizers know no offsets: the frame's is better than none */
    if (err != NULL && err->offset == CKP_NO_OFFSET && st == CKP_ECORRUPT) {
        char text[sizeof err->text];
        (void)memcpy(text, err->text, sizeof text);
        st = ckpi_fail_at(err, st, k->offset, "%s", text);
    }
    ckpi_fail_tensor(err, r->c->table->rec[k->piece[0].tensor].name);
    ckpi_fail_file(err, ckpi_reader_name(r->c->level[level].f->r));
    return st;
}

ckp_status
ckpi_decode_payload(const ckpi_chunk *c, const ckpi_block *b, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckp_error e;

    ckpi_error_clear(&e);
    const ckp_status st = ckpi_codec_decode(c->codec, b, c->payload, c->payload_len, dst, ws, cpu, &e);
    if (st == CKP_OK || st == CKP_ENOMEM) {
        if (st != CKP_OK && err != NULL)
            *err = e;
        return st;
    }
    /* codecs count from the payload's start, or say nothing */
    const uint64_t at = e.offset != CKP_NO_OFFSET ? e.offset : 0;
    return ckpi_fail_at(err, st, c->body_offset + c->params_len + c->escapes_len + at, "payload of a chunk: %s", e.text);
}

ckp_status
ckpi_replay_read(ckpi_replay *r, size_t level, size_t i, ckpi_chunk *k, ckp_error *err)
{
    ckpi_buf_clear(&r->body);
    return ckpi_fmt_read_chunk(r->c->level[level].f, i, &r->body, k, err);
}

/* ---- one chunk of each kind ------------------------------------------------------------------------------------- */

static ckp_status
get_codes(ckpi_replay *r, const ckpi_chunk *k, int8_t *dst, ckp_error *err)
{
    const ckpi_block b = {.n = (size_t)k->n, .width = 1, .dtype = CKP_I8};
    return ckpi_decode_payload(k, &b, dst, r->ws, r->cpu, err);
}

static ckp_status
get_escapes(const ckpi_chunk *k, ckpi_escapes *e, ckp_error *err)
{
    ckpi_escapes_free(e);
    return ckpi_params_get_escapes(k->escapes, k->escapes_len, k->dtype == CKP_F32 ? 4 : 2, k->n, e, k->body_offset + k->params_len, err);
}

static ckp_status
params_end(const ckpi_rd *rd, const char *what, ckp_error *err)
{
    if (!ckpi_rd_ok(rd))
        return ckpi_rd_error(rd, err, what);
    return ckpi_rd_done(rd) ? CKP_OK : ckpi_fail_at(err, CKP_ECORRUPT, rd->file_offset + rd->pos, "bytes after the %s", what);
}

static ckp_status
get_factors(ckpi_replay *r, ckpi_rd *rd, ckp_error *err)
{
    const ckp_status st = ckpi_params_get_factors(rd, &r->rec.fac, r->piece, r->n_pieces, r->ws, r->cpu, err);
    r->fac_known = st == CKP_OK;
    return st;
}

static ckp_status
step_v(ckpi_replay *r, const ckpi_chunk *k, ckp_error *err)
{
    const bool key = !(k->flags & CKPI_CHUNK_USES_BASE);
    const size_t mark = ckpi_scratch_mark(r->ws);
    ckpi_rd rd = ckpi_rd_init(k->params, k->params_len, k->body_offset);
    const uint8_t flags = ckpi_rd_u8(&rd);
    ckp_status st = CKP_OK;

    if (k->quant != CKPI_QUANT_V)
        return ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "second moments with quantizer %u in a lossy lineage", k->quant);
    if (flags & ~(CKPI_PAR_FACTORS | CKPI_PAR_MOVES))
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, k->body_offset, "unknown parameter flags %02x of a v chunk", flags);
    if (key && !(flags & CKPI_PAR_FACTORS))
        return ckpi_fail_at(err, CKP_ECORRUPT, k->body_offset, "a v chunk without base and without factors");
    if (flags & CKPI_PAR_FACTORS)
        st = get_factors(r, &rd, err);
    if (st == CKP_OK && (flags & CKPI_PAR_MOVES)) {
        if (!r->fac_known)
            return ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "a v chunk moves factors that its base has not");
        st = ckpi_params_get_moves(&rd, &r->rec.fac, r->ws, r->cpu, err);
    }
    if (st == CKP_OK && (!r->fac_known || (!key && !r->v_known)))
        st = ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "a v chunk without factors, or without a base");
    if (st == CKP_OK) {
        ckpi_params_get_lifts(&rd, &r->rec.fac);
        st = params_end(&rd, "parameters of a v chunk", err);
    }
    int8_t *diff = st == CKP_OK ? ckpi_scratch_get(r->ws, r->n) : NULL;
    if (st == CKP_OK && diff == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for %zu codes", r->n);
    if (st == CKP_OK)
        st = get_codes(r, k, diff, err);
    if (st == CKP_OK)
        st = get_escapes(k, &r->vesc, err);
    if (st == CKP_OK) {
        ckpi_quant_vcode_apply(r->rec.vcode, diff, r->n, key, r->cpu);
        r->v_known = true;
    }
    ckpi_scratch_release(r->ws, mark);
    return st;
}

static ckp_status
get_directions(ckpi_replay *r, ckpi_rd *rd, ckp_error *err)
{
    r->low = ckpi_scratch_get(r->ws, r->n_pieces * sizeof *r->low);
    if (r->low == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for the directions of %zu pieces", r->n_pieces);
    return ckpi_params_get_directions(rd, r->low, &r->rec.fac, r->ws, r->cpu, err);
}

/* At a base only the factors matter; at level 0 the codes too. */
static ckp_status
step_m(ckpi_replay *r, const ckpi_chunk *k, bool codes, ckp_error *err)
{
    ckpi_rd rd = ckpi_rd_init(k->params, k->params_len, k->body_offset);
    const uint8_t flags = ckpi_rd_u8(&rd);
    ckp_status st = CKP_OK;

    r->low = NULL;
    if (k->quant != CKPI_QUANT_M)
        return ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "first moments with quantizer %u in a lossy lineage", k->quant);
    if (flags & ~(CKPI_PAR_FACTORS | CKPI_PAR_SCALE_V | CKPI_PAR_SCALE_BASE | CKPI_PAR_DIRECTIONS))
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, k->body_offset, "unknown parameter flags %02x of an m chunk", flags);
    /* one source of scales, and the one that is possible: factors are v's, the base's, or its own */
    const unsigned source = r->u->v != CKPI_NO_CHUNK ? CKPI_PAR_SCALE_V
                            : k->flags & CKPI_CHUNK_USES_BASE ? CKPI_PAR_SCALE_BASE
                                                              : CKPI_PAR_FACTORS;
    if ((flags & ~CKPI_PAR_DIRECTIONS) != source)
        return ckpi_fail_at(err, CKP_ECORRUPT, k->body_offset, "an m chunk with flags %02x where %02x can be", flags, source);
    for (size_t i = 0; i < r->n_pieces; i++) {
        const float mg = ckpi_rd_f32(&rd);
        if (codes)
            r->mg[i] = mg;
    }
    if (flags & CKPI_PAR_FACTORS)
        st = get_factors(r, &rd, err);
    if (st != CKP_OK)
        return st;
    const bool has_v = (flags & CKPI_PAR_SCALE_V) != 0;
    if (!r->fac_known || (has_v && !r->v_known))
        return ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "an m chunk without what scales it");
    if (flags & CKPI_PAR_DIRECTIONS)
        st = get_directions(r, &rd, err);
    if (st == CKP_OK)
        st = params_end(&rd, "parameters of an m chunk", err);
    if (st != CKP_OK || !codes)
        return st;
    r->m_has_v = has_v;
    st = get_codes(r, k, r->mcode, err);
    return st == CKP_OK ? get_escapes(k, &r->mesc, err) : st;
}

static ckp_status
decode_w_pieces(ckpi_replay *r, const ckpi_wstep *steps, bool scaled, const int8_t *codes, bool key, ckp_dtype dt, ckp_error *err)
{
    ckp_status st = CKP_OK;
    size_t at = 0;

    for (size_t i = 0; st == CKP_OK && i < r->n_pieces; i++) {
        const size_t n = (size_t)r->piece[i].count;
        static const ckpi_recon none = {0};
        const ckpi_grid g = ckpi_recon_grid(scaled ? &r->rec : &none, i, n, scaled && r->v_known);
        st = ckpi_quant_decode_w(&g, g.has_v ? r->rec.vcode + at : NULL, codes + at, &steps[i], dt, key, r->rec.wrec + at, r->ws, r->cpu,
                                 err);
        at += n;
    }
    return st;
}

/* Escapes of half dtypes are words of that dtype. */
static void
patch_wrec(ckpi_replay *r, ckp_dtype dt)
{
    for (size_t i = 0; i < r->wesc.n; i++) {
        const ckpi_escape *e = &r->wesc.at[i];
        uint8_t word[4];
        ckpi_st32(word, e->bits);
        ckpi_floats_from(dt, &r->rec.wrec[e->index], word, 1);
    }
}

static ckp_status
step_w_codes(ckpi_replay *r, const ckpi_chunk *k, ckp_error *err)
{
    const bool key = !(k->flags & CKPI_CHUNK_USES_BASE);
    const size_t mark = ckpi_scratch_mark(r->ws);
    ckpi_rd rd = ckpi_rd_init(k->params, k->params_len, k->body_offset);
    const uint8_t flags = ckpi_rd_u8(&rd);
    ckpi_wstep *steps = ckpi_scratch_get(r->ws, r->n_pieces * sizeof *steps);
    int8_t *codes = ckpi_scratch_get(r->ws, r->n);
    ckp_status st = CKP_OK;

    if (steps == NULL || codes == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu codes", r->n);
    for (size_t i = 0; i < r->n_pieces; i++)
        steps[i].qmul = i == 0 || (flags & CKPI_PAR_QMULS) ? ckpi_rd_f32(&rd) : steps[0].qmul;
    for (size_t i = 0; i < r->n_pieces; i++) {
        steps[i].qlo = ckpi_rd_f32(&rd);
        steps[i].qhi = ckpi_rd_f32(&rd);
    }
    if (flags & ~(CKPI_PAR_SCALE_V | CKPI_PAR_QMULS))
        st = ckpi_fail_at(err, CKP_EUNSUPPORTED, k->body_offset, "unknown parameter flags %02x of a w chunk", flags);
    if (st == CKP_OK)
        st = params_end(&rd, "parameters of a w chunk", err);
    if (st == CKP_OK && ((!key && !r->w_known) || ((flags & CKPI_PAR_SCALE_V) && !r->fac_known)))
        st = ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "a w chunk without its base or scales");
    if (st == CKP_OK)
        st = get_codes(r, k, codes, err);
    if (st == CKP_OK)
        st = get_escapes(k, &r->wesc, err);
    if (st == CKP_OK)
        st = decode_w_pieces(r, steps, (flags & CKPI_PAR_SCALE_V) != 0, codes, key, (ckp_dtype)k->dtype, err);
    if (st == CKP_OK) {
        patch_wrec(r, (ckp_dtype)k->dtype);
        r->w_known = true;
        ckpi_indices_free(&r->rec.idx);
    }
    ckpi_scratch_release(r->ws, mark);
    return st;
}

static ckp_status
step_w_indices(ckpi_replay *r, const ckpi_chunk *k, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(r->ws);
    const ckp_dtype dt = (ckp_dtype)k->dtype;

    ckp_status st = ckpi_dq_decode(k, &r->rec.idx, r->rec.wrec, r->ws, r->cpu, err);
    if (st == CKP_OK)
        st = get_escapes(k, &r->wesc, err);
    void *rounded = st == CKP_OK && dt != CKP_F32 ? ckpi_scratch_get(r->ws, 2 * r->n) : NULL;
    if (st == CKP_OK && dt != CKP_F32 && rounded == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for %zu weights", r->n);
    if (rounded != NULL) {
        ckpi_floats_to(dt, rounded, r->rec.wrec, r->n);
        ckpi_floats_from(dt, r->rec.wrec, rounded, r->n);
    }
    if (st == CKP_OK) {
        patch_wrec(r, dt);
        r->w_known = true;
    }
    ckpi_scratch_release(r->ws, mark);
    return st;
}

/* Exact weights inside a lossy lineage (a final save, or the lossless base of a fine-tuning run). */
static ckp_status
step_w_exact(ckpi_replay *r, const ckpi_chunk *k, ckp_error *err)
{
    const size_t bytes = (size_t)ckpi_chunk_bytes(r->c->table, k), mark = ckpi_scratch_mark(r->ws);
    const ckp_dtype dt = (ckp_dtype)k->dtype;
    void *base = NULL;
    if ((k->flags & CKPI_CHUNK_USES_BASE) && !r->w_known)
        return ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "exact weights without their base");
    void *dst = ckpi_scratch_get(r->ws, bytes);

    if (k->flags & CKPI_CHUNK_USES_BASE) {
        base = ckpi_scratch_get(r->ws, bytes);
        if (base != NULL)
            ckpi_floats_to(dt, base, r->rec.wrec, r->n);
    }
    if (dst == NULL || ((k->flags & CKPI_CHUNK_USES_BASE) && base == NULL))
        return ckpi_fail(err, CKP_ENOMEM, "no memory to decode %zu bytes", bytes);
    const ckp_status st = ckpi_decode_plain(r->c->table, k, base, dst, r->ws, r->cpu, err);
    if (st == CKP_OK) {
        ckpi_floats_from(dt, r->rec.wrec, dst, r->n);
        ckpi_escapes_free(&r->wesc);
        ckpi_indices_free(&r->rec.idx);
        r->w_known = true;
    }
    ckpi_scratch_release(r->ws, mark);
    return st;
}

static ckp_status
step_w(ckpi_replay *r, const ckpi_chunk *k, ckp_error *err)
{
    if (k->quant == CKPI_QUANT_W)
        return step_w_codes(r, k, err);
    if (k->quant == CKPI_QUANT_INDEX)
        return step_w_indices(r, k, err);
    if (k->quant == CKPI_QUANT_NONE && ckpi_is_small_float((ckp_dtype)k->dtype))
        return step_w_exact(r, k, err);
    return ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "weights with quantizer %u", k->quant);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* How many levels down the chunk's lineage goes. */
static size_t
depth_of(const ckpi_replay *r, uint32_t chunk)
{
    size_t d = 0;
    if (chunk == CKPI_NO_CHUNK)
        return 0;
    for (const ckpi_chunk *k = &r->c->level[0].f->chunk[chunk]; k->flags & CKPI_CHUNK_USES_BASE; d++)
        k = ckpi_lineage_like(r->c, d + 1, k, NULL);
    return d;
}

typedef ckp_status (*step_fn)(ckpi_replay *r, const ckpi_chunk *k, size_t level, ckp_error *err);

/* Exact moments of a base, whose weights are exact too (a base model): nothing is scaled by them, and no later code refers to them. */
static bool
is_exact_below(ckpi_replay *r, const ckpi_chunk *k, size_t level)
{
    if (level == 0 || k->quant != CKPI_QUANT_NONE)
        return false;
    r->v_known = r->fac_known = false;
    return true;
}

static ckp_status
do_v(ckpi_replay *r, const ckpi_chunk *k, size_t level, ckp_error *err)
{
    return is_exact_below(r, k, level) ? CKP_OK : step_v(r, k, err);
}

static ckp_status
do_m(ckpi_replay *r, const ckpi_chunk *k, size_t level, ckp_error *err)
{
    return is_exact_below(r, k, level) ? CKP_OK : step_m(r, k, level == 0, err);
}

static ckp_status
do_w(ckpi_replay *r, const ckpi_chunk *k, size_t level, ckp_error *err)
{
    (void)level;
    return step_w(r, k, err);
}

/* One role's chunk at one level, where its lineage still reaches. */
static ckp_status
step(ckpi_replay *r, uint32_t chunk, size_t level, step_fn fn, ckp_error *err)
{
    size_t at = chunk;
    ckpi_chunk k;

    if (chunk == CKPI_NO_CHUNK)
        return CKP_OK;
    const ckpi_chunk *head = &r->c->level[0].f->chunk[chunk];
    if (level != 0 && ckpi_lineage_like(r->c, level, head, &at) == NULL)
        return CKP_OK;
    ckp_status st = ckpi_replay_read(r, level, at, &k, err);
    if (st == CKP_OK)
        st = fn(r, &k, level, err);
    return st == CKP_OK ? CKP_OK : ckpi_replay_fail(r, level, &r->c->level[level].f->chunk[at], st, err);
}

/* All levels, deepest first. Weights need the scales of their own level, so v goes first at each. */
ckp_status
ckpi_replay_run(ckpi_replay *r, unsigned want, ckp_error *err)
{
    const ckpi_unit *u = r->u;
    const bool need_w = (want & CKPI_WANT_W) != 0;
    const size_t dv = depth_of(r, u->v), dm = depth_of(r, u->m), dw = need_w ? depth_of(r, u->w) : 0;
    const size_t top = CKPI_MAX(CKPI_MAX(dv, dm), dw);
    ckp_status st = CKP_OK;

    for (size_t level = top + 1; st == CKP_OK && level-- > 0;) {
        if (level <= CKPI_MAX(dv, dw))
            st = step(r, u->v, level, do_v, err);
        /* without v, the factors are in the m chunks */
        if (st == CKP_OK && (level == 0 || u->v == CKPI_NO_CHUNK))
            st = step(r, u->m, level, do_m, err);
        if (st == CKP_OK && need_w && level <= dw)
            st = step(r, u->w, level, do_w, err);
    }
    return st;
}

static const ckpi_chunk *
first_chunk(const ckpi_lineage *c, const ckpi_unit *u)
{
    const uint32_t i = u->w != CKPI_NO_CHUNK ? u->w : u->v != CKPI_NO_CHUNK ? u->v : u->m;
    return &c->level[0].f->chunk[i];
}

ckp_status
ckpi_replay_init(ckpi_replay *r, const ckpi_lineage *c, const ckpi_unit *u, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const ckpi_chunk *k = first_chunk(c, u);

    r->c = c;
    r->u = u;
    r->ws = ws;
    r->cpu = cpu;
    r->n = (size_t)k->n;
    r->piece = k->piece;
    r->n_pieces = k->n_pieces;
    if (r->rec.wrec == NULL)
        r->rec.wrec = ckpi_scratch_get(ws, r->n * sizeof *r->rec.wrec);
    if (r->rec.vcode == NULL)
        r->rec.vcode = ckpi_scratch_get(ws, r->n);
    r->mcode = ckpi_scratch_get(ws, r->n);
    r->mg = ckpi_scratch_get(ws, r->n_pieces * sizeof *r->mg);
    if (r->rec.wrec == NULL || r->rec.vcode == NULL || r->mcode == NULL || r->mg == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to decode %zu elements", r->n);
    return CKP_OK;
}

void
ckpi_replay_free(ckpi_replay *r)
{
    ckpi_escapes_free(&r->wesc);
    ckpi_escapes_free(&r->mesc);
    ckpi_escapes_free(&r->vesc);
    ckpi_buf_free(&r->body);
}
