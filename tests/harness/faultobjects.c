/* SPDX-License-Identifier: Apache-2.0 */
/* An object store on the faulty disk: every callback passes the gate. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "harness/faultdisk.h"
#include "objects/objects.h"

fault_disk *
fault_objects_new(void)
{
    fault_disk *d = fault_disk_new();
    d->objects = true;
    return d;
}

void
fault_late_by(fault_disk *d, unsigned calls)
{
    d->late_by = calls;
}

/* ---- objects ---- */

/* Directories on the way to a key are made as needed, durable at once. */
static void
make_dirs(fault_disk *d, const char *key)
{
    char path[2 * FAULT_NAME];
    for (const char *slash = strchr(key, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        const char *leaf = NULL;
        memcpy(path, key, (size_t)(slash - key));
        path[slash - key] = '\0';
        if (fault_lookup(d, path) != NULL)
            continue;
        fault_node *dir = fault_walk(d, path, &leaf);
        fault_change_dir(dir, "", leaf, fault_node_new(d, true));
        fault_sync_node(dir);
    }
}

static void
store(fault_disk *d, const char *key, const uint8_t *data, size_t n)
{
    make_dirs(d, key);
    fault_write(d, key, data, n);
}

static void
discard(fault_disk *d, const char *key)
{
    char dir[2 * FAULT_NAME];
    fault_remove(d, key);
    const char *slash = strrchr(key, '/');
    if (slash == NULL)
        return;
    memcpy(dir, key, (size_t)(slash - key));
    dir[slash - key] = '\0';
    if (fault_lookup(d, dir)->now.n == 0)
        fault_remove(d, dir);
}

/* ---- faults ---- */

void
fault_arrive(fault_disk *d)
{
    fault_late l = d->late;
    if (l.key == NULL)
        return;
    d->late = (fault_late){0};
    if (l.replace || fault_lookup(d, l.key) == NULL)
        store(d, l.key, l.data, l.len);
    free(l.key);
    free(l.data);
}

static ckp_status
enter(fault_bucket *b, fault_what w, ckp_error *err)
{
    bool half = false;
    const ckp_status st = fault_gate(b->disk, b->generation, w, &half, err);
    if (st != CKP_OK)
        return st;
    if (b->disk->late.calls == 0)
        fault_arrive(b->disk);
    else
        b->disk->late.calls--;
    return CKP_OK;
}

/* The end of a call that was done. */
static ckp_status
leave(const fault_bucket *b, ckp_status st, ckp_error *err)
{
    return b->disk->due && b->disk->kind == FAULT_LOST ? ckpi_fail(err, CKP_EIO, "the answer is lost") : st;
}

static fault_node *
find(const fault_bucket *b, const char *key)
{
    fault_node *n = fault_lookup(b->disk, key);
    return n == NULL || n->is_dir ? NULL : n;
}

/* ---- callbacks ---- */

static ckp_status
o_stat(void *user, const char *key, uint64_t *bytes, ckp_error *err)
{
    fault_bucket *b = user;
    const ckp_status st = enter(b, FAULT_OTHER, err);
    if (st != CKP_OK)
        return st;
    const fault_node *n = find(b, key);
    if (n != NULL)
        *bytes = n->len;
    return leave(b, n != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOTFOUND, "no such object"), err);
}

static ckp_status
get(void *user, const char *key, uint64_t off, void *dst, size_t n, ckp_error *err)
{
    fault_bucket *b = user;
    const ckp_status st = enter(b, FAULT_OTHER, err);
    if (st != CKP_OK)
        return st;
    const fault_node *f = find(b, key);
    if (f == NULL)
        return leave(b, ckpi_fail(err, CKP_ENOTFOUND, "no such object"), err);
    if (off > f->len || n > f->len - off)
        return leave(b, ckpi_fail(err, CKP_EIO, "%zu bytes at %llu of an object of %zu", n, (unsigned long long)off, f->len), err);
    memcpy(dst, f->data + off, n);
    return leave(b, CKP_OK, err);
}

/* The one callback that the library makes many of at once. */
static ckp_status
o_get(void *user, const char *key, uint64_t off, void *dst, size_t n, ckp_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    const ckp_status st = get(user, key, off, dst, n, err);
    pthread_mutex_unlock(&lock);
    return st;
}

