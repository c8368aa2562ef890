/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/count/count.h"
#include "codec/pack/pack.h"
#include "codec/planes/float.h"
#include "codec/planes/float_wire.h"
#include "codec/stream/stream.h"

typedef struct parts {
    const uint8_t *sym;
    size_t escapes;
    const uint8_t *escape[2];          /* low and high bytes of the true values */
    const uint8_t *low[CKPI_ROW_ZERO];
    const uint8_t *top[CKPI_ROW_ZERO]; /* NULL when the low bytes hold everything */
} parts;

static bool
get_flags(ckpi_rd *in, ckpi_float_plan *p, unsigned flags)
{
    p->keep = flags & CKPI_FLOAT_KEEP;
    p->has_sign = (flags & CKPI_FLOAT_HAS_SIGN) != 0;
    p->sign = (flags & CKPI_FLOAT_SIGN) != 0;
    if (p->keep > CKPI_FLOAT_FINE || (p->has_sign && p->sign) || (flags & CKPI_FLOAT_RESERVED)) {
        ckpi_rd_fail(in, "known flags");
        return false;
    }
    return true;
}

static void
get_rows(ckpi_rd *in, ckpi_float_plan *p, unsigned flags)
{
    p->row_len = p->n;
    if (flags & (CKPI_FLOAT_HAS_ROW | CKPI_FLOAT_HAS_COL | CKPI_FLOAT_HAS_CLASS))
        p->row_len = (size_t)ckpi_rd_varint(in, p->n);
    if (p->row_len == 0) {
        ckpi_rd_fail(in, "rows that are not empty");
        return;
    }
    p->rows = (p->n + p->row_len - 1) / p->row_len;
    if (flags & CKPI_FLOAT_HAS_CLASS)
        p->cut = ckpi_rd_u8(in);
    if (p->cut > ckpi_float_low_bits(p))
        ckpi_rd_fail(in, "a cut within the mantissa");
}

static ckp_status
get_header(ckpi_rd *in, ckpi_float_plan *p, unsigned *flags, ckp_error *err)
{
    *flags = ckpi_rd_u8(in);
    p->esc = ckpi_rd_u8(in);
    const uint64_t zigzag = ckpi_rd_varint(in, UINT32_MAX);
    p->start = (int32_t)((int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1));
    if (get_flags(in, p, *flags))
        get_rows(in, p, *flags);
    return ckpi_rd_ok(in) ? CKP_OK : ckpi_rd_error(in, err, "planes header");
}

