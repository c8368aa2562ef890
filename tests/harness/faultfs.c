/* SPDX-License-Identifier: Apache-2.0 */
/* The file system over the disk: every call passes the gate, where it is counted and may fail. */
#include "harness/faultfs.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "harness/faultdisk.h"
#include "os/host.h"

typedef struct mount {
    ckpi_fs fs;
    fault_disk *disk;
    unsigned generation;
} mount;

typedef struct handle {
    ckpi_file file;
    fault_node *node;
} handle;

static mount *
self(ckpi_fs *fs)
{
    return (mount *)(void *)fs;
}

void
fault_arm(fault_disk *d, fault_kind kind, uint64_t at, bool lasting)
{
    d->kind = kind;
    d->at = at;
    d->calls = 0;
    d->lasting = lasting;
    d->fired = 0;
}

void
fault_slow(fault_disk *d, unsigned ms)
{
    d->slow_ms = ms;
}

uint64_t
fault_calls(const fault_disk *d)
{
    return d->calls;
}

unsigned
fault_fired(const fault_disk *d)
{
    return d->fired;
}

static bool
counts(const fault_disk *d, fault_what w)
{
    if (d->kind == FAULT_ENOSPC)
        return w == FAULT_SPACE || w == FAULT_WRITE;
    return d->kind == FAULT_SHORT || d->kind == FAULT_LATE || d->kind == FAULT_DAMAGE || d->kind == FAULT_ORPHAN ? w == FAULT_WRITE : true;
}

static bool
is_due(fault_disk *d, fault_what w)
{
    if (!counts(d, w))
        return false;
    d->calls++;
    const bool due = d->at != 0 && (d->calls == d->at || (d->lasting && d->calls > d->at));
    d->fired += due;
    return due;
}

ckp_status
fault_gate(fault_disk *d, unsigned generation, fault_what w, bool *short_write, ckp_error *err)
{
    d->due = false;
    if (d->slow_ms > 0)
        ckpi_sleep_ms(d->slow_ms);
    if (short_write != NULL)
        *short_write = false;
    if (d->off || generation != d->generation)
        return ckpi_fail_errno(err, EIO, "the process or the machine is down");
    if (!is_due(d, w))
        return CKP_OK;
    switch (d->kind) {
    case FAULT_EIO:
        return ckpi_fail_errno(err, EIO, "injected");
    case FAULT_ENOSPC:
        return ckpi_fail_errno(err, ENOSPC, "injected");
    case FAULT_SHORT:
        *short_write = true;
        return ckpi_fail_errno(err, ENOSPC, "injected");
    case FAULT_KILL:
        d->off = true;
        return ckpi_fail_errno(err, EIO, "killed");
    case FAULT_POWER:
        d->off = true;
        return CKP_OK;
    case FAULT_LOST:
    case FAULT_LATE:
    case FAULT_DAMAGE:
    case FAULT_ORPHAN:
        d->due = true;
        return CKP_OK;
    case FAULT_NONE:
        break;
    }
    return CKP_OK;
}

static ckp_status
gate(const mount *m, fault_what w, bool *short_write, ckp_error *err)
{
    return fault_gate(m->disk, m->generation, w, short_write, err);
}

static ckp_status
no_entry(const char *name, ckp_error *err)
{
    ckpi_fail_errno(err, ENOENT, "faultfs");
    ckpi_fail_file(err, name);
    return CKP_ENOTFOUND;
}

