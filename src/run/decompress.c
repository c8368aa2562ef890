/* SPDX-License-Identifier: Apache-2.0 */
/* .ckp back to safetensors or .pt: from a file in parallel, from a pipe as the chunks come. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ckpress/run_rewrite.h>
#include "base/dtype.h"
#include "base/fail.h"
#include "engine/decode.h"
#include "io/io.h"
#include "run/convert.h"
#include "run/emit.h"
#include "run/give.h"

typedef ckpi_emit target;

static bool
ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* The archive's inner folder, as torch.save names it: the file's stem. */
static void
archive_name(const char *out, char name[64])
{
    const char *slash = strrchr(out, '/');
    size_t n = 0;

    for (const char *p = slash != NULL ? slash + 1 : out; *p != '\0' && *p != '.' && n < 63; p++)
        name[n++] = (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_' || *p == '-' ? *p : '_';
    name[n] = '\0';
    if (n == 0 || strcmp(out, "-") == 0)
        (void)memcpy(name, "archive", 8);
}

/* pipe: tensors come in the table's order, once each. */
static ckp_status
open_export(target *x, ckpi_writer *w, const char *out, bool pipe, const void *tree, size_t tree_len, ckp_error *err)
{
    const void *header = NULL;
    size_t header_len = 0;

    const ckp_status st = tree_len != 0 ? ckpi_tree_st_header(tree, tree_len, &header, &header_len, err) : CKP_ENOTFOUND;
    x->kind = "safetensors";
    if (st == CKP_OK && !ends_with(out, ".pt") && !ends_with(out, ".pth"))
        return ckpi_export_st_same(&x->e, w, header, header_len, x->sub.tensor, x->sub.n, err);
    if (st != CKP_OK && st != CKP_ENOTFOUND)
        return st;
    if (ends_with(out, ".safetensors") && pipe)
        return ckpi_export_st_as_given(&x->e, w, x->sub.tensor, x->sub.n, err);
    if (ends_with(out, ".safetensors"))
        return ckpi_export_st_new(&x->e, w, x->sub.tensor, x->sub.n, err);
    x->kind = "pt";
    archive_name(out, x->archive);
    return ckpi_export_pt(&x->e, w, x->archive, x->sub.tensor, x->sub.n, tree, tree_len, err);
}

/* Elements of one tensor, from its start on. A file's chunks are asked for as they are needed; a pipe's come in the order that they have. */
static ckp_status
put(void *user, uint32_t tensor, uint64_t first, uint64_t count, const void *bytes, size_t len, ckp_error *err)
{
    target *x = user;
    ckp_status st = CKP_OK;

    if (first == 0)
        st = ckpi_export_skip_empty(x->e, err);
    if (st == CKP_OK && (first == 0 ? !ckpi_export_wants(x->e, x->sub.number[tensor]) : tensor != x->open || first != x->next))
        st = ckpi_fail(err, CKP_EUNSUPPORTED, "elements from %llu on are not what comes next in the file to be written: decode it from a file, not from a pipe",
                       (unsigned long long)first);
    if (st == CKP_OK && first == 0)
        st = ckpi_export_begin(x->e, x->sub.number[tensor], err);
    x->open = tensor;
    x->next = first + count;
    return st == CKP_OK ? ckpi_export_put(x->e, bytes, len, err) : st;
}

/* A safetensors file has no place for the tree's plain values, which must not go without a word. */
static ckp_status
find_lost(const target *x, const void *tree, size_t tree_len, ckp_convert_result *d, ckp_error *err)
{
    *d = (ckp_convert_result){.size = sizeof *d};
    return strcmp(x->kind, "safetensors") != 0 ? CKP_OK
                                               : ckpi_tree_plain(tree, tree_len, &d->values_lost, d->values_named, sizeof d->values_named, err);
}

static void
tell(const target *x, const char *dropped, ckpi_reader *r, const ckpi_writer *w, const ckp_convert_options *opt, ckp_convert_result *d, ckp_convert_result *res)
{
    char text[400];

    ckpi_convert_done(d, r, w, x->sub.n, x->kind);
    (void)snprintf(text, sizeof text, "plain values that safetensors cannot hold are left out: %llu (%s)", (unsigned long long)d->values_lost,
                   d->values_named);
    if (d->values_lost != 0 && opt->notice != NULL)
        opt->notice(opt->notice_user, text);
    if (dropped != NULL && opt->notice != NULL)
        opt->notice(opt->notice_user, dropped);
    if (res != NULL)
        *res = *d;
}

/* ---- from a file -------------------------------------------------------------------------------------------------- */

ckp_status
ckpi_emit_all(ckpi_emit *x, const ckp_checkpoint *ck, unsigned threads, ckp_progress_fn progress, void *user, ckp_error *err)
{
    size_t n = 0;
    const uint32_t *order = ckpi_export_order(x->e, &n);
    ckpi_give_range *r = ckpi_calloc(n + 1, sizeof *r);
    ckp_status st = CKP_OK;

    if (r == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++)
        r[i] = (ckpi_give_range){x->sub.row[order[i]], 0, x->t->rec[x->sub.row[order[i]]].numel};
    st = ckpi_give(ck, r, n, threads, put, x, progress, user, err);
    if (st == CKP_OK)
        st = ckpi_export_skip_empty(x->e, err);
    free(r);
    return st;
}

/* like: the file that ck is, or NULL. */
static ckp_status
export_checkpoint(const ckp_checkpoint *ck, const char *like, const char *out, const ckp_convert_options *opt, ckp_convert_result *res,
                  ckp_error *err)
{
    target x = {.t = ck->lin->table, .open = CKPI_NO_TENSOR};
    ckpi_out o = {0};
    ckp_convert_result d;
    size_t tree_len = 0;

    /* the tree speaks of all objects: a file of one is a state_dict */
    const void *tree = opt->only == NULL ? ckp_checkpoint_tree(ck, &tree_len) : NULL;
    ckp_status st = ckpi_subset_new(&x.sub, x.t, opt->only, err);
    if (st == CKP_OK)            /* a file may be written over itself: all that it holds is in the new one */
        st = ckpi_out_spares(ck, like != NULL ? 1 : 0, out, err);
    if (st == CKP_OK)
        st = ckpi_out_open(&o, out, opt->replace, like, err);
    if (st == CKP_OK)
        st = open_export(&x, o.w, out, false, tree, tree_len, err);
    if (st == CKP_OK)
        st = find_lost(&x, tree, tree_len, &d, err);
    if (st == CKP_OK)
        st = ckpi_emit_all(&x, ck, opt->coding.threads, opt->coding.progress, opt->coding.progress_user, err);
    if (st == CKP_OK)
        st = ckpi_export_finish(x.e, err);
    if (st == CKP_OK)
        st = ckpi_out_commit(&o, err);
    if (st == CKP_OK)
        tell(&x, opt->only == NULL ? ckp_checkpoint_dropped(ck) : NULL, ck->lin->level[0].f->r, o.w, opt, &d, res);
    ckpi_export_free(x.e);
    ckpi_out_free(&o);
    ckpi_subset_free(&x.sub);
    return st;
}

static ckp_status
from_file(const char *in, const char *out, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err)
{
    ckp_checkpoint *ck = NULL;

    ckp_status st = ckp_checkpoint_open_file(&ck, in, opt->bases, opt->n_bases, err);
    if (st == CKP_OK)
        st = export_checkpoint(ck, in, out, opt, res, err);
    ckp_checkpoint_close(ck);
    return st;
}

ckp_status
ckp_checkpoint_export(ckp_checkpoint *ck, const char *out, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err)
{
    const ckp_convert_options defaults = CKP_CONVERT_OPTIONS_INIT;

    opt = opt != NULL ? opt : &defaults;
    ckp_status st = ckpi_checkpoint_check(ck, err);
    if (st == CKP_OK)
        st = out != NULL ? ckpi_convert_check("", out, opt, res, err) : ckpi_fail(err, CKP_EINVAL, "convert: NULL argument");
    return st == CKP_OK ? export_checkpoint(ck, NULL, out, opt, res, err) : st;
}

/* ---- from a pipe -------------------------------------------------------------------------------------------------- */

/* Lossless chunks in the table's order, as `compress` writes them, can be given on as they come. */
static ckp_status
give_chunk(target *x, const ckpi_chunk *c, ckpi_ctx *ctx, ckp_error *err)
{
    const size_t len = (size_t)ckpi_chunk_bytes(x->t, c);

    if (c->quant != CKPI_QUANT_NONE || (c->flags & CKPI_CHUNK_USES_BASE))
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, c->offset, "a lossy file or a delta is decoded from a file, not from a pipe");
    ckpi_scratch_reset(ctx->ws[0]);
    uint8_t *bytes = ckpi_scratch_get(ctx->ws[0], len);
    if (bytes == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to decode %zu bytes", len);
    ckp_status st = ckpi_decode_plain(x->t, c, NULL, bytes, ctx->ws[0], ctx->cpu, err);
    if (st == CKP_OK && ckpi_hash64(bytes, len) != c->decoded_hash)
        st = ckpi_fail_at(err, CKP_ECORRUPT, c->offset, "decoded elements do not match their hash");
    size_t at = 0;
    for (size_t k = 0; st == CKP_OK && k < c->n_pieces; k++) {
        const ckpi_piece *p = &c->piece[k];
        uint64_t n = 0;
        (void)ckpi_dtype_bytes(x->t->rec[p->tensor].dtype, p->count, &n);
        st = put(x, p->tensor, p->first, p->count, bytes + at, (size_t)n, err);
        at += (size_t)n;
    }
    if (st != CKP_OK)
        ckpi_fail_tensor(err, x->t->rec[c->piece[0].tensor].name);
    return st;
}

static ckp_status
give_stream(target *x, ckpi_fmt_stream *s, const ckp_coding *coding, ckp_error *err)
{
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_ctx *ctx = NULL;
    ckpi_chunk c;
    bool done = false;
    uint64_t given = 0, total = 0;

    for (size_t i = 0; i < x->t->n; i++)
        total += x->t->rec[i].alias_of == CKPI_NO_TENSOR ? x->t->rec[i].bytes : 0;
    ckp_status st = ckpi_ctx_new(&ctx, 1, false, err);
    while (st == CKP_OK && !done) {
        st = ckpi_fmt_stream_next(s, false, &buf, &c, &done, NULL, err);
        if (st != CKP_OK || done)
            break;
        st = give_chunk(x, &c, ctx, err);
        given += ckpi_chunk_bytes(x->t, &c);
        if (st == CKP_OK && coding->progress != NULL && coding->progress(coding->progress_user, given, total) != 0)
            st = ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
    }
    if (st == CKP_OK)
        st = ckpi_export_skip_empty(x->e, err);
    ckpi_ctx_free(ctx);
    ckpi_buf_free(&buf);
    return st;
}

static ckp_status
from_pipe(const char *out, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err)
{
    ckpi_reader *r = NULL;
    ckpi_fmt_stream *s = NULL;
    target x = {.open = CKPI_NO_TENSOR};
    ckpi_out o = {0};
    ckp_convert_result d;
    const void *tree = NULL;
    size_t tree_len = 0;

    ckp_status st = ckpi_in_open(&r, "-", &opt->coding, err);
    if (st == CKP_OK)
        st = ckpi_fmt_stream_open(&s, r, err);
    if (st == CKP_OK && (x.t = ckpi_fmt_stream_table(s)) == NULL)
        st = ckpi_fail(err, CKP_EUNSUPPORTED, "a delta is decoded from a file, not from a pipe");
    if (st == CKP_OK && ckpi_table_has_copies(x.t))      /* most stand before their masters */
        st = ckpi_fail(err, CKP_EUNSUPPORTED, "low-precision copies of masters are derived from a file, not from a pipe");
    if (st == CKP_OK)
        st = ckpi_subset_new(&x.sub, x.t, NULL, err);
    if (st == CKP_OK)
        st = ckpi_out_open(&o, out, opt->replace, NULL, err);
    if (st == CKP_OK) {
        tree = ckpi_fmt_stream_tree(s, &tree_len);
        st = open_export(&x, o.w, out, true, tree, tree_len, err);
    }
    if (st == CKP_OK)
        st = find_lost(&x, tree, tree_len, &d, err);
    if (st == CKP_OK)
        st = give_stream(&x, s, &opt->coding, err);
    if (st == CKP_OK)
        st = ckpi_export_finish(x.e, err);
    if (st == CKP_OK)
        st = ckpi_out_commit(&o, err);
    if (st == CKP_OK)
        tell(&x, NULL, r, o.w, opt, &d, res);
    else
        ckpi_fail_file(err, "standard input");
    ckpi_export_free(x.e);
    ckpi_out_free(&o);
    ckpi_subset_free(&x.sub);
    ckpi_fmt_stream_free(s);
    ckpi_reader_free(r);
    return st;
}

ckp_status
ckp_decompress(const char *in, const char *out, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err)
{
    const ckp_convert_options defaults = CKP_CONVERT_OPTIONS_INIT;

    opt = opt != NULL ? opt : &defaults;
    const ckp_status st = out != NULL ? ckpi_convert_check(in, out, opt, res, err) : ckpi_fail(err, CKP_EINVAL, "convert: NULL argument");
    if (st != CKP_OK)
        return st;
    if (strcmp(in, "-") == 0 && opt->only != NULL)
        return ckpi_fail(err, CKP_EUNSUPPORTED, "one object alone is decoded from a file, not from a pipe");
    return strcmp(in, "-") == 0 ? from_pipe(out, opt, res, err) : from_file(in, out, opt, res, err);
}
