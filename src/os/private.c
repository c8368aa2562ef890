/* SPDX-License-Identifier: Apache-2.0 */
/* Whose files are whose in a place that all users share, and how much room is left there. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "os/fdio.h"
#include "os/posix.h"
#include "os/private.h"

int64_t
ckpi_user(void)
{
    return (int64_t)geteuid();
}

static bool
is_of(const struct stat *sb, uid_t user)
{
    return sb->st_uid == user && (sb->st_mode & 077) == 0;
}

bool
ckpi_posix_is_mine(const posix_fs *fs, int fd)
{
    struct stat sb;
    return fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && is_of(&sb, fs->user);
}

ckp_status
ckpi_fs_private(ckpi_fs **out, const char *dir, int64_t user, bool create, ckp_error *err)
{
    posix_fs *fs = NULL;
    struct stat sb;

    *out = NULL;
    if (create && mkdir(dir, 0700) != 0 && errno != EEXIST)
        return ckpi_fail_errno(err, errno, "cannot make directory '%.200s'", dir);
    const int root = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    /* a symbolic link is ENOTDIR here, or ELOOP */
    if (root < 0 && (errno == ENOTDIR || errno == ELOOP))
        return ckpi_fail(err, CKP_EPATH, "'%.200s' is not a directory", dir);
    if (root < 0)
        return ckpi_fail_errno(err, errno, "cannot open directory '%.200s'", dir);
    if (fstat(root, &sb) != 0 || !is_of(&sb, (uid_t)user)) {
        close(root);
        return ckpi_fail(err, CKP_EACCESS, "'%.200s' belongs to another user, or others may enter it", dir);
    }
    const ckp_status st = ckpi_posix_fs_new(&fs, root, dir, err);
    if (st != CKP_OK)
        return st;
    fs->is_private = true;
    fs->user = (uid_t)user;
    *out = &fs->fs;
    return CKP_OK;
}

bool
ckpi_private_claim(ckpi_fs *fs)
{
    return flock(((const posix_fs *)(const void *)fs)->root, LOCK_EX | LOCK_NB) == 0;
}

int64_t
ckpi_private_age(ckpi_fs *fs)
{
    struct stat sb;
    if (fstat(((const posix_fs *)(const void *)fs)->root, &sb) != 0)
        return -1;
    return (int64_t)time(NULL) - (int64_t)sb.st_mtime;
}

/* ---- room ------------------------------------------------------------------------------------------------------- */

/* The whole number that follows `key` in a system file ("" : at its start); no_limit where there is none, as in "max". */
static uint64_t
number_in(const char *path, const char *key, uint64_t none)
{
    char text[8192];
    size_t got = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return none;
    if (ckpi_fd_read(fd, text, sizeof text - 1, &got) != 0)
        got = 0;
    close(fd);
    text[got] = '\0';
    const char *at = *key == '\0' ? text : strstr(text, key);
    if (at == NULL)
        return none;
    at += strlen(key);
    at += strspn(at, " ");
    return *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : none;
}

/* What may still be taken under a limit. Cached files that nobody uses count as used, and give way: they are left out. */
static uint64_t
left_of(uint64_t limit, uint64_t used, uint64_t gives_way)
{
    used -= CKPI_MIN(used, gives_way);
    return limit > used ? limit - used : 0;
}

/* As seen from inside of a container; outside of one the machine's memory is what counts. */
static uint64_t
group_room(void)
{
    const uint64_t v2 = number_in("/sys/fs/cgroup/memory.max", "", UINT64_MAX);
    if (v2 != UINT64_MAX)
        return left_of(v2, number_in("/sys/fs/cgroup/memory.current", "", 0), number_in("/sys/fs/cgroup/memory.stat", "\ninactive_file", 0));
    const uint64_t v1 = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", "", UINT64_MAX);
    if (v1 != UINT64_MAX)
        return left_of(v1, number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes", "", 0), number_in("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file", 0));
    return UINT64_MAX;
}

uint64_t
ckpi_memory_room(const char *dir)
{
    struct statvfs vfs;
    if (statvfs(dir, &vfs) != 0)
        return 0;
    const uint64_t disk = (uint64_t)vfs.f_bavail * (uint64_t)vfs.f_frsize;
    const uint64_t kb = number_in("/proc/meminfo", "MemAvailable:", UINT64_MAX);
    const uint64_t machine = kb > UINT64_MAX / 1024 ? UINT64_MAX : kb * 1024;
    return CKPI_MIN(CKPI_MIN(disk, machine), group_room());
}