static ckp_status
fs_open(ckpi_fs *fs, const char *name, ckpi_open_how how, ckpi_file **out, ckp_error *err)
{
    mount *m = self(fs);
    const char *leaf = NULL;
    const ckp_status st = gate(m, how == CKPI_OPEN_NEW ? FAULT_SPACE : FAULT_OTHER, NULL, err);
    if (st != CKP_OK)
        return st;
    fault_node *node = fault_lookup(m->disk, name);
    if (how == CKPI_OPEN_NEW) {
        fault_node *dir = fault_walk(m->disk, name, &leaf);
        if (dir == NULL)
            return no_entry(name, err);
        if (node != NULL)
            return ckpi_fail_errno(err, EEXIST, "%s", name);
        node = fault_node_new(m->disk, false);
        fault_change_dir(dir, "", leaf, node);
    }
    if (node == NULL)
        return no_entry(name, err);
    if (node->is_dir)
        return ckpi_fail_errno(err, EISDIR, "%s", name);
    handle *h = fault_alloc(NULL, sizeof *h);
    *h = (handle){.file.fs = fs, .node = node};
    *out = &h->file;
    return CKP_OK;
}

static ckp_status
fs_read_at(ckpi_file *f, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err)
{
    const fault_node *node = ((handle *)(void *)f)->node;
    const ckp_status st = gate(self(f->fs), FAULT_OTHER, NULL, err);
    *got = 0;
    if (st != CKP_OK || off >= node->len)
        return st;
    *got = n < node->len - off ? n : (size_t)(node->len - off);
    memcpy(dst, node->data + off, *got);
    return CKP_OK;
}

static void
append(fault_node *node, const void *src, size_t n)
{
    node->data = fault_alloc(node->data, node->len + n);
    if (n > 0)
        memcpy(node->data + node->len, src, n);
    node->len += n;
}

static ckp_status
fs_write(ckpi_file *f, const void *src, size_t n, ckp_error *err)
{
    bool half = false;
    const ckp_status st = gate(self(f->fs), FAULT_WRITE, &half, err);
    if (st == CKP_OK || half)
        append(((handle *)(void *)f)->node, src, half ? n / 2 : n);
    return st;
}

static ckp_status
fs_size(ckpi_file *f, uint64_t *size, ckp_error *err)
{
    const ckp_status st = gate(self(f->fs), FAULT_OTHER, NULL, err);
    if (st == CKP_OK)
        *size = ((handle *)(void *)f)->node->len;
    return st;
}

static ckp_status
sync_node(mount *m, fault_node *node, ckp_error *err)
{
    const ckp_status st = gate(m, FAULT_SYNC, NULL, err);
    if (st == CKP_OK)
        fault_sync_node(node);
    else if (!m->disk->off && !node->is_dir)
        node->dropped = true;
    return st;
}

static ckp_status
fs_sync(ckpi_file *f, ckp_error *err)
{
    return sync_node(self(f->fs), ((handle *)(void *)f)->node, err);
}

static void
fs_close(ckpi_file *f)
{
    free(f);
}

static ckp_status
fs_stat(ckpi_fs *fs, const char *name, ckpi_stat *out, ckp_error *err)
{
    mount *m = self(fs);
    const ckp_status st = gate(m, FAULT_OTHER, NULL, err);
    if (st != CKP_OK)
        return st;
    const fault_node *node = fault_lookup(m->disk, name);
    if (node == NULL)
        return no_entry(name, err);
    *out = (ckpi_stat){.size = node->len, .is_dir = node->is_dir};
    return CKP_OK;
}

static ckp_status
fs_list(ckpi_fs *fs, const char *dir, bool (*fn)(void *user, const char *entry, bool is_dir), void *user, ckp_error *err)
{
    mount *m = self(fs);
    const ckp_status st = gate(m, FAULT_OTHER, NULL, err);
    if (st != CKP_OK)
        return st;
    const fault_node *node = fault_lookup(m->disk, dir);
    if (node == NULL || !node->is_dir)
        return no_entry(dir, err);
    for (size_t i = 0; i < node->now.n; i++)
        if (!fn(user, node->now.v[i].name, node->now.v[i].node->is_dir))
            break;
    return CKP_OK;
}

