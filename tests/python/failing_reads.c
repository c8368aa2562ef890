/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LD_PRELOAD: reads at an offset of .ckp files fail with EIO, the one after `reads_left` others or (fail_on) all from it on. The test sets
 * both through ctypes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

atomic_int reads_left = INT_MAX, fail_on, failed;

static int
is_ckp(int fd)
{
    char link[64], path[4096];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path);
    return n > 4 && memcmp(path + n - 4, ".ckp", 4) == 0;
}

ssize_t
pread64(int fd, void *dst, size_t n, off64_t at)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (real == NULL)
        real = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    if (is_ckp(fd)) {
        const int left = atomic_fetch_sub(&reads_left, 1);
        if (left == 0 || (left < 0 && fail_on)) {
            failed++;
            errno = EIO;
            return -1;
        }
    }
    return real(fd, dst, n, at);
}

ssize_t
pread(int fd, void *dst, size_t n, off_t at)
{
    return pread64(fd, dst, n, at);
}
