/* SPDX-License-Identifier: Apache-2.0 */
#include "format/frame.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"
#include "format/table.h"

bool
ckpi_pieces_add(ckpi_pieces *p, ckpi_piece piece)
{
    if (p->n == p->cap) {
        const size_t cap = p->cap == 0 ? 64 : p->cap * 2;
        ckpi_piece *at = ckpi_realloc(p->at, cap, sizeof *at);
        if (at == NULL)
            return false;
        p->at = at;
        p->cap = cap;
    }
    p->at[p->n++] = piece;
    return true;
}

void
ckpi_pieces_free(ckpi_pieces *p)
{
    free(p->at);
    *p = (ckpi_pieces){0};
}

/* ---- rules ---- */

static const char *
piece_fault(const ckpi_chunk *c, const ckpi_piece *p, const ckpi_table *t)
{
    uint64_t bytes;
    if (p->tensor >= t->n)
        return "a piece of a tensor that is not in the table";
    const ckpi_rec *r = &t->rec[p->tensor];
    if (!ckpi_rec_stored(r))
        return "a piece of a tensor that has no elements of its own";
    if ((unsigned)r->role != c->role || (unsigned)r->dtype != c->dtype)
        return "a piece of another role or dtype than its chunk";
    if (p->count == 0 || p->first >= r->numel || p->count > r->numel - p->first)
        return "a piece that is empty or leaves its tensor";
    if (!ckpi_dtype_bytes(r->dtype, p->first, &bytes) || !ckpi_dtype_bytes(r->dtype, p->count, &bytes))
        return "a piece of packed elements that does not begin and end on a byte";
    return NULL;
}

const char *
ckpi_frame_fault(const ckpi_chunk *c, const ckpi_piece *piece, size_t n_pieces, const ckpi_table *t, const ckpi_file_info *info,
                 uint64_t *n)
{
    *n = 0;
    if ((c->flags & CKPI_CHUNK_USES_BASE) != 0 && !info->is_delta)
        return "a chunk against a base in a file that has none";
    if (c->quant != 0 && (info->features & CKPI_FEAT_LOSSY) == 0)
        return "a quantized chunk in a file that does not announce any";
    if (n_pieces == 0 || n_pieces > CKPI_MAX_CHUNK_PIECES)
        return "no piece at all, or more than 65536";
    for (size_t i = 0; i < n_pieces; i++) {
        const char *fault = piece_fault(c, &piece[i], t);
        if (fault != NULL)
            return fault;
        *n += piece[i].count <= CKPI_MAX_CHUNK_ELEMS ? piece[i].count : CKPI_MAX_CHUNK_ELEMS + 1;
    }
    return *n <= CKPI_MAX_CHUNK_ELEMS ? NULL : "more than 2^20 elements";
}

/* ---- pieces on the wire: groups, each a run of whole tensors or a part of one ---- */

static bool
is_whole(const ckpi_piece *p, const ckpi_table *t)
{
    return p->first == 0 && p->count == t->rec[p->tensor].numel;
}

/* Whole tensors from here on whose numbers step evenly. */
static size_t
run_length(const ckpi_piece *p, size_t n, const ckpi_table *t, int64_t *stride)
{
    size_t k = 1;
    *stride = n > 1 ? (int64_t)p[1].tensor - (int64_t)p[0].tensor : 0;
    while (k < n && *stride != 0 && is_whole(&p[k], t) && (int64_t)p[k].tensor - (int64_t)p[k - 1].tensor == *stride)
        k++;
    return k;
}

static void
put_pieces(ckpi_buf *b, const ckpi_piece *p, size_t n, const ckpi_table *t)
{
    int64_t next = 0, step = 1;       /* where the last group's step leads: mostly there */
    ckpi_buf_varint(b, n);
    for (size_t i = 0; i < n;) {
        ckpi_buf_varint(b, ckpi_zigzag((int64_t)p[i].tensor - next));
        size_t k = 1;
        if (is_whole(&p[i], t)) {
            int64_t stride;
            k = run_length(p + i, n - i, t, &stride);
            ckpi_buf_varint(b, k);
            if (k > 1) {
                ckpi_buf_varint(b, ckpi_zigzag(stride));
                step = stride;
            }
        } else {
            ckpi_buf_varint(b, 0);
            ckpi_buf_varint(b, p[i].first);
            ckpi_buf_varint(b, p[i].count);
        }
        i += k;
        next = (int64_t)p[i - 1].tensor + step;
    }
}

/* Tensor numbers and steps are below 2^24, so none of these sums can overflow before it is checked. */
static bool
get_run(ckpi_rd *rd, int64_t first, int64_t stride, size_t k, const ckpi_table *t, ckpi_pieces *out)
{
    const int64_t last = first + stride * (int64_t)(k - 1);
    const int64_t end = t != NULL ? (int64_t)t->n : (int64_t)CKPI_MAX_TENSORS;
    if (first < 0 || last < 0 || first >= end || last >= end || (k > 1 && stride == 0)) {
        ckpi_rd_fail(rd, "tensors of the table");
        return true;
    }
    for (size_t i = 0; t != NULL && i < k; i++) {
        const uint32_t tensor = (uint32_t)(first + stride * (int64_t)i);
        if (!ckpi_pieces_add(out, (ckpi_piece){tensor, 0, t->rec[tensor].numel}))
            return false;
    }
    return true;
}

