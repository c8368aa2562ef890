/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the POSIX file system. Every name is walked from the root's handle with O_NOFOLLOW, one component at a time, so
 * that neither ".." nor a symbolic link planted in the run can lead outside, also when someone moves directories meanwhile.
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"
#include "os/fdio.h"
#include "os/posix.h"
#include "os/posix_root.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static posix_fs *
self(ckpi_fs *fs)
{
    return (posix_fs *)(void *)fs;
}

ckp_status
ckpi_posix_error(const posix_fs *fs, const char *name, int e, const char *what, ckp_error *err)
{
    char full[CKPI_PATH_MAX];
    const ckp_status st = e == ELOOP ? ckpi_fail(err, CKP_EPATH, "%s: a symbolic link is not followed", what)
                                     : ckpi_fail_errno(err, e, "%s", what);
    if (err != NULL) {
        snprintf(full, sizeof full, "%s%s%s", fs->path, *name != '\0' ? "/" : "", name);
        ckpi_fail_file(err, full);
    }
    return st;
}

static ckp_status
own_process(const posix_fs *fs, const char *name, ckp_error *err)
{
    if (getpid() == fs->owner)
        return CKP_OK;
    return ckpi_fail(err, CKP_EFORK, "'%.200s': this handle belongs to another process", name);
}

/* Where a name's last component lives. dir is fs->root itself for a plain name. */
typedef struct place {
    int dir;
    const char *leaf;
} place;

static void
leave(const posix_fs *fs, place p)
{
    if (p.dir >= 0 && p.dir != fs->root)
        close(p.dir);
}

static ckp_status
walk(const posix_fs *fs, const char *name, place *out, ckp_error *err)
{
    char part[NAME_MAX + 1];
    place p = {fs->root, name};
    for (const char *slash; (slash = strchr(p.leaf, '/')) != NULL; p.leaf = slash + 1) {
        const size_t n = (size_t)(slash - p.leaf);
        int next = -1, e = ENAMETOOLONG;
        if (n <= NAME_MAX) {
            memcpy(part, p.leaf, n);
            part[n] = '\0';
            next = openat(p.dir, part, DIR_FLAGS);
            e = errno;
        }
        leave(fs, p);
        if (next < 0)
            return ckpi_posix_error(fs, name, e, "cannot open", err);
        p.dir = next;
    }
    *out = p;
    return CKP_OK;
}

static ckp_status
fs_open(ckpi_fs *base, const char *name, ckpi_open_how how, ckpi_file **out, ckp_error *err)
{
    posix_fs *fs = self(base);
    const bool create = how == CKPI_OPEN_NEW;
    place p;
    ckp_status st = create ? own_process(fs, name, err) : CKP_OK;
    if (st == CKP_OK)
        st = walk(fs, name, &p, err);
    if (st != CKP_OK)
        return st;
    /* O_NONBLOCK: opening a FIFO that someone put there must not wait for its other end. */
    const int flags = O_CLOEXEC | O_NOFOLLOW | (create ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY | O_NONBLOCK);
    const int fd = openat(p.dir, p.leaf, flags, fs->is_private ? 0600 : 0666);
    if (fd < 0) {
        st = ckpi_posix_error(fs, name, errno, create ? "cannot create" : "cannot open", err);
    } else if (!create && fs->is_private && !ckpi_posix_is_mine(fs, fd)) {
        close(fd);
        st = ckpi_posix_error(fs, name, EACCES, "belongs to somebody else", err);
    } else {
        st = ckpi_posix_file(out, fs, fd, name, err);
    }
    /* A file that its caller never gets to see must not stay. */
    if (fd >= 0 && st != CKP_OK && create)
        (void)unlinkat(p.dir, p.leaf, 0);
    leave(fs, p);
    return st;
}

