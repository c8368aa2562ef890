/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that stand in for others. A committed file never changes (invariant 2), so a checkpoint that is to be stored otherwise (without
 * what was dropped, without a base) becomes another attempt of the same step, with the same sequence, and the old one is deleted when all that
 * was based on it has a stand-in too:
 *
 *     K  <- D  <- C            the chain as it was
 *     K  <- D  <- C   D' <- C' stand-ins, bases first: each is committed whole, both chains can be restored
 *     K           D' <- C'     the old ones go, deltas before their bases
 *
 * `replaces` in the manifest names the first of the line, whatever stands in for whatever. Between two of a line the higher epoch counts, as for
 * any two of one sequence.
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/internal.h"

static const char *
line_of(const ckpi_entry *e)
{
    return e->m->replaces != NULL ? e->m->replaces : e->dir;
}

size_t
ckpi_stand_in(const ckpi_entries *all, size_t i)
{
    const ckpi_entry *e = &all->v[i];

    for (size_t k = all->n; e->m != NULL && k-- > 0;) {
        const ckpi_entry *r = &all->v[k];
        if (k == i || r->health != CKPI_HEALTH_OK || r->m->replaces == NULL || r->m->sequence != e->m->sequence)
            continue;
        if (strcmp(r->m->replaces, line_of(e)) == 0 && (e->m->replaces == NULL || r->m->epoch > e->m->epoch))
            return k;
    }
    return SIZE_MAX;
}

ckp_status
ckpi_store_replace(ckpi_store *s, ckpi_attempt *a, ckpi_manifest *m, const ckpi_manifest *old, ckp_error *err)
{
    char dir[CKPI_DIR_NAME_MAX];
    ckp_status st = ckpi_store_enter_write(s, err);

    if (st != CKP_OK) {
        ckpi_store_abort(s, a);
        return st;
    }
    ckpi_dir_name(dir, old->step, old->attempt);
    st = ckpi_manifest_set(&m->replaces, old->replaces != NULL ? old->replaces : dir, err);
    if (st == CKP_OK)
        st = ckpi_commit_rewritten(s, a, m, old, err);
    else
        (void)ckpi_remove_uncommitted(s, a->dir, NULL);
    ckpi_store_leave(s);
    free(a);
    return st;
}

/* Whether entry i may go: it has a stand-in, and what is based on it has gone. */
static bool
may_go(const ckpi_entries *e, const bool *gone, size_t i)
{
    if (e->v[i].m == NULL || ckpi_stand_in(e, i) == SIZE_MAX)
        return false;
    for (size_t k = i + 1; k < e->n; k++)
        if (e->v[k].base == i && !gone[k])
            return false;
    return true;
}

/*
 * Before anything goes: stand-ins are whole to the last byte, also those that an earlier call has made, which may have rotted since.
 */
static ckp_status
prove_stand_ins(ckpi_store *s, const ckpi_entries *e, ckp_error *err)
{
    ckp_status st = CKP_OK;
    for (size_t i = 0; st == CKP_OK && i < e->n; i++)
        if (e->v[i].m != NULL && e->v[i].m->replaces != NULL && ckpi_stand_in(e, i) == SIZE_MAX)
            st = ckpi_check_hashes(s, e->v[i].dir, e->v[i].m, &(ckpi_tally){.keeps = s}, err);
    return st;
}

static ckp_status
drop(ckpi_store *s, const ckpi_entries *e, bool *gone, size_t *n, uint64_t *bytes, ckp_error *err)
{
    ckp_status st = CKP_OK;

    for (size_t i = e->n; st == CKP_OK && i-- > 0;) {
        if (!may_go(e, gone, i))
            continue;
        st = ckpi_lock_check(s, err);
        if (st == CKP_OK)
            st = ckpi_remove_committed(s, e->v[i].dir, e->v[i].m, err);
        if (st == CKP_EEXIST)
            st = CKP_OK;           /* foreign files keep the directory, not the checkpoint */
        if (st == CKP_OK) {
            gone[i] = true;
            (*n)++;
            *bytes += e->v[i].bytes;
        }
    }
    return st == CKP_OK && *n != 0 ? s->fs->ops->sync_dir(s->fs, "", err) : st;
}

ckp_status
ckpi_store_drop_replaced(ckpi_store *s, size_t *n, uint64_t *bytes, ckp_error *err)
{
    ckpi_entries e = {0};

    *n = 0;
    *bytes = 0;
    ckp_status st = ckpi_store_enter_write(s, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_store_scan(s, &e, err);
    if (st == CKP_OK)
        st = ckpi_refuse_damage(&e, err);
    if (st == CKP_OK)
        st = prove_stand_ins(s, &e, err);
    bool *gone = st == CKP_OK ? ckpi_calloc(e.n + 1, sizeof *gone) : NULL;
    if (st == CKP_OK)
        st = gone != NULL ? drop(s, &e, gone, n, bytes, err) : ckpi_fail(err, CKP_ENOMEM, "no memory to list a run");
    free(gone);
    ckpi_entries_free(&e);
    ckpi_store_leave(s);
    return st;
}