/* Takes data. */
static ckp_status
put(fault_bucket *b, const char *key, uint8_t *data, size_t n, bool replace, ckp_error *err)
{
    fault_disk *d = b->disk;
    if (d->due && (d->kind == FAULT_LATE || d->kind == FAULT_ORPHAN) && d->late.key == NULL) {
        d->late = (fault_late){.key = ckpi_strdup(key), .data = data, .len = n, .replace = replace, .calls = d->late_by};
        d->off = d->kind == FAULT_ORPHAN;
        return ckpi_fail(err, CKP_EIO, "no answer yet");
    }
    ckp_status st = CKP_OK;
    if (!replace && find(b, key) != NULL)
        st = ckpi_fail(err, CKP_EEXIST, "there is one");
    if (st == CKP_OK && n > 0 && d->due && d->kind == FAULT_DAMAGE)
        data[n / 2] ^= 0x10;
    if (st == CKP_OK)
        store(d, key, data, n);
    free(data);
    return leave(b, st, err);
}

static ckp_status
o_put(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err)
{
    fault_bucket *b = user;
    const size_t n = (size_t)bytes->size, half = n / 2;
    ckp_status st = enter(b, FAULT_WRITE, err);
    if (st != CKP_OK)
        return st;
    uint8_t *data = fault_alloc(NULL, n + 1);
    /* In parts, the last first: any order must do. */
    st = bytes->read(bytes, half, data + half, n - half, err);
    if (st == CKP_OK)
        st = bytes->read(bytes, 0, data, half, err);
    if (st == CKP_OK)
        return put(b, key, data, n, replace, err);
    free(data);
    return st;
}

static ckp_status
o_list(void *user, const char *dir, bool (*fn)(void *fn_user, const char *name, bool is_dir), void *fn_user, ckp_error *err)
{
    fault_bucket *b = user;
    const ckp_status st = enter(b, FAULT_OTHER, err);
    if (st != CKP_OK)
        return st;
    const fault_node *n = fault_lookup(b->disk, dir);
    for (size_t i = 0; n != NULL && n->is_dir && i < n->now.n; i++)
        if (!fn(fn_user, n->now.v[i].name, n->now.v[i].node->is_dir))
            break;
    return leave(b, CKP_OK, err);
}

/* false: fn wants no more. */
static bool
all_below(const fault_node *dir, const char *before, bool (*fn)(void *fn_user, const char *key, uint64_t bytes), void *fn_user)
{
    bool more = true;
    for (size_t i = 0; i < dir->now.n && more; i++) {
        const fault_node *n = dir->now.v[i].node;
        char key[2 * FAULT_NAME];
        (void)snprintf(key, sizeof key, "%s%s%s", before, *before != '\0' ? "/" : "", dir->now.v[i].name);
        more = n->is_dir ? all_below(n, key, fn, fn_user) : fn(fn_user, key, n->len);
    }
    return more;
}

static ckp_status
o_list_all(void *user, bool (*fn)(void *fn_user, const char *key, uint64_t bytes), void *fn_user, ckp_error *err)
{
    fault_bucket *b = user;
    const ckp_status st = enter(b, FAULT_OTHER, err);
    if (st != CKP_OK)
        return st;
    const fault_node *n = fault_lookup(b->disk, "");
    if (n != NULL)
        (void)all_below(n, "", fn, fn_user);
    return leave(b, CKP_OK, err);
}

static ckp_status
o_remove(void *user, const char *key, ckp_error *err)
{
    fault_bucket *b = user;
    const ckp_status st = enter(b, FAULT_OTHER, err);
    if (st != CKP_OK)
        return st;
    if (find(b, key) != NULL)
        discard(b->disk, key);
    return leave(b, CKP_OK, err);
}

ckpi_fs *
fault_mount_objects(fault_disk *d)
{
    fault_bucket *b = fault_alloc(NULL, sizeof *b);
    ckp_objects t = CKP_OBJECTS_INIT;
    ckpi_fs *fs = NULL;
    *b = (fault_bucket){.next = d->buckets, .disk = d, .generation = d->generation};
    d->buckets = b;
    t.user = b;
    t.stat = o_stat;
    t.get = o_get;
    t.put = o_put;
    t.list = o_list;
    t.list_all = o_list_all;
    t.remove = o_remove;
    if (ckpi_fs_objects(&fs, &t, "bucket", NULL) != CKP_OK)
        abort();
    return fs;
}
