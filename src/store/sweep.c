/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a writer tidies up when it opens a run, and only what it can prove to be its own dead (invariant 8):
 *   - temporaries in the run and in lock/ whose process is gone from this host;
 *   - step directories without a manifest: a deletion that was cut short (deleted.json says so), an attempt of an epoch
 *     before ours (its claim in lock/ proves it), a copy that was cut short (copied.json names it, and the source has it),
 *     or an empty one, whose removal can lose nothing.
 * A writer that dies leaves one attempt behind, mostly a torn one. Where an epoch has more, and where a run without any manifest has a whole
 * shard, manifests may have been lost (a copy that left them out, a hand that removed them): such shards may be all that is left of a
 * training, and stay. So does one that a checkpoint names as its base. Torn ones go, so that a job that dies in its first save again and again fills no disk.
 *
 * Where what the dead asked for may still be done (os.h, `late`), an upload may arrive when its attempt has been swept. The claims of those who
 * did not end in order therefore stay for CKPI_MAX_LATE_S, so that later writers sweep what came; a manifest that came when its shards were gone
 * is taken back, for it is of a save that nobody was told of.
 *
 * Failures are not errors of the run: the next writer tries again, and the claims that prove ownership stay until then.
 */
#include <stdlib.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "format/format.h"
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

/* The dead claim under which an attempt was begun; n when there is none. */
static size_t
begun_by(const ckpi_lockfile *dead, size_t n, uint64_t step, uint32_t attempt)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; dead[i].nonce != 0 && k < CKPI_ATTEMPTS; k++)
            if (ckpi_attempt_number(dead[i].nonce, step, k) == attempt)
                return i;
    return n;
}

/* Whether nothing that the claim's writer asked for can still be done. */
static bool
settled(const ckpi_store *s, const ckpi_lockfile *l)
{
    const int64_t now = ckpi_now_unix(), age = now > l->time ? now - l->time : l->time - now;
    return !s->fs->ops->late || !l->held || age > CKPI_MAX_LATE_S;
}

/* Whether a writer has swept what that claim had left, and more of it may have come since. */
static bool
may_have_come(const ckpi_store *s, const ckpi_lockfile *dead, size_t n, size_t claim)
{
    bool swept = false;
    for (size_t i = 0; i < n; i++)
        swept = swept || dead[i].epoch > dead[claim].epoch;
    return swept && !settled(s, &dead[claim]);
}

/* What lies in the run: whether any manifest, and how many directories without one, by the claim that began them. */
typedef struct lost {
    bool any_manifest;
    bool *committed;             /* a name's each */
    size_t *by_claim;            /* n_dead + 1: the last for attempts of no dead claim */
} lost;

/* The rest of a deletion. deleted.json is the checkpoint's own manifest: it must name this run and this directory. */
ckp_status
ckpi_resume_deletion(ckpi_store *s, const char *dir)
{
    ckpi_manifest *m = NULL;
    ckp_status st = ckpi_read_manifest(s, dir, CKPI_DELETED_FILE, &m, NULL);
    if (st == CKP_OK)
        st = ckpi_remove_committed(s, dir, m, NULL);
    ckpi_manifest_free(m);
    return st;
}

/* Takes back a manifest whose shards are all gone: they were there before it was sent. */
static ckp_status
sweep_late_manifest(ckpi_store *s, const char *dir)
{
    ckpi_names names;
    ckpi_manifest *m = NULL;
    bool any = false;
    ckp_status st = ckpi_names_read(s, dir, &names, NULL);
    if (st != CKP_OK)
        return st;
    for (size_t i = 0; i < names.n; i++)
        any = any || ckpi_is_shard(names.v[i]);
    ckpi_names_free(&names);
    if (any)
        return CKP_OK;
    st = ckpi_read_manifest(s, dir, CKPI_MANIFEST_FILE, &m, NULL);
    if (st == CKP_OK)
        st = ckpi_remove_committed(s, dir, m, NULL);
    ckpi_manifest_free(m);
    return st == CKP_ENOTFOUND ? CKP_OK : st;
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
        return ckpi_resume_deletion(s, dir);
    if (proved)
        return ckpi_remove_uncommitted(s, dir, NULL);
    (void)s->fs->ops->rmdir(s->fs, dir, NULL);     /* succeeds on an empty one only */
    return CKP_OK;
}

/* One listing may stand for all of it: nothing is removed meanwhile. */
static ckp_status
count_lost(ckpi_store *s, const ckpi_names *names, const ckpi_lockfile *dead, size_t n_dead, lost *l)
{
    ckp_status st = ckpi_survey_open(s, NULL);
    for (size_t i = 0; st == CKP_OK && i < names->n; i++) {
        uint64_t step;
        uint32_t attempt;
        bool deleted = false;
        if (!names->is_dir[i] || !ckpi_dir_name_parse(names->v[i], &step, &attempt))
            continue;
        st = ckpi_store_exists(s, names->v[i], CKPI_MANIFEST_FILE, &l->committed[i], NULL);
        l->any_manifest = l->any_manifest || l->committed[i];
        if (st == CKP_OK && !l->committed[i])
            st = ckpi_store_exists(s, names->v[i], CKPI_DELETED_FILE, &deleted, NULL);
        if (st != CKP_OK || l->committed[i] || deleted)
            continue;
        l->by_claim[begun_by(dead, n_dead, step, attempt)]++;
    }
    ckpi_survey_close(s);
    return st;
}

