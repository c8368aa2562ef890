/* SPDX-License-Identifier: Apache-2.0 */
/* Writing an object: everything is staged; sync sends it. What has a temporary name is kept for publish, and never becomes an object of that name. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "objects/internal.h"
#include "os/host.h"

static objects_fs *
fs_of(const object_file *f)
{
    return (objects_fs *)(void *)f->file.fs;
}

static bool
is_tmp(const char *key)
{
    const char *slash = strrchr(key, '/');
    int64_t pid;
    uint32_t place;
    return ckpi_tmp_parse(slash != NULL ? slash + 1 : key, &pid, &place);
}

void
ckpi_pending_free(ckpi_pending *p)
{
    if (p != NULL)
        ckpi_upload_free(&p->stage);
    free(p);
}

ckp_status
ckpi_object_open_new(objects_fs *fs, const char *key, ckpi_file **out, ckp_error *err)
{
    const size_t n = strlen(key) + 1;
    uint64_t size;
    /* Put if absent decides; but what somebody else has there must not be removed as our own after that has failed. */
    const ckp_status st = is_tmp(key) ? CKP_ENOTFOUND : ckpi_object_stat(fs, key, &size, err);
    if (st != CKP_ENOTFOUND)
        return st == CKP_OK ? ckpi_fail(err, CKP_EEXIST, "'%.200s' exists", key) : st;
    object_file *f = ckpi_calloc(1, sizeof *f + n);
    ckpi_pending *p = ckpi_calloc(1, sizeof *p + n);
    if (f == NULL || p == NULL) {
        free(f);
        free(p);
        return ckpi_fail(err, CKP_ENOMEM, "no memory to write '%.200s'", key);
    }
    ckpi_upload_init(&p->stage, fs->stage_dir);
    memcpy(p->name, key, n);
    memcpy(f->key, key, n);
    f->file.fs = &fs->fs;
    f->made = p;
    f->is_tmp = is_tmp(key);
    *out = &f->file;
    return CKP_OK;
}

ckp_status
ckpi_object_write(ckpi_file *file, const void *src, size_t n, ckp_error *err)
{
    object_file *f = (object_file *)(void *)file;
    if (ckpi_pid() != fs_of(f)->owner)
        return ckpi_fail(err, CKP_EFORK, "'%.200s' was opened by another process", f->key);
    if (f->made == NULL || f->sent)
        return ckpi_fail(err, CKP_EINVAL, "'%.200s' is not open for writing", f->key);
    return ckpi_upload_append(&f->made->stage, src, n, err);
}

ckp_status
ckpi_object_sync(ckpi_file *file, ckp_error *err)
{
    object_file *f = (object_file *)(void *)file;
    if (ckpi_pid() != fs_of(f)->owner)
        return ckpi_fail(err, CKP_EFORK, "'%.200s' was opened by another process", f->key);
    if (f->made == NULL || f->is_tmp || f->sent)
        return CKP_OK;
    const ckp_status st = ckpi_object_send(fs_of(f), f->key, &f->made->stage, false, err);
    f->sent = st == CKP_OK;
    return st;
}

/* The list takes what publish will ask for. */
static void
await_publish(objects_fs *fs, ckpi_pending *p)
{
    pthread_mutex_lock(&fs->mutex);
    p->next = fs->pending;
    fs->pending = p;
    pthread_mutex_unlock(&fs->mutex);
}

void
ckpi_object_close(ckpi_file *file)
{
    object_file *f = (object_file *)(void *)file;
    if (f->made == NULL) {
        for (size_t i = 0; i < CKPI_OBJECT_BLOCKS; i++)
            free(f->block[i].data);
        pthread_mutex_destroy(&f->mutex);
    } else if (f->is_tmp) {
        await_publish(fs_of(f), f->made);
    } else {
        ckpi_pending_free(f->made);
    }
    free(f);
}
