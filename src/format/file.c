/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a file from its end: trailer, index, and the proof that front, index and chunks belong together. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"
#include "format/cover.h"
#include "format/file_priv.h"
#include "format/frame.h"
#include "format/header.h"
#include "format/prelude.h"

void
ckpi_fmt_close(ckpi_fmt_file *f)
{
    if (f == NULL)
        return;
    file_priv *priv = f->priv;
    if (priv != NULL) {
        ckpi_prelude_free(&priv->front);
        ckpi_buf_free(&priv->index);
        free(priv->head_at);
        free(priv->head_len);
        free(priv->pieces);
        for (size_t p = 0; p < priv->n_parts; p++)
            ckpi_fmt_close(priv->part[p]);
        free(priv->part);
    }
    free(priv);
    free(f->chunk);
    free(f->errs);
    ckpi_reader_free(f->r);
    free(f);
}

/* ---- index ---- */

/* A head stands in its frame, which is there, and again here; error records have the table or their own bytes to pay for them. */
static ckp_status
read_index(ckpi_fmt_file *f, const ckpi_trailer *t, ckp_error *err)
{
    file_priv *priv = f->priv;
    uint8_t head[CKPI_WIRE_SECTION];
    ckpi_section sec;
    ckpi_buf stored = CKPI_BUF_INIT;
    ckp_status st = ckpi_reader_read(f->r, t->index_offset, head, sizeof head, err);
    if (st == CKP_OK)
        st = ckpi_section_parse(&sec, head, CKPI_WIRE_INDEX, CKPI_MAX_INDEX, t->index_offset, err);
    if (st != CKP_OK)
        return st;
    if (sec.coding > CKPI_CODING_ZSTD || sec.stored_len + CKPI_WIRE_SECTION != t->index_len || !ckpi_id_eq(sec.raw_id, t->index_id))
        return ckpi_fail_at(err, CKP_ECORRUPT, t->index_offset, "index: it is not the one that the trailer names");
    if (sec.raw_len > t->index_offset + 64 * sec.stored_len + 65536)
        return ckpi_fail_at(err, CKP_ECORRUPT, t->index_offset, "index: %llu bytes are more than the file's frames need",
                            (unsigned long long)sec.raw_len);
    st = ckpi_section_stored(&sec, f->r, t->index_offset + CKPI_WIRE_SECTION, &stored, err);
    if (st == CKP_OK)
        st = ckpi_section_unpack(&sec, &stored, (ckpi_bytes){NULL, 0}, &priv->index, "index", err);
    ckpi_buf_free(&stored);
    return st;
}

static bool
alloc_chunks(ckpi_fmt_file *f, size_t n)
{
    file_priv *priv = f->priv;
    f->chunk = ckpi_calloc(n, sizeof *f->chunk);
    priv->head_at = ckpi_calloc(n, sizeof *priv->head_at);
    priv->head_len = ckpi_calloc(n, sizeof *priv->head_len);
    return f->chunk != NULL && priv->head_at != NULL && priv->head_len != NULL;
}

/* Frames follow each other without a gap from the tree to the index: lengths give all places. */
static void
place_chunk(ckpi_chunk *c, size_t head_len, uint64_t *at)
{
    c->offset = *at;
    c->body_offset = *at + CKPI_WIRE_FRAME_PREFIX + head_len + 8;
    c->frame_len = c->body_offset - c->offset + ckpi_frame_body(c);
    *at += c->frame_len;
}

static ckp_status
parse_chunk(ckpi_fmt_file *f, ckpi_rd *rd, size_t i, uint64_t *at, ckp_error *err)
{
    file_priv *priv = f->priv;
    size_t len;
    const uint8_t *p = ckpi_rd_str(rd, CKPI_MAX_FRAME_HEAD, &len);
    if (p == NULL)
        return ckpi_rd_error(rd, err, "index, unpacked");
    priv->head_at[i] = (size_t)(p - priv->index.data);
    priv->head_len[i] = len;
    ckpi_rd head = ckpi_rd_init(p, len, *at + CKPI_WIRE_FRAME_PREFIX);
    const ckp_status st = ckpi_frame_get(&head, &f->chunk[i], NULL, &f->info, NULL, err);
    if (st == CKP_OK)
        place_chunk(&f->chunk[i], len, at);
    return st;
}

