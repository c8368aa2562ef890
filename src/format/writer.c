/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a file front to back. Nothing is ever patched, so a pipe will do; what the index needs is kept until the end. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"
#include "format/cover.h"
#include "format/frame.h"
#include "format/header.h"
#include "format/index.h"
#include "format/section.h"
#include "format/table.h"

struct ckpi_fmt_writer {
    ckpi_writer *w;              /* the caller's */
    const ckpi_table *table;     /* the caller's */
    ckpi_file_info info;
    ckpi_front front;
    ckpi_buf heads;              /* for each frame varint length, head: what the index repeats */
    ckpi_buf head;               /* the frame at hand: prefix, head, hash */
    ckpi_cover cover;
    ckpi_hasher *hasher;
    size_t n_chunks;
    uint64_t pos;                /* bytes of the file so far */
    uint64_t body;               /* of them in frames' bodies */
    uint64_t by_role[CKP_ROLE_COUNT_];
    bool table_is_ref, finished;
};

static ckp_status
put(ckpi_fmt_writer *fw, const void *p, size_t n, ckp_error *err)
{
    fw->pos += n;
    return n != 0 ? ckpi_writer_put(fw->w, p, n, err) : CKP_OK;
}

static ckp_status
put_front(ckpi_fmt_writer *fw, ckpi_bytes tree, ckpi_bytes prefix, ckp_error *err)
{
    uint8_t header[CKPI_WIRE_HEADER];
    ckpi_buf raw = CKPI_BUF_INIT_MAX(CKPI_MAX_TABLE);
    ckpi_header_encode(header, &fw->info, &fw->front.header_hash);
    ckp_status st = put(fw, header, sizeof header, err);
    if (st != CKP_OK)
        goto done;
    if (fw->table_is_ref) {
        st = ckpi_section_write_ref(fw->w, CKPI_WIRE_TABLE, fw->table->id, &fw->pos, err);
    } else {
        ckpi_table_encode(fw->table, &raw);
        st = ckpi_buf_status(&raw, err, "tensor table");
        if (st == CKP_OK)
            st = ckpi_section_write(fw->w, CKPI_WIRE_TABLE, (ckpi_bytes){raw.data, raw.len}, (ckpi_bytes){NULL, 0}, &fw->pos, err);
    }
    if (st == CKP_OK)
        st = ckpi_section_write(fw->w, CKPI_WIRE_TREE, tree, fw->table_is_ref ? prefix : (ckpi_bytes){NULL, 0}, &fw->pos, err);
done:
    ckpi_buf_free(&raw);
    return st;
}

ckp_status
ckpi_fmt_writer_new(ckpi_fmt_writer **out, ckpi_writer *w, const ckpi_file_info *info, const ckpi_table *table, const void *tree,
                    size_t tree_len, const ckpi_table *ref_table, const void *ref_tree, size_t ref_tree_len, ckp_error *err)
{
    ckp_status st;
    *out = NULL;
    ckpi_fmt_writer *fw = ckpi_calloc(1, sizeof *fw);
    if (fw == NULL || (fw->hasher = ckpi_hasher_new()) == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "file writer: out of memory");
        goto done;
    }
    fw->w = w;
    fw->table = table;
    fw->info = *info;
    fw->info.features |= (info->is_delta ? CKPI_FEAT_DELTA : 0) | (ckpi_table_has_copies(table) ? CKPI_FEAT_COPIES : 0);
    fw->heads.max = CKPI_MAX_INDEX;
    fw->front.table = table->id;
    fw->front.tree = ckpi_hash128(tree, tree_len);
    fw->table_is_ref = ref_table != NULL && !ckpi_id_is_zero(info->table_content) && ckpi_id_eq(ref_table->id, table->id);
    if (!fw->table_is_ref)
        fw->info.table_content = (ckpi_id){0, 0};
    if (tree_len > CKPI_MAX_TREE || (st = ckpi_tree_check(tree, tree_len, (uint32_t)table->n, err)) != CKP_OK) {
        st = ckpi_fail(err, CKP_EINVAL, "file writer: the state tree is malformed or too large");
        goto done;
    }
    st = put_front(fw, (ckpi_bytes){tree, tree_len}, (ckpi_bytes){ref_tree, ref_tree_len}, err);
    if (st != CKP_OK)
        goto done;
    *out = fw;
    fw = NULL;
done:
    ckpi_fmt_writer_free(fw);
    return st;
}

void
ckpi_fmt_writer_free(ckpi_fmt_writer *fw)
{
    if (fw == NULL)
        return;
    ckpi_hasher_free(fw->hasher);
    ckpi_buf_free(&fw->heads);
    ckpi_buf_free(&fw->head);
    ckpi_cover_free(&fw->cover);
    free(fw);
}

/* ---- frames ---- */

static const char *
chunk_fault(const ckpi_fmt_writer *fw, ckpi_chunk *c)
{
    if (c->role >= CKP_ROLE_COUNT_ || (c->flags & ~CKPI_CHUNK_USES_BASE) != 0)
        return "a role or flag that does not exist";
    if (c->params_len > CKPI_MAX_FRAME_PART || c->escapes_len > CKPI_MAX_FRAME_PART || c->payload_len > CKPI_MAX_FRAME_PART)
        return "a part of more than 128 MiB";
    return ckpi_frame_fault(c, c->piece, c->n_pieces, fw->table, &fw->info, &c->n);
}

