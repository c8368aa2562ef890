/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole small files over any ckpi_fs. publish() is the one way by which a name that others rely on comes to be:
 *
 *     create tmp (exclusive) -> write -> fsync -> close -> rename or link to name -> fsync directory
 *
 * A failed fsync is final: the kernel may have dropped the pages, so a second one that succeeds proves nothing.
 */
#include <string.h>
#include "base/fail.h"
#include "base/limits.h"
#include "os/os.h"

void
ckpi_fs_free(ckpi_fs *fs)
{
    if (fs != NULL)
        fs->ops->destroy(fs);
}

/* Directory part of name into dir, "" for the root. name has passed ckpi_path_ok, so it fits. */
static void
dir_of(char dir[CKPI_PATH_MAX], const char *name)
{
    const char *slash = strrchr(name, '/');
    const size_t n = slash == NULL ? 0 : (size_t)(slash - name);
    memcpy(dir, name, n);
    dir[n] = '\0';
}

static ckp_status
write_synced(ckpi_fs *fs, const char *tmp, const void *data, size_t n, bool *made, ckp_error *err)
{
    ckpi_file *f = NULL;
    ckp_status st = fs->ops->open(fs, tmp, CKPI_OPEN_NEW, &f, err);
    if (st != CKP_OK)
        return st;
    *made = true;
    st = fs->ops->write(f, data, n, err);
    if (st == CKP_OK)
        st = fs->ops->sync(f, err);
    fs->ops->close(f);
    return st;
}

ckp_status
ckpi_fs_publish(ckpi_fs *fs, const char *tmp, const char *name, const void *data, size_t n, bool replace, ckp_error *err)
{
    char dir[CKPI_PATH_MAX];
    bool made = false;
    ckp_status st = ckpi_path_ok(tmp, err);
    if (st == CKP_OK)
        st = ckpi_path_ok(name, err);
    if (st != CKP_OK)
        return st;
    dir_of(dir, name);

    st = write_synced(fs, tmp, data, n, &made, err);
    if (st == CKP_OK)
        st = fs->ops->publish(fs, tmp, name, replace, err);
    if (st != CKP_OK) {
        if (made)
            (void)fs->ops->unlink(fs, tmp, NULL);
        return st;
    }
    st = fs->ops->sync_dir(fs, dir, err);
    /* Nobody was told of the new name yet: take it back rather than leave one that a power cut may undo. */
    if (st != CKP_OK && !replace)
        (void)fs->ops->unlink(fs, name, NULL);
    return st;
}

static ckp_status
read_open(ckpi_fs *fs, ckpi_file *f, const char *name, size_t max, ckpi_buf *out, ckp_error *err)
{
    uint64_t size = 0;
    size_t got = 0;
    ckp_status st = fs->ops->size(f, &size, err);
    if (st != CKP_OK)
        return st;
    if (size > max)
        return ckpi_fail(err, CKP_ELIMIT, "'%.200s' has %llu bytes, at most %zu are read", name, (unsigned long long)size, max);
    const size_t n = (size_t)size;
    uint8_t *dst = ckpi_buf_extend(out, n);
    if (dst == NULL)
        return n == 0 && out->failed == CKP_OK ? CKP_OK : ckpi_buf_status(out, err, name);
    st = fs->ops->read_at(f, 0, dst, n, &got, err);
    if (st == CKP_OK && got != n)
        st = ckpi_fail_at(err, CKP_ETRUNCATED, got, "'%.200s' ends at byte %zu of %zu", name, got, n);
    if (st != CKP_OK)
        out->len -= n;
    return st;
}

ckp_status
ckpi_fs_read(ckpi_fs *fs, const char *name, size_t max, ckpi_buf *out, ckp_error *err)
{
    ckpi_file *f = NULL;
    ckp_status st = ckpi_path_ok(name, err);
    if (st == CKP_OK)
        st = fs->ops->open(fs, name, CKPI_OPEN_READ, &f, err);
    if (st != CKP_OK)
        return st;
    st = read_open(fs, f, name, max, out, err);
    fs->ops->close(f);
    return st;
}
