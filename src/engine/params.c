/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/limits.h"
#include "engine/factors.h"
#include "engine/layout.h"
#include "engine/params.h"

static void
measure(ckpi_fac *a, uint64_t count, size_t cols, int32_t vstep)
{
    a->n = (size_t)count;
    a->blocks = cols == 0;
    a->cols = cols != 0 ? cols : CKPI_BLOCK;
    a->rows = (a->n + a->cols - 1) / a->cols;
    a->vstep = vstep;
}

ckp_status
ckpi_factors_alloc(ckpi_factors *f, const ckpi_piece *piece, const size_t *cols, size_t n, int32_t vstep, ckp_error *err)
{
    size_t total = 0;

    *f = (ckpi_factors){0};
    f->at = ckpi_calloc(n, sizeof *f->at);
    if (f->at == NULL)
        goto nomem;
    f->n = n;
    for (size_t i = 0; i < n; i++) {
        measure(&f->at[i], piece[i].count, cols[i], vstep);
        total += f->at[i].rows + (f->at[i].blocks ? 0 : f->at[i].cols);
    }
    f->mem = ckpi_calloc(total, sizeof *f->mem);
    if (f->mem == NULL)
        goto nomem;
    f->mem_n = total;
    int16_t *p = f->mem;
    for (size_t i = 0; i < n; i++) {
        f->at[i].row = p;
        p += f->at[i].rows;
        f->at[i].col = f->at[i].blocks ? NULL : p;
        p += f->at[i].blocks ? 0 : f->at[i].cols;
    }
    return CKP_OK;
nomem:
    ckpi_factors_free(f);
    return ckpi_fail(err, CKP_ENOMEM, "no memory for the factors of %zu tensors", n);
}

void
ckpi_factors_free(ckpi_factors *f)
{
    free(f->at);
    free(f->mem);
    *f = (ckpi_factors){0};
}

static uint8_t
log2_of(int32_t vstep)
{
    uint8_t k = 0;
    while ((1 << k) < vstep)
        k++;
    return k;
}

void
ckpi_params_put_factors(ckpi_buf *b, const ckpi_factors *f, ckpi_scratch *ws, uint32_t cpu)
{
    const ckpi_block blk = {.data = f->mem, .n = f->mem_n, .width = 2, .dtype = CKP_I16};
    const size_t cap = ckpi_codec_pick_bound(&blk);
    const size_t mark = ckpi_scratch_mark(ws);
    uint8_t *tmp = ckpi_scratch_get(ws, cap);
    size_t len = 0;
    uint8_t id = 0;
    bool used = false;

    for (size_t i = 0; i < f->n; i++) {
        ckpi_buf_varint(b, f->at[i].blocks ? 0 : f->at[i].cols);
        ckpi_buf_u8(b, log2_of(f->at[i].vstep));
    }
    if (tmp == NULL || ckpi_codec_pick(&blk, CKPI_EFFORT_FAST, tmp, cap, &len, &id, &used, ws, cpu, NULL) != CKP_OK) {
        b->failed = CKP_ENOMEM;
        return;
    }
    ckpi_buf_u8(b, id);
    ckpi_buf_str(b, tmp, len);
    ckpi_scratch_release(ws, mark);
}

ckp_status
ckpi_params_get_factors(ckpi_rd *r, ckpi_factors *f, const ckpi_piece *piece, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    size_t *cols = ckpi_calloc(n, sizeof *cols);
    int32_t *vstep = ckpi_calloc(n, sizeof *vstep);
    size_t len = 0;
    ckp_status st = CKP_OK;

    ckpi_factors_free(f);
    if (cols == NULL || vstep == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for the factors of %zu tensors", n);
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        cols[i] = (size_t)ckpi_rd_varint(r, piece[i].count);     /* the frame has paid for its elements */
        const uint8_t k = ckpi_rd_u8(r);
        if (k > 12)
            ckpi_rd_fail(r, "log2 of a step, at most 12");
        vstep[i] = ckpi_rd_ok(r) ? (int32_t)1 << k : 1;
    }
    const uint8_t id = ckpi_rd_u8(r);
    const uint8_t *p = ckpi_rd_str(r, 4 * (size_t)CKPI_MAX_CHUNK_ELEMS, &len);
    if (!ckpi_rd_ok(r)) {
        st = ckpi_rd_error(r, err, "factors");
        goto done;
    }
    st = ckpi_factors_alloc(f, piece, cols, n, 1, err);
    if (st != CKP_OK)
        goto done;
    for (size_t i = 0; i < n; i++)
        f->at[i].vstep = vstep[i];
    const ckpi_block blk = {.n = f->mem_n, .width = 2, .dtype = CKP_I16};
    st = ckpi_codec_decode(id, &blk, p, len, f->mem, ws, cpu, err);
done:
    free(cols);
    free(vstep);
    return st;
}