static ckp_status
fs_stat(ckpi_fs *base, const char *name, ckpi_stat *out, ckp_error *err)
{
    const posix_fs *fs = self(base);
    struct stat sb;
    place p;
    const ckp_status st = walk(fs, name, &p, err);
    if (st != CKP_OK)
        return st;
    const int r = fstatat(p.dir, p.leaf, &sb, AT_SYMLINK_NOFOLLOW);
    const int e = errno;
    leave(fs, p);
    if (r != 0)
        return ckpi_posix_error(fs, name, e, "cannot stat", err);
    *out = (ckpi_stat){.size = (uint64_t)sb.st_size, .is_dir = S_ISDIR(sb.st_mode), .is_link = S_ISLNK(sb.st_mode),
                        .is_special = !S_ISREG(sb.st_mode) && !S_ISDIR(sb.st_mode) && !S_ISLNK(sb.st_mode)};
    return CKP_OK;
}

static int
open_dir(const posix_fs *fs, const char *dir, int *fd, ckp_error *err, ckp_status *st)
{
    place p = {fs->root, "."};
    if (*dir != '\0' && (*st = walk(fs, dir, &p, err)) != CKP_OK)
        return -1;
    *fd = openat(p.dir, p.leaf, DIR_FLAGS);
    const int e = *fd < 0 ? errno : 0;
    leave(fs, p);
    return e;
}

static bool
entry_is_dir(DIR *d, const struct dirent *de)
{
    struct stat sb;
    if (de->d_type != DT_UNKNOWN)
        return de->d_type == DT_DIR;
    return fstatat(dirfd(d), de->d_name, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(sb.st_mode);
}

static int
list_all(DIR *d, bool (*fn)(void *user, const char *entry, bool is_dir), void *user)
{
    for (;;) {
        errno = 0;
        const struct dirent *de = readdir(d);
        if (de == NULL)
            return errno;
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
            continue;
        if (!fn(user, de->d_name, entry_is_dir(d, de)))
            return 0;
    }
}

static ckp_status
fs_list(ckpi_fs *base, const char *dir, bool (*fn)(void *user, const char *entry, bool is_dir), void *user, ckp_error *err)
{
    const posix_fs *fs = self(base);
    ckp_status st = CKP_OK;
    int fd = -1;
    int e = open_dir(fs, dir, &fd, err, &st);
    if (st != CKP_OK)
        return st;
    DIR *d = e == 0 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        e = e != 0 ? e : errno;
        if (fd >= 0)
            close(fd);
        return ckpi_posix_error(fs, dir, e, "cannot list", err);
    }
    e = list_all(d, fn, user);
    closedir(d);
    return e == 0 ? CKP_OK : ckpi_posix_error(fs, dir, e, "cannot list", err);
}

static ckp_status
fs_mkdir(ckpi_fs *base, const char *name, ckp_error *err)
{
    const posix_fs *fs = self(base);
    place p;
    ckp_status st = own_process(fs, name, err);
    if (st == CKP_OK)
        st = walk(fs, name, &p, err);
    if (st != CKP_OK)
        return st;
    const int e = mkdirat(p.dir, p.leaf, 0777) == 0 ? 0 : errno;
    leave(fs, p);
    return e == 0 ? CKP_OK : ckpi_posix_error(fs, name, e, "cannot make directory", err);
}

static ckp_status
remove_name(ckpi_fs *base, const char *name, int flag, ckp_error *err)
{
    const posix_fs *fs = self(base);
    place p;
    ckp_status st = own_process(fs, name, err);
    if (st == CKP_OK)
        st = walk(fs, name, &p, err);
    if (st != CKP_OK)
        return st;
    const int e = unlinkat(p.dir, p.leaf, flag) == 0 ? 0 : errno;
    leave(fs, p);
    return e == 0 ? CKP_OK : ckpi_posix_error(fs, name, e, "cannot remove", err);
}

static ckp_status
fs_unlink(ckpi_fs *base, const char *name, ckp_error *err)
{
    return remove_name(base, name, 0, err);
}

