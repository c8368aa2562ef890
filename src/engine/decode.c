/* SPDX-License-Identifier: Apache-2.0 */
/* Replaying one unit. Finding units: units.c. */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"
#include "engine/decode.h"
#include "engine/encode.h"
#include "engine/values.h"

/* One unit being replayed. */
typedef struct replay {
    const ckpi_lineage *c;
    const ckpi_unit *u;
    ckpi_scratch *ws;
    uint32_t cpu;
    size_t n;
    const ckpi_piece *piece;     /* of the weights (or of the first chunk there is) */
    size_t n_pieces;
    ckpi_recon rec;              /* wrec, vcode in scratch or the caller's; factors owned here */
    bool w_known, v_known, fac_known;
    /* of level 0 */
    int8_t *mcode;
    float *mg;
    bool m_has_v;
    ckpi_escapes wesc, mesc, vesc;
    ckpi_buf body;
} replay;

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

/* k: of that level. Quantizers know no offsets: the frame's is better than none. */
static ckp_status
fail_chunk(const replay *r, size_t level, const ckpi_chunk *k, ckp_status st, ckp_error *err)
{
    if (err != NULL && err->offset == CKP_NO_OFFSET && st == CKP_ECORRUPT) {
        char text[sizeof err->text];
        (void)memcpy(text, err->text, sizeof text);
        st = ckpi_fail_at(err, st, k->offset, "%s", text);
    }
    ckpi_fail_tensor(err, r->c->table->rec[k->piece[0].tensor].name);
    ckpi_fail_file(err, ckpi_reader_name(r->c->level[level].f->r));
    return st;
}

static ckp_status
check_hash(const replay *r, const ckpi_chunk *k, const void *bytes, ckp_error *err)
{
    const uint64_t got = ckpi_hash64(bytes, (size_t)ckpi_chunk_bytes(r->c->table, k));
    if (got == k->decoded_hash)
        return CKP_OK;
    return fail_chunk(r, 0, k,
                      ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "decoded elements have hash %016llx, the frame says %016llx",
                                   (unsigned long long)got, (unsigned long long)k->decoded_hash),
                      err);
}

/* ---- lossless --------------------------------------------------------------------------------------------------- */

static size_t
cols_of(const ckpi_table *t, const ckpi_chunk *c)
{
    return c->n_pieces == 1 ? ckpi_matrix_cols(&t->rec[c->piece[0].tensor]) : 0;
}

/* Codecs count from the payload's start, or say nothing: the caller wants a place in the file. */
static ckp_status
decode_payload(const ckpi_chunk *c, const ckpi_block *b, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckp_error e;

    ckpi_error_clear(&e);
    const ckp_status st = ckpi_codec_decode(c->codec, b, c->payload, c->payload_len, dst, ws, cpu, &e);
    if (st == CKP_OK || st == CKP_ENOMEM) {
        if (st != CKP_OK && err != NULL)
            *err = e;
        return st;
    }
    const uint64_t at = e.offset != CKP_NO_OFFSET ? e.offset : 0;
    return ckpi_fail_at(err, st, c->body_offset + c->params_len + c->escapes_len + at, "payload of a chunk: %s", e.text);
}

ckp_status
ckpi_decode_plain(const ckpi_table *t, const ckpi_chunk *c, const void *base, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const ckpi_block b =
        ckpi_block_of((ckp_dtype)c->dtype, NULL, c->flags & CKPI_CHUNK_USES_BASE ? base : NULL, ckpi_chunk_bytes(t, c), cols_of(t, c));
    return decode_payload(c, &b, dst, ws, cpu, err);
}

/* Reads chunk i of a level into r->body. */
static ckp_status
read_chunk(replay *r, size_t level, size_t i, ckpi_chunk *k, ckp_error *err)
{
    ckpi_buf_clear(&r->body);
    return ckpi_fmt_read_chunk(r->c->level[level].f, i, &r->body, k, err);
}

