/* SPDX-License-Identifier: Apache-2.0 */
/* Retention: policies name restorable points; what those need stays with them (invariant 5). */
#include <math.h>
#include <string.h>
#include "base/fail.h"
#include "store/internal.h"

static bool
restorable(const ckpi_entry *e)
{
    return e->health == CKPI_HEALTH_OK;
}

/* What another one stands in for is the same point once more: a base, perhaps. */
static bool
is_point(const ckpi_entry *e)
{
    return restorable(e) && !e->replaced;
}

static bool
has_rule(const ckpi_retention *r)
{
    return r->last != 0 || r->every != 0 || r->best != NULL || r->n_dir != 0;
}

static void
mark_last(ckpi_entries *e, uint32_t n)
{
    for (size_t i = e->n; i-- > 0 && n > 0;)
        if (is_point(&e->v[i])) {
            e->v[i].keep = CKPI_KEEP_POINT;
            n--;
        }
}

/* Whether entry a is a better first of a stretch of steps than b: an earlier step, or the same saved again. */
static bool
before(const ckpi_entries *e, size_t a, size_t b)
{
    return e->v[a].step < e->v[b].step || (e->v[a].step == e->v[b].step && a > b);
}

static void
mark_every(ckpi_entries *e, uint64_t every)
{
    for (size_t i = 0; i < e->n; i++) {
        bool first = is_point(&e->v[i]);
        for (size_t k = 0; first && k < e->n; k++)
            first = k == i || !is_point(&e->v[k]) || e->v[k].step / every != e->v[i].step / every || before(e, i, k);
        if (first)
            e->v[i].keep = CKPI_KEEP_POINT;
    }
}

/* Entry a with value x before entry b with y: better, or as good and newer. */
static bool
better(size_t a, double x, size_t b, double y, bool max)
{
    return x == y ? a > b : max ? x > y : x < y;
}

static void
mark_best(ckpi_entries *e, const ckpi_retention *r)
{
    for (size_t i = 0; i < e->n; i++) {
        double x, y;
        uint32_t ahead = 0;
        if (!is_point(&e->v[i]) || !ckpi_manifest_metric(e->v[i].m, r->best, &x) || isnan(x))
            continue;
        for (size_t k = 0; ahead < r->n_best && k < e->n; k++)
            ahead += k != i && is_point(&e->v[k]) && ckpi_manifest_metric(e->v[k].m, r->best, &y) && better(k, y, i, x, r->best_is_max);
        if (ahead < r->n_best)
            e->v[i].keep = CKPI_KEEP_POINT;
    }
}

/* A metric that no checkpoint has is a wrong name, or comes later: no reason to delete all but the newest. */
static ckp_status
refuse_unknown(const ckpi_entries *e, const ckpi_retention *r, ckp_error *err)
{
    bool known = r->best == NULL, goes = false;
    double x;
    for (size_t i = 0; i < e->n; i++) {
        known = known || (is_point(&e->v[i]) && ckpi_manifest_metric(e->v[i].m, r->best, &x));
        goes = goes || (e->v[i].keep == CKPI_KEEP_NO && !e->v[i].replaced);
    }
    return known || !goes ? CKP_OK : ckpi_fail(err, CKP_ENOTFOUND, "nothing is deleted: no checkpoint has a metric '%.64s' to keep the best by", r->best);
}

static ckp_status
mark_named(ckpi_entries *e, const ckpi_retention *r, ckp_error *err)
{
    for (size_t k = 0; k < r->n_dir; k++) {
        size_t i = 0;
        while (i < e->n && !(restorable(&e->v[i]) && strcmp(e->v[i].dir, r->dir[k]) == 0))
            i++;
        if (i == e->n)
            return ckpi_fail(err, CKP_ENOTFOUND, "'%.64s' is to be kept but is not a restorable checkpoint", r->dir[k]);
        e->v[i].keep = CKPI_KEEP_POINT;
    }
    return CKP_OK;
}

static bool
is_finite(const ckpi_entry *e)
{
    for (size_t i = 0; i < e->m->n_metrics; i++)
        if (!isfinite(e->m->metrics[i].value))
            return false;
    return true;
}

/* A training that has gone wrong must not push out the last state from which it could go on. Index, or e->n. */
static size_t
newest(const ckpi_entries *e, bool finite)
{
    for (size_t i = e->n; i-- > 0;)
        if (is_point(&e->v[i]) && (!finite || is_finite(&e->v[i])))
            return i;
    return e->n;
}

/* Bases come before what is coded against them: one pass from the newest down carries the mark along whole chains. Bytes of all that stays. */
static uint64_t
mark_bases(ckpi_entries *e)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < e->n; i++)
        if (e->v[i].keep == CKPI_KEEP_BASE)
            e->v[i].keep = CKPI_KEEP_NO;
    /* Originals stay beside stand-ins that are kept: those may have rotted, and what drops originals for their sake proves them first (replace.c). */
    for (size_t i = 0; i < e->n; i++)
        if (e->v[i].replaced && e->v[i].keep == CKPI_KEEP_NO && e->v[ckpi_stand_in(e, i)].keep == CKPI_KEEP_POINT)
            e->v[i].keep = CKPI_KEEP_BASE;
    for (size_t i = e->n; i-- > 0;) {
        const size_t b = e->v[i].base;
        if (e->v[i].keep != CKPI_KEEP_NO && b != SIZE_MAX && e->v[b].keep == CKPI_KEEP_NO)
            e->v[b].keep = CKPI_KEEP_BASE;
        bytes += e->v[i].keep != CKPI_KEEP_NO ? e->v[i].bytes : 0;
    }
    return bytes;
}

