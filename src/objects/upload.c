/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes on their way to an object: in memory while there are few, then in a temporary file that has no name, so that nothing stays of it. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "objects/internal.h"
#include "os/fdio.h"

static ckp_status
stage_read(const ckp_object_bytes *bytes, uint64_t off, void *dst, size_t n, ckp_error *err)
{
    const ckpi_upload *s = (const ckpi_upload *)(const void *)bytes;
    size_t got = 0;

    if (off > s->bytes.size || n > s->bytes.size - off)
        return ckpi_fail(err, CKP_EINVAL, "%zu bytes at %llu are beyond the %llu that are to be put", n, (unsigned long long)off,
                         (unsigned long long)s->bytes.size);
    if (n == 0)
        return CKP_OK;
    if (s->fd < 0) {
        memcpy(dst, s->mem.data + off, n);
        return CKP_OK;
    }
    const int e = ckpi_fd_read_at(s->fd, off, dst, n, &got);
    return e == 0 && got == n ? CKP_OK : ckpi_fail_errno(err, e != 0 ? e : EIO, "cannot read the temporary file of an upload");
}

void
ckpi_upload_init(ckpi_upload *s, const char *dir)
{
    *s = (ckpi_upload){.bytes = {.read = stage_read}, .fd = -1, .dir = dir};
}

void
ckpi_upload_free(ckpi_upload *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    ckpi_buf_free(&s->mem);
}

/* O_TMPFILE is not everywhere: then a file that loses its name at once. */
static int
nameless_file(const char *dir, ckp_error *err)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        const size_t n = strlen(dir) + sizeof "/ckpress-XXXXXX";
        char *path = ckpi_malloc(n, 1);
        if (path == NULL) {
            (void)ckpi_fail(err, CKP_ENOMEM, "no memory for a path");
            return -1;
        }
        memcpy(path, dir, strlen(dir));
        memcpy(path + strlen(dir), "/ckpress-XXXXXX", sizeof "/ckpress-XXXXXX");
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            (void)unlink(path);
        free(path);
    }
    if (fd < 0)
        (void)ckpi_fail_errno(err, errno, "cannot make a temporary file for an upload in '%.200s'", dir);
    return fd;
}

static ckp_status
put_file(ckpi_upload *s, const void *src, size_t n, ckp_error *err)
{
    const int e = ckpi_fd_write(s->fd, src, n);
    return e == 0 ? CKP_OK : ckpi_fail_errno(err, e, "cannot write the temporary file of an upload in '%.200s'", s->dir);
}

static ckp_status
spill(ckpi_upload *s, ckp_error *err)
{
    ckp_error e;
    ckpi_error_clear(&e);
    const int fd = nameless_file(s->dir, &e);
    if (fd < 0) {
        if (err != NULL)
            *err = e;
        return e.code;
    }
    s->fd = fd;
    const ckp_status st = put_file(s, s->mem.data, s->mem.len, err);
    ckpi_buf_free(&s->mem);
    return st;
}

ckp_status
ckpi_upload_append(ckpi_upload *s, const void *src, size_t n, ckp_error *err)
{
    ckp_status st = CKP_OK;
    if (n == 0)
        return CKP_OK;
    if (s->fd < 0 && s->dir != NULL && n > CKPI_UPLOAD_MEMORY - CKPI_MIN(s->mem.len, CKPI_UPLOAD_MEMORY))
        st = spill(s, err);
    if (st != CKP_OK)
        return st;
    if (s->fd >= 0) {
        st = put_file(s, src, n, err);
    } else {
        ckpi_buf_put(&s->mem, src, n);
        st = ckpi_buf_status(&s->mem, err, "upload in memory");
    }
    if (st == CKP_OK)
        s->bytes.size += n;
    return st;
}