/* A lossless chunk of level 0, by replaying lossless chunks from the deepest one that needs no base. */
static ckp_status
plain(replay *r, uint32_t chunk, uint8_t **out, ckp_error *err)
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
        st = read_chunk(r, level, at[level != 0], &k, err);
        if (st == CKP_OK && k.quant != CKPI_QUANT_NONE)
            st = ckpi_fail_at(err, CKP_ECORRUPT, k.offset, "a lossless chunk has a quantized base");
        if (st == CKP_OK)
            st = ckpi_decode_plain(r->c->table, &k, buf[(level + 1) & 1 ? 1 : 0], buf[level & 1 ? 1 : 0], r->ws, r->cpu, err);
        if (st != CKP_OK)
            (void)fail_chunk(r, level, &r->c->level[level].f->chunk[at[level != 0]], st, err);
        ckpi_scratch_release(r->ws, mark);
    }
    *out = buf[0];
    return st;
}

/* ---- lossy ------------------------------------------------------------------------------------------------------ */

static ckp_status
get_codes(replay *r, const ckpi_chunk *k, int8_t *dst, ckp_error *err)
{
    const ckpi_block b = {.n = (size_t)k->n, .width = 1, .dtype = CKP_I8};
    return decode_payload(k, &b, dst, r->ws, r->cpu, err);
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
get_factors(replay *r, ckpi_rd *rd, ckp_error *err)
{
    const ckp_status st = ckpi_params_get_factors(rd, &r->rec.fac, r->piece, r->n_pieces, r->ws, r->cpu, err);
    r->fac_known = st == CKP_OK;
    return st;
}

static ckp_status
step_v(replay *r, const ckpi_chunk *k, ckp_error *err)
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

/* At a base only the factors matter; at level 0 the codes too. */
static ckp_status
step_m(replay *r, const ckpi_chunk *k, bool codes, ckp_error *err)
{
    ckpi_rd rd = ckpi_rd_init(k->params, k->params_len, k->body_offset);
    const uint8_t flags = ckpi_rd_u8(&rd);
    ckp_status st = CKP_OK;

    if (k->quant != CKPI_QUANT_M)
        return ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "first moments with quantizer %u in a lossy lineage", k->quant);
    if (flags & ~(CKPI_PAR_FACTORS | CKPI_PAR_SCALE_V | CKPI_PAR_SCALE_BASE))
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, k->body_offset, "unknown parameter flags %02x of an m chunk", flags);
    /* one source of scales, and the one that is possible: factors are v's, the base's, or its own */
    const unsigned source = r->u->v != CKPI_NO_CHUNK ? CKPI_PAR_SCALE_V
                            : k->flags & CKPI_CHUNK_USES_BASE ? CKPI_PAR_SCALE_BASE
                                                              : CKPI_PAR_FACTORS;
    if (flags != source)
        return ckpi_fail_at(err, CKP_ECORRUPT, k->body_offset, "an m chunk with flags %02x where %02x can be", flags, source);
    for (size_t i = 0; i < r->n_pieces; i++) {
        const float mg = ckpi_rd_f32(&rd);
        if (codes)
            r->mg[i] = mg;
    }
    if (flags & CKPI_PAR_FACTORS)
        st = get_factors(r, &rd, err);
    if (st == CKP_OK)
        st = params_end(&rd, "parameters of an m chunk", err);
    if (st != CKP_OK || !codes)
        return st;
    r->m_has_v = (flags & CKPI_PAR_SCALE_V) != 0;
    if (!r->fac_known || (r->m_has_v && !r->v_known))
        return ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "an m chunk without what scales it");
    st = get_codes(r, k, r->mcode, err);
    return st == CKP_OK ? get_escapes(k, &r->mesc, err) : st;
}

static ckp_status
decode_w_pieces(replay *r, const ckpi_wstep *steps, bool scaled, const int8_t *codes, bool key, ckp_dtype dt, ckp_error *err)
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
patch_wrec(replay *r, ckp_dtype dt)
{
    for (size_t i = 0; i < r->wesc.n; i++) {
        const ckpi_escape *e = &r->wesc.at[i];
        uint8_t word[4];
        ckpi_st32(word, e->bits);
        ckpi_floats_from(dt, &r->rec.wrec[e->index], word, 1);
    }
}