static ckp_status
parse_index(ckpi_fmt_file *f, uint64_t index_offset, ckp_error *err)
{
    file_priv *priv = f->priv;
    uint64_t at = priv->front.end;
    ckp_status st = CKP_OK;
    ckpi_rd rd = ckpi_rd_init(priv->index.data, priv->index.len, 0);
    if (at > index_offset)
        return ckpi_fail_at(err, CKP_ECORRUPT, index_offset, "index: it begins before the frames, at %llu", (unsigned long long)at);
    /* No more chunks than frames fit between tree and index. */
    const uint64_t most = (index_offset - at) / (CKPI_WIRE_FRAME_PREFIX + CKPI_WIRE_FRAME_MIN_HEAD + 8);
    f->n_chunks = ckpi_index_begin(&rd, &priv->front.front, most);
    if (!ckpi_rd_ok(&rd)) {
        f->n_chunks = 0;
        return ckpi_rd_error(&rd, err, "index, unpacked");
    }
    if (!alloc_chunks(f, f->n_chunks))
        return ckpi_fail(err, CKP_ENOMEM, "index: out of memory for %zu chunks", f->n_chunks);
    for (size_t i = 0; i < f->n_chunks && st == CKP_OK; i++)
        st = parse_chunk(f, &rd, i, &at, err);
    if (st == CKP_OK && at != index_offset)
        return ckpi_fail_at(err, CKP_ECORRUPT, at, "index: frames end here, it begins at %llu", (unsigned long long)index_offset);
    priv->errs_at = rd.pos;
    return st;
}

static ckp_status
parse_errs(ckpi_fmt_file *f, ckp_error *err)
{
    const file_priv *priv = f->priv;
    ckpi_rd rd = ckpi_rd_init(priv->index.data + priv->errs_at, priv->index.len - priv->errs_at, priv->errs_at);
    free(f->errs);
    f->errs = NULL;
    const ckp_status st = ckpi_errrecs_get(&rd, &f->errs, &f->n_errs, f->table != NULL ? f->table->n : CKPI_MAX_TENSORS, err);
    if (st == CKP_OK && !ckpi_rd_done(&rd))
        return ckpi_rd_error(&rd, err, "index, unpacked");
    return st;
}

/* ---- with the table: pieces, cover, content ---- */

static ckp_status
parse_pieces(ckpi_fmt_file *f, ckpi_pieces *all, ckpi_cover *cover, ckp_error *err)
{
    const file_priv *priv = f->priv;
    for (size_t i = 0; i < f->n_chunks; i++) {
        ckpi_chunk c;
        const size_t before = all->n;
        ckpi_rd rd = ckpi_rd_init(priv->index.data + priv->head_at[i], priv->head_len[i], f->chunk[i].offset + CKPI_WIRE_FRAME_PREFIX);
        const ckp_status st = ckpi_frame_get(&rd, &c, f->table, &f->info, all, err);
        if (st != CKP_OK)
            return st;
        f->chunk[i].n_pieces = c.n_pieces;
        f->chunk[i].n = c.n;
        /* Whole tensors cost a head almost nothing; but each can be whole only once. */
        if (all->n > f->table->n + priv->index.len)
            return ckpi_fail_at(err, CKP_ECORRUPT, f->chunk[i].offset, "index: more pieces than its table has tensors");
        if (!ckpi_cover_add(cover, all->at + before, c.n_pieces, c.decoded_hash))
            return ckpi_fail(err, CKP_ENOMEM, "index: out of memory");
    }
    return CKP_OK;
}

