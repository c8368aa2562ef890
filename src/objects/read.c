/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an object: ranges, through a few blocks that are kept, since a request costs much and readers ask for little at a time. An object never
 * changes under its key (but a lock's, which is read whole), so its size is asked for once. Any number of threads read; none waits for
 * another's request.
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "objects/internal.h"

#define BLOCK CKPI_OBJECT_BLOCK
/* One request asks for no more: each has a deadline. */
#define PIECE ((size_t)32 << 20)

static const objects_fs *
fs_of(const object_file *f)
{
    return (const objects_fs *)(const void *)f->file.fs;
}

ckp_status
ckpi_object_open_read(objects_fs *fs, const char *key, ckpi_file **out, ckp_error *err)
{
    uint64_t size = 0;
    uint8_t *whole = ckpi_survey_copy(fs, key, &size);
    const ckp_status st = whole != NULL || ckpi_survey_size(fs, key, &size) ? CKP_OK : ckpi_object_stat(fs, key, &size, err);
    if (st != CKP_OK)
        return st;
    object_file *f = ckpi_calloc(1, sizeof *f + strlen(key) + 1);
    if (f == NULL || pthread_mutex_init(&f->mutex, NULL) != 0) {
        free(f);
        free(whole);
        return ckpi_fail(err, CKP_ENOMEM, "no memory to open '%.200s'", key);
    }
    f->file.fs = &fs->fs;
    f->size = size;
    if (whole != NULL)
        f->block[0] = (object_block){0, whole, (size_t)size, ++f->clock};
    memcpy(f->key, key, strlen(key) + 1);
    *out = &f->file;
    return CKP_OK;
}

/* Bytes from off to the end of its block, if that is kept. */
static size_t
from_kept(object_file *f, uint64_t off, uint8_t *dst, size_t n)
{
    size_t got = 0;
    pthread_mutex_lock(&f->mutex);
    for (size_t i = 0; i < CKPI_OBJECT_BLOCKS && got == 0; i++) {
        object_block *b = &f->block[i];
        if (b->data == NULL || off < b->at || off >= b->at + b->len)
            continue;
        got = CKPI_MIN(n, (size_t)(b->at + b->len - off));
        memcpy(dst, b->data + (off - b->at), got);
        b->used = ++f->clock;
    }
    pthread_mutex_unlock(&f->mutex);
    return got;
}

/* Takes data. The block that was not used for longest goes. */
static void
keep(object_file *f, uint64_t at, uint8_t *data, size_t len)
{
    pthread_mutex_lock(&f->mutex);
    object_block *old = &f->block[0];
    for (size_t i = 1; i < CKPI_OBJECT_BLOCKS; i++)
        if (f->block[i].used < old->used)
            old = &f->block[i];
    free(old->data);
    *old = (object_block){at, data, len, ++f->clock};
    pthread_mutex_unlock(&f->mutex);
}

static ckp_status
read_block(object_file *f, uint64_t off, uint8_t *dst, size_t n, size_t *got, ckp_error *err)
{
    const uint64_t at = off - off % BLOCK;
    const size_t len = (size_t)CKPI_MIN(f->size - at, (uint64_t)BLOCK);
    uint8_t *data = ckpi_malloc(len, 1);
    if (data == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to read '%.200s'", f->key);
    const ckp_status st = ckpi_object_get(fs_of(f), f->key, at, data, len, err);
    if (st != CKP_OK) {
        free(data);
        return st;
    }
    *got = CKPI_MIN(n, len - (size_t)(off - at));
    memcpy(dst, data + (off - at), *got);
    keep(f, at, data, len);
    return CKP_OK;
}

static ckp_status
read_some(object_file *f, uint64_t off, uint8_t *dst, size_t n, size_t *got, ckp_error *err)
{
    *got = from_kept(f, off, dst, n);
    if (*got > 0)
        return CKP_OK;
    if (n < BLOCK)
        return read_block(f, off, dst, n, got, err);
    *got = CKPI_MIN(n, PIECE);
    return ckpi_object_get(fs_of(f), f->key, off, dst, *got, err);
}

ckp_status
ckpi_object_read_at(ckpi_file *file, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err)
{
    object_file *f = (object_file *)(void *)file;
    *got = 0;
    if (f->made != NULL)
        return ckpi_fail(err, CKP_EINVAL, "'%.200s' is open for writing", f->key);
    if (off >= f->size)
        return CKP_OK;
    n = (size_t)CKPI_MIN((uint64_t)n, f->size - off);
    while (*got < n) {
        size_t k = 0;
        const ckp_status st = read_some(f, off + *got, (uint8_t *)dst + *got, n - *got, &k, err);
        if (st != CKP_OK)
            return st;
        *got += k;
    }
    return CKP_OK;
}

ckp_status
ckpi_object_size(ckpi_file *file, uint64_t *size, ckp_error *err)
{
    const object_file *f = (const object_file *)(void *)file;
    (void)err;
    *size = f->made != NULL ? f->made->stage.bytes.size : f->size;
    return CKP_OK;
}
