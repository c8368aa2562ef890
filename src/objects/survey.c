/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A survey: while a run is read as a whole, one listing of all its objects stands for a request each. Manifests, which never change under their key, are
 * kept from one survey to the next, and those that are new are fetched many at a time.
 *
 * It answers what is there, never what is not: names that the listing lacks are asked for as ever. Only checkpoints' objects are in it: of the lock and of
 * run.json everybody must see the last word.
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/limits.h"
#include "base/pool.h"
#include "objects/internal.h"

#define CHECKPOINT "step-"
#define MANIFEST "/manifest.json"
enum { TOGETHER = 8, AHEAD = 64, FEW = 4, KEPT_MAX = 64 << 20 };

struct ckpi_survey {
    ckpi_known *v;                       /* by key */
    size_t n, cap;
    size_t kept;                         /* bytes of data */
    bool on, no_memory;
    pthread_t by;                        /* whom it answers: others may be reading what this one is about to delete */
    ckpi_pool *pool;                     /* NULL: one after another */
};

static void
empty(ckpi_survey *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->v[i].key);
        free(s->v[i].data);
    }
    free(s->v);
    s->v = NULL;
    s->n = s->cap = s->kept = 0;
}

ckpi_survey *
ckpi_survey_new(void)
{
    return ckpi_calloc(1, sizeof(ckpi_survey));
}

void
ckpi_survey_free(ckpi_survey *s)
{
    if (s == NULL)
        return;
    ckpi_pool_free(s->pool);
    empty(s);
    free(s);
}

static bool
note(void *user, const char *key, uint64_t size)
{
    ckpi_survey *s = user;
    if (key == NULL || strncmp(key, CHECKPOINT, sizeof CHECKPOINT - 1) != 0 || ckpi_path_ok(key, NULL) != CKP_OK)
        return true;
    if (s->n == s->cap) {
        const size_t cap = s->cap != 0 ? 2 * s->cap : 256;
        ckpi_known *v = ckpi_realloc(s->v, cap, sizeof *v);
        s->no_memory = v == NULL;
        if (v == NULL)
            return false;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n] = (ckpi_known){.key = ckpi_strdup(key), .size = size};
    s->no_memory = s->v[s->n].key == NULL;
    s->n += !s->no_memory;
    return !s->no_memory;
}

static bool
answers(const ckpi_survey *s)
{
    return s->on && pthread_equal(s->by, pthread_self());
}

static int
by_key(const void *a, const void *b)
{
    return strcmp(((const ckpi_known *)a)->key, ((const ckpi_known *)b)->key);
}

static ckpi_known *
find(const ckpi_survey *s, const char *key)
{
    char *name = (char *)(uintptr_t)key; /* bsearch only looks */
    const ckpi_known want = {.key = name};
    return s->n != 0 ? bsearch(&want, s->v, s->n, sizeof *s->v, by_key) : NULL;
}

/* What both have goes from the old listing to the new one. */
static void
carry_over(ckpi_survey *now, ckpi_survey *was)
{
    for (size_t i = 0; i < was->n; i++) {
        ckpi_known *old = &was->v[i], *k = old->data != NULL ? find(now, old->key) : NULL;
        if (k == NULL || k->size != old->size || k->data != NULL)
            continue;
        k->data = old->data;
        old->data = NULL;
        now->kept += (size_t)k->size;
    }
}

static bool
is_new_manifest(const ckpi_known *k)
{
    const size_t n = strlen(k->key), end = sizeof MANIFEST - 1;
    return k->data == NULL && k->size != 0 && k->size <= CKPI_OBJECT_BLOCK && n > end && strcmp(k->key + n - end, MANIFEST) == 0;
}

