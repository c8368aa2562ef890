/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "os/target.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/hash.h"
#include "os/posix.h"

ckp_status
ckpi_target_path(char **out, const char *path, ckp_error *err)
{
    struct stat sb;

    *out = NULL;
    if (stat(path, &sb) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return ckpi_fail_errno(err, errno, "cannot look at it");
        *out = ckpi_strdup(path);                  /* new, or a link to nothing, which is replaced */
        return *out != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a path");
    }
    if (S_ISDIR(sb.st_mode))
        return ckpi_fail(err, CKP_EINVAL, "it is a directory");
    if (!S_ISREG(sb.st_mode))
        return ckpi_fail(err, CKP_EINVAL, "a device, pipe or socket is not replaced by a file; write to - and redirect");
    *out = realpath(path, NULL);
    return *out != NULL ? CKP_OK : ckpi_fail_errno(err, errno, "cannot follow it");
}

void
ckpi_target_mode(ckpi_fs *fs, const char *name, const char *like)
{
    const posix_fs *p = (const posix_fs *)(const void *)fs;
    struct stat from, now;

    if (strcmp(like, "-") == 0 || stat(like, &from) != 0 || fstatat(p->root, name, &now, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    /* failing to take permissions away is no reason to fail: the user's umask was obeyed */
    const int rc = fchmodat(p->root, name, now.st_mode & from.st_mode & 0777, 0);
    (void)rc;
}

uint64_t
ckpi_target_stamp(const char *path)
{
    struct stat sb;

    if (stat(path, &sb) != 0)
        return 0;
    const uint64_t what[] = {(uint64_t)sb.st_dev, (uint64_t)sb.st_ino, (uint64_t)sb.st_size, (uint64_t)sb.st_mtim.tv_sec, (uint64_t)sb.st_mtim.tv_nsec};
    return ckpi_hash64(what, sizeof what) | 1;
}

bool
ckpi_target_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* path cut to its parent; false at the top. What is not there yet has no links: "." stands for the parent of a plain name. */
static bool
up(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    const bool more = n > 0 && !(n == 1 && path[1] == '\0');
    path[n > 0 ? n : 1] = '\0';
    if (n == 0)
        path[0] = '.';
    return more || n == 0;
}

bool
ckpi_target_inside(const char *path, const char *dir)
{
    struct stat want, sb;
    char *at = ckpi_strdup(path), *real = NULL;
    bool inside = false;

    while (at != NULL && (real = realpath(at, NULL)) == NULL && errno == ENOENT && strcmp(at, ".") != 0 && up(at))
        ;
    if (real != NULL && stat(dir, &want) == 0)
        for (bool more = true; more && !inside; more = up(real))
            inside = stat(real, &sb) == 0 && sb.st_dev == want.st_dev && sb.st_ino == want.st_ino;
    free(real);
    free(at);
    return inside;
}
