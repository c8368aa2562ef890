/* SPDX-License-Identifier: Apache-2.0 */
/* Open files of the POSIX file system. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "os/fdio.h"
#include "os/posix.h"

typedef struct posix_file {
    ckpi_file file;
    int fd;
    char *name;
} posix_file;

static ckp_status
fail(const posix_file *f, int e, const char *what, ckp_error *err)
{
    return ckpi_posix_error((const posix_fs *)(const void *)f->file.fs, f->name, e, what, err);
}

ckp_status
ckpi_posix_file(ckpi_file **out, posix_fs *fs, int fd, const char *name, ckp_error *err)
{
    posix_file *f = ckpi_calloc(1, sizeof *f);
    char *copy = ckpi_strdup(name);
    if (f == NULL || copy == NULL) {
        free(f);
        free(copy);
        close(fd);
        return ckpi_fail(err, CKP_ENOMEM, "no memory to open '%.200s'", name);
    }
    f->file.fs = &fs->fs;
    f->fd = fd;
    f->name = copy;
    *out = &f->file;
    return CKP_OK;
}

ckp_status
ckpi_posix_read_at(ckpi_file *file, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err)
{
    posix_file *f = (posix_file *)(void *)file;
    const int e = ckpi_fd_read_at(f->fd, off, dst, n, got);
    return e == 0 ? CKP_OK : fail(f, e, "cannot read", err);
}

ckp_status
ckpi_posix_write(ckpi_file *file, const void *src, size_t n, ckp_error *err)
{
    posix_file *f = (posix_file *)(void *)file;
    if (getpid() != ((const posix_fs *)(const void *)file->fs)->owner)
        return ckpi_fail(err, CKP_EFORK, "'%.200s' was opened by another process", f->name);
    const int e = ckpi_fd_write(f->fd, src, n);
    return e == 0 ? CKP_OK : fail(f, e, "cannot write", err);
}

ckp_status
ckpi_posix_size(ckpi_file *file, uint64_t *size, ckp_error *err)
{
    posix_file *f = (posix_file *)(void *)file;
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return fail(f, errno, "cannot stat", err);
    *size = (uint64_t)st.st_size;
    return CKP_OK;
}

ckp_status
ckpi_posix_sync(ckpi_file *file, ckp_error *err)
{
    posix_file *f = (posix_file *)(void *)file;
    const int e = ckpi_fd_sync(f->fd);
    return e == 0 ? CKP_OK : fail(f, e, "cannot fsync", err);
}

void
ckpi_posix_close(ckpi_file *file)
{
    posix_file *f = (posix_file *)(void *)file;
    close(f->fd);
    free(f->name);
    free(f);
}