/* The oldest points go until the rest fits, but not those at a and b. */
static void
fit(ckpi_entries *e, uint64_t max_bytes, size_t a, size_t b)
{
    uint64_t bytes = mark_bases(e);

    for (size_t i = 0; bytes > max_bytes && i < e->n; i++)
        if (restorable(&e->v[i]) && e->v[i].keep == CKPI_KEEP_POINT && i != a && i != b) {
            e->v[i].keep = CKPI_KEEP_NO;
            bytes = mark_bases(e);
        }
}

ckp_status
ckpi_retention_mark(ckpi_entries *e, const ckpi_retention *r, ckp_error *err)
{
    const bool all = !has_rule(r);

    for (size_t i = 0; i < e->n; i++) {
        e->v[i].replaced = restorable(&e->v[i]) && ckpi_stand_in(e, i) != SIZE_MAX;
        e->v[i].keep = !restorable(&e->v[i]) || (all && (r->max_bytes == 0 || !e->v[i].replaced)) ? CKPI_KEEP_POINT : CKPI_KEEP_NO;
    }
    const size_t last = newest(e, false), finite = newest(e, true);
    mark_last(e, r->last);
    if (r->every != 0)
        mark_every(e, r->every);
    if (r->best != NULL)
        mark_best(e, r);
    /* without it the next save would have no base, and a training nothing to go on from but what is older */
    if (last < e->n)
        e->v[last].keep = CKPI_KEEP_POINT;
    if (finite < e->n)
        e->v[finite].keep = CKPI_KEEP_POINT;
    ckp_status st = mark_named(e, r, err);
    (void)mark_bases(e);
    if (st == CKP_OK)
        st = refuse_unknown(e, r, err);
    if (r->max_bytes != 0)
        fit(e, r->max_bytes, last, finite);
    return st;
}

/* Deleting beside damage could take away what a repair needs. */
ckp_status
ckpi_refuse_damage(const ckpi_entries *e, ckp_error *err)
{
    for (size_t i = 0; i < e->n; i++) {
        const ckpi_health h = e->v[i].health;
        if (h != CKPI_HEALTH_OK && h != CKPI_HEALTH_INCOMPLETE && h != CKPI_HEALTH_DELETING && h != CKPI_HEALTH_FOREIGN)
            return ckpi_fail(err, CKP_ECORRUPT, "nothing is deleted while %s is damaged: %s: %s", e->v[i].dir, ckpi_health_name(h), e->v[i].reason);
    }
    return CKP_OK;
}

/* Nothing goes from a run without a restorable point. */
static void
count(const ckpi_entries *e, ckpi_retained *done)
{
    uint64_t going = 0;

    for (size_t i = 0; i < e->n; i++) {
        done->points += is_point(&e->v[i]) && e->v[i].keep == CKPI_KEEP_POINT;
        done->bases += e->v[i].keep == CKPI_KEEP_BASE;
        done->left_bytes += e->v[i].bytes;
        going += e->v[i].keep == CKPI_KEEP_NO ? e->v[i].bytes : 0;
    }
    done->left_bytes -= done->points != 0 ? going : 0;
}

/* What deleting would do. Nothing goes from a run without a restorable point. */
static void
foresee(ckpi_entries *e, ckpi_retained *done)
{
    for (size_t i = 0; i < e->n; i++) {
        if (e->v[i].keep != CKPI_KEEP_NO)
            continue;
        if (done->points == 0) {
            e->v[i].keep = CKPI_KEEP_POINT;
            continue;
        }
        done->deleted++;
        done->freed_bytes += e->v[i].bytes;
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
        ckpi_lock_keep(s);
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
look(ckpi_store *s, const ckpi_retention *r, ckpi_entries *e, ckpi_retained *done, ckp_error *err)
{
    ckp_status st = ckpi_store_scan(s, e, err);
    if (st == CKP_OK)
        st = ckpi_refuse_damage(e, err);
    if (st == CKP_OK)
        st = ckpi_retention_mark(e, r, err);
    if (st == CKP_OK)
        count(e, done);
    return st;
}

ckp_status
ckpi_store_retain_plan(ckpi_store *s, const ckpi_retention *r, ckpi_entries *e, ckpi_retained *done, ckp_error *err)
{
    *e = (ckpi_entries){0};
    *done = (ckpi_retained){0};
    ckp_status st = ckpi_store_enter(s, err);
    if (st != CKP_OK)
        return st;
    st = look(s, r, e, done, err);
    if (st == CKP_OK)
        foresee(e, done);
    ckpi_store_leave(s);
    return st;
}

static ckp_status
retain(ckpi_store *s, const ckpi_retention *r, ckpi_retained *done, ckp_error *err)
{
    ckpi_entries e = {0};
    ckp_status st = look(s, r, &e, done, err);
    if (st == CKP_OK && done->points != 0)
        st = delete_unmarked(s, &e, done, err);
    ckpi_entries_free(&e);
    return st;
}

ckp_status
ckpi_store_retain(ckpi_store *s, const ckpi_retention *r, ckpi_retained *done, ckp_error *err)
{
    ckpi_retained mine = {0};
    ckp_status st = ckpi_store_enter_write(s, err);
    if (st != CKP_OK)
        return st;
    /* Called after every save: a run that keeps everything need not be listed each time. */
    if (!has_rule(r) && r->max_bytes == 0 && done == NULL) {
        ckpi_store_leave(s);
        return CKP_OK;
    }
    st = retain(s, r, &mine, err);
    if (done != NULL)
        *done = mine;
    ckpi_store_leave(s);
    return st;
}
