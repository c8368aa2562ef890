/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include "os/fdio.h"
#include <errno.h>
#include <limits.h>
#include <unistd.h>

/* Linux moves at most 0x7ffff000 bytes a call; a round figure below it keeps later calls aligned. */
#define MAX_CALL ((size_t)1 << 30)

static size_t
piece(size_t n)
{
    return n < MAX_CALL ? n : MAX_CALL;
}

int
ckpi_fd_write(int fd, const void *src, size_t n)
{
    const char *p = src;
    while (n > 0) {
        const ssize_t w = write(fd, p, piece(n));
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return errno;
        if (w == 0)
            return EIO;        /* no progress and no reason: do not spin */
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

int
ckpi_fd_read(int fd, void *dst, size_t n, size_t *got)
{
    char *p = dst;
    *got = 0;
    while (*got < n) {
        const ssize_t r = read(fd, p + *got, piece(n - *got));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return errno;
        if (r == 0)
            return 0;
        *got += (size_t)r;
    }
    return 0;
}

int
ckpi_fd_read_at(int fd, uint64_t off, void *dst, size_t n, size_t *got)
{
    char *p = dst;
    *got = 0;
    while (*got < n) {
        if (off > INT64_MAX - (uint64_t)*got)
            return 0;          /* beyond every possible file */
        const ssize_t r = pread(fd, p + *got, piece(n - *got), (off_t)(off + *got));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return errno;
        if (r == 0)
            return 0;
        *got += (size_t)r;
    }
    return 0;
}

int
ckpi_fd_sync(int fd)
{
    int r;
    do
        r = fsync(fd);
    while (r < 0 && errno == EINTR);
    return r < 0 ? errno : 0;
}
