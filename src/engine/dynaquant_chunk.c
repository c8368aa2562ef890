/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices to the parameters and payload of a chunk, and back (docs/format.md, section 12):
 *
 *   u8 flags (1: the codes' block has the base's codes as its base; 2: the kept values' block has the base's values)
 *   for each piece: u8 book (bits 0 to 5: levels; bits 6, 7: 0 f16, 1 f32, 2 the base's book), then its centres
 *   with kept values: u8 codec, string: their block of bf16
 */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "base/limits.h"
#include "engine/dynaquant.h"
#include "engine/replay.h"

enum { CODES_ON_BASE = 1, KEPT_ON_BASE = 2 };
#define BOOK_F16 0U
#define BOOK_F32 1U
#define BOOK_BASE 2U
#define LEVELS 63U

/* ---- codebooks ---------------------------------------------------------------------------------------------------- */

static bool
same_book(const ckpi_codebook *a, const ckpi_codebook *b)
{
    return a->k == b->k && memcmp(a->centre, b->centre, a->k * sizeof *a->centre) == 0;
}

static bool
is_half(const ckpi_codebook *cb)
{
    bool half = true;
    for (uint32_t i = 0; i < cb->k; i++)
        half = half && ckpi_f32_bits(ckpi_f16_to_f32(ckpi_f32_to_f16(cb->centre[i]))) == ckpi_f32_bits(cb->centre[i]);
    return half;
}

/* True when the base's is meant. */
static bool
put_book(ckpi_buf *b, const ckpi_codebook *cb, const ckpi_codebook *base)
{
    if (base != NULL && cb->k != 0 && same_book(cb, base)) {
        ckpi_buf_u8(b, BOOK_BASE << 6);
        return true;
    }
    const bool half = is_half(cb);
    ckpi_buf_u8(b, (uint8_t)(cb->k | (half ? BOOK_F16 : BOOK_F32) << 6));
    for (uint32_t i = 0; i < cb->k; i++) {
        if (half)
            ckpi_buf_u16(b, ckpi_f32_to_f16(cb->centre[i]));
        else
            ckpi_buf_f32(b, cb->centre[i]);
    }
    return false;
}

static void
get_book(ckpi_rd *r, ckpi_codebook *cb, const ckpi_codebook *base)
{
    const uint8_t head = ckpi_rd_u8(r), how = head >> 6;

    if (how == BOOK_BASE && base != NULL && (head & LEVELS) == 0) {
        *cb = *base;
        return;
    }
    *cb = (ckpi_codebook){.k = head & LEVELS};
    if (how >= BOOK_BASE || cb->k > CKPI_CODEBOOK_MAX) {
        ckpi_rd_fail(r, "a codebook of at most 32 levels, or the base's");
        cb->k = 0;
    }
    for (uint32_t i = 0; i < cb->k; i++)
        cb->centre[i] = how == BOOK_F16 ? ckpi_f16_to_f32(ckpi_rd_u16(r)) : ckpi_rd_f32(r);
    if (ckpi_rd_ok(r) && !ckpi_codebook_valid(cb))
        ckpi_rd_fail(r, "finite centres in rising order");
}

/* ---- kept values -------------------------------------------------------------------------------------------------- */

/* Protected codes of all pieces. */
static size_t
count_kept(const ckpi_piece *piece, size_t n_pieces, const ckpi_codebook *book, const int8_t *code)
{
    size_t n = 0;
    for (size_t k = 0; k < n_pieces; k++) {
        const int8_t protect = (int8_t)(book[k].k + 1);
        for (size_t i = 0; i < piece[k].count; i++)
            n += code[i] == protect;
        code += piece[k].count;
    }
    return n;
}

/* Values of all pieces, as indices alone give them: before escapes and before they are rounded to a dtype. */
static ckp_status
values_of(const ckpi_piece *piece, size_t n_pieces, const ckpi_indices *x, float *out, ckp_error *err)
{
    size_t at = 0, kept = 0;

    for (size_t k = 0; k < n_pieces; k++) {
        const size_t n = (size_t)piece[k].count, own = count_kept(&piece[k], 1, &x->book[k], x->code + at);
        const ckp_status st = ckpi_codebook_decode(&x->book[k], x->code + at, n, x->kept + kept, own, out + at, err);
        if (st != CKP_OK)
            return st;
        at += n;
        kept += own;
    }
    return CKP_OK;
}

/* What the base has where the codes say that a value is kept, as bf16: count of them. */
static ckp_status
kept_base(const ckpi_piece *piece, size_t n_pieces, const ckpi_codebook *book, const int8_t *code, const ckpi_indices *base, size_t n,
          uint16_t *out, ckpi_scratch *ws, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    float *value = ckpi_scratch_get(ws, n * sizeof *value);
    size_t at = 0;

    if (value == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for the base of %zu weights", n);
    const ckp_status st = values_of(piece, n_pieces, base, value, err);
    for (size_t k = 0; st == CKP_OK && k < n_pieces; k++) {
        const int8_t protect = (int8_t)(book[k].k + 1);
        for (const size_t end = at + (size_t)piece[k].count; at < end; at++)
            if (code[at] == protect)
                *out++ = ckpi_f32_to_bf16(value[at]);
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

/* *flags gets KEPT_ON_BASE where that is smaller. */
static ckp_status
put_kept(ckpi_buf *b, uint8_t *flags, const ckpi_group *g, const ckpi_indices *x, const ckpi_indices *base, ckpi_scratch *ws, uint32_t cpu,
         ckp_error *err)
{
    ckpi_block blk = {.data = x->kept, .n = x->n_kept, .width = 2, .dtype = CKP_BF16};
    const size_t mark = ckpi_scratch_mark(ws), cap = ckpi_codec_pick_bound(&blk);
    uint16_t *old = base != NULL ? ckpi_scratch_get(ws, x->n_kept * sizeof *old) : NULL;
    uint8_t *coded = ckpi_scratch_get(ws, cap), id = 0;
    size_t len = 0;
    bool used = false;
    ckp_status st = CKP_OK;

    if (coded == NULL || (base != NULL && old == NULL))
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu protected weights", x->n_kept);
    if (base != NULL)
        st = kept_base(g->piece, g->n_pieces, x->book, x->code, base, (size_t)g->n, old, ws, err);
    blk.base = old;
    if (st == CKP_OK)
        st = ckpi_codec_pick(&blk, CKPI_EFFORT_SMALL, coded, cap, &len, &id, &used, ws, cpu, err);
    if (st == CKP_OK) {
        *flags |= used ? KEPT_ON_BASE : 0;
        ckpi_buf_u8(b, id);
        ckpi_buf_str(b, coded, len);
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

/* Codecs count from their block's start, or say nothing: the place of the parameters serves. */
static ckp_status
at_params(ckp_status st, const ckpi_chunk *c, ckp_error *err)
{
    char text[sizeof err->text] = "";

    if (st == CKP_OK || st == CKP_ENOMEM)
        return st;
    if (err != NULL)
        (void)memcpy(text, err->text, sizeof text);
    return ckpi_fail_at(err, st, c->body_offset, "protected weights: %s", text);
}

static ckp_status
get_kept(ckpi_rd *r, uint8_t flags, const ckpi_chunk *c, ckpi_indices *x, const ckpi_indices *base, size_t n_kept, ckpi_scratch *ws, uint32_t cpu,
         ckp_error *err)
{
    ckpi_block blk = {.n = n_kept, .width = 2, .dtype = CKP_BF16};
    size_t len = 0;
    const uint8_t id = ckpi_rd_u8(r), *p = ckpi_rd_str(r, 4 * (size_t)CKPI_MAX_CHUNK_ELEMS, &len);
    uint16_t *kept = ckpi_indices_room(x, n_kept), *old = NULL;
    ckp_status st = ckpi_rd_ok(r) ? CKP_OK : ckpi_rd_error(r, err, "protected weights");

    if (flags & KEPT_ON_BASE)
        old = ckpi_scratch_get(ws, n_kept * sizeof *old);
    if (st == CKP_OK && (kept == NULL || ((flags & KEPT_ON_BASE) && old == NULL)))
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for %zu protected weights", n_kept);
    if (st == CKP_OK && old != NULL)
        st = kept_base(c->piece, c->n_pieces, x->book, x->code, base, (size_t)c->n, old, ws, err);
    blk.base = old;
    if (st == CKP_OK)
        st = at_params(ckpi_codec_decode(id, &blk, p, len, kept, ws, cpu, err), c, err);
    if (st == CKP_OK)
        x->n_kept = n_kept;
    return st;
}

/* ---- indices ------------------------------------------------------------------------------------------------------ */

/* Under the base's by the rearranged codec and by mask or entropy coder alone: the smallest. */
static ckp_status
put_codes(ckpi_dq_coded *out, uint8_t *flags, const int8_t *code, const int8_t *base, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    static const uint8_t on_base[] = {CKPI_CODEC_REARRANGED, CKPI_CODEC_MASK};
    const ckpi_block b = {.data = code, .base = base, .n = n, .width = 1, .dtype = CKP_I8};
    const size_t cap = ckpi_codec_pick_bound(&b);
    uint8_t *spare = base != NULL ? ckpi_scratch_get(ws, cap) : NULL;

    out->payload = ckpi_scratch_get(ws, cap);
    if (out->payload == NULL || (base != NULL && spare == NULL))
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu indices", n);
    ckp_status st = ckpi_codec_codes(code, n, out->payload, cap, &out->payload_len, &out->codec, ws, cpu, err);
    for (size_t i = 0; st == CKP_OK && base != NULL && i < sizeof on_base; i++) {
        size_t len = 0;
        st = ckpi_codec_find(on_base[i])->encode(&b, spare, cap, &len, ws, cpu, err);
        if (st != CKP_OK || len >= out->payload_len)
            continue;
        uint8_t *other = out->payload;
        out->payload = spare;
        spare = other;
        out->payload_len = len;
        out->codec = on_base[i];
        *flags |= CODES_ON_BASE;
    }
    return st;
}

ckp_status
ckpi_dq_code(ckpi_dq_coded *out, const ckpi_group *g, const ckpi_indices *x, const ckpi_indices *base, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    uint8_t flags = 0;
    bool books = false;

    *out = (ckpi_dq_coded){.params = CKPI_BUF_INIT};
    ckp_status st = put_codes(out, &flags, x->code, base != NULL ? base->code : NULL, (size_t)g->n, ws, cpu, err);
    ckpi_buf_u8(&out->params, 0);
    for (size_t k = 0; k < g->n_pieces; k++)
        books |= put_book(&out->params, &x->book[k], base != NULL ? &base->book[k] : NULL);
    if (st == CKP_OK && x->n_kept != 0)
        st = put_kept(&out->params, &flags, g, x, base, ws, cpu, err);
    if (st == CKP_OK)
        st = ckpi_buf_status(&out->params, err, "parameters of indices");
    if (st == CKP_OK)
        out->params.data[0] = flags;
    out->uses_base = flags != 0 || books;
    return st;
}

/* Codebooks and kept values, once the codes are known. */
static ckp_status
get_params(ckpi_rd *r, uint8_t flags, const ckpi_chunk *c, ckpi_indices *x, const ckpi_indices *base, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckp_status st = CKP_OK;

    for (size_t k = 0; k < c->n_pieces; k++) {
        get_book(r, &x->book[k], base != NULL ? &base->book[k] : NULL);
        x->fit[k] = -1.0;
    }
    if (!ckpi_rd_ok(r))
        return ckpi_rd_error(r, err, "codebooks");
    const size_t n_kept = count_kept(c->piece, c->n_pieces, x->book, x->code);
    if (n_kept != 0)
        st = get_kept(r, flags, c, x, base, n_kept, ws, cpu, err);
    if (st == CKP_OK && !ckpi_rd_done(r))
        st = ckpi_rd_ok(r) ? ckpi_fail_at(err, CKP_ECORRUPT, r->file_offset + r->pos, "bytes after the parameters of indices")
                           : ckpi_rd_error(r, err, "parameters of indices");
    return st;
}

ckp_status
ckpi_dq_decode(const ckpi_chunk *c, ckpi_indices *x, float *values, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const bool uses_base = (c->flags & CKPI_CHUNK_USES_BASE) != 0;
    const ckpi_indices *base = uses_base ? x : NULL;
    ckpi_rd r = ckpi_rd_init(c->params, c->params_len, c->body_offset);
    const uint8_t flags = ckpi_rd_u8(&r);
    ckpi_indices next = {0};

    if (uses_base && x->code == NULL)
        return ckpi_fail_at(err, CKP_ECORRUPT, c->offset, "indices under a base that has none");
    if (flags & ~(CODES_ON_BASE | KEPT_ON_BASE))
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, c->body_offset, "unknown parameter flags %02x of indices", flags);
    if (flags != 0 && !uses_base)
        return ckpi_fail_at(err, CKP_ECORRUPT, c->body_offset, "indices that need a base they do not have");
    if (!ckpi_indices_alloc(&next, (size_t)c->n, c->n_pieces)) {
        ckpi_indices_free(&next);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %llu indices", (unsigned long long)c->n);
    }
    const ckpi_block b = {.base = flags & CODES_ON_BASE ? x->code : NULL, .n = (size_t)c->n, .width = 1, .dtype = CKP_I8};
    ckp_status st = ckpi_decode_payload(c, &b, next.code, ws, cpu, err);
    if (st == CKP_OK)
        st = get_params(&r, flags, c, &next, base, ws, cpu, err);
    if (st == CKP_OK)
        st = values_of(c->piece, c->n_pieces, &next, values, err);
    if (st == CKP_OK) {
        ckpi_indices_free(x);
        *x = next;
        next = (ckpi_indices){0};
    }
    ckpi_indices_free(&next);
    return st;
}