/* Small numbers as one block of a codec. */
static void
put_numbers(ckpi_buf *b, const int8_t *x, size_t n, ckpi_scratch *ws, uint32_t cpu)
{
    const ckpi_block blk = {.data = x, .n = n, .width = 1, .dtype = CKP_I8};
    const size_t cap = ckpi_codec_pick_bound(&blk), mark = ckpi_scratch_mark(ws);
    uint8_t *tmp = ckpi_scratch_get(ws, cap);
    size_t len = 0;
    uint8_t id = 0;

    if (tmp == NULL || ckpi_codec_codes(x, n, tmp, cap, &len, &id, ws, cpu, NULL) != CKP_OK) {
        b->failed = CKP_ENOMEM;
        return;
    }
    ckpi_buf_u8(b, id);
    ckpi_buf_str(b, tmp, len);
    ckpi_scratch_release(ws, mark);
}

/* *x lies in ws. */
static ckp_status
get_numbers(ckpi_rd *r, int8_t **x, size_t n, const char *what, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    size_t len = 0;
    const uint8_t id = ckpi_rd_u8(r);
    const uint8_t *p = ckpi_rd_str(r, 4 * (size_t)CKPI_MAX_CHUNK_ELEMS, &len);
    const ckpi_block blk = {.n = n, .width = 1, .dtype = CKP_I8};

    if (!ckpi_rd_ok(r))
        return ckpi_rd_error(r, err, what);
    *x = ckpi_scratch_get(ws, n);
    if (*x == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu %s", n, what);
    return ckpi_codec_decode(id, &blk, p, len, *x, ws, cpu, err);
}

void
ckpi_params_put_moves(ckpi_buf *b, const int8_t *moves, size_t n, ckpi_scratch *ws, uint32_t cpu)
{
    put_numbers(b, moves, n, ws, cpu);
}

ckp_status
ckpi_params_get_moves(ckpi_rd *r, ckpi_factors *f, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    int8_t *moves = NULL;

    const ckp_status st = get_numbers(r, &moves, f->mem_n, "moves of factors", ws, cpu, err);
    if (st == CKP_OK)
        ckpi_factors_move(f->mem, moves, f->mem_n);
    ckpi_scratch_release(ws, mark);
    return st;
}

static size_t
numbers_of(const ckpi_low *low)
{
    return low->rank * (low->rows + low->cols);
}

void
ckpi_params_put_directions(ckpi_buf *b, const ckpi_low *low, size_t n, ckpi_scratch *ws, uint32_t cpu)
{
    const size_t mark = ckpi_scratch_mark(ws);
    size_t total = 0;

    for (size_t k = 0; k < n; k++) {
        ckpi_buf_u8(b, (uint8_t)low[k].rank);
        if (low[k].rank != 0)
            ckpi_buf_f32(b, low[k].gain);
        total += numbers_of(&low[k]);
    }
    int8_t *all = ckpi_scratch_get(ws, total), *to = all;
    if (all == NULL) {
        b->failed = CKP_ENOMEM;
        return;
    }
    for (size_t k = 0; k < n; k++) {
        const size_t a = low[k].rank * low[k].rows, c = low[k].rank * low[k].cols;
        if (low[k].rank == 0)
            continue;
        memcpy(to, low[k].a, a);
        memcpy(to + a, low[k].b, c);
        to += a + c;
    }
    put_numbers(b, all, total, ws, cpu);
    ckpi_scratch_release(ws, mark);
}

ckp_status
ckpi_params_get_directions(ckpi_rd *r, ckpi_low *low, const ckpi_factors *f, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    size_t total = 0;
    int8_t *x = NULL;

    for (size_t k = 0; k < f->n; k++) {
        const uint8_t rank = ckpi_rd_u8(r);
        if (rank > (f->at[k].blocks ? 0 : CKPI_LOW_MAX))
            ckpi_rd_fail(r, "directions of a piece, at most 4, and none without columns");
        low[k] = (ckpi_low){.rows = f->at[k].rows, .cols = f->at[k].cols, .rank = ckpi_rd_ok(r) ? rank : 0};
        low[k].gain = low[k].rank != 0 ? ckpi_rd_f32(r) : 0.0F;
        if (!isfinite(low[k].gain))
            ckpi_rd_fail(r, "a finite gain of directions");
        total += numbers_of(&low[k]);
    }
    const ckp_status st = get_numbers(r, &x, total, "directions of moments", ws, cpu, err);
    for (size_t k = 0; st == CKP_OK && k < f->n; k++) {
        low[k].a = x;
        low[k].b = x + low[k].rank * low[k].rows;
        x += numbers_of(&low[k]);
    }
    return st;
}

void
ckpi_params_put_lifts(ckpi_buf *b, const ckpi_factors *f)
{
    for (size_t i = 0; i < f->n; i++)
        ckpi_buf_u8(b, (uint8_t)f->at[i].lift);
}

void
ckpi_params_get_lifts(ckpi_rd *r, ckpi_factors *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const uint8_t x = ckpi_rd_u8(r);
        f->at[i].lift = x < 128 ? x : (int32_t)x - 256;
    }
}