static ckp_status
step_w_codes(replay *r, const ckpi_chunk *k, ckp_error *err)
{
    const bool key = !(k->flags & CKPI_CHUNK_USES_BASE);
    const size_t mark = ckpi_scratch_mark(r->ws);
    ckpi_rd rd = ckpi_rd_init(k->params, k->params_len, k->body_offset);
    const uint8_t flags = ckpi_rd_u8(&rd);
    const float qmul = ckpi_rd_f32(&rd);
    ckpi_wstep *steps = ckpi_scratch_get(r->ws, r->n_pieces * sizeof *steps);
    int8_t *codes = ckpi_scratch_get(r->ws, r->n);
    ckp_status st = CKP_OK;

    if (steps == NULL || codes == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu codes", r->n);
    for (size_t i = 0; i < r->n_pieces; i++) {
        const float lo = ckpi_rd_f32(&rd), hi = ckpi_rd_f32(&rd);
        steps[i] = (ckpi_wstep){qmul, lo, hi};
    }
    if (flags & ~CKPI_PAR_SCALE_V)
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
    }
    ckpi_scratch_release(r->ws, mark);
    return st;
}

/* Exact weights inside a lossy lineage (a final save, or the lossless base of a fine-tuning run). */
static ckp_status
step_w_exact(replay *r, const ckpi_chunk *k, ckp_error *err)
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
        r->w_known = true;
    }
    ckpi_scratch_release(r->ws, mark);
    return st;
}

static ckp_status
step_w(replay *r, const ckpi_chunk *k, ckp_error *err)
{
    if (k->quant == CKPI_QUANT_W)
        return step_w_codes(r, k, err);
    if (k->quant == CKPI_QUANT_NONE && ckpi_is_small_float((ckp_dtype)k->dtype))
        return step_w_exact(r, k, err);
    return ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "weights with quantizer %u", k->quant);
}

/* How many levels down the chunk's lineage goes. */
static size_t
depth_of(const replay *r, uint32_t chunk)
{
    size_t d = 0;
    if (chunk == CKPI_NO_CHUNK)
        return 0;
    for (const ckpi_chunk *k = &r->c->level[0].f->chunk[chunk]; k->flags & CKPI_CHUNK_USES_BASE; d++)
        k = ckpi_lineage_like(r->c, d + 1, k, NULL);
    return d;
}

typedef ckp_status (*step_fn)(replay *r, const ckpi_chunk *k, size_t level, ckp_error *err);

static ckp_status
do_v(replay *r, const ckpi_chunk *k, size_t level, ckp_error *err)
{
    (void)level;
    return step_v(r, k, err);
}

static ckp_status
do_m(replay *r, const ckpi_chunk *k, size_t level, ckp_error *err)
{
    return step_m(r, k, level == 0, err);
}

static ckp_status
do_w(replay *r, const ckpi_chunk *k, size_t level, ckp_error *err)
{
    (void)level;
    return step_w(r, k, err);
}

/* One role's chunk at one level, where its lineage still reaches. */
static ckp_status
step(replay *r, uint32_t chunk, size_t level, step_fn fn, ckp_error *err)
{
    size_t at = chunk;
    ckpi_chunk k;

    if (chunk == CKPI_NO_CHUNK)
        return CKP_OK;
    const ckpi_chunk *head = &r->c->level[0].f->chunk[chunk];
    if (level != 0 && ckpi_lineage_like(r->c, level, head, &at) == NULL)
        return CKP_OK;
    ckp_status st = read_chunk(r, level, at, &k, err);
    if (st == CKP_OK)
        st = fn(r, &k, level, err);
    return st == CKP_OK ? CKP_OK : fail_chunk(r, level, &r->c->level[level].f->chunk[at], st, err);
}

/* All levels, deepest first. Weights need the scales of their own level, so v goes first at each. */
static ckp_status
run_lineage(replay *r, unsigned want, ckp_error *err)
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

