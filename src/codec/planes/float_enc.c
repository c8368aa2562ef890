/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/pack/pack.h"
#include "codec/planes/float.h"
#include "codec/planes/float_wire.h"
#include "codec/rans/rans.h"
#include "codec/stream/stream.h"

/* What splitting makes of a chunk. Classes are FULL and CUT; zero rows leave nothing behind. */
typedef struct parts {
    uint8_t *sym;
    size_t symbols;
    size_t escapes;
    uint8_t *low[CKPI_ROW_ZERO];
    uint8_t *top[CKPI_ROW_ZERO]; /* NULL when the low bytes hold everything */
} parts;

static void
put_header(ckpi_buf *out, const ckpi_float_plan *p)
{
    unsigned flags = p->keep;
    flags |= p->has_sign ? CKPI_FLOAT_HAS_SIGN : 0;
    flags |= p->sign ? CKPI_FLOAT_SIGN : 0;
    flags |= p->row != NULL ? CKPI_FLOAT_HAS_ROW : 0;
    flags |= p->col != NULL ? CKPI_FLOAT_HAS_COL : 0;
    flags |= p->klass != NULL ? CKPI_FLOAT_HAS_CLASS : 0;
    ckpi_buf_u8(out, CKPI_PLANES_FLOAT);
    ckpi_buf_u8(out, (uint8_t)flags);
    ckpi_buf_u8(out, (uint8_t)p->esc);
    ckpi_buf_varint(out, (uint64_t)p->start << 1 ^ (p->start < 0 ? UINT64_MAX : 0));
    if (flags & (CKPI_FLOAT_HAS_ROW | CKPI_FLOAT_HAS_COL | CKPI_FLOAT_HAS_CLASS))
        ckpi_buf_varint(out, p->row_len);
    if (p->klass != NULL)
        ckpi_buf_u8(out, (uint8_t)p->cut);
}

static ckp_status
put_side(ckpi_buf *out, const ckpi_float_plan *p, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckp_status st = CKP_OK;
    if (p->klass != NULL)
        st = ckpi_stream_put(out, p->klass, p->rows, ws, cpu, err);
    if (st == CKP_OK && p->row != NULL)
        st = ckpi_stream_put(out, p->row, p->rows, ws, cpu, err);
    if (st == CKP_OK && p->col != NULL)
        st = ckpi_stream_put(out, p->col, p->row_len, ws, cpu, err);
    return st;
}

static bool
get_memory(parts *t, const ckpi_float_plan *p, ckpi_scratch *ws)
{
    const size_t symbols = p->count[CKPI_ROW_FULL] + p->count[CKPI_ROW_CUT];
    *t = (parts){.sym = ckpi_scratch_get(ws, symbols)};
    for (unsigned c = 0; c < CKPI_ROW_ZERO; c++) {
        const unsigned bits = ckpi_float_rest_bits(p, (ckpi_row_class)c);
        t->low[c] = ckpi_scratch_get(ws, p->count[c] * (bits / 8));
        if (t->low[c] == NULL)
            return false;
        if (bits % 8 != 0 && (t->top[c] = ckpi_scratch_get(ws, p->count[c])) == NULL)
            return false;
    }
    return t->sym != NULL;
}

static void
split_rows(parts *t, const ckpi_float_plan *p, const void *data, uint32_t cpu)
{
    size_t done[CKPI_ROW_ZERO] = {0};
    for (size_t i = 0; i < p->rows; i++) {
        const ckpi_row_class c = ckpi_float_row_class(p, i);
        if (c == CKPI_ROW_ZERO)
            continue;
        const ckpi_float_row r = ckpi_float_row_of(p, i);
        const size_t n = ckpi_float_row_size(p, i);
        const uint8_t *words = (const uint8_t *)data + i * p->row_len * p->type.width;
        t->escapes += ckpi_float_split(p->type.width, cpu, &r, words, n, t->sym + t->symbols, t->low[c] + done[c] * r.low_bytes,
                                       t->top[c] != NULL ? t->top[c] + done[c] : NULL);
        t->symbols += n;
        done[c] += n;
    }
}

/* The values that esc stands for, in order. */
static void
list_escapes(uint16_t *list, const parts *t, const ckpi_float_plan *p, const uint8_t *data)
{
    const uint64_t word_mask = UINT64_MAX >> (64 - 8 * p->type.width), magnitude = word_mask >> 1;
    size_t found = 0, at = 0;
    for (size_t i = 0; i < p->rows; i++) {
        if (ckpi_float_row_class(p, i) == CKPI_ROW_ZERO)
            continue;
        const ckpi_float_row r = ckpi_float_row_of(p, i);
        const size_t n = ckpi_float_row_size(p, i);
        const uint8_t *sym = t->sym + at;
        for (const uint8_t *e = sym; (e = memchr(e, (int)p->esc, n - (size_t)(e - sym))) != NULL; e++) {
            const size_t j = (size_t)(e - sym);
            const uint64_t word = ckpi_float_word(&p->type, data, i * p->row_len + j);
            const uint64_t sum = ((word & magnitude) + r.add - ((uint64_t)r.col[j] << r.col_shift)) & word_mask;
            list[found++] = (uint16_t)(sum >> r.low_bits);
        }
        at += n;
    }
}