static ckp_status
bind_table(ckpi_fmt_file *f, ckp_error *err)
{
    file_priv *priv = f->priv;
    ckpi_pieces all = {0};
    ckpi_cover cover = {0};
    ckpi_id content;
    f->table = priv->front.table;
    f->tree = priv->front.tree.data;
    f->tree_len = priv->front.tree.len;
    ckp_status st = parse_pieces(f, &all, &cover, err);
    if (st == CKP_OK)
        st = ckpi_cover_check(&cover, f->table, &content, err);
    if (st == CKP_OK && !ckpi_id_eq(content, f->content))
        st = ckpi_fail_at(err, CKP_ECORRUPT, f->length - CKPI_WIRE_TRAILER, "the content id does not follow from the chunks");
    if (st == CKP_OK)
        st = parse_errs(f, err);
    ckpi_cover_free(&cover);
    if (st != CKP_OK) {
        f->table = NULL;
        ckpi_pieces_free(&all);
        return st;
    }
    priv->pieces = all.at;
    ckpi_piece *next = all.at;
    for (size_t i = 0; i < f->n_chunks; i++) {
        f->chunk[i].piece = next;
        next += f->chunk[i].n_pieces;
    }
    return CKP_OK;
}

/* ---- the calls ---- */

static ckp_status
open_file(ckpi_fmt_file *f, ckp_error *err)
{
    file_priv *priv = f->priv;
    uint8_t bytes[CKPI_WIRE_TRAILER];
    ckpi_trailer t;
    if (!ckpi_reader_seekable(f->r))
        return ckpi_fail(err, CKP_EUNSUPPORTED, "a pipe can be read front to back only");
    ckp_status st = ckpi_reader_size(f->r, &f->length, err);
    if (st == CKP_OK)
        st = ckpi_prelude_read(&priv->front, f->r, NULL, err);
    if (st != CKP_OK)
        return st;
    f->info = priv->front.info;
    f->table_id = priv->front.front.table;
    const uint64_t at = f->length - CKPI_WIRE_TRAILER;
    if (f->length < priv->front.end + CKPI_WIRE_TRAILER)
        return ckpi_fail_at(err, CKP_ETRUNCATED, f->length, "the file ends before its trailer");
    st = ckpi_reader_read(f->r, at, bytes, sizeof bytes, err);
    if (st == CKP_OK)
        st = ckpi_trailer_parse(&t, bytes, at, err);
    if (st != CKP_OK)
        return st;
    f->content = t.content;
    f->index_hash = t.index_id;
    st = read_index(f, &t, err);
    if (st == CKP_OK)
        st = parse_index(f, t.index_offset, err);
    if (st == CKP_OK)
        st = priv->front.table != NULL ? bind_table(f, err) : parse_errs(f, err);
    return st;
}

ckp_status
ckpi_fmt_open(ckpi_fmt_file **out, ckpi_reader *r, ckp_error *err)
{
    *out = NULL;
    ckpi_fmt_file *f = ckpi_calloc(1, sizeof *f);
    file_priv *priv = ckpi_calloc(1, sizeof *priv);
    if (f == NULL || priv == NULL) {
        free(f);
        free(priv);
        ckpi_reader_free(r);
        return ckpi_fail(err, CKP_ENOMEM, "open: out of memory");
    }
    f->r = r;
    f->priv = priv;
    const ckp_status st = open_file(f, err);
    if (st != CKP_OK) {
        ckpi_fail_file(err, ckpi_reader_name(r));
        ckpi_fmt_close(f);
        return st;
    }
    *out = f;
    return CKP_OK;
}

ckp_status
ckpi_fmt_resolve(ckpi_fmt_file *f, const ckpi_fmt_file *ref, ckp_error *err)
{
    file_priv *priv = f->priv;
    if (f->table != NULL)
        return CKP_OK;
    ckp_status st = ckpi_prelude_resolve(&priv->front, ref, err);
    if (st == CKP_OK)
        st = bind_table(f, err);
    if (st != CKP_OK)
        ckpi_fail_file(err, ckpi_reader_name(f->r));
    return st;
}

