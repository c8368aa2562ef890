/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include "os/posix_root.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "os/fdio.h"

static int
sync_path(const char *dir)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? 0 : errno;    /* may be writable yet not readable: then durability is not ours to give */
    const int e = ckpi_fd_sync(fd);
    close(fd);
    return e == EINVAL || e == ENOTSUP ? 0 : e;
}

/* path[0..n) exists afterwards. Its parent is path up to the slash before. */
static int
make_one(char *path, size_t n)
{
    const char keep = path[n];
    path[n] = '\0';
    int e = mkdir(path, 0777) == 0 ? 0 : errno;
    if (e == 0) {
        size_t up = n;
        while (up > 0 && path[up - 1] != '/')
            up--;
        if (up == 0) {
            e = sync_path(".");
        } else {
            const char c = path[up];
            path[up] = '\0';
            e = sync_path(path);
            path[up] = c;
        }
    } else {
        /* EEXIST, or a read-only parent of something that is there: the open that follows decides. */
        struct stat sb;
        if (stat(path, &sb) == 0)
            e = S_ISDIR(sb.st_mode) ? 0 : ENOTDIR;
    }
    path[n] = keep;
    return e;
}

int
ckpi_posix_make_dirs(const char *dir)
{
    char *path = ckpi_strdup(dir);
    if (path == NULL)
        return ENOMEM;
    const size_t len = strlen(path);
    int e = 0;
    for (size_t n = 1; n <= len && e == 0; n++)
        if ((path[n] == '/' || path[n] == '\0') && path[n - 1] != '/')
            e = make_one(path, n);
    free(path);
    return e;
}

int
ckpi_posix_link_new(int from_dir, const char *from, int to_dir, const char *to)
{
    struct stat sb;
    /* Directories have no second names; rename() leaves a directory with something in it alone. */
    if (fstatat(from_dir, from, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(sb.st_mode)) {
        if (fstatat(to_dir, to, &sb, AT_SYMLINK_NOFOLLOW) == 0)
            return EEXIST;
        return renameat(from_dir, from, to_dir, to) == 0 ? 0 : errno;
    }
    if (linkat(from_dir, from, to_dir, to, 0) != 0) {
        const int e = errno;
        /* NFS may repeat a link whose answer was lost: a second name means that ours was the one that worked. */
        if (e != EEXIST || fstatat(from_dir, from, &sb, AT_SYMLINK_NOFOLLOW) != 0 || sb.st_nlink != 2)
            return e;
    }
    /* The file has its name; a temporary that cannot be removed is swept later. */
    (void)unlinkat(from_dir, from, 0);
    return 0;
}

int
ckpi_posix_rename_new(int from_dir, const char *from, int to_dir, const char *to)
{
#ifdef RENAME_NOREPLACE
    if (renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        return errno;
#endif
    return ckpi_posix_link_new(from_dir, from, to_dir, to);
}