/* Two streams, low bytes and high bytes. */
static ckp_status
put_escapes(ckpi_buf *out, const parts *t, const ckpi_float_plan *p, const void *data, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (t->escapes == 0)
        return CKP_OK;
    uint16_t *list = ckpi_scratch_get(ws, t->escapes * sizeof *list);
    uint8_t *bytes = ckpi_scratch_get(ws, t->escapes);
    if (list == NULL || bytes == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for %zu escapes", t->escapes);
    list_escapes(list, t, p, data);
    for (unsigned half = 0; half < 2; half++) {
        for (size_t i = 0; i < t->escapes; i++)
            bytes[i] = (uint8_t)(list[i] >> (8 * half));
        const ckp_status st = ckpi_stream_put(out, bytes, t->escapes, ws, cpu, err);
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

/* Whether rANS would save at least 1/32 of these bytes, asked of every step-th of them. bits: what each takes when stored. */
static bool
shrinks(const uint8_t *src, size_t n, size_t stride, unsigned bits)
{
    enum { ASKED = 4096, RUN = 32 };
    uint32_t hist[256] = {0};
    uint64_t asked = 0;
    const size_t runs = n > ASKED ? ASKED / RUN : 1, step = n / runs;
    for (size_t k = 0; k < runs; k++) {
        const size_t first = k * step, last = n > ASKED ? first + RUN : n;
        for (size_t i = first; i < last; i++)
            hist[src[i * stride]]++;
        asked += last - first;
    }
    /* A flat histogram of so few looks a little skewed: 256 symbols on 4096 bytes by 1.1 %. */
    return ckpi_stream_cost(hist, asked) * 8 < asked * bits - asked * bits / 32;
}

static ckp_status
put_low_streams(ckpi_buf *out, const uint8_t *low, size_t n, unsigned low_bytes, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    uint8_t *plane = ckpi_scratch_get(ws, n);
    if (plane == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for a plane of %zu bytes", n);
    ckp_status st = CKP_OK;
    for (unsigned b = 0; st == CKP_OK && b < low_bytes; b++) {
        for (size_t i = 0; i < n; i++)
            plane[i] = low[i * low_bytes + b];
        st = ckpi_stream_put(out, plane, n, ws, cpu, err);
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

static ckp_status
put_low(ckpi_buf *out, const uint8_t *low, size_t n, unsigned low_bytes, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (low_bytes == 0)
        return CKP_OK;
    bool streams = false;
    for (unsigned b = 0; b < low_bytes; b++)
        streams = streams || shrinks(low + b, n, low_bytes, 8);
    ckpi_buf_u8(out, streams ? CKPI_REST_STREAMS : CKPI_REST_STORED);
    if (streams)
        return put_low_streams(out, low, n, low_bytes, ws, cpu, err);
    ckpi_buf_put(out, low, n * low_bytes);
    return ckpi_buf_status(out, err, "planes");
}

static ckp_status
put_top(ckpi_buf *out, const uint8_t *top, size_t n, unsigned bits, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (top == NULL)
        return CKP_OK;
    const bool stream = shrinks(top, n, 1, bits);
    ckpi_buf_u8(out, stream ? CKPI_REST_STREAMS : CKPI_REST_STORED);
    if (stream)
        return ckpi_stream_put(out, top, n, ws, cpu, err);
    uint8_t *place = ckpi_buf_extend(out, ckpi_pack_bytes(n, bits));
    if (place != NULL)
        ckpi_pack(place, top, n, bits, cpu);
    return ckpi_buf_status(out, err, "planes");
}

static ckp_status
put_parts(ckpi_buf *out, const parts *t, const ckpi_float_plan *p, const void *data, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckp_status st = ckpi_stream_put(out, t->sym, t->symbols, ws, cpu, err);
    if (st == CKP_OK)
        st = put_escapes(out, t, p, data, ws, cpu, err);
    for (unsigned c = 0; st == CKP_OK && c < CKPI_ROW_ZERO; c++) {
        const unsigned bits = ckpi_float_rest_bits(p, (ckpi_row_class)c);
        if (p->count[c] == 0)
            continue;
        st = put_low(out, t->low[c], p->count[c], bits / 8, ws, cpu, err);
        if (st == CKP_OK)
            st = put_top(out, t->top[c], p->count[c], bits % 8, ws, cpu, err);
    }
    return st;
}

ckp_status
ckpi_float_encode(ckpi_buf *out, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckpi_float_plan p;
    ckp_status st = ckpi_float_plan_make(&p, b, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    put_header(out, &p);
    st = put_side(out, &p, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    parts t;
    if (!get_memory(&t, &p, ws))
        return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for %zu elements", b->n);
    split_rows(&t, &p, b->data, cpu);
    return put_parts(out, &t, &p, b->data, ws, cpu, err);
}
