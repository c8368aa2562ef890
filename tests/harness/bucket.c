/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "harness/bucket.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY ((size_t)1 << 30)         /* of address space; pages come as they are written */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *
pages(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

bucket *
bucket_new(void)
{
    bucket *b = pages(sizeof *b);
    b->memory = pages(MEMORY);
    return b;
}

void
bucket_free(bucket *b)
{
    munmap(b->memory, MEMORY);
    munmap(b, sizeof *b);
}

bucket_object *
bucket_find(bucket *b, const char *key)
{
    for (size_t i = 0; i < BUCKET_OBJECTS; i++)
        if (b->v[i].there && strcmp(b->v[i].key, key) == 0)
            return &b->v[i];
    return NULL;
}

static bucket_object *
make(bucket *b, const char *key, size_t n)
{
    bucket_object *o = bucket_find(b, key);
    for (size_t i = 0; i < BUCKET_OBJECTS && o == NULL; i++)
        if (!b->v[i].there)
            o = &b->v[i];
    if (o == NULL || strlen(key) >= sizeof o->key || n > MEMORY - b->used)
        abort();
    memcpy(o->key, key, strlen(key) + 1);
    o->data = b->memory + b->used;
    b->used += n;
    o->len = n;
    o->there = true;
    return o;
}

void
bucket_set(bucket *b, const char *key, const void *p, size_t n)
{
    memcpy(make(b, key, n)->data, p, n);
}

size_t
bucket_count(const bucket *b)
{
    size_t n = 0;
    for (size_t i = 0; i < BUCKET_OBJECTS; i++)
        n += b->v[i].there;
    return n;
}

static bucket *
enter(void *user, unsigned long *count)
{
    pthread_mutex_lock(&lock);
    ++*count;
    return user;
}

static ckp_status
leave(const bucket *b, ckp_status st, ckp_error *err)
{
    (void)b;
    pthread_mutex_unlock(&lock);
    return st == CKP_OK ? st : ckp_objects_fail(err, st, "says the bucket");
}

static ckp_status
on_stat(void *user, const char *key, uint64_t *bytes, ckp_error *err)
{
    bucket *b = enter(user, &((bucket *)user)->stats);
    const bucket_object *o = bucket_find(b, key);
    if (o != NULL)
        *bytes = o->len;
    return leave(b, b->answer != CKP_OK ? b->answer : o != NULL ? CKP_OK : CKP_ENOTFOUND, err);
}

static ckp_status
on_get(void *user, const char *key, uint64_t off, void *dst, size_t n, ckp_error *err)
{
    bucket *b = enter(user, &((bucket *)user)->gets);
    const bucket_object *o = bucket_find(b, key);
    ckp_status st = b->answer;
    if (st == CKP_OK)
        st = o == NULL ? CKP_ENOTFOUND : off > o->len || n > o->len - off ? CKP_EIO : CKP_OK;
    if (st == CKP_OK)
        memcpy(dst, o->data + off, n);
    return leave(b, st, err);
}

static ckp_status
on_put(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err)
{
    bucket *b = enter(user, &((bucket *)user)->puts);
    ckp_status st = b->answer;
    if (st == CKP_OK && !replace && bucket_find(b, key) != NULL)
        st = CKP_EEXIST;
    if (st != CKP_OK)
        return leave(b, st, err);
    bucket_object *o = make(b, key, (size_t)bytes->size);
    /* in parts, as uploads go */
    for (size_t off = 0; st == CKP_OK && off < o->len; off += 1u << 20)
        st = bytes->read(bytes, off, o->data + off, o->len - off < 1u << 20 ? o->len - off : 1u << 20, err);
    o->there = st == CKP_OK;
    pthread_mutex_unlock(&lock);
    return st;
}

/* Whether object i is the first below dir with that first component. */
static bool
is_first(const bucket *b, size_t i, size_t at, size_t n)
{
    for (size_t j = 0; j < i; j++)
        if (b->v[j].there && strncmp(b->v[j].key, b->v[i].key, at + n) == 0 && b->v[j].key[at + n] == '/')
            return false;
    return true;
}

static ckp_status
on_list(void *user, const char *dir, bool (*fn)(void *fn_user, const char *name, bool is_dir), void *fn_user, ckp_error *err)
{
    bucket *b = enter(user, &((bucket *)user)->lists);
    const size_t at = *dir != '\0' ? strlen(dir) + 1 : 0;
    bool more = b->answer == CKP_OK;
    for (const char *const *x = b->extra; x != NULL && *x != NULL && more; x++)
        more = fn(fn_user, *x, false);
    for (size_t i = 0; i < BUCKET_OBJECTS && more; i++) {
        char name[128];
        const char *key = b->v[i].key;
        if (!b->v[i].there || strlen(key) < at || (at > 0 && (strncmp(key, dir, at - 1) != 0 || key[at - 1] != '/')))
            continue;
        const size_t n = strcspn(key + at, "/");
        const bool is_dir = key[at + n] == '/';
        memcpy(name, key + at, n);
        name[n] = '\0';
        if (!is_dir || is_first(b, i, at, n))
            more = fn(fn_user, name, is_dir);
    }
    return leave(b, b->answer, err);
}

static ckp_status
on_remove(void *user, const char *key, ckp_error *err)
{
    bucket *b = enter(user, &((bucket *)user)->removes);
    bucket_object *o = bucket_find(b, key);
    if (o != NULL && b->answer == CKP_OK)
        o->there = false;
    return leave(b, b->answer != CKP_OK ? b->answer : o != NULL ? CKP_OK : CKP_ENOTFOUND, err);
}

static ckp_status
on_list_all(void *user, bool (*fn)(void *fn_user, const char *key, uint64_t bytes), void *fn_user, ckp_error *err)
{
    bucket *b = enter(user, &((bucket *)user)->lists);
    bool more = b->answer == CKP_OK;
    for (size_t i = 0; i < BUCKET_OBJECTS && more; i++)
        if (b->v[i].there)
            more = fn(fn_user, b->v[i].key, b->v[i].len);
    return leave(b, b->answer, err);
}

ckp_objects
bucket_table(bucket *b)
{
    ckp_objects t = CKP_OBJECTS_INIT;
    t.user = b;
    t.stat = on_stat;
    t.get = on_get;
    t.put = on_put;
    t.list = on_list;
    t.remove = on_remove;
    t.list_all = on_list_all;
    return t;
}
