/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attempts: directories on their way to be checkpoints. The eight hex digits of the name are a hash of (nonce of the
 * writer's lock, step, number), so that a later writer can prove, from the claims in lock/, that a directory without a
 * manifest was begun by a writer of this run that is dead. Anything else that happens to lie there is not ours to remove.
 */
#include <stdlib.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "store/internal.h"

uint32_t
ckpi_attempt_number(uint64_t nonce, uint64_t step, uint32_t number)
{
    uint8_t key[20];
    ckpi_st64(key, nonce);
    ckpi_st64(key + 8, step);
    ckpi_st32(key + 16, number);
    return (uint32_t)ckpi_hash64(key, sizeof key);
}

/* A number that was never used at this step gives a name that never existed: mkdir decides. */
static ckp_status
make_dir(ckpi_store *s, ckpi_attempt *a, ckp_error *err)
{
    ckp_status st = CKP_EEXIST;
    for (uint32_t i = 0; i < CKPI_ATTEMPTS && st == CKP_EEXIST; i++) {
        a->id = ckpi_attempt_number(s->lock.nonce, a->step, s->begun++ % CKPI_ATTEMPTS);
        ckpi_dir_name(a->dir, a->step, a->id);
        st = s->fs->ops->mkdir(s->fs, a->dir, err);
    }
    return st;
}

ckp_status
ckpi_store_begin(ckpi_store *s, uint64_t step, ckpi_attempt **out, ckp_error *err)
{
    *out = NULL;
    if (step > INT64_MAX)
        return ckpi_fail(err, CKP_EINVAL, "step %llu is out of range", (unsigned long long)step);
    ckp_status st = ckpi_store_enter_write(s, err);
    if (st != CKP_OK)
        return st;
    ckpi_attempt *a = ckpi_calloc(1, sizeof *a);
    if (a == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to begin a checkpoint");
    } else {
        a->step = step;
        st = make_dir(s, a, err);
    }
    if (st == CKP_OK) {
        *out = a;
        a = NULL;
    }
    free(a);
    ckpi_store_leave(s);
    return st;
}

const char *
ckpi_attempt_dir(const ckpi_attempt *a)
{
    return a->dir;
}

ckp_status
ckpi_store_shard(ckpi_store *s, ckpi_attempt *a, uint32_t index, uint32_t count, ckpi_writer **out, ckp_error *err)
{
    char name[CKPI_DIR_NAME_MAX], path[CKPI_STORE_PATH];
    *out = NULL;
    if (count == 0 || count > CKPI_MAX_SHARDS || index >= count)
        return ckpi_fail(err, CKP_EINVAL, "shard %u of %u is out of range", index, count);
    ckp_status st = ckpi_store_enter_shard(s, err);
    if (st != CKP_OK)
        return st;
    /* Under its final name: without a manifest nobody looks at it, and a rename less is a failure less. */
    ckpi_shard_name(name, index, count);
    ckpi_store_path(path, a->dir, name);
    st = ckpi_writer_file(out, s->fs, path, err);
    ckpi_store_leave(s);
    return st;
}

void
ckpi_store_abort(ckpi_store *s, ckpi_attempt *a)
{
    if (a == NULL)
        return;
    /* Also when the lock is lost: the directory is ours whoever writes now. */
    if (ckpi_store_enter(s, NULL) == CKP_OK) {
        (void)ckpi_remove_uncommitted(s, a->dir, NULL);
        ckpi_store_leave(s);
    }
    free(a);
}

/* ---- of a group's other ranks -------------------------------------------------------------------------------------- */

ckp_status
ckpi_store_join(ckpi_store *s, const char *dir, ckpi_attempt **out, ckp_error *err)
{
    uint64_t step;
    uint32_t id;
    bool there = false;
    *out = NULL;
    if (!ckpi_dir_name_parse(dir, &step, &id))
        return ckpi_fail(err, CKP_EINVAL, "'%.64s' is no attempt's name", dir);
    ckp_status st = ckpi_store_enter_shard(s, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_store_exists(s, dir, CKPI_MANIFEST_FILE, &there, err);
    if (st == CKP_OK && there)
        st = ckpi_fail(err, CKP_EEXIST, "'%.64s' is a checkpoint already", dir);
    ckpi_attempt *a = st == CKP_OK ? ckpi_calloc(1, sizeof *a) : NULL;
    if (st == CKP_OK && a == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to begin a checkpoint");
    if (a != NULL) {
        a->step = step;
        a->id = id;
        ckpi_dir_name(a->dir, step, id);
        *out = a;
    }
    ckpi_store_leave(s);
    return st;
}

ckp_status
ckpi_store_shard_done(ckpi_store *s, const ckpi_attempt *a, ckp_error *err)
{
    ckp_status st = ckpi_store_enter_shard(s, err);
    if (st != CKP_OK)
        return st;
    st = s->fs->ops->sync_dir(s->fs, a->dir, err);
    ckpi_store_leave(s);
    return st;
}

void
ckpi_store_leave_attempt(ckpi_store *s, ckpi_attempt *a, uint32_t index, uint32_t count, bool remove)
{
    char name[CKPI_DIR_NAME_MAX], path[CKPI_STORE_PATH];
    bool there = true;
    if (a == NULL)
        return;
    if (remove && ckpi_store_enter(s, NULL) == CKP_OK) {
        ckpi_shard_name(name, index, count);
        ckpi_store_path(path, a->dir, name);
        /* A commit that rank 0 could not tell of needs it. */
        if (ckpi_store_exists(s, a->dir, CKPI_MANIFEST_FILE, &there, NULL) == CKP_OK && !there) {
            const ckp_status st = s->fs->ops->unlink(s->fs, path, NULL);
            (void)st;            /* what stays is the sweep's */
        }
        ckpi_store_leave(s);
    }
    free(a);
}