void
ckpi_params_put_escapes(ckpi_buf *b, const ckpi_escape *e, size_t n, size_t elem_bytes)
{
    uint32_t prev = 0;

    if (n == 0)
        return;                  /* no bytes: no escapes */
    ckpi_buf_varint(b, n);
    for (size_t i = 0; i < n; i++) {
        ckpi_buf_varint(b, e[i].index - prev);
        prev = e[i].index;
        if (elem_bytes == 2)
            ckpi_buf_u16(b, (uint16_t)e[i].bits);
        else
            ckpi_buf_u32(b, e[i].bits);
    }
}

ckp_status
ckpi_params_get_escapes(const uint8_t *p, size_t len, size_t elem_bytes, uint64_t n_elems, ckpi_escapes *out, uint64_t offset, ckp_error *err)
{
    ckpi_rd r = ckpi_rd_init(p, len, offset);
    uint64_t index = 0;

    *out = (ckpi_escapes){0};
    if (len == 0)
        return CKP_OK;
    /* each takes at least 3 bytes, so the blob pays for the allocation */
    const size_t n = (size_t)ckpi_rd_varint(&r, CKPI_MIN(n_elems, (uint64_t)len / (1 + elem_bytes)));
    if (!ckpi_rd_ok(&r) || n == 0)
        return ckpi_fail_at(err, CKP_ECORRUPT, offset, "escape count does not fit %zu bytes", len);
    out->at = ckpi_malloc(n, sizeof *out->at);
    if (out->at == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu escapes", n);
    out->cap = n;
    for (size_t i = 0; i < n; i++) {
        const uint64_t gap = ckpi_rd_varint(&r, n_elems - 1 - index);
        if (i > 0 && gap == 0)
            ckpi_rd_fail(&r, "an escape after the last one");
        index += gap;
        out->at[i].index = (uint32_t)index;
        out->at[i].bits = elem_bytes == 2 ? ckpi_rd_u16(&r) : ckpi_rd_u32(&r);
    }
    out->n = n;
    if (ckpi_rd_done(&r))
        return CKP_OK;
    const ckp_status st = ckpi_rd_ok(&r) ? ckpi_fail_at(err, CKP_ECORRUPT, offset, "%zu bytes after the last escape", ckpi_rd_left(&r))
                                         : ckpi_rd_error(&r, err, "escapes");
    ckpi_escapes_free(out);
    return st;
}
