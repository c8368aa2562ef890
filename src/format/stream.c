/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading front to back, one frame after another, without the index: for pipes, and for what is left of a damaged file.
 *
 * Trust grows step by step: the first 8 bytes of a frame say how long its head is; the head's hash makes the head true, and with it the
 * length of the body; the stored hash makes the body true. Salvage looks for the next place where the first two steps succeed.
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/limits.h"
#include "format/cover.h"
#include "format/frame.h"
#include "format/header.h"
#include "format/prelude.h"
#include "format/scan.h"

/* What salvage may read to find frames: this, and so many times the file. */
#define SCAN_FREE ((uint64_t)64 << 20)
#define SCAN_TIMES 16u

struct ckpi_fmt_stream {
    ckpi_reader *r;              /* the caller's */
    ckpi_prelude front;
    ckp_status tree_status;      /* of a damaged tree, until it was reported */
    ckp_error tree_error;
    uint64_t pos;                /* of the next frame */
    ckpi_buf head;               /* of the frame at hand: prefix, head, hash */
    ckpi_buf heads;              /* as the index must have them */
    ckpi_pieces pieces;          /* of the frame at hand */
    ckpi_cover cover;
    size_t n_chunks;
    bool lost;                   /* something was skipped: the index cannot match any more */
    uint64_t scan_left;          /* bytes that looking for frames may still read */
    bool done;
};

void
ckpi_fmt_stream_free(ckpi_fmt_stream *s)
{
    if (s == NULL)
        return;
    ckpi_prelude_free(&s->front);
    ckpi_buf_free(&s->head);
    ckpi_buf_free(&s->heads);
    ckpi_pieces_free(&s->pieces);
    ckpi_cover_free(&s->cover);
    free(s);
}

static uint64_t
scan_budget(ckpi_reader *r)
{
    uint64_t size = 0;
    if (ckpi_reader_seekable(r) && ckpi_reader_size(r, &size, NULL) != CKP_OK)
        size = 0;
    return SCAN_FREE + CKPI_MIN(size, UINT64_MAX / (2 * SCAN_TIMES)) * SCAN_TIMES;
}

ckp_status
ckpi_fmt_stream_open(ckpi_fmt_stream **out, ckpi_reader *r, ckp_error *err)
{
    *out = NULL;
    ckpi_fmt_stream *s = ckpi_calloc(1, sizeof *s);
    if (s == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "stream: out of memory");
    s->r = r;
    s->heads.max = CKPI_MAX_INDEX;
    s->scan_left = scan_budget(r);
    const ckp_status st = ckpi_prelude_read(&s->front, r, &s->tree_status, &s->tree_error);
    s->pos = s->front.end;
    if (st != CKP_OK) {
        if (err != NULL)
            *err = s->tree_error;
        ckpi_fail_file(err, ckpi_reader_name(r));
        ckpi_fmt_stream_free(s);
        return st;
    }
    *out = s;
    return CKP_OK;
}

const ckpi_file_info *
ckpi_fmt_stream_info(const ckpi_fmt_stream *s)
{
    return &s->front.info;
}

const ckpi_table *
ckpi_fmt_stream_table(const ckpi_fmt_stream *s)
{
    return s->front.table;
}

const void *
ckpi_fmt_stream_tree(const ckpi_fmt_stream *s, size_t *len)
{
    const bool ready = s->front.tree_ready && s->tree_status == CKP_OK;
    *len = ready ? s->front.tree.len : 0;
    return ready ? s->front.tree.data : NULL;
}

ckp_status
ckpi_fmt_stream_resolve(ckpi_fmt_stream *s, const ckpi_fmt_file *ref, ckp_error *err)
{
    return ckpi_prelude_resolve(&s->front, ref, err);
}

/* ---- one frame ---- */

/* n more bytes of the frame at hand; in head mode they are appended to s->head. */
static ckp_status
read_more(ckpi_fmt_stream *s, size_t n, ckp_error *err)
{
    const uint64_t at = s->pos + s->head.len;
    size_t got = 0;
    uint8_t *p = ckpi_buf_extend(&s->head, n);
    ckp_status st = ckpi_buf_status(&s->head, err, "frame head");
    if (st == CKP_OK)
        st = ckpi_reader_some(s->r, at, p, n, &got, err);
    if (st == CKP_OK && got < n)
        st = ckpi_fail_at(err, CKP_ETRUNCATED, at + got, "the file ends inside a frame or before its trailer");
    return st;
}

