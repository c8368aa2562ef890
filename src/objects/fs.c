/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of a file system over objects.
 *
 * A directory is there when anything lies in it: making one and removing one only look. A rename that never replaces is put-if-absent of the new name;
 * what had a temporary name was never sent under it. What has been sent before (a manifest that becomes deleted.json) is copied, then removed, as by
 * link and unlink. Objects are durable when they are there, so that syncing a directory has one thing to say: whether a put into it is in doubt (send.c).
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"
#include "objects/internal.h"
#include "os/host.h"

static objects_fs *
self(ckpi_fs *fs)
{
    return (objects_fs *)(void *)fs;
}

static ckp_status
own_process(const objects_fs *fs, const char *name, ckp_error *err)
{
    if (ckpi_pid() == fs->owner)
        return CKP_OK;
    return ckpi_fail(err, CKP_EFORK, "'%.200s': this handle belongs to another process", name);
}

/* Takes it from the list; NULL: there is none of that name. */
static ckpi_pending *
take_pending(objects_fs *fs, const char *name)
{
    ckpi_pending *p = NULL;
    pthread_mutex_lock(&fs->mutex);
    for (ckpi_pending **at = &fs->pending; *at != NULL && p == NULL; at = &(*at)->next)
        if (strcmp((*at)->name, name) == 0) {
            p = *at;
            *at = p->next;
            break;
        }
    pthread_mutex_unlock(&fs->mutex);
    return p;
}

static ckp_status
fs_open(ckpi_fs *base, const char *name, ckpi_open_how how, ckpi_file **out, ckp_error *err)
{
    objects_fs *fs = self(base);
    if (how == CKPI_OPEN_READ)
        return ckpi_object_open_read(fs, name, out, err);
    const ckp_status st = own_process(fs, name, err);
    return st == CKP_OK ? ckpi_object_open_new(fs, name, out, err) : st;
}

static ckp_status
fs_stat(ckpi_fs *base, const char *name, ckpi_stat *out, ckp_error *err)
{
    *out = (ckpi_stat){0};
    return ckpi_survey_size(self(base), name, &out->size) ? CKP_OK : ckpi_object_stat(self(base), name, &out->size, err);
}

static ckp_status
fs_list(ckpi_fs *base, const char *dir, bool (*fn)(void *user, const char *entry, bool is_dir), void *user, ckp_error *err)
{
    return ckpi_object_list(self(base), dir, fn, user, err);
}

static bool
note_any(void *user, const char *entry, bool is_dir)
{
    (void)entry;
    (void)is_dir;
    *(bool *)user = true;
    return false;
}

/* CKP_EEXIST when anything lies in it. */
static ckp_status
must_be_empty(ckpi_fs *base, const char *name, ckp_error *err)
{
    bool any = false;
    ckp_status st = own_process(self(base), name, err);
    if (st == CKP_OK)
        st = ckpi_object_list(self(base), name, note_any, &any, err);
    return st == CKP_OK && any ? ckpi_fail(err, CKP_EEXIST, "'%.200s' is not empty", name) : st;
}

static ckp_status
fs_unlink(ckpi_fs *base, const char *name, ckp_error *err)
{
    objects_fs *fs = self(base);
    const ckp_status st = own_process(fs, name, err);
    if (st != CKP_OK)
        return st;
    ckpi_pending *p = take_pending(fs, name);
    if (p == NULL)
        return ckpi_object_remove(fs, name, err);
    ckpi_pending_free(p);
    return CKP_OK;
}

static ckp_status
stage_object(objects_fs *fs, const char *name, ckpi_upload *s, ckp_error *err)
{
    ckpi_buf raw = CKPI_BUF_INIT;
    ckp_status st = ckpi_fs_read(&fs->fs, name, CKPI_MAX_MANIFEST, &raw, err);
    if (st == CKP_OK)
        st = ckpi_upload_append(s, raw.data, raw.len, err);
    ckpi_buf_free(&raw);
    return st;
}

static ckp_status
rename_object(objects_fs *fs, const char *from, const char *to, bool replace, ckp_error *err)
{
    ckpi_upload s;
    ckpi_upload_init(&s, fs->stage_dir);
    ckp_status st = stage_object(fs, from, &s, err);
    if (st == CKP_OK)
        st = ckpi_object_send(fs, to, &s, replace, err);
    if (st == CKP_OK)
        st = ckpi_object_remove(fs, from, err);
    ckpi_upload_free(&s);
    return st;
}

