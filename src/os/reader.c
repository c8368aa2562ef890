/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers. Seekable ones keep no position and are safe to share among threads. A pipe is read through a window:
 *
 *     [ back: up to CKPI_READER_BACK bytes already served | ahead: read, not yet served ]
 *       win_off                                                          win_off + win_len = position in the stream
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "os/fdio.h"
#include "os/posix.h"

#define AHEAD ((size_t)256 << 10)
#define WINDOW (AHEAD + CKPI_READER_BACK)

typedef enum kind { FROM_FILE, FROM_FD, FROM_PIPE, FROM_MEM } kind;

struct ckpi_reader {
    kind kind;
    char *name;
    ckpi_fs *fs;            /* FROM_FILE */
    ckpi_file *file;
    int fd;                 /* FROM_FD, FROM_PIPE */
    bool own_fd;
    uint64_t start;         /* FROM_FD: where the caller's descriptor stood */
    const uint8_t *mem;     /* FROM_MEM, or held */
    size_t mem_len;
    uint8_t *held;          /* ckpi_reader_hold; NULL: none */
    uint8_t *win;           /* FROM_PIPE */
    uint64_t win_off;
    size_t win_len;
    bool at_end;
    ckp_progress_fn interrupted;
    void *interrupted_user;
};

static ckp_status
reader_new(ckpi_reader **out, kind k, const char *name, ckp_error *err)
{
    *out = NULL;
    ckpi_reader *r = ckpi_calloc(1, sizeof *r);
    if (r != NULL) {
        r->kind = k;
        r->fd = -1;
        r->name = ckpi_strdup(name);
        r->win = k == FROM_PIPE ? ckpi_malloc(WINDOW, 1) : NULL;
    }
    if (r == NULL || r->name == NULL || (k == FROM_PIPE && r->win == NULL)) {
        ckpi_reader_free(r);
        return ckpi_fail(err, CKP_ENOMEM, "no memory to read '%.200s'", name);
    }
    *out = r;
    return CKP_OK;
}

ckp_status
ckpi_reader_file(ckpi_reader **out, ckpi_fs *fs, const char *name, ckp_error *err)
{
    ckpi_reader *r = NULL;
    *out = NULL;
    ckp_status st = ckpi_path_ok(name, err);
    if (st == CKP_OK)
        st = reader_new(&r, FROM_FILE, name, err);
    if (st != CKP_OK)
        return st;
    r->fs = fs;
    st = fs->ops->open(fs, name, CKPI_OPEN_READ, &r->file, err);
    if (st != CKP_OK) {
        ckpi_reader_free(r);
        return st;
    }
    *out = r;
    return CKP_OK;
}

ckp_status
ckpi_reader_fd(ckpi_reader **out, int fd, const char *name, ckp_error *err)
{
    struct stat sb;
    *out = NULL;
    if (fstat(fd, &sb) != 0)
        return ckpi_fail_errno(err, errno, "%.200s: cannot stat", name);
    if (S_ISDIR(sb.st_mode))
        return ckpi_fail(err, CKP_EINVAL, "'%.200s' is a directory", name);
    const off_t at = S_ISREG(sb.st_mode) ? lseek(fd, 0, SEEK_CUR) : -1;
    const ckp_status st = reader_new(out, at >= 0 ? FROM_FD : FROM_PIPE, name, err);
    if (st != CKP_OK)
        return st;
    (*out)->fd = fd;
    (*out)->start = at >= 0 ? (uint64_t)at : 0;
    return CKP_OK;
}

static ckp_status
reader_path(ckpi_reader **out, const char *path, int flags, ckp_error *err)
{
    *out = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0) {
        const ckp_status st = ckpi_fail_errno(err, errno, "cannot open");
        ckpi_fail_file(err, path);
        return st;
    }
    const ckp_status st = ckpi_reader_fd(out, fd, path, err);
    if (st != CKP_OK)
        close(fd);
    else
        (*out)->own_fd = true;
    return st;
}