/* The frame in buf against its copy in the index, and the body against its hash. */
static ckp_status
check_frame(const ckpi_fmt_file *f, size_t i, const uint8_t *frame, ckp_error *err)
{
    const file_priv *priv = f->priv;
    const ckpi_chunk *c = &f->chunk[i];
    const size_t head = CKPI_WIRE_FRAME_PREFIX + priv->head_len[i];
    if (memcmp(frame, CKPI_WIRE_FRAME, 4) != 0 || ckpi_ld32(frame + 4) != priv->head_len[i] ||
        memcmp(frame + CKPI_WIRE_FRAME_PREFIX, priv->index.data + priv->head_at[i], priv->head_len[i]) != 0 ||
        ckpi_ld64(frame + head) != ckpi_hash64(frame, head))
        return ckpi_fail_at(err, CKP_ECORRUPT, c->offset, "the head of chunk %zu is not the one that the index has", i);
    const uint64_t found = ckpi_hash64(frame + head + 8, (size_t)ckpi_frame_body(c));
    if (found != c->stored_hash)
        return ckpi_fail_at(err, CKP_ECORRUPT, c->body_offset, "chunk %zu: expected stored hash %016llx, found %016llx", i,
                            (unsigned long long)c->stored_hash, (unsigned long long)found);
    return CKP_OK;
}

/* A chunk of a joined file, from the part that it comes from; its pieces keep their numbers in the joined table. */
static ckp_status
read_of_part(const ckpi_fmt_file *f, size_t i, ckpi_buf *buf, ckpi_chunk *c, ckp_error *err)
{
    const file_priv *priv = f->priv;
    size_t p = 0, at = i;
    for (; priv->part[p] == NULL || at >= priv->part[p]->n_chunks; p++)
        at -= priv->part[p] != NULL ? priv->part[p]->n_chunks : 0;
    const ckp_status st = ckpi_fmt_read_chunk(priv->part[p], at, buf, c, err);
    c->piece = f->chunk[i].piece;
    return st;
}

bool
ckpi_fmt_reads(const ckpi_fmt_file *f, const char *path)
{
    const file_priv *priv = f->priv;
    bool reads = ckpi_reader_is(f->r, path);
    for (size_t p = 0; !reads && p < priv->n_parts; p++)
        reads = priv->part[p] != NULL && ckpi_reader_is(priv->part[p]->r, path);
    return reads;
}

ckp_status
ckpi_fmt_hold(const ckpi_fmt_file *f, ckp_error *err)
{
    const file_priv *priv = f->priv;
    ckp_status st = ckpi_reader_hold(f->r, err);
    for (size_t p = 0; p < priv->n_parts && st == CKP_OK; p++)
        st = priv->part[p] != NULL ? ckpi_reader_hold(priv->part[p]->r, err) : CKP_OK;
    return st;
}

ckp_status
ckpi_fmt_read_chunk(const ckpi_fmt_file *f, size_t i, ckpi_buf *buf, ckpi_chunk *c, ckp_error *err)
{
    if (i >= f->n_chunks)
        return ckpi_fail(err, CKP_EINVAL, "chunk %zu of %zu", i, f->n_chunks);
    if (((const file_priv *)f->priv)->n_parts != 0)
        return read_of_part(f, i, buf, c, err);
    *c = f->chunk[i];
    ckpi_buf_clear(buf);
    uint8_t *frame = ckpi_buf_extend(buf, (size_t)c->frame_len);
    ckp_status st = ckpi_buf_status(buf, err, "chunk");
    if (st == CKP_OK)
        st = ckpi_reader_read(f->r, c->offset, frame, (size_t)c->frame_len, err);
    if (st == CKP_OK)
        st = check_frame(f, i, frame, err);
    if (st != CKP_OK) {
        if (c->n_pieces != 0)
            ckpi_fail_tensor(err, f->table->rec[c->piece[0].tensor].name);
        ckpi_fail_file(err, ckpi_reader_name(f->r));
        return st;
    }
    c->params = frame + (c->body_offset - c->offset);
    c->escapes = c->params + c->params_len;
    c->payload = c->escapes + c->escapes_len;
    return CKP_OK;
}
