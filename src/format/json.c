/* SPDX-License-Identifier: Apache-2.0 */
#include "format/json.h"
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "base/limits.h"

static const char tail_head[] = ",\n \"hash\": \"";
static const char tail_end[] = "\"\n}\n";
#define HEAD (sizeof tail_head - 1)
#define END (sizeof tail_end - 1)
#define HEX 32u
#define TAIL (HEAD + HEX + END)

ckp_status
ckpi_json_seal(const json_t *obj, ckpi_buf *out, ckp_error *err)
{
    char hex[HEX + 1];
    char *text = json_dumps(obj, JSON_INDENT(1));
    if (text == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to print a record");
    /* "{\n ...\n}": the tail takes the place of the last two bytes. */
    const size_t n = strlen(text) - 2;
    ckpi_id_hex(ckpi_hash128(text, n), hex);
    ckpi_buf_put(out, text, n);
    ckpi_buf_put(out, tail_head, HEAD);
    ckpi_buf_put(out, hex, HEX);
    ckpi_buf_put(out, tail_end, END);
    free(text);
    return ckpi_buf_status(out, err, "record");
}

/* True when text ends in a tail; *id is what it says. */
static bool
read_tail(const char *text, size_t n, ckpi_id *id)
{
    char hex[HEX + 1];
    if (n < TAIL)
        return false;
    const char *t = text + (n - TAIL);
    memcpy(hex, t + HEAD, HEX);
    hex[HEX] = '\0';
    return memcmp(t, tail_head, HEAD) == 0 && memcmp(t + HEAD + HEX, tail_end, END) == 0 && ckpi_id_parse(hex, id);
}

/* jansson's own bound is compiled in (2048): ours is stricter, and needs no parser. */
static bool
too_deep(const char *text, size_t n)
{
    bool quoted = false;
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '[') && ++depth > CKPI_MAX_JSON_DEPTH)
            return true;
        else if (!quoted && (c == '}' || c == ']') && depth > 0)
            depth--;
    }
    return false;
}

ckp_status
ckpi_json_object(json_t **out, const char *text, size_t n, const char *what, ckp_error *err)
{
    json_error_t je;
    *out = NULL;
    if (too_deep(text, n))
        return ckpi_fail(err, CKP_ELIMIT, "%s: JSON nested deeper than %d", what, CKPI_MAX_JSON_DEPTH);
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    if (v == NULL && json_error_code(&je) == json_error_out_of_memory)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to parse the %s", what);
    if (v == NULL)
        return ckpi_fail_at(err, CKP_ECORRUPT, (uint64_t)je.position, "%s: %s", what, je.text);
    if (!json_is_object(v)) {
        json_decref(v);
        return ckpi_fail(err, CKP_ECORRUPT, "%s: not a JSON object", what);
    }
    *out = v;
    return CKP_OK;
}

ckp_status
ckpi_json_unseal(json_t **out, const void *data, size_t n, const char *what, ckp_error *err)
{
    const char *text = data;
    ckpi_id said;
    char want[HEX + 1], have[HEX + 1];
    *out = NULL;
    if (n == 0 || text[0] != '{')
        return ckpi_fail(err, CKP_EFORMAT, "not a %s", what);
    if (!read_tail(text, n, &said))
        return ckpi_fail(err, CKP_ECORRUPT, "%s does not end in its hash: cut or changed", what);
    const ckpi_id is = ckpi_hash128(text, n - TAIL);
    if (!ckpi_id_eq(is, said)) {
        ckpi_id_hex(said, want);
        ckpi_id_hex(is, have);
        return ckpi_fail(err, CKP_ECORRUPT, "%s has hash %s, its own field says %s", what, have, want);
    }
    return ckpi_json_object(out, text, n, what, err);
}

void
ckpi_jrd_fail(ckpi_jrd *r, const char *key, const char *why)
{
    if (r->st == CKP_OK)
        r->st = ckpi_fail(r->err, CKP_ECORRUPT, "%s: field '%s' %s", r->what, key, why);
}

