/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit. Data before manifest, manifest before anything that relies on it (invariant 3):
 *
 *     shards written and fsynced (by their writers)
 *     step directory synced, run directory synced      every name that the manifest relies on is durable
 *     lock read again                                  a writer that was taken over stops here (invariant 9)
 *     manifest: temporary, fsync, rename that never replaces, step directory synced
 *
 * The rename (in an object store: the put if absent) is the commit. If a step before it fails the checkpoint never was. If the last sync fails nobody can know what
 * a power cut would leave, so the manifest is taken back and its sequence number is used up.
 */
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "store/internal.h"

static ckp_status
fill(ckpi_store *s, const ckpi_attempt *a, ckpi_manifest *m, ckp_error *err)
{
    m->run_id = s->run_id;
    m->step = a->step;
    m->attempt = a->id;
    m->sequence = s->max_sequence + 1;
    m->epoch = s->lock.epoch;
    m->created = ckpi_now_unix();
    return ckpi_manifest_set(&m->library, ckp_version(), err);
}

/* One link: the base that m names is there, whole, and the very same. *out is its manifest. */
static ckp_status
check_link(ckpi_store *s, const ckpi_manifest *m, ckpi_manifest **out, ckp_error *err)
{
    *out = NULL;
    if (m->base_dir == NULL)
        return ckpi_fail(err, CKP_EINVAL, "manifest: field 'base' is missing for a delta");
    ckp_status st = ckpi_path_ok(m->base_dir, err);
    if (st == CKP_OK)
        st = ckpi_read_manifest(s, m->base_dir, CKPI_MANIFEST_FILE, out, err);
    if (st == CKP_OK)
        st = ckpi_check_shards(s, m->base_dir, *out, err);
    if (st == CKP_ENOTFOUND || st == CKP_ETRUNCATED || st == CKP_EMISMATCH)
        return ckpi_fail(err, CKP_EBASE, "the base '%.64s' is not a whole committed checkpoint of this run", m->base_dir);
    if (st != CKP_OK)
        return st;
    if (!ckpi_id_eq((*out)->content, m->base))
        return ckpi_fail(err, CKP_EBASE, "the base '%.64s' has another content id", m->base_dir);
    if (m->chain != (*out)->chain + 1)
        return ckpi_fail(err, CKP_EBASE, "the base '%.64s' has chain length %u, the delta says %u", m->base_dir, (*out)->chain, m->chain);
    return CKP_OK;
}

/*
 * Invariant 10, down to the key: a delta on a chain that somebody has broken meanwhile could never be restored, and so
 * could no delta after it. Chain lengths fall by one with each link, so this ends.
 */
static ckp_status
check_base(ckpi_store *s, const ckpi_manifest *m, ckp_error *err)
{
    ckpi_manifest *link = NULL;
    const bool is_long = m->kind != CKPI_CKPT_KEY && m->chain > 4;       /* else a listing costs more than it spares */
    ckp_status st = is_long ? ckpi_survey_open(s, err) : CKP_OK;
    for (const ckpi_manifest *at = m; st == CKP_OK && at->kind != CKPI_CKPT_KEY; at = link) {
        ckpi_manifest *next = NULL;
        ckpi_lock_keep(s);
        st = check_link(s, at, &next, err);
        ckpi_manifest_free(link);
        link = next;
        if (link == NULL)
            break;
    }
    if (is_long)
        ckpi_survey_close(s);
    ckpi_manifest_free(link);
    return st;
}

static ckp_status
check_own_shards(ckpi_store *s, const ckpi_attempt *a, const ckpi_manifest *m, ckp_error *err)
{
    const ckp_status st = ckpi_check_shards(s, a->dir, m, err);
    if (st != CKP_ENOTFOUND && st != CKP_ETRUNCATED)
        return st;
    if (err != NULL)
        err->code = CKP_EINVAL;        /* the caller's promise, not damage */
    return CKP_EINVAL;
}

static ckp_status
publish(ckpi_store *s, ckpi_attempt *a, uint64_t sequence, const ckpi_buf *text, ckp_error *err)
{
    ckp_status st = s->fs->ops->sync_dir(s->fs, a->dir, err);
    if (st == CKP_OK)
        st = s->fs->ops->sync_dir(s->fs, "", err);
    if (st == CKP_OK)
        st = ckpi_lock_check(s, err);
    if (st != CKP_OK)
        return st;
    if (sequence > s->max_sequence)
        s->max_sequence = sequence;
    st = ckpi_store_put(s, a->dir, CKPI_MANIFEST_FILE, text, false, err);
    a->maybe_visible = st != CKP_OK;
    return st;
}

/* After a failure: the shards may only go when it is certain that no manifest comes back to ask for them. */
static void
undo(ckpi_store *s, const ckpi_attempt *a)
{
    if (a->maybe_visible) {
        char path[CKPI_STORE_PATH];
        ckpi_store_path(path, a->dir, CKPI_MANIFEST_FILE);
        const ckp_status st = s->fs->ops->unlink(s->fs, path, NULL);
        if ((st != CKP_OK && st != CKP_ENOTFOUND) || s->fs->ops->sync_dir(s->fs, a->dir, NULL) != CKP_OK)
            return;                    /* the next writer's sweep sees what became of it */
    }
    (void)ckpi_remove_uncommitted(s, a->dir, NULL);
}

ckp_status
ckpi_store_commit(ckpi_store *s, ckpi_attempt *a, ckpi_manifest *m, ckp_error *err)
{
    ckpi_buf text = CKPI_BUF_INIT_MAX(CKPI_MAX_MANIFEST);
    ckp_status st = ckpi_store_enter_write(s, err);
    if (st != CKP_OK) {
        ckpi_store_abort(s, a);
        return st;
    }
    st = fill(s, a, m, err);
    if (st == CKP_OK)
        st = check_base(s, m, err);
    if (st == CKP_OK)
        st = ckpi_manifest_print(m, &text, err);       /* checks every name before it becomes a path */
    if (st == CKP_OK)
        st = check_own_shards(s, a, m, err);
    if (st == CKP_OK)
        st = publish(s, a, m->sequence, &text, err);
    if (st != CKP_OK)
        undo(s, a);
    ckpi_buf_free(&text);
    ckpi_store_leave(s);
    free(a);
    return st;
}

ckp_status
ckpi_commit_rewritten(ckpi_store *s, ckpi_attempt *a, ckpi_manifest *m, const ckpi_manifest *old, ckp_error *err)
{
    ckpi_buf text = CKPI_BUF_INIT_MAX(CKPI_MAX_MANIFEST);
    const int64_t created = old->created;      /* the state is as old as it was */

    ckp_status st = fill(s, a, m, err);
    m->created = created;
    m->sequence = old->sequence;
    if (st == CKP_OK)
        st = ckpi_manifest_print(m, &text, err);
    if (st == CKP_OK)
        st = ckpi_commit_copy(s, a, m, &text, err);
    else
        undo(s, a);
    ckpi_buf_free(&text);
    return st;
}

ckp_status
ckpi_commit_copy(ckpi_store *s, ckpi_attempt *a, const ckpi_manifest *m, const ckpi_buf *text, ckp_error *err)
{
    ckp_status st = check_base(s, m, err);
    if (st == CKP_OK)
        st = check_own_shards(s, a, m, err);
    if (st == CKP_OK)
        st = publish(s, a, m->sequence, text, err);
    if (st != CKP_OK)
        undo(s, a);
    return st;
}
