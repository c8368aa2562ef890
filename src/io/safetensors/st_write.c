/* SPDX-License-Identifier: Apache-2.0 */
/* Writing safetensors: the same file again, or a fresh one. The header comes first, so all is known before data flow. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"
#include "io/export.h"
#include "io/foreign.h"
#include "io/safetensors/st.h"
#include "state/state.h"

static const ckpi_export_ops st_ops = {0};

ckp_status
ckpi_tree_st_header(const void *tree, size_t tree_len, const void **header, size_t *len, ckp_error *err)
{
    ckp_tree_reader r;
    ckp_tree_node node;
    ckp_tree_reader_init(&r, tree, tree_len);
    ckp_status st = ckp_tree_next(&r, &node, err);
    if (st != CKP_OK)
        return st;
    const size_t n = strlen(CKPI_TREE_SAFETENSORS);
    if (node.type != CKP_TREE_NAMED || node.len != n || memcmp(node.data, CKPI_TREE_SAFETENSORS, n) != 0)
        return CKP_ENOTFOUND;
    st = ckp_tree_next(&r, &node, err);
    if (st == CKP_ENOTFOUND || (st == CKP_OK && node.type != CKP_TREE_BYTES))
        return ckpi_fail(err, CKP_ECORRUPT, "state tree: a safetensors header that is no bytes");
    *header = node.data;
    *len = node.len;
    return st;
}

static ckp_status
write_header(ckpi_writer *w, const void *header, size_t len, ckp_error *err)
{
    uint8_t prefix[CKPI_ST_PREFIX];
    ckpi_st64(prefix, len);
    const ckp_status st = ckpi_writer_put(w, prefix, sizeof prefix, err);
    return st == CKP_OK ? ckpi_writer_put(w, header, len, err) : st;
}

/* ---- the same file ---- */

static bool
same_tensor(const ckpi_st_entry *e, const ckpi_out_tensor *t)
{
    return strcmp(e->name, t->name) == 0 && e->dtype == t->dtype && e->ndim == t->ndim && e->end - e->begin == t->bytes &&
           (e->ndim == 0 || memcmp(e->shape, t->shape, e->ndim * sizeof *e->shape) == 0);
}

static ckp_status
check_same(const void *header, size_t len, const ckpi_out_tensor *t, size_t n, ckp_error *err)
{
    ckpi_st st;
    ckp_status rc = ckpi_st_parse(&st, header, len, err);
    if (rc != CKP_OK)
        return rc;
    if (st.n != n)
        rc = ckpi_fail(err, CKP_EMISMATCH, "the safetensors header has %zu tensors, %zu are stored", st.n, n);
    for (size_t i = 0; i < n && rc == CKP_OK; i++)
        if (!same_tensor(&st.t[i], &t[i]))
            rc = ckpi_fail(err, CKP_EMISMATCH, "tensor %zu is '%.200s' in the safetensors header and '%.200s' in the table, or differs in dtype or shape",
                           i, st.t[i].name, t[i].name);
    ckpi_st_free(&st);
    return rc;
}

ckp_status
ckpi_export_st_same(ckpi_export **out, ckpi_writer *w, const void *header, size_t len, const ckpi_out_tensor *t, size_t n, ckp_error *err)
{
    ckpi_export *e = NULL;
    *out = NULL;
    ckp_status st = check_same(header, len, t, n, err);
    if (st == CKP_OK)
        st = ckpi_export_new(&e, w, t, n, err);
    if (st != CKP_OK)
        return st;
    e->ops = &st_ops;
    e->fixed = true;
    for (size_t i = 0; i < n; i++)
        e->order[i] = (uint32_t)i;
    e->n_order = n;
    st = write_header(w, header, len, err);
    if (st != CKP_OK) {
        ckpi_export_free(e);
        return st;
    }
    *out = e;
    return CKP_OK;
}

/* ---- a fresh one ---- */

typedef struct row { const ckpi_out_tensor *t; uint32_t i; unsigned bits; } row;

