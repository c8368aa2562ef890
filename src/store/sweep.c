/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a writer tidies up when it opens a run, and only what it can prove to be its own dead (invariant 8):
 *   - temporaries in the run and in lock/ whose process is gone from this host;
 *   - step directories without a manifest: a deletion that was cut short (deleted.json says so), an attempt of an epoch
 *     before ours (its claim in lock/ proves it), or an empty one, whose removal can lose nothing.
 * Failures are not errors of the run: the next writer tries again, and the claims that prove ownership stay until then.
 */
#include <stdlib.h>
#include "base/fail.h"
#include "store/internal.h"

static void
sweep_temporaries(ckpi_store *s, const char *dir)
{
    ckpi_names names;
    if (ckpi_names_read(s, dir, &names, NULL) != CKP_OK)
        return;
    for (size_t i = 0; i < names.n; i++) {
        char path[CKPI_STORE_PATH];
        if (names.is_dir[i] || !ckpi_tmp_dead(&s->lock.owner, names.v[i]))
            continue;
        ckpi_store_path(path, dir, names.v[i]);
        (void)s->fs->ops->unlink(s->fs, path, NULL);
    }
    ckpi_names_free(&names);
}

static bool
begun_by(const ckpi_lockfile *dead, size_t n, uint64_t step, uint32_t attempt)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; dead[i].nonce != 0 && k < CKPI_ATTEMPTS; k++)
            if (ckpi_attempt_number(dead[i].nonce, step, k) == attempt)
                return true;
    return false;
}

/* The rest of a deletion. deleted.json is the checkpoint's own manifest: it must name this run and this directory. */
static ckp_status
resume_deletion(ckpi_store *s, const char *dir)
{
    ckpi_manifest *m = NULL;
    ckp_status st = ckpi_read_manifest(s, dir, CKPI_DELETED_FILE, &m, NULL);
    if (st == CKP_OK)
        st = ckpi_remove_committed(s, dir, m, NULL);
    ckpi_manifest_free(m);
    return st;
}

/* CKP_OK when nothing of a dead writer is left in it. */
static ckp_status
sweep_step(ckpi_store *s, const char *dir, bool proved)
{
    bool committed = false, deleted = false;
    ckp_status st = ckpi_store_exists(s, dir, CKPI_MANIFEST_FILE, &committed, NULL);
    if (st != CKP_OK || committed)
        return st;
    st = ckpi_store_exists(s, dir, CKPI_DELETED_FILE, &deleted, NULL);
    if (st != CKP_OK)
        return st;
    if (deleted)
        return resume_deletion(s, dir);
    if (proved)
        return ckpi_remove_uncommitted(s, dir, NULL);
    (void)s->fs->ops->rmdir(s->fs, dir, NULL);     /* succeeds on an empty one only */
    return CKP_OK;
}

static bool
sweep_steps(ckpi_store *s, const ckpi_lockfile *dead, size_t n_dead)
{
    ckpi_names names;
    bool clean = true;
    if (ckpi_names_read(s, "", &names, NULL) != CKP_OK)
        return false;
    for (size_t i = 0; i < names.n; i++) {
        uint64_t step;
        uint32_t attempt;
        if (!names.is_dir[i] || !ckpi_dir_name_parse(names.v[i], &step, &attempt))
            continue;
        const bool proved = begun_by(dead, n_dead, step, attempt);
        /* A directory that foreign files keep alive is as clean as it will get: ours are gone from it. */
        const ckp_status st = sweep_step(s, names.v[i], proved);
        clean = clean && (st == CKP_OK || st == CKP_EEXIST || !proved);
    }
    ckpi_names_free(&names);
    return clean;
}

void
ckpi_sweep(ckpi_store *s)
{
    ckpi_lockfile *dead = NULL;
    size_t n = 0;
    sweep_temporaries(s, "");
    sweep_temporaries(s, CKPI_LOCK_DIR);
    if (ckpi_lock_history(s, &dead, &n, NULL) == CKP_OK && sweep_steps(s, dead, n)
        && s->fs->ops->sync_dir(s->fs, "", NULL) == CKP_OK)
        ckpi_lock_forget(s, dead, n);
    free(dead);
}