static ckp_status
fs_rmdir(ckpi_fs *base, const char *name, ckp_error *err)
{
    return remove_name(base, name, AT_REMOVEDIR, err);
}

static ckp_status
fs_publish(ckpi_fs *base, const char *from, const char *to, bool replace, ckp_error *err)
{
    const posix_fs *fs = self(base);
    place a, b;
    ckp_status st = own_process(fs, to, err);
    if (st == CKP_OK)
        st = walk(fs, from, &a, err);
    if (st != CKP_OK)
        return st;
    st = walk(fs, to, &b, err);
    if (st == CKP_OK) {
        int e;
        if (replace)
            e = renameat(a.dir, a.leaf, b.dir, b.leaf) == 0 ? 0 : errno;
        else
            e = ckpi_posix_rename_new(a.dir, a.leaf, b.dir, b.leaf);
        if (e != 0)
            st = ckpi_posix_error(fs, to, e, "cannot publish", err);
        leave(fs, b);
    }
    leave(fs, a);
    return st;
}

static ckp_status
fs_sync_dir(ckpi_fs *base, const char *dir, ckp_error *err)
{
    const posix_fs *fs = self(base);
    ckp_status st = CKP_OK;
    int fd = -1;
    int e = open_dir(fs, dir, &fd, err, &st);
    if (st != CKP_OK)
        return st;
    if (e == 0) {
        e = ckpi_fd_sync(fd);
        close(fd);
        /* Some network and user-space file systems cannot sync a directory and keep their own order. */
        if (e == EINVAL || e == ENOTSUP)
            e = 0;
    }
    return e == 0 ? CKP_OK : ckpi_posix_error(fs, dir, e, "cannot fsync directory", err);
}

static void
fs_destroy(ckpi_fs *base)
{
    posix_fs *fs = self(base);
    close(fs->root);
    free(fs->path);
    free(fs);
}

static const ckpi_fs_ops posix_ops = {
    .name = "posix",
    .open = fs_open,
    .read_at = ckpi_posix_read_at,
    .write = ckpi_posix_write,
    .size = ckpi_posix_size,
    .sync = ckpi_posix_sync,
    .close = ckpi_posix_close,
    .stat = fs_stat,
    .list = fs_list,
    .mkdir = fs_mkdir,
    .unlink = fs_unlink,
    .rmdir = fs_rmdir,
    .publish = fs_publish,
    .sync_dir = fs_sync_dir,
    .destroy = fs_destroy,
};

bool
ckpi_posix_is(const ckpi_fs *fs)
{
    return fs->ops == &posix_ops;
}

ckp_status
ckpi_posix_fs_new(posix_fs **out, int root, const char *dir, ckp_error *err)
{
    posix_fs *fs = ckpi_calloc(1, sizeof *fs);
    *out = NULL;
    if (fs == NULL || (fs->path = ckpi_strdup(dir)) == NULL) {
        free(fs);
        close(root);
        return ckpi_fail(err, CKP_ENOMEM, "no memory to open directory '%.200s'", dir);
    }
    fs->fs.ops = &posix_ops;
    fs->root = root;
    fs->owner = getpid();
    *out = fs;
    return CKP_OK;
}

ckp_status
ckpi_fs_posix(ckpi_fs **out, const char *dir, bool create, ckp_error *err)
{
    posix_fs *fs = NULL;
    int root = -1, e = 0;

    *out = NULL;
    if (create)
        e = ckpi_posix_make_dirs(dir);
    if (e == 0) {
        /* The run's own directory may be reached by a symbolic link: the user named it. */
        root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        e = root < 0 ? errno : 0;
    }
    if (e != 0) {
        const ckp_status st = ckpi_fail_errno(err, e, "cannot open directory");
        ckpi_fail_file(err, dir);
        return st;
    }
    const ckp_status st = ckpi_posix_fs_new(&fs, root, dir, err);
    *out = st == CKP_OK ? &fs->fs : NULL;
    return st;
}