static bool
get_group(ckpi_rd *rd, size_t left, int64_t *next, int64_t *step, size_t *k, const ckpi_table *t, ckpi_pieces *out)
{
    const int64_t first = *next + ckpi_unzigzag(ckpi_rd_varint(rd, 4 * (uint64_t)CKPI_MAX_TENSORS));
    *k = (size_t)ckpi_rd_varint(rd, left);
    bool ok = true;
    if (*k != 0) {
        if (*k > 1)
            *step = ckpi_unzigzag(ckpi_rd_varint(rd, 2 * (uint64_t)CKPI_MAX_TENSORS));
        ok = get_run(rd, first, *step, *k, t, out);
        *next = first + *step * (int64_t)*k;
    } else {
        const size_t before = out != NULL ? out->n : 0;
        const uint64_t from = ckpi_rd_varint(rd, UINT64_MAX);
        const uint64_t count = ckpi_rd_varint(rd, CKPI_MAX_CHUNK_ELEMS);
        *k = 1;
        ok = get_run(rd, first, *step, 1, t, out);
        if (ok && ckpi_rd_ok(rd) && t != NULL) {
            out->at[before].first = from;
            out->at[before].count = count;
        }
        *next = first + *step;
    }
    return ok;
}

static bool
get_pieces(ckpi_rd *rd, size_t *n, const ckpi_table *t, ckpi_pieces *out)
{
    int64_t next = 0, step = 1;
    bool ok = true;
    *n = (size_t)ckpi_rd_varint(rd, CKPI_MAX_CHUNK_PIECES);
    for (size_t i = 0, k; ok && i < *n && ckpi_rd_ok(rd); i += k)
        ok = get_group(rd, *n - i, &next, &step, &k, t, out);
    return ok;
}

/* ---- heads ---- */

void
ckpi_frame_put(ckpi_buf *b, const ckpi_chunk *c, const ckpi_table *t)
{
    ckpi_buf_u8(b, c->role);
    ckpi_buf_u8(b, c->quant);
    ckpi_buf_u8(b, c->codec);
    ckpi_buf_u8(b, c->flags);
    ckpi_buf_u8(b, c->dtype);
    put_pieces(b, c->piece, c->n_pieces, t);
    ckpi_buf_varint(b, c->params_len);
    ckpi_buf_varint(b, c->escapes_len);
    ckpi_buf_varint(b, c->payload_len);
    ckpi_buf_u64(b, c->stored_hash);
    ckpi_buf_u64(b, c->decoded_hash);
}

ckp_status
ckpi_frame_get(ckpi_rd *rd, ckpi_chunk *c, const ckpi_table *t, const ckpi_file_info *info, ckpi_pieces *pieces, ckp_error *err)
{
    const size_t before = pieces != NULL ? pieces->n : 0;
    size_t n_pieces;
    *c = (ckpi_chunk){.role = ckpi_rd_u8(rd)};
    c->quant = ckpi_rd_u8(rd);
    c->codec = ckpi_rd_u8(rd);
    c->flags = ckpi_rd_u8(rd);
    c->dtype = ckpi_rd_u8(rd);
    const bool ok = get_pieces(rd, &n_pieces, t, pieces);
    c->params_len = (size_t)ckpi_rd_varint(rd, CKPI_MAX_FRAME_PART);
    c->escapes_len = (size_t)ckpi_rd_varint(rd, CKPI_MAX_FRAME_PART);
    c->payload_len = (size_t)ckpi_rd_varint(rd, CKPI_MAX_FRAME_PART);
    c->stored_hash = ckpi_rd_u64(rd);
    c->decoded_hash = ckpi_rd_u64(rd);
    if (!ok)
        return ckpi_fail(err, CKP_ENOMEM, "frame head: out of memory");
    if (!ckpi_rd_done(rd))
        return ckpi_rd_error(rd, err, "frame head");
    if ((c->flags & ~CKPI_CHUNK_USES_BASE) != 0 || c->role >= CKP_ROLE_COUNT_ || ckpi_dtype_get((ckp_dtype)c->dtype) == NULL)
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, rd->file_offset, "frame head: flags %u, role %u, dtype %u: not known to this version",
                            c->flags, c->role, c->dtype);
    if (t == NULL)
        return CKP_OK;
    c->n_pieces = n_pieces;
    const char *fault = ckpi_frame_fault(c, n_pieces != 0 ? pieces->at + before : NULL, n_pieces, t, info, &c->n);
    return fault == NULL ? CKP_OK : ckpi_fail_at(err, CKP_ECORRUPT, rd->file_offset, "frame head: %s", fault);
}
