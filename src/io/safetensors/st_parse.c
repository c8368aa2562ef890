/* SPDX-License-Identifier: Apache-2.0 */
/* The header, read in one pass into rows; then what only all rows together can show: duplicates, holes, overlaps. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"
#include "io/safetensors/json.h"
#include "io/safetensors/st.h"

typedef struct parser {
    ckpi_json j;
    ckpi_st *st;
    bool has_metadata;
    ckp_error *err;
} parser;

/* A fault of the JSON itself, with its place in the file. */
static ckp_status
json_fault(const parser *p)
{
    if (p->j.no_memory)
        return ckpi_fail(p->err, CKP_ENOMEM, "safetensors header: out of memory");
    const uint64_t at = CKPI_ST_PREFIX + p->j.pos;
    return ckpi_fail_at(p->err, CKP_ECORRUPT, at, "safetensors header: %s", p->j.fault);
}

static ckp_status bad_entry(const parser *p, const ckpi_st_entry *e, ckp_status st, const char *fmt, ...) CKPI_PRINTF(4, 5);

static ckp_status
bad_entry(const parser *p, const ckpi_st_entry *e, ckp_status st, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)ckpi_fail_at(p->err, st, e->at, "%s", text);
    ckpi_fail_tensor(p->err, e->name);
    return st;
}

/* ---- one tensor ---- */

static bool
parse_shape(parser *p, ckpi_st_entry *e)
{
    uint64_t dims[CKPI_MAX_DIMS];
    if (!ckpi_json_take(&p->j, '['))
        return false;
    e->ndim = 0;
    for (bool first = true; ckpi_json_more(&p->j, ']', first); first = false) {
        if (e->ndim == CKPI_MAX_DIMS)
            return ckpi_json_fail(&p->j, "a shape of more than 64 dimensions");
        if (!ckpi_json_u64(&p->j, &dims[e->ndim]))
            return false;
        e->ndim++;
    }
    if (p->j.fault != NULL)
        return false;
    e->shape = ckpi_io_arena_copy(&p->st->arena, dims, e->ndim * sizeof *dims);
    p->j.no_memory = e->shape == NULL;
    return e->shape != NULL || ckpi_json_fail(&p->j, "out of memory");
}

