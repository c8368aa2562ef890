/* SPDX-License-Identifier: Apache-2.0 */
/* Listing a run, and verifying runs and files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "os/os.h"
#include "run/checkpoint.h"
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

/* ---- verify ------------------------------------------------------------------------------------------------------ */

typedef struct verify_job {
    ckp_verify_level level;
    unsigned threads;
    void (*fn)(void *user, const char *what, const ckp_error *e);
    void *user;
    ckp_status first;            /* finding */
    ckp_error first_err;
} verify_job;

static void
finding(verify_job *j, const char *what, ckp_status st, const ckp_error *e)
{
    if (j->first == CKP_OK) {
        j->first = st;
        j->first_err = *e;
    }
    if (j->fn != NULL)
        j->fn(j->user, what, e);
}

typedef struct decode_job { const ckp_checkpoint *ck; uint32_t cpu; } decode_job;

static ckp_status
decode_one(void *user, size_t u, ckpi_scratch *ws, ckp_error *err)
{
    const decode_job *d = user;
    const ckpi_unit *unit = &d->ck->unit[u];
    const unsigned want = (unit->w != CKPI_NO_CHUNK ? CKPI_WANT_W : 0) | (unit->m != CKPI_NO_CHUNK ? CKPI_WANT_M : 0) |
                          (unit->v != CKPI_NO_CHUNK ? CKPI_WANT_V : 0);
    return ckpi_decode_unit(d->ck->lin, unit, want, NULL, NULL, ws, d->cpu, err);
}

static void
verify_open(verify_job *j, const ckp_checkpoint *ck)
{
    ckpi_ctx *ctx = NULL;
    ckp_error e;

    ckpi_error_clear(&e);
    if (j->level == CKP_VERIFY_STRUCTURE)
        return;
    ckp_status st = ckpi_ctx_new(&ctx, j->threads, false, &e);
    if (st == CKP_OK)
        st = ckpi_lineage_check_data(ck->lin, ctx, &e);
    if (st == CKP_OK && j->level == CKP_VERIFY_DECODE) {
        decode_job d = {ck, ctx->cpu};
        st = ckpi_ctx_run(ctx, ck->n_units, decode_one, &d, &e);
    }
    ckpi_ctx_free(ctx);
    if (st != CKP_OK)
        finding(j, ck->name, st, &e);
}

/* Attempts alone are a first save, or all that is left of a training: no run of which one may hear that it is whole. */
static void
nothing_valid(verify_job *j, const char *dir, size_t incomplete)
{
    ckp_error e;
    ckpi_error_clear(&e);
    const ckp_status st = ckpi_fail(&e, CKP_ENOTFOUND, "0 checkpoints, %zu incomplete (no manifest)", incomplete);
    ckpi_fail_file(&e, dir);
    finding(j, dir, st, &e);
}

static ckp_status
verify_run(verify_job *j, const ckpi_place *place, const char *base_model, ckp_error *err)
{
    ckpi_store *s = NULL;
    ckpi_entries all = {0};
    size_t checkpoints = 0, incomplete = 0;
    char told[sizeof ((ckp_error *)NULL)->text] = "";

    ckp_status st = ckpi_list_reader(place, &s, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_store_list(s, &all, err);
    for (size_t i = 0; st == CKP_OK && i < all.n; i++) {
        ckp_checkpoint *ck = NULL;
        ckp_error e;
        ckpi_error_clear(&e);
        incomplete += all.v[i].health == CKPI_HEALTH_INCOMPLETE;
        /* a save cut short is no damage: it never was a checkpoint */
        if (all.v[i].health == CKPI_HEALTH_INCOMPLETE || all.v[i].health == CKPI_HEALTH_DELETING)
            continue;
        checkpoints++;
        const ckp_status one = ckpi_checkpoint_open_dir(&ck, place, all.v[i].dir, base_model, false, &e);
        /* a base model that is not there is one finding, however many need it */
        const bool again = one == CKP_EBASE && strcmp(e.text, told) == 0;
        if (one == CKP_EBASE)
            (void)memcpy(told, e.text, sizeof told);
        if (one == CKP_OK)
            verify_open(j, ck);
        else if (!again)
            finding(j, all.v[i].dir, one, &e);
        ckp_checkpoint_close(ck);
    }
    if (st == CKP_OK && checkpoints == 0 && incomplete != 0)
        nothing_valid(j, place->name, incomplete);
    ckpi_entries_free(&all);
    ckpi_store_free(s);
    return st;
}

static bool
is_directory(const char *path)
{
    ckpi_fs *fs = NULL;
    const ckp_status st = ckpi_fs_posix(&fs, path, false, NULL);
    ckpi_fs_free(fs);
    return st == CKP_OK;
}

ckp_status
ckp_verify(const char *path, const char *const *bases, size_t n_bases, ckp_verify_level level, unsigned threads,
           void (*fn)(void *user, const char *what, const ckp_error *e), void *user, ckp_error *err)
{
    verify_job j = {.level = level, .threads = threads, .fn = fn, .user = user};
    ckp_checkpoint *ck = NULL;
    ckp_error e;
    ckp_status st;

    if (path == NULL || (unsigned)level > CKP_VERIFY_DECODE)
        return ckpi_fail(err, CKP_EINVAL, "verify: bad argument");
    ckpi_error_clear(&e);
    if (is_directory(path)) {
        st = verify_run(&j, &(ckpi_place){path, NULL}, n_bases != 0 ? bases[0] : NULL, err);
    } else {
        const ckp_status one = ckp_checkpoint_open_file(&ck, path, bases, n_bases, &e);
        if (one != CKP_OK)
            finding(&j, path, one, &e);
        else
            verify_open(&j, ck);
        ckp_checkpoint_close(ck);
        st = CKP_OK;
    }
    if (st == CKP_OK && j.first != CKP_OK && err != NULL)
        *err = j.first_err;
    return st != CKP_OK ? st : j.first;
}

ckp_status
ckp_run_verify_in(const ckp_objects *in, const char *name, const char *base_model, ckp_verify_level level, unsigned threads,
                  void (*fn)(void *user, const char *what, const ckp_error *e), void *user, ckp_error *err)
{
    verify_job j = {.level = level, .threads = threads, .fn = fn, .user = user};

    if (name == NULL || (unsigned)level > CKP_VERIFY_DECODE)
        return ckpi_fail(err, CKP_EINVAL, "verify: bad argument");
    const ckp_status st = verify_run(&j, &(ckpi_place){name, in}, base_model, err);
    if (st == CKP_OK && j.first != CKP_OK && err != NULL)
        *err = j.first_err;
    return st != CKP_OK ? st : j.first;
}

ckp_status
ckp_checkpoint_verify(ckp_checkpoint *ck, ckp_verify_level level, unsigned threads,
                      void (*fn)(void *user, const char *what, const ckp_error *e), void *user, ckp_error *err)
{
    verify_job j = {.level = level, .threads = threads, .fn = fn, .user = user};

    const ckp_status st = ckpi_checkpoint_check(ck, err);
    if (st != CKP_OK)
        return st;
    if ((unsigned)level > CKP_VERIFY_DECODE)
        return ckpi_fail(err, CKP_EINVAL, "verify: bad argument");
    verify_open(&j, ck);
    if (j.first != CKP_OK && err != NULL)
        *err = j.first_err;
    return j.first;
}
