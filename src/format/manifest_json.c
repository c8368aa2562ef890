/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest's text (docs/runs.md, "Manifest"). Unknown keys are ignored: what a reader must know is named in "features". */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "base/limits.h"
#include "format/json.h"
#include "format/manifest.h"

/* JSON has no non-finite numbers; a metric may be one, and a run whose loss is NaN wants to be seen as such. */
static json_t *
metric_json(double v)
{
    if (isnan(v))
        return json_string("nan");
    if (isinf(v))
        return json_string(v > 0 ? "inf" : "-inf");
    return json_real(v);
}

static bool
metric_value(const json_t *j, double *v)
{
    const char *s = json_string_value(j);
    if (s == NULL) {
        *v = json_number_value(j);
        return json_is_number(j);
    }
    if (strcmp(s, "nan") == 0)
        *v = (double)NAN;
    else if (strcmp(s, "inf") == 0)
        *v = (double)INFINITY;
    else if (strcmp(s, "-inf") == 0)
        *v = -(double)INFINITY;
    else
        return false;
    return true;
}

/* ---- printing ----------------------------------------------------------------------------------------------------- */

static bool
put_base(json_t *o, const ckpi_manifest *m)
{
    if (m->kind == CKPI_CKPT_KEY)
        return ckpi_jput_str(o, "base", NULL);
    json_t *b = json_object();
    const bool ok = ckpi_jput_str(b, "dir", m->base_dir) && ckpi_jput_id(b, "content", m->base);
    return ckpi_jput(o, "base", b) && ok;
}

static bool
put_shards(json_t *o, const ckpi_manifest *m)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; i < m->n_shards && ok; i++) {
        const ckpi_shard_ref *s = &m->shards[i];
        json_t *e = json_object();
        ok = ckpi_jput_str(e, "file", s->file) && ckpi_jput_u64(e, "length", s->length)
            && ckpi_jput_id(e, "hash", s->hash) && ckpi_jput_id(e, "content", s->content);
        ok = json_array_append_new(list, e) == 0 && ok;
    }
    return ckpi_jput(o, "shards", list) && ok;
}

static bool
put_numbers(json_t *o, const char *key, const ckpi_metric *v, size_t n)
{
    json_t *e = json_object();
    bool ok = e != NULL;
    for (size_t i = 0; i < n && ok; i++)
        ok = ckpi_jput(e, v[i].name, metric_json(v[i].value));
    return ckpi_jput(o, key, e) && ok;
}

static bool
put_all(json_t *o, const ckpi_manifest *m, json_t *errors)
{
    return ckpi_jput_u64(o, "ckpress_manifest", CKPI_MANIFEST_FORMAT)
        && ckpi_jput(o, "features", json_array())
        && ckpi_jput_id(o, "run", m->run_id)
        && ckpi_jput_u64(o, "step", m->step)
        && ckpi_jput_u64(o, "sequence", m->sequence)
        && ckpi_jput_hex(o, "attempt", m->attempt, 8)
        && ckpi_jput_u64(o, "epoch", m->epoch)
        && ckpi_jput(o, "created", json_integer(m->created))
        && ckpi_jput_str(o, "library", m->library)
        && ckpi_jput_str(o, "parent", m->parent)
        && ckpi_jput_str(o, "kind", m->kind == CKPI_CKPT_KEY ? "key" : "delta")
        && put_base(o, m)
        && (m->base_model == NULL || ckpi_jput_str(o, "base_model", m->base_model))
        && (m->replaces == NULL || ckpi_jput_str(o, "replaces", m->replaces))
        && (m->dropped == NULL || ckpi_jput_str(o, "dropped", m->dropped))
        && ckpi_jput_u64(o, "chain", m->chain)
        && ckpi_jput_str(o, "profile", m->profile)
        && ckpi_jput_u64(o, "restores", m->restores)
        && ckpi_jput_id(o, "content", m->content)
        && ckpi_jput_u64(o, "params", m->params)
        && ckpi_jput_u64(o, "raw_bytes", m->raw_bytes)
        && put_shards(o, m)
        && put_numbers(o, "metrics", m->metrics, m->n_metrics)
        && put_numbers(o, "settings", m->settings, m->n_settings)
        && ckpi_jput(o, "errors", errors == NULL ? json_null() : json_incref(errors));
}