/* Wide elements first keeps every tensor aligned to its element. */
static int
by_width(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (x->bits != y->bits)
        return x->bits > y->bits ? -1 : 1;
    const int c = strcmp(x->t->name, y->t->name);
    return c != 0 ? c : x->i < y->i ? -1 : 1;
}

/* torch counts pairs of float4, the format counts elements. */
static bool
pairs(const ckpi_out_tensor *t)
{
    return t->dtype == CKP_F4E2M1FN_X2 && t->ndim > 0 && t->shape[t->ndim - 1] <= UINT64_MAX / 2;
}

static const char *
dtype_name(const ckpi_out_tensor *t)
{
    return pairs(t) ? "F4" : ckpi_st_dtype_name(t->dtype);
}

static void
put_text(ckpi_buf *b, const char *s)
{
    ckpi_buf_put(b, s, strlen(s));
}

static void
put_string(ckpi_buf *b, const char *s)
{
    char esc[8];
    ckpi_buf_u8(b, '"');
    for (; *s != 0; s++) {
        const uint8_t c = (uint8_t)*s;
        if (c == '"' || c == '\\') {
            ckpi_buf_u8(b, '\\');
            ckpi_buf_u8(b, c);
        } else if (c < 0x20) {
            (void)snprintf(esc, sizeof esc, "\\u%04x", (unsigned)c);
            put_text(b, esc);
        } else {
            ckpi_buf_u8(b, c);
        }
    }
    ckpi_buf_u8(b, '"');
}

static void
put_u64(ckpi_buf *b, uint64_t v, const char *after)
{
    char num[24];
    (void)snprintf(num, sizeof num, "%" PRIu64, v);
    put_text(b, num);
    put_text(b, after);
}

static void
put_tensor(ckpi_buf *b, const ckpi_out_tensor *t, uint64_t begin, uint64_t end)
{
    put_string(b, t->name);
    put_text(b, ":{\"dtype\":\"");
    put_text(b, dtype_name(t));
    put_text(b, "\",\"shape\":[");
    for (unsigned i = 0; i < t->ndim; i++)
        put_u64(b, t->shape[i] * (pairs(t) && i == t->ndim - 1 ? 2 : 1), i + 1 < t->ndim ? "," : "");
    put_text(b, "],\"data_offsets\":[");
    put_u64(b, begin, ",");
    put_u64(b, end, "]}");
}

ckp_status
ckpi_st_check(const ckpi_out_tensor *t, size_t n, ckp_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *why = dtype_name(&t[i]) == NULL ? "safetensors has no such dtype" : strcmp(t[i].name, "__metadata__") == 0
                          ? "safetensors keeps this name for itself" : NULL;
        if (why != NULL) {
            const ckp_status st = ckpi_fail(err, CKP_EUNSUPPORTED, "%s: %s", ckp_dtype_name(t[i].dtype), why);
            ckpi_fail_tensor(err, t[i].name);
            return st;
        }
    }
    return CKP_OK;
}

static ckp_status
fresh_header(ckpi_buf *b, const row *rows, size_t n, const char *format, ckp_error *err)
{
    uint64_t at = 0;
    b->max = CKPI_MAX_ST_HEADER;
    ckpi_buf_u8(b, '{');
    if (format != NULL) {
        put_text(b, "\"__metadata__\":{\"format\":");
        put_string(b, format);
        put_text(b, n != 0 ? "}," : "}");
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t begin = at;
        if (!ckpi_add_u64(at, rows[i].t->bytes, &at))
            return ckpi_fail(err, CKP_ELIMIT, "tensors of more than 2^64 bytes");
        if (i != 0)
            ckpi_buf_u8(b, ',');
        put_tensor(b, rows[i].t, begin, at);
    }
    ckpi_buf_u8(b, '}');
    while ((CKPI_ST_PREFIX + b->len) % 8 != 0 && b->failed == CKP_OK)
        ckpi_buf_u8(b, ' ');
    if (b->failed == CKP_ELIMIT)
        return ckpi_fail(err, CKP_ELIMIT, "%zu tensors need a header beyond the %u bytes that safetensors allows: write several files", n,
                         CKPI_MAX_ST_HEADER);
    return ckpi_buf_status(b, err, "safetensors header");
}