/* Memory that the caller has not brought (NULL fields) comes from scratch. */
static ckp_status
replay_init(replay *r, const ckpi_lineage *c, const ckpi_unit *u, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
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

static void
replay_free(replay *r)
{
    ckpi_escapes_free(&r->wesc);
    ckpi_escapes_free(&r->mesc);
    ckpi_escapes_free(&r->vesc);
    ckpi_buf_free(&r->body);
}

/* ---- giving out ------------------------------------------------------------------------------------------------- */

static ckp_status
give(replay *r, uint32_t chunk, ckp_status (*make)(const ckpi_values *, void *, ckpi_scratch *, ckp_error *), const ckpi_escapes *esc, bool has_v,
     ckpi_sink_fn sink, void *user, ckp_error *err)
{
    const ckpi_chunk *k = &r->c->level[0].f->chunk[chunk];
    const size_t mark = ckpi_scratch_mark(r->ws);
    void *out = ckpi_scratch_get(r->ws, (size_t)ckpi_chunk_bytes(r->c->table, k));
    const ckpi_values v = {.piece = r->piece, .n_pieces = r->n_pieces, .n = r->n, .dtype = (ckp_dtype)k->dtype, .rec = &r->rec,
                           .has_v = has_v, .mcode = r->mcode, .mg = r->mg, .esc = esc, .cpu = r->cpu};

    if (out == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to decode %zu elements", r->n);
    ckp_status st = make(&v, out, r->ws, err);
    if (st != CKP_OK)
        (void)fail_chunk(r, 0, k, st, err);
    if (st == CKP_OK)
        st = check_hash(r, k, out, err);
    if (st == CKP_OK && sink != NULL)
        st = sink(user, k, out, err);
    ckpi_scratch_release(r->ws, mark);
    return st;
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
decode_plain_unit(replay *r, ckpi_sink_fn sink, void *user, ckp_error *err)
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
    replay r = {.body = CKPI_BUF_INIT};
    ckp_status st;

    if (is_plain(c, u)) {
        r.c = c;
        r.u = u;
        r.ws = ws;
        r.cpu = cpu;
        st = decode_plain_unit(&r, sink, user, err);
        replay_free(&r);
        return st;
    }
    st = replay_init(&r, c, u, ws, cpu, err);
    if (st == CKP_OK)
        st = run_lineage(&r, want, err);
    if (st == CKP_OK && (want & CKPI_WANT_V) && u->v != CKPI_NO_CHUNK)
        st = give(&r, u->v, ckpi_values_v, &r.vesc, true, sink, user, err);
    if (st == CKP_OK && (want & CKPI_WANT_M) && u->m != CKPI_NO_CHUNK)
        st = give(&r, u->m, ckpi_values_m, &r.mesc, r.m_has_v, sink, user, err);
    if (st == CKP_OK && (want & CKPI_WANT_W) && u->w != CKPI_NO_CHUNK)
        st = give(&r, u->w, ckpi_values_w, &r.wesc, false, sink, user, err);
    ckpi_factors_free(&r.rec.fac);
    replay_free(&r);
    return st;
}

ckp_status
ckpi_decode_into_pred(const ckpi_lineage *c, const ckpi_unit *u, ckpi_pred *pred, size_t g, bool keep_raw, ckpi_scratch *ws, uint32_t cpu,
                      ckp_error *err)
{
    const ckpi_group *grp = &pred->layout->g[g];
    replay r = {.body = CKPI_BUF_INIT};
    ckp_status st;

    if (!grp->lossy) {
        uint8_t *bytes = NULL;
        if (!keep_raw)
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
        replay_free(&r);
        return st;
    }
    st = ckpi_recon_alloc(pred, g, err);
    if (st != CKP_OK)
        return st;
    r.rec.wrec = pred->rec[g].wrec;
    r.rec.vcode = pred->rec[g].vcode;
    st = replay_init(&r, c, u, ws, cpu, err);
    if (st == CKP_OK)
        st = run_lineage(&r, CKPI_WANT_W, err);
    if (st == CKP_OK && r.fac_known) {
        ckpi_factors_free(&pred->rec[g].fac);
        pred->rec[g].fac = r.rec.fac;
    } else {
        ckpi_factors_free(&r.rec.fac);
    }
    for (size_t i = 0; st == CKP_OK && i < pred->rec[g].n_sample; i++)
        pred->rec[g].sample[i] = r.rec.wrec[i * CKPI_SAMPLE];   /* the restored weights are the true ones now */
    replay_free(&r);
    return st;
}