ckp_status
ckpi_manifest_print(const ckpi_manifest *m, ckpi_buf *out, ckp_error *err)
{
    json_t *errors = NULL;
    ckp_status st = ckpi_manifest_check(m, err);
    if (st == CKP_OK && m->errors != NULL)
        st = ckpi_json_object(&errors, m->errors, strlen(m->errors), "manifest: field 'errors'", err);
    if (st != CKP_OK)
        return st;
    json_t *o = json_object();
    if (o == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to print a manifest");
    else if (!put_all(o, m, errors))
        st = ckpi_fail(err, CKP_EINVAL, "manifest: a text is not UTF-8, or memory ran out");
    else
        st = ckpi_json_seal(o, out, err);
    json_decref(o);
    json_decref(errors);
    return st;
}

/* ---- parsing ------------------------------------------------------------------------------------------------------ */

/* Strings are copied through this one: the first failure stays. */
static void
take_str(ckpi_jrd *r, char **field, const char *s)
{
    if (r->st == CKP_OK)
        r->st = ckpi_manifest_set(field, s, r->err);
}

static void
get_base(ckpi_jrd *r, ckpi_manifest *m)
{
    const char *kind = ckpi_jrd_str(r, "kind");
    if (kind == NULL || strcmp(kind, "key") == 0)
        return;                       /* check() sees to a base or chain that should not be there */
    m->kind = CKPI_CKPT_DELTA;
    if (strcmp(kind, "delta") != 0)
        ckpi_jrd_fail(r, "kind", "is neither key nor delta");
    ckpi_jrd b = {.obj = ckpi_jrd_get(r, "base", JSON_OBJECT), .what = r->what, .st = r->st, .err = r->err};
    take_str(&b, &m->base_dir, ckpi_jrd_str(&b, "dir"));
    m->base = ckpi_jrd_id(&b, "content");
    r->st = b.st;
}

static void
get_shards(ckpi_jrd *r, ckpi_manifest *m)
{
    const json_t *list = ckpi_jrd_get(r, "shards", JSON_ARRAY);
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n && r->st == CKP_OK; i++) {
        ckpi_jrd e = {.obj = json_array_get(list, i), .what = "manifest: shard", .err = r->err};
        const char *file = ckpi_jrd_str(&e, "file");
        const uint64_t length = ckpi_jrd_u64(&e, "length", INT64_MAX);
        const ckpi_id hash = ckpi_jrd_id(&e, "hash"), content = ckpi_jrd_id(&e, "content");
        r->st = e.st != CKP_OK ? e.st : ckpi_manifest_add_shard(m, file, length, hash, content, r->err);
    }
}

static void
get_numbers(ckpi_jrd *r, ckpi_manifest *m, const char *key, ckp_status (*add)(ckpi_manifest *, const char *, double, ckp_error *))
{
    json_t *o = json_object_get(r->obj, key);
    const char *name;
    json_t *j;
    if (ckpi_jrd_get(r, key, JSON_OBJECT) == NULL)
        return;
    json_object_foreach(o, name, j) {
        double v = 0;
        if (!metric_value(j, &v))
            ckpi_jrd_fail(r, key, "has a value that is no number");
        if (r->st == CKP_OK)
            r->st = add(m, name, v, r->err);
        if (r->st != CKP_OK)
            return;
    }
}

