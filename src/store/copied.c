/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copied.json: up to where a run is a copy of another with the same identity, and whether two such runs are still one.
 *
 * A training commits above every sequence in its run and above copied.json's (open.c). So in a run all that came by copying lies at or below
 * that sequence, and what it committed itself lies above. `next` covers the moment between a commit and the record of it: that directory's
 * digits are the source's, which no writer of this run could come by.
 */
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "store/internal.h"

ckp_status
ckpi_copied_read(ckpi_store *s, ckpi_copyfile *out, ckp_error *err)
{
    ckpi_buf raw = CKPI_BUF_INIT;
    *out = (ckpi_copyfile){0};
    ckp_status st = ckpi_fs_read(s->fs, CKPI_COPIED_FILE, CKPI_RUNFILE_MAX, &raw, err);
    const bool there = st == CKP_OK;
    if (there)
        st = ckpi_copyfile_parse(out, raw.data, raw.len, err);
    ckpi_buf_free(&raw);
    /* Garbage says nothing; without a record a copy is at worst taken for what has gone on by itself. */
    const bool nothing = st == CKP_ENOTFOUND || (there && st != CKP_OK && st != CKP_ENOMEM);
    if (nothing || (st == CKP_OK && !ckpi_id_eq(out->run_id, s->run_id))) {
        *out = (ckpi_copyfile){0};
        return CKP_OK;
    }
    return st;
}

ckp_status
ckpi_copied_write(ckpi_store *s, const ckpi_copyfile *c, ckp_error *err)
{
    ckpi_buf text = CKPI_BUF_INIT;
    ckp_status st = ckpi_copyfile_print(c, &text, err);
    if (st == CKP_OK)
        st = ckpi_store_put(s, "", CKPI_COPIED_FILE, &text, true, err);
    ckpi_buf_free(&text);
    return st;
}

/* Whether an entry is a checkpoint of this run's history, restorable or not. */
static bool
counts(const ckpi_entry *e)
{
    return e->m != NULL && e->health != CKPI_HEALTH_FOREIGN;
}

const ckpi_entry *
ckpi_copied_find(const ckpi_entries *e, const char *dir)
{
    for (size_t i = 0; i < e->n; i++)
        if (counts(&e->v[i]) && strcmp(e->v[i].dir, dir) == 0)
            return &e->v[i];
    return NULL;
}

bool
ckpi_copied_same(const ckpi_manifest *a, const ckpi_manifest *b, ckp_status *st)
{
    ckpi_buf x = CKPI_BUF_INIT_MAX(CKPI_MAX_MANIFEST), y = CKPI_BUF_INIT_MAX(CKPI_MAX_MANIFEST);
    *st = ckpi_manifest_print(a, &x, NULL);
    if (*st == CKP_OK)
        *st = ckpi_manifest_print(b, &y, NULL);
    const bool same = *st == CKP_OK && x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
    ckpi_buf_free(&x);
    ckpi_buf_free(&y);
    return same;
}

/* Whether a run has a checkpoint, or one of the line that stands in for it (replace.c). */
static bool
holds(const ckpi_entries *in, const ckpi_entry *x)
{
    const char *line = x->m->replaces != NULL ? x->m->replaces : x->dir;
    for (size_t i = 0; i < in->n; i++) {
        const ckpi_entry *e = &in->v[i];
        if (counts(e) && e->m->sequence == x->m->sequence && strcmp(e->m->replaces != NULL ? e->m->replaces : e->dir, line) == 0)
            return true;
    }
    return false;
}

/* The highest sequence up to which what `have` holds came from where the source's own comes from. */
static uint64_t
common(const ckpi_entries *src, const ckpi_copyfile *theirs, const ckpi_entries *have, const ckpi_copyfile *c)
{
    uint64_t top = c->sequence;
    const ckpi_entry *last = ckpi_copied_find(have, c->next);
    if (last != NULL && last->m->sequence > top)
        top = last->m->sequence;
    for (size_t i = 0; i < have->n; i++)
        if (counts(&have->v[i]) && have->v[i].m->sequence > top && holds(src, &have->v[i]))
            top = have->v[i].m->sequence;
    /* The other way round: the source was copied from here, has gone on, and has deleted what both had. */
    if (ckpi_copied_find(have, theirs->dir) != NULL && theirs->sequence > top)
        top = theirs->sequence;
    return top;
}

/* An entry of `in` above a sequence (or of just this one, when exactly) that the others lack; NULL: none. */
static const ckpi_entry *
own(const ckpi_entries *in, const ckpi_entries *others, uint64_t sequence, bool exactly)
{
    for (size_t i = 0; i < in->n; i++) {
        const ckpi_entry *e = &in->v[i];
        if (counts(e) && (exactly ? e->m->sequence == sequence : e->m->sequence > sequence) && !holds(others, e))
            return e;
    }
    return NULL;
}

static ckp_status
parted(const ckpi_entry *theirs, const ckpi_entry *ours, ckp_error *err)
{
    return ckpi_fail(err, CKP_EMISMATCH, "has gone on by itself: %s is not in the source, which has gone on too, to %s; copy into another directory",
                     ours->dir, theirs->dir);
}

ckp_status
ckpi_copied_judge(const ckpi_entries *src, const ckpi_copyfile *theirs, const ckpi_entries *have, const ckpi_copyfile *c, ckp_error *err)
{
    const uint64_t top = common(src, theirs, have, c);
    const ckpi_entry *ours = own(have, src, top, false), *new = own(src, have, top, false);
    if (ours != NULL && new != NULL)
        return parted(new, ours, err);
    /* One place in the order, two checkpoints: also below what was copied, where a third copy may have come in between. */
    for (size_t i = 0; i < have->n; i++) {
        const ckpi_entry *e = &have->v[i];
        if (!counts(e) || holds(src, e))
            continue;
        new = own(src, have, e->m->sequence, true);
        if (new != NULL)
            return parted(new, e, err);
    }
    return CKP_OK;
}