/* as_given: in the order of t, not by width. */
static ckp_status
fresh(ckpi_export **out, ckpi_writer *w, const char *format, bool as_given, const ckpi_out_tensor *t, size_t n, ckp_error *err)
{
    ckpi_export *e = NULL;
    ckpi_buf header = CKPI_BUF_INIT;
    row *rows = NULL;
    *out = NULL;
    ckp_status st = ckpi_st_check(t, n, err);
    if (st == CKP_OK)
        st = ckpi_export_new(&e, w, t, n, err);
    if (st != CKP_OK)
        goto done;
    e->ops = &st_ops;
    e->fixed = true;
    rows = ckpi_malloc(n, sizeof *rows);
    if (rows == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "export: out of memory");
        goto done;
    }
    for (size_t i = 0; i < n; i++)
        rows[i] = (row){&t[i], (uint32_t)i, ckp_dtype_bits(t[i].dtype)};
    if (n > 1 && !as_given)
        qsort(rows, n, sizeof *rows, by_width);
    for (size_t i = 0; i < n; i++)
        e->order[i] = rows[i].i;
    e->n_order = n;
    st = fresh_header(&header, rows, n, format, err);
    if (st == CKP_OK)
        st = write_header(w, header.data, header.len, err);
    if (st != CKP_OK)
        goto done;
    *out = e;
    e = NULL;
done:
    free(rows);
    ckpi_buf_free(&header);
    ckpi_export_free(e);
    return st;
}

ckp_status
ckpi_export_st_new(ckpi_export **out, ckpi_writer *w, const ckpi_out_tensor *t, size_t n, ckp_error *err)
{
    return fresh(out, w, NULL, false, t, n, err);
}

ckp_status
ckpi_export_st_format(ckpi_export **out, ckpi_writer *w, const char *format, const ckpi_out_tensor *t, size_t n, ckp_error *err)
{
    return fresh(out, w, format, false, t, n, err);
}

/* Whether tensor i can come as it is given, `at` bytes behind the first. */
static ckp_status
check_given(const ckpi_out_tensor *t, size_t i, uint64_t at, ckp_error *err)
{
    ckp_status st = CKP_OK;
    if (t[i].alias_of != UINT32_MAX)
        st = ckpi_fail(err, CKP_EUNSUPPORTED, "it shares the elements of %.200s, which a pipe has once: decode it from a file", t[t[i].alias_of].name);
    else if (t[i].bytes != 0 && at % CKPI_MAX(ckp_dtype_bits(t[i].dtype) / 8, 1u) != 0)
        st = ckpi_fail(err, CKP_EUNSUPPORTED, "in the order of the pipe its elements would lie between words, where few programs read them: decode it from a file");
    if (st != CKP_OK)
        ckpi_fail_tensor(err, t[i].name);
    return st;
}

ckp_status
ckpi_export_st_as_given(ckpi_export **out, ckpi_writer *w, const ckpi_out_tensor *t, size_t n, ckp_error *err)
{
    uint64_t at = 0;
    ckp_status st = CKP_OK;
    *out = NULL;
    for (size_t i = 0; st == CKP_OK && i < n; at += t[i++].bytes)
        st = check_given(t, i, at, err);
    return st == CKP_OK ? fresh(out, w, NULL, true, t, n, err) : st;
}

/* ---- several files ---- */

ckp_status
ckpi_st_index(ckpi_buf *out, const ckpi_out_tensor *t, const char *const *file, size_t n, uint64_t total, ckp_error *err)
{
    put_text(out, "{\n  \"metadata\": {\n    \"total_size\": ");
    put_u64(out, total, "\n  },\n  \"weight_map\": {");
    for (size_t i = 0; i < n; i++) {
        put_text(out, i != 0 ? ",\n    " : "\n    ");
        put_string(out, t[i].name);
        put_text(out, ": ");
        put_string(out, file[i]);
    }
    put_text(out, "\n  }\n}\n");
    return ckpi_buf_status(out, err, "index of safetensors files");
}