static ckp_status
get_side(ckpi_rd *in, ckpi_float_plan *p, unsigned flags, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckp_status st = CKP_OK;
    if (flags & CKPI_FLOAT_HAS_CLASS)
        st = ckpi_stream_get(in, &p->klass, p->rows, ws, cpu, err);
    if (st == CKP_OK && (flags & CKPI_FLOAT_HAS_ROW))
        st = ckpi_stream_get(in, &p->row, p->rows, ws, cpu, err);
    if (st == CKP_OK && (flags & CKPI_FLOAT_HAS_COL)) {
        st = ckpi_stream_get(in, &p->col, p->row_len, ws, cpu, err);
    } else if (st == CKP_OK) {
        uint8_t *zeros = ckpi_scratch_get(ws, p->row_len);
        if (zeros == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for a row of %zu", p->row_len);
        memset(zeros, 0, p->row_len);
        p->zeros = zeros;
    }
    if (st == CKP_OK && !ckpi_float_count(p)) {
        ckpi_rd_fail(in, "known classes of rows");
        return ckpi_rd_error(in, err, "planes");
    }
    return st;
}

static ckp_status
get_escapes(ckpi_rd *in, parts *t, const ckpi_float_plan *p, size_t symbols, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    t->escapes = ckpi_count_byte(t->sym, symbols, p->esc, cpu);
    ckp_status st = CKP_OK;
    for (unsigned half = 0; t->escapes != 0 && st == CKP_OK && half < 2; half++)
        st = ckpi_stream_get(in, &t->escape[half], t->escapes, ws, cpu, err);
    return st;
}

/* A byte that says STORED or STREAMS. */
static bool
get_form(ckpi_rd *in)
{
    const uint8_t form = ckpi_rd_u8(in);
    if (form > CKPI_REST_STREAMS)
        ckpi_rd_fail(in, "a known form of low bits");
    return form == CKPI_REST_STREAMS;
}

static ckp_status
get_low(ckpi_rd *in, const uint8_t **low, size_t n, unsigned low_bytes, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (low_bytes == 0)
        return CKP_OK;
    if (!get_form(in)) {
        *low = ckpi_rd_bytes(in, n * low_bytes);
        return ckpi_rd_ok(in) ? CKP_OK : ckpi_rd_error(in, err, "low bytes");
    }
    uint8_t *all = ckpi_scratch_get(ws, n * low_bytes);
    if (all == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for %zu elements", n);
    for (unsigned b = 0; b < low_bytes; b++) {
        const size_t mark = ckpi_scratch_mark(ws);
        const uint8_t *plane = NULL;
        const ckp_status st = ckpi_stream_get(in, &plane, n, ws, cpu, err);
        if (st != CKP_OK)
            return st;
        for (size_t i = 0; i < n; i++)
            all[i * low_bytes + b] = plane[i];
        ckpi_scratch_release(ws, mark);
    }
    *low = all;
    return CKP_OK;
}

static ckp_status
get_top(ckpi_rd *in, const uint8_t **top, size_t n, unsigned bits, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (bits == 0)
        return CKP_OK;
    if (get_form(in))
        return ckpi_stream_get(in, top, n, ws, cpu, err);
    const uint8_t *packed = ckpi_rd_bytes(in, ckpi_pack_bytes(n, bits));
    if (!ckpi_rd_ok(in))
        return ckpi_rd_error(in, err, "top bits");
    uint8_t *bytes = ckpi_scratch_get(ws, n);
    if (bytes == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for %zu elements", n);
    ckpi_unpack(bytes, packed, n, bits, cpu);
    *top = bytes;
    return CKP_OK;
}

static ckp_status
get_parts(ckpi_rd *in, parts *t, const ckpi_float_plan *p, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t symbols = p->count[CKPI_ROW_FULL] + p->count[CKPI_ROW_CUT];
    ckp_status st = ckpi_stream_get(in, &t->sym, symbols, ws, cpu, err);
    if (st == CKP_OK)
        st = get_escapes(in, t, p, symbols, ws, cpu, err);
    for (unsigned c = 0; st == CKP_OK && c < CKPI_ROW_ZERO; c++) {
        const unsigned bits = ckpi_float_rest_bits(p, (ckpi_row_class)c);
        if (p->count[c] == 0)
            continue;
        st = get_low(in, &t->low[c], p->count[c], bits / 8, ws, cpu, err);
        if (st == CKP_OK)
            st = get_top(in, &t->top[c], p->count[c], bits % 8, ws, cpu, err);
    }
    if (st == CKP_OK && !ckpi_rd_done(in)) {
        ckpi_rd_fail(in, "the end of the payload");
        st = ckpi_rd_error(in, err, "planes");
    }
    return st;
}

/* Words whose symbol is esc were merged as if esc were the value: add what is missing. Returns how many there were. */
static size_t
mend(const parts *t, const ckpi_float_row *r, const ckpi_float_plan *p, uint8_t *words, size_t n, const uint8_t *sym, size_t used)
{
    const uint64_t magnitude = UINT64_MAX >> (65 - 8 * p->type.width);
    size_t found = 0;
    for (const uint8_t *at = sym; (at = memchr(at, (int)p->esc, n - (size_t)(at - sym))) != NULL; at++, found++) {
        const uint64_t value = t->escape[0][used + found] | (uint64_t)t->escape[1][used + found] << 8;
        const uint64_t missing = (value - p->esc) << r->low_bits;
        uint8_t *word = words + (size_t)(at - sym) * p->type.width;
        if (p->type.width == 2)
            ckpi_st16(word, (uint16_t)((ckpi_ld16(word) & ~magnitude) | ((ckpi_ld16(word) + missing) & magnitude)));
        else if (p->type.width == 4)
            ckpi_st32(word, (uint32_t)((ckpi_ld32(word) & ~magnitude) | ((ckpi_ld32(word) + missing) & magnitude)));
        else
            ckpi_st64(word, (ckpi_ld64(word) & ~magnitude) | ((ckpi_ld64(word) + missing) & magnitude));
    }
    return found;
}

static void
merge_rows(const parts *t, const ckpi_float_plan *p, uint8_t *dst, uint32_t cpu)
{
    size_t done[CKPI_ROW_ZERO] = {0}, at = 0, mended = 0;
    for (size_t i = 0; i < p->rows; i++) {
        const size_t n = ckpi_float_row_size(p, i);
        uint8_t *words = dst + i * p->row_len * p->type.width;
        const ckpi_row_class c = ckpi_float_row_class(p, i);
        if (c == CKPI_ROW_ZERO) {
            memset(words, 0, n * p->type.width);
            continue;
        }
        const ckpi_float_row r = ckpi_float_row_of(p, i);
        ckpi_float_merge(p->type.width, cpu, &r, words, n, t->sym + at, t->low[c] != NULL ? t->low[c] + done[c] * r.low_bytes : NULL,
                         t->top[c] != NULL ? t->top[c] + done[c] : NULL);
        if (mended < t->escapes)
            mended += mend(t, &r, p, words, n, t->sym + at, mended);
        at += n;
        done[c] += n;
    }
}

ckp_status
ckpi_float_decode(ckpi_rd *in, const ckpi_block *b, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckpi_float_plan p = {.n = b->n};
    unsigned flags = 0;
    ckpi_float_type_of(b, &p.type);
    ckp_status st = get_header(in, &p, &flags, err);
    if (st == CKP_OK)
        st = get_side(in, &p, flags, ws, cpu, err);
    parts t = {0};
    if (st == CKP_OK)
        st = get_parts(in, &t, &p, ws, cpu, err);
    if (st == CKP_OK)
        merge_rows(&t, &p, dst, cpu);
    return st;
}
