/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Append-only sinks. States of a file writer:
 *
 *     open --finish--> finished (durable under its temporary name) --publish--> published
 *       \---- any failure ----> failed (sticky: the first error is repeated)
 *
 * free() removes the file unless it was finished: what a later step relies on never vanishes behind its back.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"
#include "os/fdio.h"
#include "os/os.h"

/* Large enough that a write's fixed cost (some 5 us, much more on network file systems) does not show. */
#define BUFFER ((size_t)1 << 20)

typedef enum kind { TO_FILE, TO_FD, TO_MEM, TO_NOWHERE } kind;
typedef enum state { OPEN, FINISHED, PUBLISHED, FAILED } state;

struct ckpi_writer {
    kind kind;
    state state;
    pid_t owner;               /* a forked child must not remove its parent's file */
    ckpi_fs *fs;               /* TO_FILE */
    ckpi_file *file;           /* TO_FILE, until finished */
    char *tmp;
    int fd;                    /* TO_FD */
    ckpi_buf *mem;             /* TO_MEM */
    uint8_t *buf;              /* BUFFER bytes; NULL where is_direct */
    size_t fill;
    uint64_t pos;
    ckpi_hasher *hash;         /* fed with what leaves the buffer: still in cache then */
    void (*watch)(void *user, const void *p, size_t n);   /* likewise; NULL: nobody */
    void *watch_user;
    ckp_error first;           /* of a failed writer */
};

/* Nothing is gained by a buffer. */
static bool
is_direct(kind k)
{
    return k == TO_MEM || k == TO_NOWHERE;
}

static ckp_status
writer_new(ckpi_writer **out, kind k, ckp_error *err)
{
    *out = NULL;
    ckpi_writer *w = ckpi_calloc(1, sizeof *w);
    if (w != NULL) {
        w->kind = k;
        w->owner = getpid();
        w->hash = ckpi_hasher_new();
        w->buf = is_direct(k) ? NULL : ckpi_malloc(BUFFER, 1);
    }
    if (w == NULL || w->hash == NULL || (!is_direct(k) && w->buf == NULL)) {
        ckpi_writer_free(w);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a writer");
    }
    *out = w;
    return CKP_OK;
}

