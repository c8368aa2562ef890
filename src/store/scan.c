/* SPDX-License-Identifier: Apache-2.0 */
/* The whole run: every checkpoint, by sequence, and whether each can be restored with all that it needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/internal.h"

/* Looks at a run that a writer deletes from: it deletes once a save, so more than two in a row are no coincidence. */
#define MAX_ROUNDS 16

void
ckpi_entries_free(ckpi_entries *e)
{
    if (e == NULL)
        return;
    for (size_t i = 0; i < e->n; i++) {
        ckpi_manifest_free(e->v[i].m);
        free(e->v[i].reason);
    }
    free(e->v);
    *e = (ckpi_entries){0};
}

ckp_status
ckpi_survey_open(ckpi_store *s, ckp_error *err)
{
    return s->fs->ops->survey != NULL ? s->fs->ops->survey(s->fs, err) : CKP_OK;
}

void
ckpi_survey_close(ckpi_store *s)
{
    if (s->fs->ops->survey_end != NULL)
        s->fs->ops->survey_end(s->fs);
}

/*
 * A link by a checkpoint's name: somebody has moved it, and links are not followed (docs/security.md). Passed over in silence it would be a
 * checkpoint lost, and others' base deleted. *is: whether it is one; files of that name are somebody else's.
 */
static ckp_status
linked(ckpi_store *s, ckpi_entry *e, bool *is, ckp_error *err)
{
    ckpi_stat sb;

    e->base = SIZE_MAX;
    const ckp_status st = s->fs->ops->stat(s->fs, e->dir, &sb, err);
    *is = st == CKP_OK && sb.is_link;
    if (!*is)
        return st == CKP_ENOTFOUND ? CKP_OK : st;
    return ckpi_entry_bad(e, CKPI_HEALTH_UNSUPPORTED, "a symbolic link in the place of a checkpoint's directory: links are not followed, move the directory back", err);
}