ckp_status
ckpi_reader_path(ckpi_reader **out, const char *path, ckp_error *err)
{
    return reader_path(out, path, 0, err);
}

ckp_status
ckpi_reader_plain(ckpi_reader **out, const char *path, ckp_error *err)
{
    /* O_NONBLOCK: a FIFO is to be refused, not waited for. */
    ckp_status st = reader_path(out, path, O_NONBLOCK, err);
    if (st == CKP_OK && !ckpi_reader_seekable(*out)) {
        ckpi_reader_free(*out);
        *out = NULL;
        st = ckpi_fail(err, CKP_EINVAL, "is not a plain file");
        ckpi_fail_file(err, path);
    }
    return st;
}

ckp_status
ckpi_reader_mem(ckpi_reader **out, const void *p, size_t n, const char *name, ckp_error *err)
{
    const ckp_status st = reader_new(out, FROM_MEM, name, err);
    if (st != CKP_OK)
        return st;
    (*out)->mem = p;
    (*out)->mem_len = n;
    return CKP_OK;
}

void
ckpi_reader_on_interrupt(ckpi_reader *r, ckp_progress_fn fn, void *user)
{
    r->interrupted = fn;
    r->interrupted_user = user;
}

bool
ckpi_reader_seekable(const ckpi_reader *r)
{
    return r->kind != FROM_PIPE;
}

const char *
ckpi_reader_name(const ckpi_reader *r)
{
    return r->name;
}