ckp_status
ckpi_writer_file(ckpi_writer **out, ckpi_fs *fs, const char *tmp, ckp_error *err)
{
    ckpi_writer *w = NULL;
    *out = NULL;
    ckp_status st = ckpi_path_ok(tmp, err);
    if (st == CKP_OK)
        st = writer_new(&w, TO_FILE, err);
    if (st != CKP_OK)
        return st;
    w->fs = fs;
    w->tmp = ckpi_strdup(tmp);
    if (w->tmp == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for a writer");
    else
        st = fs->ops->open(fs, tmp, CKPI_OPEN_NEW, &w->file, err);
    if (st != CKP_OK) {
        ckpi_writer_free(w);
        return st;
    }
    *out = w;
    return CKP_OK;
}

ckp_status
ckpi_writer_fd(ckpi_writer **out, int fd, ckp_error *err)
{
    const ckp_status st = writer_new(out, TO_FD, err);
    if (st == CKP_OK)
        (*out)->fd = fd;
    return st;
}

ckp_status
ckpi_writer_mem(ckpi_writer **out, ckpi_buf *buf, ckp_error *err)
{
    const ckp_status st = writer_new(out, TO_MEM, err);
    if (st == CKP_OK)
        (*out)->mem = buf;
    return st;
}

ckp_status
ckpi_writer_null(ckpi_writer **out, ckp_error *err)
{
    return writer_new(out, TO_NOWHERE, err);
}

/* The first failure is kept and repeated: later calls must not look better than they are. */
static ckp_status
failed(ckpi_writer *w, ckp_error *err)
{
    if (err != NULL)
        *err = w->first;
    return w->first.code;
}

static ckp_status
send(ckpi_writer *w, const void *p, size_t n, ckp_error *err)
{
    ckp_status st = CKP_OK;
    if (n == 0 || w->kind == TO_NOWHERE)
        return CKP_OK;
    ckpi_hasher_add(w->hash, p, n);
    if (w->watch != NULL)
        w->watch(w->watch_user, p, n);
    switch (w->kind) {
    case TO_FILE:
        st = w->fs->ops->write(w->file, p, n, err);
        break;
    case TO_FD: {
        const int e = ckpi_fd_write(w->fd, p, n);
        if (e != 0)
            st = ckpi_fail_errno(err, e, "cannot write to the output");
        break;
    }
    case TO_MEM:
        ckpi_buf_put(w->mem, p, n);
        if (w->mem->failed != CKP_OK)
            st = ckpi_buf_status(w->mem, err, "output in memory");
        break;
    case TO_NOWHERE:
        break;
    }
    return st;
}

static ckp_status
flush(ckpi_writer *w, ckp_error *err)
{
    const size_t n = w->fill;
    w->fill = 0;
    return send(w, w->buf, n, err);
}

static ckp_status
put(ckpi_writer *w, const void *p, size_t n, ckp_error *err)
{
    if (is_direct(w->kind))
        return send(w, p, n, err);
    if (n >= BUFFER) {
        const ckp_status st = flush(w, err);
        return st == CKP_OK ? send(w, p, n, err) : st;
    }
    if (n > BUFFER - w->fill) {
        const ckp_status st = flush(w, err);
        if (st != CKP_OK)
            return st;
    }
    memcpy(w->buf + w->fill, p, n);
    w->fill += n;
    return CKP_OK;
}

/* Entry of every call that writes: right process, right state. */
static ckp_status
may_write(ckpi_writer *w, ckp_error *err)
{
    if (getpid() != w->owner)
        return ckpi_fail(err, CKP_EFORK, "the writer belongs to another process");
    if (w->state == FAILED)
        return failed(w, err);
    if (w->state != OPEN)
        return ckpi_fail(err, CKP_ESTATE, "the writer is finished");
    return CKP_OK;
}

ckp_status
ckpi_writer_put(ckpi_writer *w, const void *p, size_t n, ckp_error *err)
{
    ckp_status st = may_write(w, err);
    if (st != CKP_OK || n == 0)
        return st;
    st = put(w, p, n, &w->first);
    if (st != CKP_OK) {
        w->state = FAILED;
        return failed(w, err);
    }
    w->pos += n;
    return CKP_OK;
}

uint64_t
ckpi_writer_pos(const ckpi_writer *w)
{
    return w->pos;
}

void
ckpi_writer_watch(ckpi_writer *w, void (*fn)(void *user, const void *p, size_t n), void *user)
{
    w->watch = fn;
    w->watch_user = user;
}

ckp_status
ckpi_writer_hash(const ckpi_writer *w, ckpi_id *out, ckp_error *err)
{
    if (w->state != FINISHED && w->state != PUBLISHED)
        return ckpi_fail(err, CKP_ESTATE, "the writer is not finished");
    *out = ckpi_hasher_128(w->hash);
    return CKP_OK;
}

ckp_status
ckpi_writer_finish(ckpi_writer *w, ckp_error *err)
{
    ckp_status st = may_write(w, err);
    if (st != CKP_OK)
        return st;
    st = w->kind == TO_MEM ? CKP_OK : flush(w, &w->first);
    if (st == CKP_OK && w->kind == TO_FILE)
        st = w->fs->ops->sync(w->file, &w->first);
    if (st != CKP_OK) {
        w->state = FAILED;
        return failed(w, err);
    }
    if (w->file != NULL)
        w->fs->ops->close(w->file);
    w->file = NULL;
    w->state = FINISHED;
    return CKP_OK;
}

static ckp_status
sync_dir_of(ckpi_writer *w, const char *name, ckp_error *err)
{
    char dir[CKPI_PATH_MAX];
    const char *slash = strrchr(name, '/');
    const size_t n = slash == NULL ? 0 : (size_t)(slash - name);
    memcpy(dir, name, n);
    dir[n] = '\0';
    return w->fs->ops->sync_dir(w->fs, dir, err);
}

ckp_status
ckpi_writer_publish(ckpi_writer *w, const char *name, bool replace, ckp_error *err)
{
    if (w->kind != TO_FILE)
        return ckpi_fail(err, CKP_EINVAL, "only a file can be published");
    ckp_status st = ckpi_path_ok(name, err);
    if (st == CKP_OK && w->state != FINISHED)
        st = ckpi_writer_finish(w, err);
    if (st != CKP_OK)
        return st;
    st = w->fs->ops->publish(w->fs, w->tmp, name, replace, &w->first);
    if (st != CKP_OK) {
        w->state = FAILED;
        return failed(w, err);
    }
    w->state = PUBLISHED;
    st = sync_dir_of(w, name, err);
    if (st != CKP_OK && !replace)
        (void)w->fs->ops->unlink(w->fs, name, NULL);    /* as ckpi_fs_publish */
    return st;
}

void
ckpi_writer_free(ckpi_writer *w)
{
    if (w == NULL)
        return;
    const bool made = w->file != NULL || (w->tmp != NULL && w->state == FAILED);
    if (w->file != NULL)
        w->fs->ops->close(w->file);
    if (made && getpid() == w->owner)
        (void)w->fs->ops->unlink(w->fs, w->tmp, NULL);
    ckpi_hasher_free(w->hash);
    free(w->buf);
    free(w->tmp);
    free(w);
}
