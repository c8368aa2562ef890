/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying a run, checkpoint by checkpoint in the order of their commits, so that the copy is a run at every moment. Of each:
 *
 *     copied.json: next = this one            a sweep knows whose the directory is, a later copy that it is no training's
 *     the base model's file, if it lies in the source
 *     shards, each hashed on the way and fsynced
 *     the manifest, byte for byte (commit.c)  its base is there: bases have lower sequences
 *
 * The source is read as any reader does, beside a writer that saves and deletes. What it deletes meanwhile is not missed: the source is then
 * looked at anew, and the rest is copied. A file that was deleted while it was open is still whole, and proved by its hash like any other.
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/copy.h"

/* The source is looked at anew when something was deleted from it; it can delete no more often than it has checkpoints, in practice. */
#define MAX_ROUNDS 10000

/* ---- what is asked for ------------------------------------------------------------------------------------------------ */

/* Marks bases too: they come before what needs them. */
static void
mark_bases(ckpi_entries *e)
{
    for (size_t i = e->n; i-- > 0;)
        if (e->v[i].keep != CKPI_KEEP_NO && e->v[i].base != SIZE_MAX && e->v[e->v[i].base].keep == CKPI_KEEP_NO)
            e->v[e->v[i].base].keep = CKPI_KEEP_BASE;
}

static bool
mark_newest(ckpi_entries *e, const uint64_t *step)
{
    for (size_t i = e->n; i-- > 0;)
        if (e->v[i].health == CKPI_HEALTH_OK && (step == NULL || e->v[i].step == *step)) {
            e->v[i].keep = CKPI_KEEP_POINT;
            return true;
        }
    return false;
}

/* A checkpoint that cannot be restored, but is one: not one that a writer is about to commit or to delete, and not another run's. */
static bool
is_damaged(const ckpi_entry *e)
{
    return e->health != CKPI_HEALTH_OK && e->health != CKPI_HEALTH_INCOMPLETE && e->health != CKPI_HEALTH_DELETING && e->health != CKPI_HEALTH_FOREIGN;
}

/* One whose base went between two reads of a listing is deleted by now itself. */
static ckp_status
mark_all(ckpi_copying *c, ckpi_entries *e, ckp_error *err)
{
    ckp_status st = CKP_OK;
    for (size_t i = 0; i < e->n && st == CKP_OK; i++) {
        bool there = true;
        if (is_damaged(&e->v[i]))
            st = ckpi_store_exists(c->from, e->v[i].dir, CKPI_MANIFEST_FILE, &there, err);
        if (there && (e->v[i].health == CKPI_HEALTH_OK || is_damaged(&e->v[i])))
            e->v[i].keep = CKPI_KEEP_POINT;
    }
    return st;
}

/* A step that is not restorable is told with its reason, if there is one. */
static ckp_status
no_step(const ckpi_entries *e, uint64_t step, ckp_error *err)
{
    for (size_t i = e->n; i-- > 0;)
        if (e->v[i].step == step && is_damaged(&e->v[i]))
            return ckpi_fail(err, CKP_ECORRUPT, "%s cannot be copied: %s: %s", e->v[i].dir, ckpi_health_name(e->v[i].health), e->v[i].reason);
    return ckpi_fail(err, CKP_ENOTFOUND, "the run has no checkpoint of step %llu", (unsigned long long)step);
}

static ckp_status
mark(ckpi_copying *c, ckpi_entries *e, ckp_error *err)
{
    ckp_status st = CKP_OK;
    bool any = false;
    for (size_t i = 0; i < e->n; i++)
        e->v[i].keep = CKPI_KEEP_NO;
    if (c->ask->n_steps == 0 && !c->ask->newest)
        st = mark_all(c, e, err);
    for (size_t i = 0; i < c->ask->n_steps && st == CKP_OK; i++)
        if (!mark_newest(e, &c->ask->step[i]))
            st = no_step(e, c->ask->step[i], err);
    if (st == CKP_OK && c->ask->newest)
        (void)mark_newest(e, NULL);
    for (size_t i = 0; i < e->n; i++)
        any = any || e->v[i].keep != CKPI_KEEP_NO;
    if (st == CKP_OK && !any)
        st = ckpi_fail(err, CKP_ENOTFOUND, "the run has no restorable checkpoint");
    mark_bases(e);
    return st;
}

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

static bool
was_seen(const ckpi_copying *c, const char *dir)
{
    for (size_t i = 0; i < c->n_seen; i++)
        if (strcmp(c->seen[i], dir) == 0)
            return true;
    return false;
}