/* Only bytes prove that a shard is torn: one that cannot be read today, or was written by a newer version, may be whole. */
static bool
may_be_whole(ckpi_store *s, const char *path)
{
    ckpi_reader *r = NULL;
    ckpi_fmt_file *f = NULL;
    ckp_status st = ckpi_reader_file(&r, s->fs, path, NULL);
    if (st == CKP_OK)
        st = ckpi_fmt_open(&f, r, NULL);
    ckpi_fmt_close(f);
    return st != CKP_ECORRUPT && st != CKP_ETRUNCATED && st != CKP_EFORMAT && st != CKP_ELIMIT;
}

static bool
has_whole_shard(ckpi_store *s, const char *dir)
{
    ckpi_names names;
    bool any = false;
    if (ckpi_names_read(s, dir, &names, NULL) != CKP_OK)
        return true;               /* not known: not to be removed */
    for (size_t i = 0; !any && i < names.n; i++) {
        char path[CKPI_STORE_PATH];
        if (names.is_dir[i] || !ckpi_is_shard(names.v[i]))
            continue;
        ckpi_store_path(path, dir, names.v[i]);
        any = may_be_whole(s, path);
    }
    ckpi_names_free(&names);
    return any;
}

/* Whether an attempt of a dead claim that had no manifest may go. A delta on it proves that it was a checkpoint, and has lost its manifest since. */
static bool
may_sweep(ckpi_store *s, const ckpi_names *names, const char *dir, const lost *l, size_t claim)
{
    bool committed = false;
    if (l->by_claim[claim] > 1)
        return false;
    if (!l->any_manifest)
        return !has_whole_shard(s, dir);
    return (ckpi_store_exists(s, dir, CKPI_MANIFEST_FILE, &committed, NULL) == CKP_OK && committed) || !ckpi_named_as_base(s, names, dir);
}

static bool
sweep_named(ckpi_store *s, const ckpi_names *names, const ckpi_lockfile *dead, size_t n_dead, const lost *l)
{
    bool clean = true;
    for (size_t i = 0; i < names->n; i++) {
        uint64_t step;
        uint32_t attempt;
        if (!names->is_dir[i] || !ckpi_dir_name_parse(names->v[i], &step, &attempt))
            continue;
        const size_t claim = begun_by(dead, n_dead, step, attempt);
        const bool ours = claim < n_dead, there = l->committed[i], late = ours && may_have_come(s, dead, n_dead, claim);
        const bool proved = ours && (there ? l->by_claim[claim] <= 1 : may_sweep(s, names, names->v[i], l, claim));
        ckp_status st = CKP_OK;
        if (late)
            st = sweep_late_manifest(s, names->v[i]);
        /* A directory that foreign files keep alive is as clean as it will get: ours are gone from it. */
        if (st == CKP_OK && (late || !there))
            st = sweep_step(s, names->v[i], proved);
        clean = clean && (!ours || (proved && (st == CKP_OK || st == CKP_EEXIST)));
    }
    return clean;
}

static bool
sweep_steps(ckpi_store *s, const ckpi_lockfile *dead, size_t n_dead)
{
    ckpi_names names;
    lost l = {.by_claim = ckpi_calloc(n_dead + 1, sizeof *l.by_claim)};
    if (l.by_claim == NULL || ckpi_names_read(s, "", &names, NULL) != CKP_OK) {
        free(l.by_claim);
        return false;
    }
    l.committed = ckpi_calloc(names.n + 1, sizeof *l.committed);
    const bool clean = l.committed != NULL && count_lost(s, &names, dead, n_dead, &l) == CKP_OK && sweep_named(s, &names, dead, n_dead, &l);
    ckpi_names_free(&names);
    free(l.committed);
    free(l.by_claim);
    return clean;
}

static void
sweep_copy(ckpi_store *s)
{
    ckpi_copyfile c;
    if (ckpi_copied_read(s, &c, NULL) == CKP_OK && c.next[0] != '\0')
        (void)sweep_step(s, c.next, true);
}

static void
forget_settled(ckpi_store *s, ckpi_lockfile *dead, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (settled(s, &dead[i]))
            dead[kept++] = dead[i];
    ckpi_lock_forget(s, dead, kept);
}

void
ckpi_sweep(ckpi_store *s)
{
    ckpi_lockfile *dead = NULL;
    size_t n = 0;
    sweep_temporaries(s, "");
    sweep_temporaries(s, CKPI_LOCK_DIR);
    sweep_copy(s);
    if (ckpi_lock_history(s, &dead, &n, NULL) == CKP_OK && sweep_steps(s, dead, n)
        && s->fs->ops->sync_dir(s->fs, "", NULL) == CKP_OK)
        forget_settled(s, dead, n);
    free(dead);
}