static ckp_status
read_all(ckpi_store *s, const ckpi_names *names, ckpi_entries *out, ckp_error *err)
{
    out->v = ckpi_calloc(names->n, sizeof *out->v);
    if (out->v == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to list a run");
    for (size_t i = 0; i < names->n; i++) {
        ckpi_entry *e = &out->v[out->n];
        bool there = true;
        if (!ckpi_dir_name_parse(names->v[i], &e->step, &e->attempt))
            continue;
        ckpi_dir_name(e->dir, e->step, e->attempt);
        ckpi_lock_keep(s);
        const ckp_status st = names->is_dir[i] ? ckpi_entry_read(s, e, err) : linked(s, e, &there, err);
        out->n += there;
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

ckpi_order
ckpi_order_of(const ckpi_manifest *m, const char *dir)
{
    ckpi_order o = {m->sequence, m->epoch, m->step, ""};
    memcpy(o.dir, dir, strlen(dir));
    return o;
}

int
ckpi_order_compare(const ckpi_order *a, const ckpi_order *b)
{
    if (a->sequence != b->sequence)
        return a->sequence < b->sequence ? -1 : 1;
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return strcmp(a->dir, b->dir);
}

/* Those without a sequence first, by step. */
static ckpi_order
order_of(const ckpi_entry *e)
{
    const ckpi_manifest none = {.step = e->step};
    return ckpi_order_of(e->m != NULL ? e->m : &none, e->dir);
}

static int
by_sequence(const void *pa, const void *pb)
{
    const ckpi_order a = order_of(pa), b = order_of(pb);
    return ckpi_order_compare(&a, &b);
}

static int
by_dir(const void *pa, const void *pb)
{
    const ckpi_entry *const *a = pa, *const *b = pb;
    return strcmp((*a)->dir, (*b)->dir);
}

static int
is_dir(const void *key, const void *elem)
{
    return strcmp(key, (*(const ckpi_entry *const *)elem)->dir);
}

/* An entry's base, or why it cannot be one. Bases come earlier in sequence, so their own health is settled, and no circle can be. */
static ckp_status
judge_base(ckpi_entries *all, ckpi_entry *e, const ckpi_entry *base, ckp_error *err)
{
    char reason[CKPI_DIR_NAME_MAX + 64];
    const char *why = NULL;
    if (base == NULL)
        why = "is missing";
    else if (base >= e)
        why = "was committed later";
    else if (base->health != CKPI_HEALTH_OK)
        why = "cannot be restored itself";
    else if (!ckpi_id_eq(base->m->content, e->m->base))
        why = "has another content id";
    else if (base->m->chain + 1 != e->m->chain)
        why = "has another chain length";
    if (base != NULL && base < e)
        e->base = (size_t)(base - all->v);
    if (why == NULL || e->health != CKPI_HEALTH_OK)
        return CKP_OK;
    snprintf(reason, sizeof reason, "its base %s %s", e->m->base_dir, why);
    return ckpi_entry_bad(e, CKPI_HEALTH_BAD_BASE, reason, err);
}

static ckp_status
judge_chains(ckpi_entries *all, ckp_error *err)
{
    const ckpi_entry **sorted = ckpi_malloc(all->n, sizeof *sorted);
    if (sorted == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to list a run");
    for (size_t i = 0; i < all->n; i++)
        sorted[i] = &all->v[i];
    qsort(sorted, all->n, sizeof *sorted, by_dir);
    ckp_status st = CKP_OK;
    for (size_t i = 0; i < all->n && st == CKP_OK; i++) {
        ckpi_entry *e = &all->v[i];
        if (e->m == NULL || e->health == CKPI_HEALTH_FOREIGN || e->m->kind == CKPI_CKPT_KEY)
            continue;
        const ckpi_entry **found = bsearch(e->m->base_dir, sorted, all->n, sizeof *sorted, is_dir);
        st = judge_base(all, e, found == NULL ? NULL : *found, err);
    }
    free(sorted);
    return st;
}

static ckp_status
scan(ckpi_store *s, ckpi_entries *out, ckp_error *err)
{
    ckpi_names names;
    *out = (ckpi_entries){0};
    ckp_status st = ckpi_names_read(s, "", &names, err);
    if (st != CKP_OK)
        return st;
    st = read_all(s, &names, out, err);
    ckpi_names_free(&names);
    if (st == CKP_OK) {
        qsort(out->v, out->n, sizeof *out->v, by_sequence);
        st = judge_chains(out, err);
    }
    if (st != CKP_OK)
        ckpi_entries_free(out);
    return st;
}

/* Not what a run looks like that nobody has damaged, and nobody has deleted from meanwhile. */
static bool
looks_odd(const ckpi_entries *e)
{
    size_t good = 0;
    bool odd = false;
    for (size_t i = 0; i < e->n; i++) {
        const ckpi_health h = e->v[i].health;
        good += h == CKPI_HEALTH_OK;
        odd = odd || (h != CKPI_HEALTH_OK && h != CKPI_HEALTH_INCOMPLETE && h != CKPI_HEALTH_DELETING && h != CKPI_HEALTH_FOREIGN);
    }
    return odd || (good == 0 && e->n != 0);
}

/* By a survey, and where the result looks odd once more without: beside a writer that deletes, a listing and what is read after it need not be of one moment. */
static ckp_status
scan_once(ckpi_store *s, ckpi_entries *out, ckp_error *err)
{
    if (s->fs->ops->survey == NULL)
        return scan(s, out, err);
    ckp_status st = ckpi_survey_open(s, err);
    if (st == CKP_OK)
        st = scan(s, out, err);
    ckpi_survey_close(s);
    if (st != CKP_OK || !looks_odd(out))
        return st;
    ckpi_entries_free(out);
    return scan(s, out, err);
}

/* A delta that was read while it was there, and its base when both had gone: a base goes after its deltas only, so the delta tells. */
static bool
deleted_meanwhile(ckpi_store *s, const ckpi_entries *e)
{
    bool there = true;
    for (size_t i = 0; there && i < e->n; i++)
        if (e->v[i].health == CKPI_HEALTH_BAD_BASE && ckpi_store_exists(s, e->v[i].dir, CKPI_MANIFEST_FILE, &there, NULL) != CKP_OK)
            there = true;
    return !there;
}

/* What a reader beside a writer that deletes has seen of two moments is looked at anew. */
ckp_status
ckpi_store_scan(ckpi_store *s, ckpi_entries *out, ckp_error *err)
{
    ckp_status st = scan_once(s, out, err);
    for (int round = 1; st == CKP_OK && round < MAX_ROUNDS && deleted_meanwhile(s, out); round++) {
        ckpi_entries_free(out);
        st = scan_once(s, out, err);
    }
    return st;
}

ckp_status
ckpi_store_list(ckpi_store *s, ckpi_entries *out, ckp_error *err)
{
    *out = (ckpi_entries){0};
    ckp_status st = ckpi_store_enter(s, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_store_scan(s, out, err);
    ckpi_store_leave(s);
    return st;
}
