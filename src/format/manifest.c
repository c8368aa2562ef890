/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest as a struct: building, copying, and what every manifest must satisfy. Its text: manifest_json.c. */
#include "format/manifest.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/limits.h"
#include "os/os.h"

#define MAX_METRICS 4096u      /* adding one searches all: the cap keeps a hostile list cheap */
#define MAX_PROFILE 64u

ckpi_manifest *
ckpi_manifest_new(void)
{
    return ckpi_calloc(1, sizeof(ckpi_manifest));
}

void
ckpi_manifest_free(ckpi_manifest *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->n_shards; i++)
        free(m->shards[i].file);
    for (size_t i = 0; i < m->n_metrics; i++)
        free(m->metrics[i].name);
    for (size_t i = 0; i < m->n_settings; i++)
        free(m->settings[i].name);
    free(m->shards);
    free(m->metrics);
    free(m->settings);
    free(m->library);
    free(m->parent);
    free(m->base_dir);
    free(m->base_model);
    free(m->replaces);
    free(m->dropped);
    free(m->profile);
    free(m->errors);
    free(m);
}

ckp_status
ckpi_manifest_set(char **field, const char *s, ckp_error *err)
{
    char *copy = s == NULL ? NULL : ckpi_strdup(s);
    if (s != NULL && copy == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a manifest");
    free(*field);
    *field = copy;
    return CKP_OK;
}

/* Room for one more: arrays grow when their length is a power of two, so no capacity needs to be kept. */
static void *
grow(void *v, size_t n, size_t size)
{
    if ((n & (n - 1)) != 0)
        return v;
    return ckpi_realloc(v, n == 0 ? 1 : 2 * n, size);
}

ckp_status
ckpi_manifest_add_shard(ckpi_manifest *m, const char *file, uint64_t length, ckpi_id hash, ckpi_id content, ckp_error *err)
{
    if (m->n_shards >= CKPI_MAX_SHARDS)
        return ckpi_fail(err, CKP_ELIMIT, "manifest: more than %u shards", CKPI_MAX_SHARDS);
    char *name = ckpi_strdup(file);
    ckpi_shard_ref *v = name == NULL ? NULL : grow(m->shards, m->n_shards, sizeof *v);
    if (v == NULL) {
        free(name);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a manifest");
    }
    m->shards = v;
    v[m->n_shards++] = (ckpi_shard_ref){.file = name, .length = length, .hash = hash, .content = content};
    return CKP_OK;
}

static ckpi_metric *
find_number(ckpi_metric *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i].name, name) == 0)
            return &v[i];
    return NULL;
}

static ckp_status
add_number(ckpi_metric **list, size_t *n, const char *name, double value, const char *what, ckp_error *err)
{
    ckpi_metric *old = find_number(*list, *n, name);
    if (old != NULL) {
        old->value = value;
        return CKP_OK;
    }
    if (*n >= MAX_METRICS)
        return ckpi_fail(err, CKP_ELIMIT, "manifest: more than %u %s", MAX_METRICS, what);
    char *copy = ckpi_strdup(name);
    ckpi_metric *v = copy == NULL ? NULL : grow(*list, *n, sizeof *v);
    if (v == NULL) {
        free(copy);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a manifest");
    }
    *list = v;
    v[(*n)++] = (ckpi_metric){.name = copy, .value = value};
    return CKP_OK;
}

ckp_status
ckpi_manifest_add_metric(ckpi_manifest *m, const char *name, double value, ckp_error *err)
{
    return add_number(&m->metrics, &m->n_metrics, name, value, "metrics", err);
}

ckp_status
ckpi_manifest_add_setting(ckpi_manifest *m, const char *name, double value, ckp_error *err)
{
    return add_number(&m->settings, &m->n_settings, name, value, "settings", err);
}

bool
ckpi_manifest_metric(const ckpi_manifest *m, const char *name, double *value)
{
    const ckpi_metric *found = find_number(m->metrics, m->n_metrics, name);
    if (found != NULL)
        *value = found->value;
    return found != NULL;
}

bool
ckpi_manifest_setting(const ckpi_manifest *m, const char *name, double *value)
{
    const ckpi_metric *found = find_number(m->settings, m->n_settings, name);
    if (found != NULL)
        *value = found->value;
    return found != NULL;
}

uint64_t
ckpi_manifest_bytes(const ckpi_manifest *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->n_shards; i++)
        if (!ckpi_add_u64(sum, m->shards[i].length, &sum))
            return UINT64_MAX;
    return sum;
}