static bool
parse_offsets(parser *p, ckpi_st_entry *e)
{
    uint64_t v[2] = {0, 0};
    unsigned n = 0;
    if (!ckpi_json_take(&p->j, '['))
        return false;
    for (; ckpi_json_more(&p->j, ']', n == 0); n++)
        if (n == 2 || !ckpi_json_u64(&p->j, &v[n]))
            break;
    e->begin = v[0];
    e->end = v[1];
    return n == 2 && p->j.fault == NULL && p->j.data[p->j.pos - 1] == ']' ? true : ckpi_json_fail(&p->j, "two offsets were expected");
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

/* Fields that the format does not know are passed over, as its own reader does: the header is kept verbatim anyway. */
static bool
parse_field(parser *p, ckpi_st_entry *e, ckpi_json_str *dtype, unsigned *has)
{
    ckpi_json_str key;
    if (!ckpi_json_string(&p->j, &p->st->arena, &key) || !ckpi_json_take(&p->j, ':'))
        return false;
    const unsigned bit = strcmp(key.p, "dtype") == 0 ? HAS_DTYPE : strcmp(key.p, "shape") == 0 ? HAS_SHAPE
                         : strcmp(key.p, "data_offsets") == 0 ? HAS_OFFSETS : 0;
    if ((*has & bit) != 0)
        return ckpi_json_fail(&p->j, "a duplicate key: a tensor's field comes twice");
    *has |= bit;
    switch (bit) {
    case HAS_DTYPE: return ckpi_json_string(&p->j, &p->st->arena, dtype);
    case HAS_SHAPE: return parse_shape(p, e);
    case HAS_OFFSETS: return parse_offsets(p, e);
    default: return ckpi_json_skip(&p->j, &p->st->arena, CKPI_MAX_JSON_DEPTH);
    }
}

static ckp_status
check_entry(const parser *p, ckpi_st_entry *e, const char *dtype, unsigned has)
{
    uint64_t numel, bytes;
    if (has != HAS_ALL)
        return bad_entry(p, e, CKP_ECORRUPT, "a tensor without %s", !(has & HAS_DTYPE) ? "dtype" : !(has & HAS_SHAPE) ? "shape" : "data_offsets");
    e->dtype = ckpi_st_dtype(dtype);
    if (e->dtype == 0)
        return bad_entry(p, e, CKP_EUNSUPPORTED, "dtype '%.40s' is not known", dtype);
    if (!ckpi_shape_numel(e->shape, e->ndim, &numel))
        return bad_entry(p, e, CKP_ECORRUPT, "a shape of more than 2^64 elements");
    if (!ckpi_dtype_bytes(e->dtype, numel, &bytes))
        return bad_entry(p, e, CKP_ECORRUPT, "%llu elements of %s do not end on a byte or are more than 2^64 bytes", (unsigned long long)numel,
                         dtype);
    if (e->end < e->begin || e->end - e->begin != bytes)
        return bad_entry(p, e, CKP_ECORRUPT, "data_offsets [%llu, %llu], but dtype and shape make %llu bytes", (unsigned long long)e->begin,
                         (unsigned long long)e->end, (unsigned long long)bytes);
    return CKP_OK;
}

static bool
with_room(ckpi_st *st)
{
    if (st->n < st->cap)
        return true;
    const size_t cap = st->cap == 0 ? 16 : st->cap * 2;
    ckpi_st_entry *t = ckpi_realloc(st->t, cap, sizeof *t);
    if (t == NULL)
        return false;
    st->t = t;
    st->cap = cap;
    return true;
}

static ckp_status
parse_tensor(parser *p, ckpi_json_str name, uint64_t at)
{
    ckpi_st_entry e = {.name = name.p, .at = at};
    ckpi_json_str dtype = {"", 0};
    unsigned has = 0;
    if (name.len == 0 || name.len > CKPI_MAX_NAME)
        return ckpi_fail_at(p->err, CKP_ELIMIT, at, "safetensors header: a tensor name of %zu bytes (1 to %d are allowed)",
                            name.len, CKPI_MAX_NAME);
    if (p->st->n >= CKPI_MAX_TENSORS)
        return ckpi_fail(p->err, CKP_ELIMIT, "safetensors header: more than %u tensors", CKPI_MAX_TENSORS);
    bool ok = ckpi_json_take(&p->j, '{');
    for (bool first = true; ok && ckpi_json_more(&p->j, '}', first); first = false)
        ok = parse_field(p, &e, &dtype, &has);
    if (!ok || p->j.fault != NULL) {
        const ckp_status st = json_fault(p);
        ckpi_fail_tensor(p->err, e.name);
        return st;
    }
    const ckp_status st = check_entry(p, &e, dtype.p, has);
    if (st != CKP_OK)
        return st;
    if (!with_room(p->st))
        return ckpi_fail(p->err, CKP_ENOMEM, "safetensors header: out of memory");
    p->st->t[p->st->n++] = e;
    return CKP_OK;
}

/* ---- metadata ---- */

/* Keys and values in turn. */
typedef struct pairs { const char **k; size_t n, cap; } pairs;

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool
pairs_add(pairs *k, const char *key, const char *value)
{
    if (k->n == k->cap) {
        const size_t cap = k->cap == 0 ? 16 : k->cap * 2;
        const char **p = ckpi_realloc(k->k, cap, 2 * sizeof *p);
        if (p == NULL)
            return false;
        k->k = p;
        k->cap = cap;
    }
    k->k[2 * k->n] = key;
    k->k[2 * k->n++ + 1] = value;
    return true;
}

static ckp_status
metadata_pairs(parser *p, pairs *all)
{
    ckpi_json_str key, value;
    bool ok = ckpi_json_take(&p->j, '{');
    for (bool first = true; ok && ckpi_json_more(&p->j, '}', first); first = false) {
        ok = ckpi_json_string(&p->j, &p->st->arena, &key) && ckpi_json_take(&p->j, ':');
        if (ok && ckpi_json_peek(&p->j) != '"')
            return ckpi_fail_at(p->err, CKP_ECORRUPT, CKPI_ST_PREFIX + p->j.pos,
                                "safetensors header: __metadata__ '%.100s' is not a string", key.p);
        ok = ok && ckpi_json_string(&p->j, &p->st->arena, &value);
        if (ok && !pairs_add(all, key.p, value.p))
            return ckpi_fail(p->err, CKP_ENOMEM, "safetensors header: out of memory");
    }
    return p->j.fault == NULL ? CKP_OK : json_fault(p);
}

static ckp_status
parse_metadata(parser *p, uint64_t at)
{
    pairs all = {0};
    if (p->has_metadata)
        return ckpi_fail_at(p->err, CKP_ECORRUPT, at, "safetensors header: duplicate key '__metadata__'");
    p->has_metadata = true;
    ckp_status st = metadata_pairs(p, &all);
    if (st == CKP_OK && all.n > 1) {
        qsort(all.k, all.n, 2 * sizeof *all.k, by_text);
        for (size_t i = 1; i < all.n && st == CKP_OK; i++)
            if (strcmp(all.k[2 * i - 2], all.k[2 * i]) == 0)
                st = ckpi_fail_at(p->err, CKP_ECORRUPT, at, "safetensors header: duplicate key '%.100s' in __metadata__", all.k[2 * i]);
    }
    p->st->meta = all.k;         /* freed with the rest, also on failure */
    p->st->n_meta = all.n;
    return st;
}

/* ---- all of them ---- */

static int
by_name(const void *a, const void *b)
{
    const ckpi_st_entry *x = a, *y = b;
    const int c = strcmp(x->name, y->name);
    return c != 0 ? c : x->at < y->at ? -1 : 1;
}

static int
by_offset(const void *a, const void *b)
{
    const ckpi_st_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;      /* empty tensors: as the header has them */
}

static ckp_status
check_names(const parser *p)
{
    ckpi_st *st = p->st;
    if (st->n > 1)
        qsort(st->t, st->n, sizeof *st->t, by_name);
    for (size_t i = 1; i < st->n; i++)
        if (strcmp(st->t[i - 1].name, st->t[i].name) == 0)
            return bad_entry(p, &st->t[i], CKP_ECORRUPT, "duplicate key: the same name was at byte %llu",
                             (unsigned long long)st->t[i - 1].at);
    return CKP_OK;
}

static ckp_status
check_cover(const parser *p)
{
    ckpi_st *st = p->st;
    uint64_t at = 0;
    if (st->n > 1)
        qsort(st->t, st->n, sizeof *st->t, by_offset);
    for (size_t i = 0; i < st->n; i++) {
        const ckpi_st_entry *e = &st->t[i];
        if (e->begin != at)
            return bad_entry(p, e, CKP_ECORRUPT, "%s: its data begin at %llu, the tensors before it end at %llu",
                             e->begin > at ? "a hole" : "an overlap", (unsigned long long)e->begin, (unsigned long long)at);
        at = e->end;
    }
    st->data_bytes = at;
    return CKP_OK;
}

static ckp_status
parse_object(parser *p)
{
    ckpi_json_str name;
    if (!ckpi_json_take(&p->j, '{'))
        return json_fault(p);
    for (bool first = true; ckpi_json_more(&p->j, '}', first); first = false) {
        (void)ckpi_json_peek(&p->j);
        const uint64_t at = CKPI_ST_PREFIX + p->j.pos;
        if (!ckpi_json_string(&p->j, &p->st->arena, &name) || !ckpi_json_take(&p->j, ':'))
            return json_fault(p);
        const ckp_status st = strcmp(name.p, "__metadata__") == 0 ? parse_metadata(p, at) : parse_tensor(p, name, at);
        if (st != CKP_OK)
            return st;
    }
    return p->j.fault == NULL ? CKP_OK : json_fault(p);
}

static ckp_status
parse(parser *p)
{
    if (p->j.len == 0 || p->j.data[0] != '{')
        return ckpi_fail_at(p->err, CKP_EFORMAT, CKPI_ST_PREFIX, "not a safetensors header: it does not begin with '{'");
    ckp_status st = parse_object(p);
    if (st != CKP_OK)
        return st;
    for (; p->j.pos < p->j.len; p->j.pos++)
        if (p->j.data[p->j.pos] != ' ') {
            (void)ckpi_json_fail(&p->j, "only spaces may follow the JSON object");
            return json_fault(p);
        }
    st = check_names(p);
    return st == CKP_OK ? check_cover(p) : st;
}

ckp_status
ckpi_st_parse(ckpi_st *out, const void *header, size_t len, ckp_error *err)
{
    *out = (ckpi_st){0};
    if (len > CKPI_MAX_ST_HEADER)
        return ckpi_fail(err, CKP_ELIMIT, "a safetensors header of %zu bytes: the format allows %u", len, CKPI_MAX_ST_HEADER);
    parser p = {.j = {.data = header, .len = len}, .st = out, .err = err};
    const ckp_status st = parse(&p);
    if (st != CKP_OK)
        ckpi_st_free(out);
    return st;
}

void
ckpi_st_free(ckpi_st *st)
{
    free(st->t);
    free(st->meta);
    ckpi_io_arena_free(&st->arena);
    *st = (ckpi_st){0};
}
