/* SPDX-License-Identifier: Apache-2.0 */
/* Retention: policies name restorable points; what those need stays with them (invariant 5). */
#include <string.h>
#include "base/fail.h"
#include "store/internal.h"

static bool
restorable(const ckpi_entry *e)
{
    return e->health == CKPI_HEALTH_OK;
}

static ckp_status
mark_named(ckpi_entries *e, const char *const *keep, size_t n_keep, ckp_error *err)
{
    for (size_t k = 0; k < n_keep; k++) {
        size_t i = 0;
        while (i < e->n && !(restorable(&e->v[i]) && strcmp(e->v[i].dir, keep[k]) == 0))
            i++;
        if (i == e->n)
            return ckpi_fail(err, CKP_ENOTFOUND, "'%.64s' is to be kept but is not a restorable checkpoint", keep[k]);
        e->v[i].keep = CKPI_KEEP_POINT;
    }
    return CKP_OK;
}

ckp_status
ckpi_retention_mark(ckpi_entries *e, uint32_t keep_last, const char *const *keep, size_t n_keep, ckp_error *err)
{
    for (size_t i = 0; i < e->n; i++)
        e->v[i].keep = keep_last == 0 || !restorable(&e->v[i]) ? CKPI_KEEP_POINT : CKPI_KEEP_NO;
    uint32_t left = keep_last;
    for (size_t i = e->n; i-- > 0 && left > 0;) {
        if (restorable(&e->v[i])) {
            e->v[i].keep = CKPI_KEEP_POINT;
            left--;
        }
    }
    const ckp_status st = mark_named(e, keep, n_keep, err);
    /* Bases come before what is coded against them: one pass from the newest down carries the mark along whole chains. */
    for (size_t i = e->n; i-- > 0;) {
        const size_t b = e->v[i].base;
        if (e->v[i].keep != CKPI_KEEP_NO && b != SIZE_MAX && e->v[b].keep == CKPI_KEEP_NO)
            e->v[b].keep = CKPI_KEEP_BASE;
    }
    return st;
}

/* Deleting beside damage could take away what a repair needs. */
static ckp_status
refuse_damage(const ckpi_entries *e, ckp_error *err)
{
    for (size_t i = 0; i < e->n; i++) {
        const ckpi_health h = e->v[i].health;
        if (h != CKPI_HEALTH_OK && h != CKPI_HEALTH_INCOMPLETE && h != CKPI_HEALTH_DELETING && h != CKPI_HEALTH_FOREIGN)
            return ckpi_fail(err, CKP_ECORRUPT, "nothing is deleted while %s is damaged: %s: %s", e->v[i].dir, ckpi_health_name(h), e->v[i].reason);
    }
    return CKP_OK;
}

static void
count(const ckpi_entries *e, ckpi_retained *done)
{
    for (size_t i = 0; i < e->n; i++) {
        done->points += restorable(&e->v[i]) && e->v[i].keep == CKPI_KEEP_POINT;
        done->bases += e->v[i].keep == CKPI_KEEP_BASE;
    }
}

/* Newest first: a delta goes before its base. The lock is read again before each manifest goes. */
static ckp_status
delete_unmarked(ckpi_store *s, const ckpi_entries *e, ckpi_retained *done, ckp_error *err)
{
    ckp_status st = CKP_OK;
    for (size_t i = e->n; i-- > 0 && st == CKP_OK;) {
        if (e->v[i].keep != CKPI_KEEP_NO)
            continue;
        st = ckpi_lock_check(s, err);
        if (st == CKP_OK)
            st = ckpi_remove_committed(s, e->v[i].dir, e->v[i].m, err);
        /* Foreign files in it keep the directory, not the checkpoint. */
        if (st == CKP_EEXIST)
            st = CKP_OK;
        if (st == CKP_OK) {
            done->deleted++;
            done->freed_bytes += e->v[i].bytes;
        }
    }
    if (done->deleted > 0 && st == CKP_OK)
        st = s->fs->ops->sync_dir(s->fs, "", err);
    return st;
}

static ckp_status
retain(ckpi_store *s, uint32_t keep_last, const char *const *keep, size_t n_keep, ckpi_retained *done, ckp_error *err)
{
    ckpi_entries e = {0};
    ckp_status st = ckpi_store_scan(s, &e, err);
    if (st == CKP_OK)
        st = refuse_damage(&e, err);
    if (st == CKP_OK)
        st = ckpi_retention_mark(&e, keep_last, keep, n_keep, err);
    if (st == CKP_OK) {
        count(&e, done);
        st = done->points == 0 ? CKP_OK : delete_unmarked(s, &e, done, err);
    }
    ckpi_entries_free(&e);
    return st;
}

ckp_status
ckpi_store_retain(ckpi_store *s, uint32_t keep_last, const char *const *keep, size_t n_keep, ckpi_retained *done, ckp_error *err)
{
    ckpi_retained mine = {0};
    ckp_status st = ckpi_store_enter_write(s, err);
    if (st != CKP_OK)
        return st;
    /* Called after every save: a run that keeps everything need not be listed each time. */
    if (keep_last == 0 && done == NULL) {
        ckpi_store_leave(s);
        return CKP_OK;
    }
    st = retain(s, keep_last, keep, n_keep, &mine, err);
    if (done != NULL)
        *done = mine;
    ckpi_store_leave(s);
    return st;
}