static ckp_status
read_head(ckpi_fmt_stream *s, ckpi_chunk *c, ckp_error *err)
{
    const uint32_t len = ckpi_ld32(s->head.data + 4);
    if (len < CKPI_WIRE_FRAME_MIN_HEAD || len > CKPI_MAX_FRAME_HEAD)
        return ckpi_fail_at(err, CKP_ECORRUPT, s->pos, "frame: a head of %u bytes", len);
    /* The head may claim 2 MiB at most, so its bytes need no paying in parts. */
    ckp_status st = read_more(s, (size_t)len + 8, err);
    if (st != CKP_OK)
        return st;
    const size_t hashed = CKPI_WIRE_FRAME_PREFIX + (size_t)len;
    if (ckpi_ld64(s->head.data + hashed) != ckpi_hash64(s->head.data, hashed))
        return ckpi_fail_at(err, CKP_ECORRUPT, s->pos, "frame: its head does not have its hash");
    ckpi_rd rd = ckpi_rd_init(s->head.data + CKPI_WIRE_FRAME_PREFIX, len, s->pos + CKPI_WIRE_FRAME_PREFIX);
    s->pieces.n = 0;
    st = ckpi_frame_get(&rd, c, s->front.table, &s->front.info, &s->pieces, err);
    c->piece = s->pieces.at;
    c->offset = s->pos;
    c->body_offset = s->pos + s->head.len;
    c->frame_len = s->head.len + ckpi_frame_body(c);
    return st;
}

static ckp_status
read_body(ckpi_fmt_stream *s, ckpi_buf *buf, ckpi_chunk *c, ckp_error *err)
{
    ckp_status st = ckpi_read_paid(s->r, c->body_offset, ckpi_frame_body(c), buf, err);
    if (st != CKP_OK)
        return st;
    const uint64_t found = ckpi_hash64(buf->data, buf->len);
    if (found != c->stored_hash)
        return ckpi_fail_at(err, CKP_ECORRUPT, c->body_offset, "frame: expected stored hash %016llx, found %016llx",
                            (unsigned long long)c->stored_hash, (unsigned long long)found);
    c->params = buf->data;
    c->escapes = buf->data != NULL ? buf->data + c->params_len : NULL;
    c->payload = buf->data != NULL ? c->escapes + c->escapes_len : NULL;
    return CKP_OK;
}

/* Keeps what the index will be compared with, and moves on. */
static ckp_status
accept(ckpi_fmt_stream *s, const ckpi_chunk *c, ckp_error *err)
{
    const size_t len = s->head.len - CKPI_WIRE_FRAME_PREFIX - 8;
    if (!s->lost) {
        ckpi_buf_str(&s->heads, s->head.data + CKPI_WIRE_FRAME_PREFIX, len);
        const ckp_status st = ckpi_buf_status(&s->heads, err, "index");
        if (st != CKP_OK)
            return st;
        /* Whole tensors cost a head almost nothing; but each can be whole only once. */
        if (s->cover.n + c->n_pieces > s->front.table->n + s->heads.len)
            return ckpi_fail_at(err, CKP_ECORRUPT, s->pos, "frame: more pieces than its table has tensors");
        if (!ckpi_cover_add(&s->cover, c->piece, c->n_pieces, c->decoded_hash))
            return ckpi_fail(err, CKP_ENOMEM, "stream: out of memory");
    }
    s->n_chunks++;
    s->pos += c->frame_len;
    return CKP_OK;
}

/* ---- the end ---- */

static ckp_status
check_trailer(ckpi_fmt_stream *s, uint64_t at, const ckpi_section *index, ckp_error *err)
{
    uint8_t bytes[CKPI_WIRE_TRAILER], more;
    ckpi_trailer t;
    ckpi_id content;
    size_t got;
    ckp_status st = ckpi_reader_read(s->r, at, bytes, sizeof bytes, err);
    if (st == CKP_OK)
        st = ckpi_trailer_parse(&t, bytes, at, err);
    if (st == CKP_OK)
        st = ckpi_cover_check(&s->cover, s->front.table, &content, err);
    if (st != CKP_OK)
        return st;
    if (t.index_offset != s->pos || !ckpi_id_eq(t.index_id, index->raw_id) || !ckpi_id_eq(t.content, content))
        return ckpi_fail_at(err, CKP_ECORRUPT, at, "trailer: it belongs to another index, or the content id to other chunks");
    st = ckpi_reader_some(s->r, at + sizeof bytes, &more, 1, &got, err);
    if (st == CKP_OK && got != 0)
        return ckpi_fail_at(err, CKP_ECORRUPT, at + sizeof bytes, "bytes after the trailer");
    return st;
}

static ckp_status
check_index(ckpi_fmt_stream *s, const ckpi_section *sec, const ckpi_buf *raw, ckp_error *err)
{
    ckpi_errrec *errs = NULL;
    size_t n;
    ckpi_rd rd = ckpi_rd_init(raw->data, raw->len, 0);
    if (!ckpi_index_matches(&rd, &s->front.front, s->n_chunks, &s->heads))
        return ckpi_fail_at(err, CKP_ECORRUPT, s->pos, "index: it is not that of the frames before it");
    ckp_status st = ckpi_errrecs_get(&rd, &errs, &n, s->front.table->n, err);
    if (st == CKP_OK && !ckpi_rd_done(&rd))
        st = ckpi_rd_error(&rd, err, "index, unpacked");
    free(errs);
    return st == CKP_OK ? check_trailer(s, s->pos + CKPI_WIRE_SECTION + sec->stored_len, sec, err) : st;
}