/* Counts and tells, once: in a later round what was copied is there. */
static ckp_status
report(ckpi_copying *c, const ckpi_entries *all, const ckpi_entry *e, ckpi_copy_fate fate, const char *reason, ckp_error *err)
{
    ckpi_copied *d = c->done;
    if (was_seen(c, e->dir))
        return CKP_OK;
    d->copied += fate == CKPI_COPY_DONE;
    d->there += fate == CKPI_COPY_THERE;
    d->damaged += fate == CKPI_COPY_DAMAGED;
    d->bytes += fate == CKPI_COPY_DONE ? e->bytes : 0;
    if (c->ask->told != NULL)
        c->ask->told(c->ask->told_user, all, e, fate, reason);
    void *more = (c->n_seen & (c->n_seen - 1)) != 0 ? c->seen : ckpi_realloc(c->seen, c->n_seen == 0 ? 1 : 2 * c->n_seen, sizeof *c->seen);
    if (more == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to copy a run");
    c->seen = more;
    ckpi_copy_set_name(c->seen[c->n_seen++], e->dir);
    return CKP_OK;
}

/* Left out, and so is what needs it. */
static ckp_status
leave_out(ckpi_copying *c, ckpi_entries *all, size_t i, ckp_status st, const ckp_error *why, ckp_error *err)
{
    if (c->first == CKP_OK) {
        c->first = st;
        c->first_err = *why;
    }
    all->v[i].health = CKPI_HEALTH_BAD_BASE;
    return report(c, all, &all->v[i], CKPI_COPY_DAMAGED, why->text, err);
}

/* May an entry be copied? */
static bool
is_whole(const ckpi_entries *all, const ckpi_entry *e)
{
    return e->health == CKPI_HEALTH_OK && (e->base == SIZE_MAX || all->v[e->base].health == CKPI_HEALTH_OK);
}

static ckp_status
leave_broken(ckpi_copying *c, ckpi_entries *all, size_t i, ckp_error *err)
{
    ckp_error why;
    const ckpi_entry *e = &all->v[i];
    if (e->health == CKPI_HEALTH_OK)
        (void)ckpi_fail(&why, CKP_ECORRUPT, "its base %s was left out", all->v[e->base].dir);
    else
        (void)ckpi_fail(&why, CKP_ECORRUPT, "%s: %s", ckpi_health_name(e->health), e->reason);
    ckpi_fail_file(&why, e->dir);
    return leave_out(c, all, i, CKP_ECORRUPT, &why, err);
}

/* CKP_OK when the copy has this very checkpoint, whole; *there says whether. */
static ckp_status
look_there(const ckpi_entry *e, const ckpi_entries *have, bool *there, ckp_error *err)
{
    ckp_status st = CKP_OK;
    size_t i = 0;
    while (i < have->n && strcmp(have->v[i].dir, e->dir) != 0)
        i++;
    const ckpi_entry *h = i < have->n ? &have->v[i] : NULL;
    *there = h != NULL && h->health != CKPI_HEALTH_INCOMPLETE && h->health != CKPI_HEALTH_DELETING;
    if (!*there)
        return CKP_OK;
    /* A base that it lacks came just before, or was refused then. */
    if (h->health != CKPI_HEALTH_OK && h->health != CKPI_HEALTH_BAD_BASE)
        return ckpi_fail(err, CKP_ECORRUPT, "has %s, but damaged: %s: %s; remove that directory, and it is copied anew", e->dir,
                         ckpi_health_name(h->health), h->reason);
    const bool same = ckpi_copied_same(e->m, h->m, &st);
    if (st != CKP_OK)
        return ckpi_fail(err, st, "no memory to compare manifests");
    return same ? CKP_OK : ckpi_fail(err, CKP_EMISMATCH, "has another checkpoint of the name %s", e->dir);
}

/* A checkpoint whose copying failed: was it deleted meanwhile? Asked of a source that may be failing: then it is the failure that counts. */
static bool
is_gone(ckpi_copying *c, const char *dir)
{
    bool there = true;
    return ckpi_store_exists(c->from, dir, CKPI_MANIFEST_FILE, &there, NULL) == CKP_OK && !there;
}

/* *again: something was deleted from the source, look anew. */
static ckp_status
handle(ckpi_copying *c, ckpi_entries *all, size_t i, const ckpi_entries *have, bool *again, ckp_error *err)
{
    ckp_error why = {0};
    bool there;
    ckp_status st;

    if (!is_whole(all, &all->v[i]))
        return leave_broken(c, all, i, err);
    st = look_there(&all->v[i], have, &there, err);
    if (st != CKP_OK)
        return st;
    if (there || c->ask->dry_run)
        return report(c, all, &all->v[i], there ? CKPI_COPY_THERE : CKPI_COPY_DONE, NULL, err);
    c->source_bad = false;
    st = ckpi_copy_one(c, &all->v[i], &why);
    if (st == CKP_OK) {
        st = report(c, all, &all->v[i], CKPI_COPY_DONE, NULL, err);
    } else if (st != CKP_ECANCELLED && st != CKP_EBUSY && st != CKP_ENOMEM && is_gone(c, all->v[i].dir)) {
        *again = true;
        st = CKP_OK;
    } else if (c->source_bad) {
        st = leave_out(c, all, i, st, &why, err);
    } else if (err != NULL) {
        *err = why;
    }
    return st;
}

static void
add_up(ckpi_copying *c, const ckpi_entries *all, const ckpi_entries *have)
{
    c->total = c->bytes;
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i].keep != CKPI_KEEP_NO && all->v[i].health == CKPI_HEALTH_OK && ckpi_copied_find(have, all->v[i].dir) == NULL)
            c->total += all->v[i].bytes;
}

