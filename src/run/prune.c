/* SPDX-License-Identifier: Apache-2.0 */
#include <ckpress/run_objects.h>
#include "base/fail.h"
#include "run/list.h"
#include "run/retention.h"

ckp_status
ckpi_rules_check(const ckp_retention *r, ckp_error *err)
{
    if (r == NULL)
        return CKP_OK;
    if (r->size != sizeof *r)
        return ckpi_fail(err, CKP_EINVAL, "retention of size %zu; this library knows %zu", r->size, sizeof *r);
    if ((r->metric == NULL) != (r->keep_best == 0) || (r->metric != NULL && r->metric[0] == '\0'))
        return ckpi_fail(err, CKP_EINVAL, "to keep the best ones needs a metric, and how many");
    return CKP_OK;
}

void
ckpi_rules_of(ckpi_retention *out, const ckp_retention *r)
{
    *out = (ckpi_retention){0};
    if (r != NULL)
        *out = (ckpi_retention){.last = r->keep_last, .every = r->keep_every, .best = r->metric, .n_best = r->keep_best,
                                .best_is_max = r->best_is_max, .max_bytes = r->max_bytes};
}

static void
tell(const ckpi_entries *all, void (*fn)(void *user, const ckp_list_entry *e, ckp_fate fate), void *user)
{
    static const ckp_fate fate[] = {[CKPI_KEEP_NO] = CKP_FATE_DELETED, [CKPI_KEEP_BASE] = CKP_FATE_BASE, [CKPI_KEEP_POINT] = CKP_FATE_KEPT};

    for (size_t i = 0; fn != NULL && i < all->n; i++) {
        ckp_list_entry e;
        if (all->v[i].m == NULL)
            continue;
        ckpi_list_fill(all, &all->v[i], &e);
        fn(user, &e, fate[all->v[i].keep]);
    }
}

static ckp_status
prune(ckpi_store *s, const ckpi_retention *r, bool dry_run, void (*fn)(void *user, const ckp_list_entry *e, ckp_fate fate), void *user,
      ckp_pruned *done, ckp_error *err)
{
    ckpi_entries all = {0};
    ckpi_retained n = {0};

    ckp_status st = ckpi_store_retain_plan(s, r, &all, &n, err);
    if (st == CKP_OK)
        tell(&all, fn, user);
    if (st == CKP_OK && !dry_run)
        st = ckpi_store_retain(s, r, &n, err);
    done->kept = n.points;
    done->bases = n.bases;
    done->deleted = n.deleted;
    done->freed_bytes = n.freed_bytes;
    done->left_bytes = n.left_bytes;
    ckpi_entries_free(&all);
    return st;
}

ckp_status
ckp_run_prune(const char *dir, const ckp_retention *rules, bool dry_run, void (*fn)(void *user, const ckp_list_entry *e, ckp_fate fate),
              void *user, ckp_pruned *done, ckp_error *err)
{
    return ckp_run_prune_in(NULL, dir, rules, dry_run, fn, user, done, err);
}

ckp_status
ckp_run_prune_in(const ckp_objects *in, const char *dir, const ckp_retention *rules, bool dry_run,
                 void (*fn)(void *user, const ckp_list_entry *e, ckp_fate fate), void *user, ckp_pruned *done, ckp_error *err)
{
    const ckpi_place place = {dir, in};
    ckpi_retention r;
    ckpi_store *s = NULL;
    ckpi_fs *fs = NULL;

    if (dir == NULL || rules == NULL || done == NULL || done->size != sizeof *done)
        return ckpi_fail(err, CKP_EINVAL, "run_prune: NULL argument or bad size");
    *done = (ckp_pruned){.size = sizeof *done};
    ckp_status st = ckpi_rules_check(rules, err);
    if (st != CKP_OK)
        return st;
    ckpi_rules_of(&r, rules);
    if (r.last == 0 && r.every == 0 && r.best == NULL && r.max_bytes == 0)
        return ckpi_fail(err, CKP_EINVAL, "run_prune: no rule says what to keep");
    st = ckpi_list_reader(&place, &s, err);     /* also tells a directory that is no run before anything is made in it */
    if (st == CKP_OK && !dry_run) {
        ckpi_store_free(s);
        s = NULL;
        st = ckpi_place_fs(&fs, &place, false, err);
        if (st == CKP_OK)
            st = ckpi_store_open(&s, fs, CKPI_STORE_WRITE, NULL, err);
    }
    if (st == CKP_OK)
        st = prune(s, &r, dry_run, fn, user, done, err);
    ckpi_fail_file(st != CKP_OK ? err : NULL, dir);
    ckpi_store_free(s);
    return st;
}
