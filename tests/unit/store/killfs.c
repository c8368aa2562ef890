/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "killfs.h"
#include <signal.h>
#include <stdlib.h>

typedef struct killfs {
    ckpi_fs fs;
    ckpi_fs *inner;
    uint64_t at, calls;
} killfs;

typedef struct killfile {
    ckpi_file file;
    ckpi_file *inner;
} killfile;

static killfs *
self(ckpi_fs *fs)
{
    return (killfs *)(void *)fs;
}

static ckpi_fs *
count(ckpi_fs *fs)
{
    killfs *k = self(fs);
    if (++k->calls == k->at)
        raise(SIGKILL);
    return k->inner;
}

static ckpi_file *
count_file(ckpi_file *f)
{
    (void)count(f->fs);
    return ((killfile *)(void *)f)->inner;
}

static ckp_status
k_open(ckpi_fs *fs, const char *name, ckpi_open_how how, ckpi_file **out, ckp_error *err)
{
    ckpi_fs *in = count(fs);
    killfile *f = malloc(sizeof *f);
    if (f == NULL)
        return CKP_ENOMEM;
    f->file.fs = fs;
    const ckp_status st = in->ops->open(in, name, how, &f->inner, err);
    if (st != CKP_OK) {
        free(f);
        return st;
    }
    *out = &f->file;
    return CKP_OK;
}

static ckp_status
k_read_at(ckpi_file *f, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err)
{
    ckpi_file *in = count_file(f);
    return in->fs->ops->read_at(in, off, dst, n, got, err);
}

static ckp_status
k_write(ckpi_file *f, const void *src, size_t n, ckp_error *err)
{
    ckpi_file *in = count_file(f);
    return in->fs->ops->write(in, src, n, err);
}

static ckp_status
k_size(ckpi_file *f, uint64_t *size, ckp_error *err)
{
    ckpi_file *in = count_file(f);
    return in->fs->ops->size(in, size, err);
}

static ckp_status
k_sync(ckpi_file *f, ckp_error *err)
{
    ckpi_file *in = count_file(f);
    return in->fs->ops->sync(in, err);
}

static void
k_close(ckpi_file *f)
{
    ckpi_file *in = ((killfile *)(void *)f)->inner;
    in->fs->ops->close(in);
    free(f);
}

static ckp_status
k_stat(ckpi_fs *fs, const char *name, ckpi_stat *st, ckp_error *err)
{
    ckpi_fs *in = count(fs);
    return in->ops->stat(in, name, st, err);
}

static ckp_status
k_list(ckpi_fs *fs, const char *dir, bool (*fn)(void *user, const char *entry, bool is_dir), void *user, ckp_error *err)
{
    ckpi_fs *in = count(fs);
    return in->ops->list(in, dir, fn, user, err);
}

static ckp_status
k_mkdir(ckpi_fs *fs, const char *name, ckp_error *err)
{
    ckpi_fs *in = count(fs);
    return in->ops->mkdir(in, name, err);
}

static ckp_status
k_unlink(ckpi_fs *fs, const char *name, ckp_error *err)
{
    ckpi_fs *in = count(fs);
    return in->ops->unlink(in, name, err);
}

static ckp_status
k_rmdir(ckpi_fs *fs, const char *name, ckp_error *err)
{
    ckpi_fs *in = count(fs);
    return in->ops->rmdir(in, name, err);
}

static ckp_status
k_publish(ckpi_fs *fs, const char *from, const char *to, bool replace, ckp_error *err)
{
    ckpi_fs *in = count(fs);
    const ckp_status st = in->ops->publish(in, from, to, replace, err);
    (void)count(fs);
    return st;
}

static ckp_status
k_sync_dir(ckpi_fs *fs, const char *dir, ckp_error *err)
{
    ckpi_fs *in = count(fs);
    return in->ops->sync_dir(in, dir, err);
}

static void
k_destroy(ckpi_fs *fs)
{
    ckpi_fs_free(self(fs)->inner);
    free(fs);
}

static const ckpi_fs_ops kill_ops = {
    .name = "kill",
    .open = k_open,
    .read_at = k_read_at,
    .write = k_write,
    .size = k_size,
    .sync = k_sync,
    .close = k_close,
    .stat = k_stat,
    .list = k_list,
    .mkdir = k_mkdir,
    .unlink = k_unlink,
    .rmdir = k_rmdir,
    .publish = k_publish,
    .sync_dir = k_sync_dir,
    .destroy = k_destroy,
};

ckpi_fs *
killfs_wrap(ckpi_fs *inner, uint64_t at)
{
    killfs *k = malloc(sizeof *k);
    if (k == NULL)
        abort();
    *k = (killfs){.fs.ops = &kill_ops, .inner = inner, .at = at};
    return &k->fs;
}