/* The next bytes are the index's: s->head holds the first 8 of its head. */
static ckp_status
read_end(ckpi_fmt_stream *s, ckp_error *err)
{
    ckpi_section sec;
    ckpi_buf stored = CKPI_BUF_INIT, raw = CKPI_BUF_INIT;
    ckp_status st = read_more(s, CKPI_WIRE_SECTION - 8, err);
    if (st == CKP_OK)
        st = ckpi_section_parse(&sec, s->head.data, CKPI_WIRE_INDEX, CKPI_MAX_INDEX, s->pos, err);
    if (st != CKP_OK || s->lost)
        return st;
    if (sec.coding > CKPI_CODING_ZSTD || sec.raw_len > s->pos + 64 * sec.stored_len + 65536)
        return ckpi_fail_at(err, CKP_ECORRUPT, s->pos, "index: more bytes than the file's frames need");
    st = ckpi_section_stored(&sec, s->r, s->pos + CKPI_WIRE_SECTION, &stored, err);
    if (st == CKP_OK)
        st = ckpi_section_unpack(&sec, &stored, (ckpi_bytes){NULL, 0}, &raw, "index", err);
    if (st == CKP_OK)
        st = check_index(s, &sec, &raw, err);
    ckpi_buf_free(&stored);
    ckpi_buf_free(&raw);
    return st;
}

/* Whatever comes next. *c->frame_len is not 0 once the head was proved: then the body alone is at fault. */
static ckp_status
read_next(ckpi_fmt_stream *s, ckpi_buf *buf, ckpi_chunk *c, ckp_error *err)
{
    *c = (ckpi_chunk){0};
    ckpi_buf_clear(&s->head);
    ckp_status st = read_more(s, CKPI_WIRE_FRAME_PREFIX, err);
    if (st != CKP_OK)
        return st;
    if (memcmp(s->head.data, CKPI_WIRE_INDEX, 4) == 0) {
        st = read_end(s, err);
        s->done = st == CKP_OK;
        return st;
    }
    if (memcmp(s->head.data, CKPI_WIRE_FRAME, 4) != 0)
        return ckpi_fail_at(err, CKP_ECORRUPT, s->pos, "expected a frame or the index");
    st = read_head(s, c, err);
    if (st != CKP_OK) {
        *c = (ckpi_chunk){0};
        return st;
    }
    st = read_body(s, buf, c, err);
    return st == CKP_OK ? accept(s, c, err) : st;
}

/* ---- salvage ---- */

static bool
is_damage(ckp_status st)
{
    return st == CKP_ECORRUPT || st == CKP_ETRUNCATED || st == CKP_EUNSUPPORTED || st == CKP_ELIMIT || st == CKP_EFORMAT;
}

/* Moves to the next place worth trying after st at s->pos; done when there is none. */
static ckp_status
step_over(ckpi_fmt_stream *s, const ckpi_chunk *c, ckp_status st, uint64_t *skipped, ckp_error *err)
{
    const bool cut = st == CKP_ETRUNCATED && (c->frame_len != 0 || s->head.len <= CKPI_WIRE_FRAME_PREFIX);
    s->lost = true;
    if (cut) {
        s->done = true;          /* the file just ends: no damage, but no more chunks either */
        return CKP_OK;
    }
    ++*skipped;
    if (c->frame_len != 0) {
        s->pos += c->frame_len;
        return CKP_OK;
    }
    bool found;
    st = ckpi_scan(s->r, s->pos + 1, &s->scan_left, &s->pos, &found, err);
    s->done = st == CKP_OK && !found;
    return st;
}

ckp_status
ckpi_fmt_stream_next(ckpi_fmt_stream *s, bool salvage, ckpi_buf *buf, ckpi_chunk *c, bool *done, uint64_t *skipped, ckp_error *err)
{
    ckp_status st = CKP_OK;
    *done = false;
    if (s->front.table == NULL)
        return ckpi_fail(err, CKP_ESTATE, "stream: the tensor table lives in another file; resolve it first");
    if (s->tree_status != CKP_OK) {
        if (!salvage) {
            if (err != NULL)
                *err = s->tree_error;
            return s->tree_status;
        }
        s->tree_status = CKP_OK;
        ckpi_buf_clear(&s->front.tree);
        s->lost = true;
        ++*skipped;
    }
    while (!s->done) {
        st = read_next(s, buf, c, err);
        if (st == CKP_OK && !s->done)
            return CKP_OK;
        if (st == CKP_OK)
            break;
        if (!salvage || !is_damage(st) || !ckpi_reader_seekable(s->r)) {
            ckpi_fail_file(err, ckpi_reader_name(s->r));
            return st;
        }
        st = step_over(s, c, st, skipped, err);
        if (st != CKP_OK)
            return st;
    }
    *done = true;
    ckpi_error_clear(err);       /* of damage that was stepped over */
    return CKP_OK;
}