static ckp_status
copy_lists(ckpi_manifest *c, const ckpi_manifest *m, ckp_error *err)
{
    ckp_status st = CKP_OK;
    for (size_t i = 0; i < m->n_shards && st == CKP_OK; i++) {
        const ckpi_shard_ref *s = &m->shards[i];
        st = ckpi_manifest_add_shard(c, s->file, s->length, s->hash, s->content, err);
    }
    for (size_t i = 0; i < m->n_metrics && st == CKP_OK; i++)
        st = ckpi_manifest_add_metric(c, m->metrics[i].name, m->metrics[i].value, err);
    for (size_t i = 0; i < m->n_settings && st == CKP_OK; i++)
        st = ckpi_manifest_add_setting(c, m->settings[i].name, m->settings[i].value, err);
    return st;
}

ckp_status
ckpi_manifest_copy(ckpi_manifest **out, const ckpi_manifest *m, ckp_error *err)
{
    *out = NULL;
    ckpi_manifest *c = ckpi_manifest_new();
    if (c == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a manifest");
    *c = *m;
    c->library = c->parent = c->base_dir = c->base_model = c->replaces = c->dropped = c->profile = c->errors = NULL;
    c->shards = NULL;
    c->metrics = c->settings = NULL;
    c->n_shards = c->n_metrics = c->n_settings = 0;
    ckp_status st = ckpi_manifest_set(&c->library, m->library, err);
    if (st == CKP_OK)
        st = ckpi_manifest_set(&c->parent, m->parent, err);
    if (st == CKP_OK)
        st = ckpi_manifest_set(&c->base_dir, m->base_dir, err);
    if (st == CKP_OK)
        st = ckpi_manifest_set(&c->base_model, m->base_model, err);
    if (st == CKP_OK)
        st = ckpi_manifest_set(&c->replaces, m->replaces, err);
    if (st == CKP_OK)
        st = ckpi_manifest_set(&c->dropped, m->dropped, err);
    if (st == CKP_OK)
        st = ckpi_manifest_set(&c->profile, m->profile, err);
    if (st == CKP_OK)
        st = ckpi_manifest_set(&c->errors, m->errors, err);
    if (st == CKP_OK)
        st = copy_lists(c, m, err);
    if (st != CKP_OK) {
        ckpi_manifest_free(c);
        return st;
    }
    *out = c;
    return CKP_OK;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

void
ckpi_dir_name(char out[CKPI_DIR_NAME_MAX], uint64_t step, uint32_t attempt)
{
    snprintf(out, CKPI_DIR_NAME_MAX, "step-%08" PRIu64 "-%08" PRIx32, step, attempt);
}

bool
ckpi_dir_name_parse(const char *name, uint64_t *step, uint32_t *attempt)
{
    char again[CKPI_DIR_NAME_MAX];
    if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") < 8 || strspn(name + 5, "0123456789") > 19)
        return false;
    char *end = NULL;
    const unsigned long long s = strtoull(name + 5, &end, 10);
    if (*end != '-' || s > INT64_MAX || strspn(end + 1, "0123456789abcdef") != 8)
        return false;
    const unsigned long a = strtoul(end + 1, NULL, 16);
    /* Printing again settles leading zeros and what follows. */
    ckpi_dir_name(again, s, (uint32_t)a);
    if (strcmp(again, name) != 0)
        return false;
    *step = s;
    *attempt = (uint32_t)a;
    return true;
}

void
ckpi_shard_name(char out[CKPI_DIR_NAME_MAX], uint32_t index, uint32_t count)
{
    snprintf(out, CKPI_DIR_NAME_MAX, "shard-%05" PRIu32 "-of-%05" PRIu32 ".ckp", index, count);
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

static ckp_status
invalid(ckp_error *err, const char *field, const char *why)
{
    return ckpi_fail(err, CKP_EINVAL, "manifest: field '%s' %s", field, why);
}

static ckp_status
check_dir(const char *dir, const char *field, ckp_error *err)
{
    uint64_t step;
    uint32_t attempt;
    if (dir == NULL || ckpi_dir_name_parse(dir, &step, &attempt))
        return CKP_OK;
    return ckpi_fail(err, CKP_EPATH, "manifest: field '%s' is not a checkpoint's name: '%.100s'", field, dir);
}

/* A plain name that is none of ours: a shard called manifest.json would be deleted in the wrong order. */
static ckp_status
check_file(const char *file, ckp_error *err)
{
    const ckp_status st = ckpi_path_ok(file, err);
    if (st != CKP_OK)
        return st;
    const size_t n = strlen(file);
    if (strchr(file, '/') != NULL || file[0] == '.' || n >= 5 + CKPI_DIR_NAME_MAX || n < 5 || strcmp(file + n - 4, ".ckp") != 0)
        return ckpi_fail(err, CKP_EPATH, "manifest: '%.100s' is not a shard's name", file);
    return CKP_OK;
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts pointers: a hostile manifest may list 2^16 names. */
static ckp_status
check_unique(const char **v, size_t n, const char *field, ckp_error *err)
{
    if (n < 2)
        return CKP_OK;
    qsort(v, n, sizeof *v, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(v[i - 1], v[i]) == 0)
            return ckpi_fail(err, CKP_EINVAL, "manifest: field '%s' names '%.100s' twice", field, v[i]);
    return CKP_OK;
}

static ckp_status
check_shards(const ckpi_manifest *m, ckp_error *err)
{
    if (m->n_shards == 0 || m->n_shards > CKPI_MAX_SHARDS)
        return invalid(err, "shards", "has no shard or too many");
    for (size_t i = 0; i < m->n_shards; i++) {
        const ckp_status st = check_file(m->shards[i].file, err);
        if (st != CKP_OK)
            return st;
        if (m->shards[i].length > INT64_MAX)
            return invalid(err, "shards", "has a length that no file has");
    }
    const char **v = ckpi_malloc(m->n_shards, sizeof *v);
    if (v == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to check a manifest");
    for (size_t i = 0; i < m->n_shards; i++)
        v[i] = m->shards[i].file;
    const ckp_status st = check_unique(v, m->n_shards, "shards", err);
    free(v);
    return st;
}

static ckp_status
check_rewritten(const ckpi_manifest *m, ckp_error *err)
{
    uint64_t step;
    uint32_t attempt;

    if (m->replaces != NULL && (!ckpi_dir_name_parse(m->replaces, &step, &attempt) || step != m->step))
        return invalid(err, "replaces", "is no checkpoint of its step");
    if (m->dropped != NULL && strcmp(m->dropped, "m") != 0)
        return invalid(err, "dropped", "is not m");
    return CKP_OK;
}

static ckp_status
check_kind(const ckpi_manifest *m, ckp_error *err)
{
    const ckp_status rewritten = check_rewritten(m, err);
    if (rewritten != CKP_OK)
        return rewritten;
    if (m->base_model != NULL && (m->base_model[0] == '\0' || strlen(m->base_model) > CKPI_MAX_NAME))
        return invalid(err, "base_model", "is empty or too long");
    if (m->kind == CKPI_CKPT_KEY)
        return m->base_dir != NULL || !ckpi_id_is_zero(m->base) || m->chain != 0 ? invalid(err, "base", "is given for a key") : CKP_OK;
    if (m->kind != CKPI_CKPT_DELTA)
        return invalid(err, "kind", "is neither key nor delta");
    if (m->base_dir == NULL || ckpi_id_is_zero(m->base))
        return invalid(err, "base", "is missing for a delta");
    if (m->base_model != NULL)
        return invalid(err, "base_model", "is given for a delta: its key has it");
    if (m->chain == 0 || m->chain > CKPI_MAX_CHAIN)
        return invalid(err, "chain", "is out of range for a delta");
    return CKP_OK;
}

static bool
profile_ok(const char *s)
{
    const size_t n = s == NULL ? 0 : strlen(s);
    return n > 0 && n <= MAX_PROFILE && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == n;
}

static bool
names_ok(const ckpi_metric *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v[i].name[0] == '\0' || strlen(v[i].name) > CKPI_MAX_NAME)
            return false;
    return true;
}

ckp_status
ckpi_manifest_check(const ckpi_manifest *m, ckp_error *err)
{
    if (ckpi_id_is_zero(m->run_id))
        return invalid(err, "run", "is zero");
    if (m->step > INT64_MAX || m->sequence == 0 || m->sequence > INT64_MAX || m->epoch > INT64_MAX)
        return invalid(err, "step", "or sequence or epoch is out of range");
    if (m->params > INT64_MAX || m->raw_bytes > INT64_MAX)
        return invalid(err, "params", "or raw_bytes is out of range");
    if (ckpi_id_is_zero(m->content))
        return invalid(err, "content", "is zero");
    if (!profile_ok(m->profile))
        return invalid(err, "profile", "is not a plain lower-case name");
    if (!names_ok(m->metrics, m->n_metrics))
        return invalid(err, "metrics", "has an empty or too long name");
    if (!names_ok(m->settings, m->n_settings))
        return invalid(err, "settings", "has an empty or too long name");
    ckp_status st = check_kind(m, err);
    if (st == CKP_OK)
        st = check_dir(m->parent, "parent", err);
    if (st == CKP_OK)
        st = check_dir(m->base_dir, "base", err);
    if (st == CKP_OK)
        st = check_shards(m, err);
    return st;
}