static ckp_status
fs_publish(ckpi_fs *base, const char *from, const char *to, bool replace, ckp_error *err)
{
    objects_fs *fs = self(base);
    ckp_status st = own_process(fs, to, err);
    if (st != CKP_OK)
        return st;
    ckpi_pending *p = take_pending(fs, from);
    if (p == NULL)
        return rename_object(fs, from, to, replace, err);
    st = ckpi_object_send(fs, to, &p->stage, replace, err);
    ckpi_pending_free(p);
    return st;
}

static ckp_status
fs_sync_dir(ckpi_fs *base, const char *dir, ckp_error *err)
{
    objects_fs *fs = self(base);
    if (!ckpi_object_doubtful(fs, dir))
        return CKP_OK;
    return ckpi_fail(err, CKP_EIO, "an upload into '%.200s%s%.200s' failed and may yet arrive", fs->name, *dir != '\0' ? "/" : "", dir);
}

static ckp_status
fs_survey(ckpi_fs *base, ckp_error *err)
{
    return ckpi_survey_begin(self(base), err);
}

static void
fs_survey_end(ckpi_fs *base)
{
    ckpi_survey_end(self(base));
}

static void
fs_destroy(ckpi_fs *base)
{
    objects_fs *fs = self(base);
    for (ckpi_pending *p = fs->pending, *next; p != NULL; p = next) {
        next = p->next;
        ckpi_pending_free(p);
    }
    for (ckpi_doubt *d = fs->doubt, *next; d != NULL; d = next) {
        next = d->next;
        free(d);
    }
    pthread_mutex_destroy(&fs->mutex);
    ckpi_survey_free(fs->survey);
    free(fs->stage_dir);
    free(fs->name);
    free(fs);
}

static const ckpi_fs_ops objects_ops = {
    .name = "objects",
    .open = fs_open,
    .read_at = ckpi_object_read_at,
    .write = ckpi_object_write,
    .size = ckpi_object_size,
    .sync = ckpi_object_sync,
    .close = ckpi_object_close,
    .stat = fs_stat,
    .list = fs_list,
    .mkdir = must_be_empty,
    .unlink = fs_unlink,
    .rmdir = must_be_empty,
    .publish = fs_publish,
    .sync_dir = fs_sync_dir,
    .survey = fs_survey,
    .survey_end = fs_survey_end,
    .destroy = fs_destroy,
    .late = true,
};

ckp_status
ckpi_objects_check(const ckp_objects *t, ckp_error *err)
{
    if (t == NULL || t->size != sizeof *t)
        return ckpi_fail(err, CKP_EINVAL, "objects of size %zu; this library knows %zu", t != NULL ? t->size : 0, sizeof *t);
    if (t->stat == NULL || t->get == NULL || t->put == NULL || t->list == NULL || t->remove == NULL)
        return ckpi_fail(err, CKP_EINVAL, "objects: a callback is missing");
    if ((unsigned)t->read_back > CKP_READ_BACK_SIZE)
        return ckpi_fail(err, CKP_EINVAL, "objects: no way %d of reading back", (int)t->read_back);
    return CKP_OK;
}

ckp_status
ckpi_fs_objects(ckpi_fs **out, const ckp_objects *table, const char *name, ckp_error *err)
{
    *out = NULL;
    const ckp_status st = ckpi_objects_check(table, err);
    if (st != CKP_OK)
        return st;
    objects_fs *fs = ckpi_calloc(1, sizeof *fs);
    if (fs != NULL) {
        fs->name = ckpi_strdup(name);
        fs->stage_dir = table->stage_dir != NULL ? ckpi_strdup(table->stage_dir) : NULL;
        fs->survey = ckpi_survey_new();
    }
    if (fs == NULL || fs->name == NULL || fs->survey == NULL || (table->stage_dir != NULL && fs->stage_dir == NULL) || pthread_mutex_init(&fs->mutex, NULL) != 0) {
        if (fs != NULL) {
            ckpi_survey_free(fs->survey);
            free(fs->name);
            free(fs->stage_dir);
        }
        free(fs);
        return ckpi_fail(err, CKP_ENOMEM, "no memory to open '%.200s'", name);
    }
    fs->fs.ops = &objects_ops;
    fs->table = *table;
    fs->table.stage_dir = fs->stage_dir;
    fs->owner = ckpi_pid();
    *out = &fs->fs;
    return CKP_OK;
}