/* Both runs as they are now; may they be made one? */
static ckp_status
look(ckpi_copying *c, ckpi_entries *all, ckpi_entries *have, ckp_error *err)
{
    ckpi_copyfile theirs;
    ckp_status st = ckpi_store_scan(c->from, all, err);
    if (st == CKP_OK)
        st = mark(c, all, err);
    if (st != CKP_OK || c->to == NULL)
        return st;
    st = ckpi_store_scan(c->to, have, err);
    if (st == CKP_OK)
        st = ckpi_copied_read(c->to, &c->written, err);
    if (st == CKP_OK)
        st = ckpi_copied_read(c->from, &theirs, err);
    if (st == CKP_OK)
        st = ckpi_copied_judge(all, &theirs, have, &c->written, err);
    c->record = c->written;
    const ckpi_entry *last = ckpi_copied_find(have, c->record.next);
    if (last != NULL && last->m->sequence > c->record.sequence) {
        c->record.sequence = last->m->sequence;
        ckpi_copy_set_name(c->record.dir, last->dir);
    }
    return st;
}

static ckp_status
one_round(ckpi_copying *c, bool *again, ckp_error *err)
{
    ckpi_entries all = {0}, have = {0};
    *again = false;
    ckp_status st = look(c, &all, &have, err);
    add_up(c, &all, &have);
    for (size_t i = 0; i < all.n && st == CKP_OK && !*again; i++)
        if (all.v[i].keep != CKPI_KEEP_NO)
            st = handle(c, &all, i, &have, again, err);
    memset(c->record.next, 0, sizeof c->record.next);
    if (st == CKP_OK && !*again && c->to != NULL && !c->ask->dry_run)
        st = ckpi_copy_put_record(c, err);
    ckpi_entries_free(&have);
    ckpi_entries_free(&all);
    return st;
}

static ckp_status
copy_all(ckpi_copying *c, ckp_error *err)
{
    bool again = true;
    ckp_status st = CKP_OK;
    for (int round = 0; round < MAX_ROUNDS && again && st == CKP_OK; round++)
        st = one_round(c, &again, err);
    if (st == CKP_OK && again)
        st = ckpi_fail(err, CKP_EBUSY, "the source deletes faster than it can be copied");
    if (st == CKP_OK && c->first != CKP_OK) {
        st = c->first;
        if (err != NULL)
            *err = c->first_err;
    }
    return st;
}

static ckp_status
enter_both(const ckpi_copying *c, ckp_error *err)
{
    ckp_status st = ckpi_store_enter(c->from, err);
    if (st != CKP_OK || c->to == NULL)
        return st;
    st = c->ask->dry_run ? ckpi_store_enter(c->to, err) : ckpi_store_enter_write(c->to, err);
    if (st != CKP_OK)
        ckpi_store_leave(c->from);
    return st;
}

ckp_status
ckpi_store_copy(ckpi_store *from, ckpi_store *to, const ckpi_copy_ask *ask, ckpi_copied *done, ckp_error *err)
{
    ckpi_copying c = {.from = from, .to = to, .ask = ask, .done = done, .refreshed = ckpi_now_unix()};
    *done = (ckpi_copied){0};
    if (from == to || (to == NULL && !ask->dry_run))
        return ckpi_fail(err, CKP_EINVAL, "copy: to the run itself, or to none");
    ckp_status st = enter_both(&c, err);
    if (st != CKP_OK)
        return st;
    c.piece = ckpi_malloc(CKPI_COPY_PIECE, 1);
    st = c.piece == NULL ? ckpi_fail(err, CKP_ENOMEM, "no memory to copy a run") : copy_all(&c, err);
    free(c.piece);
    free(c.seen);
    if (to != NULL)
        ckpi_store_leave(to);
    ckpi_store_leave(from);
    return st;
}

ckp_status
ckpi_store_identity(ckpi_store *s, ckpi_buf *out, ckp_error *err)
{
    return ckpi_fs_read(s->fs, CKPI_RUN_FILE, CKPI_RUNFILE_MAX, out, err);
}
