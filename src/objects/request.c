/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: one callback each. Errors name run and object, and only statuses that callbacks may give get through. */
#include <stdio.h>
#include <string.h>
#include "base/fail.h"
#include "base/limits.h"
#include "objects/internal.h"

ckp_status
ckp_objects_fail(ckp_error *err, ckp_status st, const char *text)
{
    return ckpi_fail(err, st, "%s", text != NULL ? text : "");
}

static bool
is_known(ckp_status st)
{
    return st == CKP_ENOTFOUND || st == CKP_EEXIST || st == CKP_EACCESS || st == CKP_ENOSPC || st == CKP_EINVAL || st == CKP_ENOMEM
        || st == CKP_ECANCELLED || st == CKP_EIO;
}

/* What a callback said, as the library says it. */
ckp_status
ckpi_object_answer(const objects_fs *fs, const char *key, ckp_status st, const ckp_error *said, const char *what, ckp_error *err)
{
    char full[CKPI_PATH_MAX];
    if (st == CKP_OK)
        return st;
    const ckp_status as = is_known(st) ? st : CKP_EIO;
    (void)ckpi_fail(err, as, "%s: %s", what, said->text[0] != '\0' ? said->text : ckp_status_name(as));
    if (err != NULL) {
        err->sys_errno = said->sys_errno;
        (void)snprintf(full, sizeof full, "%s%s%s", fs->name, *key != '\0' ? "/" : "", key);
        ckpi_fail_file(err, full);
    }
    return as;
}

ckp_status
ckpi_object_stat(const objects_fs *fs, const char *key, uint64_t *bytes, ckp_error *err)
{
    ckp_error said;
    ckpi_error_clear(&said);
    *bytes = 0;
    return ckpi_object_answer(fs, key, fs->table.stat(fs->table.user, key, bytes, &said), &said, "cannot stat", err);
}

ckp_status
ckpi_object_get(const objects_fs *fs, const char *key, uint64_t off, void *dst, size_t n, ckp_error *err)
{
    ckp_error said;
    ckpi_error_clear(&said);
    return ckpi_object_answer(fs, key, fs->table.get(fs->table.user, key, off, dst, n, &said), &said, "cannot read", err);
}

ckp_status
ckpi_object_remove(const objects_fs *fs, const char *key, ckp_error *err)
{
    ckp_error said;
    ckpi_error_clear(&said);
    const ckp_status st = fs->table.remove(fs->table.user, key, &said);
    return ckpi_object_answer(fs, key, st == CKP_ENOTFOUND ? CKP_OK : st, &said, "cannot remove", err);
}

ckp_status
ckpi_object_list_all(const objects_fs *fs, bool (*fn)(void *user, const char *key, uint64_t bytes), void *user, ckp_error *err)
{
    ckp_error said;
    ckpi_error_clear(&said);
    const ckp_status st = fs->table.list_all(fs->table.user, fn, user, &said);
    return ckpi_object_answer(fs, "", st == CKP_ENOTFOUND ? CKP_OK : st, &said, "cannot list", err);
}

typedef struct listing {
    bool (*fn)(void *user, const char *entry, bool is_dir);
    void *user;
} listing;

/* A console's marker of a folder has an empty name, and other programs' keys may have any: neither is a file of a run. */
static bool
pass_on(void *user, const char *name, bool is_dir)
{
    const listing *l = user;
    if (name == NULL || strchr(name, '/') != NULL || ckpi_path_ok(name, NULL) != CKP_OK)
        return true;
    return l->fn(l->user, name, is_dir);
}

ckp_status
ckpi_object_list(const objects_fs *fs, const char *dir, bool (*fn)(void *user, const char *entry, bool is_dir), void *user, ckp_error *err)
{
    listing l = {fn, user};
    ckp_error said;
    ckpi_error_clear(&said);
    const ckp_status st = fs->table.list(fs->table.user, dir, pass_on, &l, &said);
    return ckpi_object_answer(fs, dir, st == CKP_ENOTFOUND ? CKP_OK : st, &said, "cannot list", err);
}