ckp_status
ckpi_survey_begin(objects_fs *fs, ckp_error *err)
{
    ckpi_survey now = {0};
    if (fs->table.list_all == NULL)
        return CKP_OK;
    ckp_status st = ckpi_object_list_all(fs, note, &now, err);
    if (st == CKP_OK && now.no_memory)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to list '%.200s'", fs->name);
    if (st != CKP_OK) {                  /* it only spares requests: those that are made instead say what is wrong */
        empty(&now);
        return st == CKP_ENOMEM ? st : CKP_OK;
    }
    if (now.n != 0)
        qsort(now.v, now.n, sizeof *now.v, by_key);
    size_t fresh = 0;
    pthread_mutex_lock(&fs->mutex);
    carry_over(&now, fs->survey);
    empty(fs->survey);
    now.on = true;
    now.by = pthread_self();
    *fs->survey = now;
    for (size_t i = 0; i < now.n; i++)
        fresh += is_new_manifest(&now.v[i]);
    pthread_mutex_unlock(&fs->mutex);
    if (fresh >= FEW && ckpi_pool_new(&fs->survey->pool, TOGETHER, false, NULL) != CKP_OK)
        fs->survey->pool = NULL;
    return CKP_OK;
}

void
ckpi_survey_end(objects_fs *fs)
{
    pthread_mutex_lock(&fs->mutex);
    ckpi_pool *pool = fs->survey->pool;
    fs->survey->pool = NULL;
    fs->survey->on = false;
    pthread_mutex_unlock(&fs->mutex);
    ckpi_pool_free(pool);
}

bool
ckpi_survey_size(objects_fs *fs, const char *key, uint64_t *size)
{
    pthread_mutex_lock(&fs->mutex);
    const ckpi_known *k = answers(fs->survey) ? find(fs->survey, key) : NULL;
    if (k != NULL)
        *size = k->size;
    pthread_mutex_unlock(&fs->mutex);
    return k != NULL;
}

typedef struct ahead { objects_fs *fs; ckpi_known *of[AHEAD]; } ahead;

/* What fails is asked for again by whoever needs it, and told then. */
static void
fetch(void *user, size_t index, unsigned worker)
{
    const ahead *a = user;
    ckpi_known *k = a->of[index];
    uint8_t *data = ckpi_malloc((size_t)k->size, 1);
    (void)worker;
    if (data != NULL && ckpi_object_get(a->fs, k->key, 0, data, (size_t)k->size, NULL) != CKP_OK) {
        free(data);
        data = NULL;
    }
    pthread_mutex_lock(&a->fs->mutex);
    k->data = data;
    a->fs->survey->kept += data != NULL ? (size_t)k->size : 0;
    pthread_mutex_unlock(&a->fs->mutex);
}

/* The new manifests from `from` on, as many as are worth a round. */
static void
fetch_from(objects_fs *fs, ckpi_known *from)
{
    ckpi_survey *s = fs->survey;
    ahead a = {.fs = fs};
    size_t n = 0;
    for (size_t i = (size_t)(from - s->v); i < s->n && n < AHEAD && s->kept <= KEPT_MAX; i++)
        if (is_new_manifest(&s->v[i]))
            a.of[n++] = &s->v[i];
    if (s->pool == NULL || ckpi_pool_run(s->pool, n, fetch, &a, NULL) != CKP_OK)
        for (size_t i = 0; i < CKPI_MIN(n, (size_t)1); i++)
            fetch(&a, i, 0);
}

uint8_t *
ckpi_survey_copy(objects_fs *fs, const char *key, uint64_t *size)
{
    uint8_t *copy = NULL;
    pthread_mutex_lock(&fs->mutex);
    ckpi_known *k = answers(fs->survey) ? find(fs->survey, key) : NULL;
    const bool wanted = k != NULL && is_new_manifest(k);
    pthread_mutex_unlock(&fs->mutex);
    if (wanted)
        fetch_from(fs, k);
    pthread_mutex_lock(&fs->mutex);
    if (k != NULL && k->data != NULL && (copy = ckpi_malloc((size_t)k->size, 1)) != NULL) {
        memcpy(copy, k->data, (size_t)k->size);
        *size = k->size;
    }
    pthread_mutex_unlock(&fs->mutex);
    return copy;
}
