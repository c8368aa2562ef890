/* SPDX-License-Identifier: Apache-2.0 */
/* Listing a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "os/os.h"
#include "run/list.h"
#include "run/profile.h"

ckp_status
ckpi_list_reader(const ckpi_place *place, ckpi_store **out, ckp_error *err)
{
    ckpi_fs *fs = NULL;
    ckp_status st = ckpi_place_fs(&fs, place, false, err);
    if (st == CKP_OK)
        st = ckpi_store_open(out, fs, CKPI_STORE_READ, NULL, err);
    if (st != CKP_OK)
        ckpi_fail_file(err, place->name);
    return st;
}

void
ckpi_list_fill(const ckpi_entries *all, const ckpi_entry *e, ckp_list_entry *out)
{
    *out = (ckp_list_entry){.step = e->step, .stored_bytes = e->bytes};
    (void)snprintf(out->dir, sizeof out->dir, "%s", e->dir);
    (void)snprintf(out->health, sizeof out->health, "%s", e->health == CKPI_HEALTH_OK ? "ok" : ckpi_health_name(e->health));
    if (e->health != CKPI_HEALTH_OK && e->reason != NULL)
        (void)snprintf(out->health, sizeof out->health, "%s: %.200s", ckpi_health_name(e->health), e->reason);
    if (e->m == NULL)
        return;
    out->manifest = e->m;
    out->base_model = e->m->base_model;
    out->sequence = e->m->sequence;
    out->is_delta = e->m->kind == CKPI_CKPT_DELTA;
    out->raw_bytes = e->m->raw_bytes;
    out->params = e->m->params;
    out->saved_unix = e->m->created;
    out->restore_count = e->m->restores;
    out->chain = e->m->chain;
    out->profile = ckpi_profile_named(e->m->profile);
    if (e->m->parent != NULL)
        (void)snprintf(out->parent_dir, sizeof out->parent_dir, "%s", e->m->parent);
    if (e->m->base_dir != NULL)
        (void)snprintf(out->base_dir, sizeof out->base_dir, "%s", e->m->base_dir);
    if (e->base != SIZE_MAX)
        out->base_step = all->v[e->base].step;
}

bool
ckp_list_entry_metric(const ckp_list_entry *e, size_t index, ckp_metric *out)
{
    const ckpi_manifest *m = e != NULL ? e->manifest : NULL;
    if (m == NULL || index >= m->n_metrics || out == NULL)
        return false;
    *out = (ckp_metric){m->metrics[index].name, m->metrics[index].value};
    return true;
}

ckp_status
ckp_run_list(const char *dir, int (*fn)(void *user, const ckp_list_entry *e), void *user, ckp_error *err)
{
    return ckp_run_list_in(NULL, dir, fn, user, err);
}

ckp_status
ckp_run_list_in(const ckp_objects *in, const char *dir, int (*fn)(void *user, const ckp_list_entry *e), void *user, ckp_error *err)
{
    const ckpi_place place = {dir, in};
    ckpi_store *s = NULL;
    ckpi_entries all = {0};

    if (dir == NULL || fn == NULL)
        return ckpi_fail(err, CKP_EINVAL, "run_list: NULL argument");
    ckp_status st = ckpi_list_reader(&place, &s, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_store_list(s, &all, err);
    /* checkpoints first, then what only looks like one */
    for (int round = 0; st == CKP_OK && round < 2; round++)
        for (size_t i = 0; i < all.n; i++) {
            ckp_list_entry e;
            if ((all.v[i].m != NULL) != (round == 0))
                continue;
            ckpi_list_fill(&all, &all.v[i], &e);
            if (fn(user, &e) != 0) {
                st = ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
                break;
            }
        }
    ckpi_entries_free(&all);
    ckpi_store_free(s);
    return st;
}