/* Prefix, head and its hash into fw->head; a copy of the head for the index. */
static ckp_status
build_head(ckpi_fmt_writer *fw, const ckpi_chunk *c, ckp_error *err)
{
    ckpi_buf *b = &fw->head;
    ckpi_buf_clear(b);
    ckpi_buf_put(b, CKPI_WIRE_FRAME, 4);
    ckpi_buf_u32(b, 0);
    ckpi_frame_put(b, c, fw->table);
    ckp_status st = ckpi_buf_status(b, err, "frame head");
    if (st != CKP_OK)
        return st;
    const size_t len = b->len - CKPI_WIRE_FRAME_PREFIX;
    if (len > CKPI_MAX_FRAME_HEAD)
        return ckpi_fail(err, CKP_ELIMIT, "frame head: %zu bytes, the limit is %u", len, CKPI_MAX_FRAME_HEAD);
    ckpi_st32(b->data + 4, (uint32_t)len);
    ckpi_buf_u64(b, ckpi_hash64(b->data, b->len));
    ckpi_buf_str(&fw->heads, b->data + CKPI_WIRE_FRAME_PREFIX, len);
    st = ckpi_buf_status(b, err, "frame head");
    return st == CKP_OK ? ckpi_buf_status(&fw->heads, err, "index") : st;
}

static ckp_status
put_body(ckpi_fmt_writer *fw, const ckpi_chunk *c, ckp_error *err)
{
    ckp_status st = put(fw, c->params, c->params_len, err);
    if (st == CKP_OK)
        st = put(fw, c->escapes, c->escapes_len, err);
    if (st == CKP_OK)
        st = put(fw, c->payload, c->payload_len, err);
    return st;
}

ckp_status
ckpi_fmt_writer_chunk(ckpi_fmt_writer *fw, ckpi_chunk *c, ckp_error *err)
{
    const char *fault = chunk_fault(fw, c);
    if (fault != NULL)
        return ckpi_fail(err, CKP_EINVAL, "chunk %zu: %s", fw->n_chunks, fault);
    ckpi_hasher_reset(fw->hasher);
    ckpi_hasher_add(fw->hasher, c->params, c->params_len);
    ckpi_hasher_add(fw->hasher, c->escapes, c->escapes_len);
    ckpi_hasher_add(fw->hasher, c->payload, c->payload_len);
    c->stored_hash = ckpi_hasher_64(fw->hasher);
    ckp_status st = build_head(fw, c, err);
    if (st != CKP_OK)
        return st;
    if (!ckpi_cover_add(&fw->cover, c->piece, c->n_pieces, c->decoded_hash))
        return ckpi_fail(err, CKP_ENOMEM, "chunk %zu: out of memory", fw->n_chunks);

    c->offset = fw->pos;
    c->body_offset = fw->pos + fw->head.len;
    c->frame_len = fw->head.len + ckpi_frame_body(c);
    st = put(fw, fw->head.data, fw->head.len, err);
    if (st == CKP_OK)
        st = put_body(fw, c, err);
    if (st != CKP_OK)
        return st;
    fw->n_chunks++;
    fw->body += ckpi_frame_body(c);
    fw->by_role[c->role] += c->frame_len;
    return CKP_OK;
}

/* ---- the end ---- */

static ckp_status
put_index(ckpi_fmt_writer *fw, const ckpi_errrec *errs, size_t n_errs, ckpi_trailer *t, ckp_error *err)
{
    ckpi_buf raw = CKPI_BUF_INIT_MAX(CKPI_MAX_INDEX);
    ckpi_index_put(&raw, &fw->front, fw->n_chunks, &fw->heads);
    ckp_status st = ckpi_errrecs_put(&raw, errs, n_errs, fw->table->n, err);
    if (st == CKP_OK)
        st = ckpi_buf_status(&raw, err, "index");
    if (st == CKP_OK) {
        t->index_offset = fw->pos;
        t->index_id = ckpi_hash128(raw.data, raw.len);
        st = ckpi_section_write(fw->w, CKPI_WIRE_INDEX, (ckpi_bytes){raw.data, raw.len}, (ckpi_bytes){NULL, 0}, &fw->pos, err);
        t->index_len = fw->pos - t->index_offset;
    }
    ckpi_buf_free(&raw);
    return st;
}

ckp_status
ckpi_fmt_writer_finish(ckpi_fmt_writer *fw, const ckpi_errrec *errs, size_t n_errs, ckpi_fmt_sum *sum, ckp_error *err)
{
    ckpi_trailer t = {0};
    uint8_t bytes[CKPI_WIRE_TRAILER];
    if (fw->finished)
        return ckpi_fail(err, CKP_ESTATE, "file writer: finished already");
    fw->finished = true;
    ckp_status st = ckpi_cover_check(&fw->cover, fw->table, &t.content, err);
    if (st == CKP_ECORRUPT) {
        /* What would be damage in a file that is read is a bug of whoever writes. */
        if (err != NULL)
            err->code = CKP_EINTERNAL;
        return CKP_EINTERNAL;
    }
    if (st == CKP_OK)
        st = put_index(fw, errs, n_errs, &t, err);
    if (st != CKP_OK)
        return st;
    t.length = fw->pos + CKPI_WIRE_TRAILER;
    ckpi_trailer_encode(bytes, &t);
    st = put(fw, bytes, sizeof bytes, err);
    if (st != CKP_OK)
        return st;
    *sum = (ckpi_fmt_sum){.length = t.length, .content = t.content, .index_hash = t.index_id, .overhead = t.length - fw->body,
                          .table_is_ref = fw->table_is_ref};
    memcpy(sum->stored_by_role, fw->by_role, sizeof sum->stored_by_role);
    return CKP_OK;
}