static ckp_status
fs_mkdir(ckpi_fs *fs, const char *name, ckp_error *err)
{
    mount *m = self(fs);
    const char *leaf = NULL;
    const ckp_status st = gate(m, FAULT_SPACE, NULL, err);
    if (st != CKP_OK)
        return st;
    fault_node *dir = fault_walk(m->disk, name, &leaf);
    if (dir == NULL)
        return no_entry(name, err);
    if (fault_find(&dir->now, leaf) != NULL)
        return ckpi_fail_errno(err, EEXIST, "%s", name);
    fault_change_dir(dir, "", leaf, fault_node_new(m->disk, true));
    return CKP_OK;
}

static ckp_status
remove_node(ckpi_fs *fs, const char *name, bool want_dir, ckp_error *err)
{
    mount *m = self(fs);
    const char *leaf = NULL;
    const ckp_status st = gate(m, FAULT_OTHER, NULL, err);
    if (st != CKP_OK)
        return st;
    fault_node *dir = fault_walk(m->disk, name, &leaf);
    const fault_node *node = fault_lookup(m->disk, name);
    if (node == NULL)
        return no_entry(name, err);
    if (node->is_dir != want_dir)
        return ckpi_fail_errno(err, want_dir ? ENOTDIR : EISDIR, "%s", name);
    if (node->is_dir && node->now.n > 0)
        return ckpi_fail_errno(err, ENOTEMPTY, "%s", name);
    fault_change_dir(dir, leaf, "", NULL);
    return CKP_OK;
}

static ckp_status
fs_unlink(ckpi_fs *fs, const char *name, ckp_error *err)
{
    return remove_node(fs, name, false, err);
}

static ckp_status
fs_rmdir(ckpi_fs *fs, const char *name, ckp_error *err)
{
    return remove_node(fs, name, true, err);
}

static ckp_status
fs_publish(ckpi_fs *fs, const char *from, const char *to, bool replace, ckp_error *err)
{
    mount *m = self(fs);
    const char *from_leaf = NULL, *to_leaf = NULL;
    const ckp_status st = gate(m, FAULT_OTHER, NULL, err);
    if (st != CKP_OK)
        return st;
    fault_node *a = fault_walk(m->disk, from, &from_leaf), *b = fault_walk(m->disk, to, &to_leaf);
    fault_node *node = fault_lookup(m->disk, from);
    if (node == NULL || b == NULL)
        return no_entry(from, err);
    if (!replace && fault_find(&b->now, to_leaf) != NULL)
        return ckpi_fail_errno(err, EEXIST, "%s", to);
    if (a == b) {
        fault_change_dir(a, from_leaf, to_leaf, node);
    } else {
        fault_change_dir(b, "", to_leaf, node);
        fault_change_dir(a, from_leaf, "", NULL);
    }
    return CKP_OK;
}

static ckp_status
fs_sync_dir(ckpi_fs *fs, const char *dir, ckp_error *err)
{
    mount *m = self(fs);
    fault_node *node = fault_lookup(m->disk, dir);
    if (node != NULL)
        return sync_node(m, node, err);
    const ckp_status st = gate(m, FAULT_SYNC, NULL, err);
    return st == CKP_OK ? no_entry(dir, err) : st;
}

static void
fs_destroy(ckpi_fs *fs)
{
    free(fs);
}

static const ckpi_fs_ops fault_ops = {
    .name = "fault",
    .open = fs_open,
    .read_at = fs_read_at,
    .write = fs_write,
    .size = fs_size,
    .sync = fs_sync,
    .close = fs_close,
    .stat = fs_stat,
    .list = fs_list,
    .mkdir = fs_mkdir,
    .unlink = fs_unlink,
    .rmdir = fs_rmdir,
    .publish = fs_publish,
    .sync_dir = fs_sync_dir,
    .destroy = fs_destroy,
};

ckpi_fs *
fault_mount(fault_disk *d)
{
    if (d->objects)
        return fault_mount_objects(d);
    mount *m = fault_alloc(NULL, sizeof *m);
    *m = (mount){.fs.ops = &fault_ops, .disk = d, .generation = d->generation};
    return &m->fs;
}