static void
get_errors(ckpi_jrd *r, ckpi_manifest *m)
{
    const json_t *j = json_object_get(r->obj, "errors");
    if (j == NULL || json_is_null(j) || ckpi_jrd_get(r, "errors", JSON_OBJECT) == NULL)
        return;
    char *text = json_dumps(j, JSON_COMPACT);
    if (text == NULL)
        r->st = ckpi_fail(r->err, CKP_ENOMEM, "no memory to parse a manifest");
    take_str(r, &m->errors, text);
    free(text);
}

static void
get_all(ckpi_jrd *r, ckpi_manifest *m)
{
    ckpi_jrd_version(r, "ckpress_manifest", CKPI_MANIFEST_FORMAT);
    m->run_id = ckpi_jrd_id(r, "run");
    m->step = ckpi_jrd_u64(r, "step", INT64_MAX);
    m->sequence = ckpi_jrd_u64(r, "sequence", INT64_MAX);
    m->attempt = (uint32_t)ckpi_jrd_hex(r, "attempt", 8);
    m->epoch = ckpi_jrd_u64(r, "epoch", INT64_MAX);
    m->created = ckpi_jrd_i64(r, "created");
    take_str(r, &m->library, ckpi_jrd_str_or_null(r, "library"));
    take_str(r, &m->parent, ckpi_jrd_str_or_null(r, "parent"));
    get_base(r, m);
    if (json_object_get(r->obj, "base_model") != NULL)
        take_str(r, &m->base_model, ckpi_jrd_str_or_null(r, "base_model"));
    if (json_object_get(r->obj, "replaces") != NULL)
        take_str(r, &m->replaces, ckpi_jrd_str_or_null(r, "replaces"));
    if (json_object_get(r->obj, "dropped") != NULL)
        take_str(r, &m->dropped, ckpi_jrd_str_or_null(r, "dropped"));
    m->chain = (uint32_t)ckpi_jrd_u64(r, "chain", CKPI_MAX_CHAIN);
    take_str(r, &m->profile, ckpi_jrd_str(r, "profile"));
    m->restores = (uint32_t)ckpi_jrd_u64(r, "restores", UINT32_MAX);
    m->content = ckpi_jrd_id(r, "content");
    m->params = ckpi_jrd_u64(r, "params", INT64_MAX);
    m->raw_bytes = ckpi_jrd_u64(r, "raw_bytes", INT64_MAX);
    get_shards(r, m);
    get_numbers(r, m, "metrics", ckpi_manifest_add_metric);
    if (json_object_get(r->obj, "settings") != NULL)    /* information that may be missing */
        get_numbers(r, m, "settings", ckpi_manifest_add_setting);
    get_errors(r, m);
}

/* What a caller may not do (EINVAL) is, in a file, damage. */
static ckp_status
as_file(ckp_status st, ckp_error *err)
{
    if (st != CKP_EINVAL)
        return st;
    if (err != NULL)
        err->code = CKP_ECORRUPT;
    return CKP_ECORRUPT;
}

ckp_status
ckpi_manifest_parse(ckpi_manifest **out, const void *data, size_t n, ckp_error *err)
{
    json_t *o = NULL;
    ckpi_manifest *m = NULL;
    *out = NULL;
    if (n > CKPI_MAX_MANIFEST)
        return ckpi_fail(err, CKP_ELIMIT, "manifest has %zu bytes, at most %u are read", n, CKPI_MAX_MANIFEST);
    ckp_status st = ckpi_json_unseal(&o, data, n, "manifest", err);
    if (st != CKP_OK)
        return st;
    m = ckpi_manifest_new();
    if (m == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to parse a manifest");
    } else {
        ckpi_jrd r = {.obj = o, .what = "manifest", .err = err};
        get_all(&r, m);
        st = r.st != CKP_OK ? r.st : as_file(ckpi_manifest_check(m, err), err);
    }
    if (st == CKP_OK) {
        *out = m;
        m = NULL;
    }
    ckpi_manifest_free(m);
    json_decref(o);
    return st;
}