const json_t *
ckpi_jrd_get(ckpi_jrd *r, const char *key, json_type type)
{
    const json_t *v = json_object_get(r->obj, key);
    if (v != NULL && json_typeof(v) == type)
        return r->st == CKP_OK ? v : NULL;
    ckpi_jrd_fail(r, key, v == NULL ? "is missing" : "has the wrong type");
    return NULL;
}

uint64_t
ckpi_jrd_u64(ckpi_jrd *r, const char *key, uint64_t max)
{
    const json_int_t v = json_integer_value(ckpi_jrd_get(r, key, JSON_INTEGER));
    if (v < 0 || (uint64_t)v > max) {
        ckpi_jrd_fail(r, key, "is out of range");
        return 0;
    }
    return (uint64_t)v;
}

int64_t
ckpi_jrd_i64(ckpi_jrd *r, const char *key)
{
    return json_integer_value(ckpi_jrd_get(r, key, JSON_INTEGER));
}

const char *
ckpi_jrd_str(ckpi_jrd *r, const char *key)
{
    return json_string_value(ckpi_jrd_get(r, key, JSON_STRING));
}

const char *
ckpi_jrd_str_or_null(ckpi_jrd *r, const char *key)
{
    const json_t *v = json_object_get(r->obj, key);
    return v == NULL || json_is_null(v) ? NULL : ckpi_jrd_str(r, key);
}

ckpi_id
ckpi_jrd_id(ckpi_jrd *r, const char *key)
{
    ckpi_id id = {0, 0};
    const char *s = ckpi_jrd_str(r, key);
    if (s != NULL && !ckpi_id_parse(s, &id))
        ckpi_jrd_fail(r, key, "is not 32 lower-case hex digits");
    return id;
}

uint64_t
ckpi_jrd_hex(ckpi_jrd *r, const char *key, unsigned digits)
{
    const char *s = ckpi_jrd_str(r, key);
    if (s == NULL)
        return 0;
    if (strlen(s) != digits || strspn(s, "0123456789abcdef") != digits) {
        ckpi_jrd_fail(r, key, "is not lower-case hex digits of its length");
        return 0;
    }
    return strtoull(s, NULL, 16);
}

void
ckpi_jrd_version(ckpi_jrd *r, const char *key, uint64_t max)
{
    const json_t *v = json_object_get(r->obj, key);
    if (r->st != CKP_OK)
        return;
    if (!json_is_integer(v)) {
        r->st = ckpi_fail(r->err, CKP_EFORMAT, "not a %s: no '%s'", r->what, key);
        return;
    }
    if (json_integer_value(v) < 1 || (uint64_t)json_integer_value(v) > max) {
        r->st = ckpi_fail(r->err, CKP_EVERSION, "%s has format version %lld, this library knows up to %llu", r->what,
                          (long long)json_integer_value(v), (unsigned long long)max);
        return;
    }
    const json_t *need = ckpi_jrd_get(r, "features", JSON_ARRAY);
    if (need != NULL && json_array_size(need) > 0) {
        const char *name = json_string_value(json_array_get(need, 0));
        r->st = ckpi_fail(r->err, CKP_EUNSUPPORTED, "%s needs feature '%.64s', which this library does not know", r->what,
                          name != NULL ? name : "?");
    }
}

bool
ckpi_jput(json_t *obj, const char *key, json_t *v)
{
    return json_object_set_new(obj, key, v) == 0;      /* refuses NULL */
}

bool
ckpi_jput_u64(json_t *obj, const char *key, uint64_t v)
{
    return v <= INT64_MAX && ckpi_jput(obj, key, json_integer((json_int_t)v));
}

bool
ckpi_jput_str(json_t *obj, const char *key, const char *s)
{
    return ckpi_jput(obj, key, s == NULL ? json_null() : json_string(s));
}

bool
ckpi_jput_id(json_t *obj, const char *key, ckpi_id id)
{
    char hex[33];
    ckpi_id_hex(id, hex);
    return ckpi_jput_str(obj, key, hex);
}

bool
ckpi_jput_hex(json_t *obj, const char *key, uint64_t v, unsigned digits)
{
    char hex[17];
    for (unsigned i = 0; i < digits; i++)
        hex[i] = "0123456789abcdef"[v >> (4 * (digits - 1 - i)) & 15];
    hex[digits] = '\0';
    return ckpi_jput_str(obj, key, hex);
}