bool
ckpi_reader_is(const ckpi_reader *r, const char *path)
{
    struct stat a, b;
    int rc = -1;
    if (r->kind == FROM_FD)
        rc = fstat(r->fd, &a);
    else if (r->kind == FROM_FILE && ckpi_posix_is(r->fs))
        rc = fstatat(((const posix_fs *)(const void *)r->fs)->root, r->name, &a, AT_SYMLINK_NOFOLLOW);
    return rc == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static ckp_status
fail_errno(const ckpi_reader *r, int e, const char *what, ckp_error *err)
{
    const ckp_status st = ckpi_fail_errno(err, e, "%s", what);
    ckpi_fail_file(err, r->name);
    return st;
}

ckp_status
ckpi_reader_size(ckpi_reader *r, uint64_t *size, ckp_error *err)
{
    struct stat sb;
    if (r->held != NULL) {
        *size = r->mem_len;
        return CKP_OK;
    }
    switch (r->kind) {
    case FROM_FILE:
        return r->fs->ops->size(r->file, size, err);
    case FROM_FD:
        if (fstat(r->fd, &sb) != 0)
            return fail_errno(r, errno, "cannot stat", err);
        *size = (uint64_t)sb.st_size > r->start ? (uint64_t)sb.st_size - r->start : 0;
        return CKP_OK;
    case FROM_MEM:
        *size = r->mem_len;
        return CKP_OK;
    case FROM_PIPE:
        break;
    }
    return ckpi_fail(err, CKP_EUNSUPPORTED, "'%.200s' is a stream: its size is not known", r->name);
}

/* Drops what lies further back than promised, so that AHEAD bytes fit. */
static void
slide(ckpi_reader *r)
{
    if (r->win_len <= CKPI_READER_BACK)
        return;
    const size_t drop = r->win_len - CKPI_READER_BACK;
    memmove(r->win, r->win + drop, CKPI_READER_BACK);
    r->win_off += drop;
    r->win_len = CKPI_READER_BACK;
}

/* One read(2): waiting for a full window would stall a consumer behind a slow producer. */
static ckp_status
fill(ckpi_reader *r, ckp_error *err)
{
    ssize_t n;
    slide(r);
    while ((n = read(r->fd, r->win + r->win_len, WINDOW - r->win_len)) < 0 && errno == EINTR)
        if (r->interrupted != NULL && r->interrupted(r->interrupted_user, r->win_off + r->win_len, 0) != 0)
            return ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
    if (n < 0)
        return fail_errno(r, errno, "cannot read", err);
    r->at_end = n == 0;
    r->win_len += (size_t)n;
    return CKP_OK;
}

static ckp_status
pipe_some(ckpi_reader *r, uint64_t off, uint8_t *dst, size_t n, size_t *got, ckp_error *err)
{
    if (off < r->win_off)
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, off, "'%.200s' is a stream: byte %llu has passed", r->name, (unsigned long long)off);
    while (*got < n) {
        const uint64_t want = off + *got;
        if (want < r->win_off + r->win_len) {
            const size_t at = (size_t)(want - r->win_off);
            const size_t k = CKPI_MIN(n - *got, r->win_len - at);
            memcpy(dst + *got, r->win + at, k);
            *got += k;
            continue;
        }
        if (r->at_end)
            return CKP_OK;
        const ckp_status st = fill(r, err);
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

static void
mem_some(const ckpi_reader *r, uint64_t off, uint8_t *dst, size_t n, size_t *got)
{
    if (off >= r->mem_len)
        return;
    *got = (size_t)CKPI_MIN((uint64_t)n, r->mem_len - off);
    memcpy(dst, r->mem + off, *got);
}

ckp_status
ckpi_reader_some(ckpi_reader *r, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err)
{
    *got = 0;
    if (n == 0 || off > UINT64_MAX - n)
        return CKP_OK;
    if (r->held != NULL) {
        mem_some(r, off, dst, n, got);
        return CKP_OK;
    }
    switch (r->kind) {
    case FROM_FILE:
        return r->fs->ops->read_at(r->file, off, dst, n, got, err);
    case FROM_FD: {
        const int e = off > UINT64_MAX - r->start ? 0 : ckpi_fd_read_at(r->fd, r->start + off, dst, n, got);
        return e == 0 ? CKP_OK : fail_errno(r, e, "cannot read", err);
    }
    case FROM_PIPE:
        return pipe_some(r, off, dst, n, got, err);
    case FROM_MEM:
        mem_some(r, off, dst, n, got);
        return CKP_OK;
    }
    return CKP_OK;
}

ckp_status
ckpi_reader_read(ckpi_reader *r, uint64_t off, void *dst, size_t n, ckp_error *err)
{
    size_t got = 0;
    const ckp_status st = ckpi_reader_some(r, off, dst, n, &got, err);
    if (st != CKP_OK || got == n)
        return st;
    (void)ckpi_fail_at(err, CKP_ETRUNCATED, off, "ends at byte %llu, %zu bytes at %llu were expected",
                       (unsigned long long)(off + got), n, (unsigned long long)off);
    ckpi_fail_file(err, r->name);
    return CKP_ETRUNCATED;
}

ckp_status
ckpi_reader_hold(ckpi_reader *r, ckp_error *err)
{
    uint64_t size = 0;
    if (r->kind == FROM_MEM || r->held != NULL)
        return CKP_OK;
    ckp_status st = ckpi_reader_size(r, &size, err);
    if (st != CKP_OK)
        return st;
    uint8_t *p = size < SIZE_MAX ? ckpi_malloc((size_t)size + 1, 1) : NULL;
    if (p == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to hold the %llu bytes of '%.200s'", (unsigned long long)size, r->name);
    st = ckpi_reader_read(r, 0, p, (size_t)size, err);
    if (st != CKP_OK) {
        free(p);
        return st;
    }
    r->mem = r->held = p;
    r->mem_len = (size_t)size;
    return CKP_OK;
}

void
ckpi_reader_free(ckpi_reader *r)
{
    if (r == NULL)
        return;
    if (r->file != NULL)
        r->fs->ops->close(r->file);
    if (r->own_fd)
        close(r->fd);
    free(r->win);
    free(r->held);
    free(r->name);
    free(r);
}
