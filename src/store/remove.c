/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing, in an order that a power cut cannot turn into a checkpoint with holes (invariant 4):
 *
 *     manifest.json -> deleted.json, directory synced      from here on it is no checkpoint
 *     shards, directory synced                             deleted.json still proves that the rest may go
 *     deleted.json, directory
 *
 * Renaming needs no space, so a full disk does not stop a deletion.
 */
#include <string.h>
#include "base/fail.h"
#include "store/internal.h"

/* CKP_OK also when it is gone already. */
static ckp_status
drop(ckpi_store *s, const char *dir, const char *file, ckp_error *err)
{
    char path[CKPI_STORE_PATH];
    ckpi_store_path(path, dir, file);
    const ckp_status st = s->fs->ops->unlink(s->fs, path, err);
    return st == CKP_ENOTFOUND ? CKP_OK : st;
}

static bool
is_tmp(const char *name)
{
    int64_t pid;
    uint32_t place;
    return ckpi_tmp_parse(name, &pid, &place);
}

bool
ckpi_is_shard(const char *name)
{
    const size_t n = strlen(name);
    return n > 4 && name[0] != '.' && strcmp(name + n - 4, ".ckp") == 0;
}

/* Removes temporaries and, if told so, shards. Other names stay; rmdir then fails, as it should. */
static ckp_status
drop_ours(ckpi_store *s, const char *dir, bool shards, ckp_error *err)
{
    ckpi_names names;
    ckp_status st = ckpi_names_read(s, dir, &names, err);
    if (st != CKP_OK)
        return st == CKP_ENOTFOUND ? CKP_OK : st;
    for (size_t i = 0; i < names.n && st == CKP_OK; i++)
        if (!names.is_dir[i] && strlen(names.v[i]) < CKPI_TMP_MAX && (is_tmp(names.v[i]) || (shards && ckpi_is_shard(names.v[i]))))
            st = drop(s, dir, names.v[i], err);
    ckpi_names_free(&names);
    return st;
}

static ckp_status
drop_dir(ckpi_store *s, const char *dir, ckp_error *err)
{
    const ckp_status st = s->fs->ops->rmdir(s->fs, dir, err);
    return st == CKP_ENOTFOUND ? CKP_OK : st;
}

ckp_status
ckpi_remove_uncommitted(ckpi_store *s, const char *dir, ckp_error *err)
{
    bool committed = false;
    ckp_status st = ckpi_store_exists(s, dir, CKPI_MANIFEST_FILE, &committed, err);
    if (st == CKP_OK && committed)
        st = ckpi_fail(err, CKP_ESTATE, "'%s' is committed", dir);
    if (st == CKP_OK)
        st = drop_ours(s, dir, true, err);
    return st == CKP_OK ? drop_dir(s, dir, err) : st;
}

/* Step one; done before when the manifest is gone. */
static ckp_status
uncommit(ckpi_store *s, const char *dir, ckp_error *err)
{
    char from[CKPI_STORE_PATH], to[CKPI_STORE_PATH];
    ckpi_store_path(from, dir, CKPI_MANIFEST_FILE);
    ckpi_store_path(to, dir, CKPI_DELETED_FILE);
    ckp_status st = s->fs->ops->publish(s->fs, from, to, false, err);
    /* A rename made of link and unlink may have been cut between the two. */
    if (st == CKP_EEXIST)
        st = drop(s, dir, CKPI_MANIFEST_FILE, err);
    else if (st == CKP_ENOTFOUND)
        st = CKP_OK;
    return st == CKP_OK ? s->fs->ops->sync_dir(s->fs, dir, err) : st;
}

ckp_status
ckpi_remove_committed(ckpi_store *s, const char *dir, const ckpi_manifest *m, ckp_error *err)
{
    ckp_status st = uncommit(s, dir, err);
    for (size_t i = 0; i < m->n_shards && st == CKP_OK; i++)
        st = drop(s, dir, m->shards[i].file, err);
    if (st == CKP_OK)
        st = drop_ours(s, dir, false, err);
    if (st == CKP_OK)
        st = s->fs->ops->sync_dir(s->fs, dir, err);
    if (st == CKP_OK)
        st = drop(s, dir, CKPI_DELETED_FILE, err);
    return st == CKP_OK ? drop_dir(s, dir, err) : st;
}
