/* SPDX-License-Identifier: Apache-2.0 */
/* Keys on a base model: its weights into the predictor of a save, and into the chain of a checkpoint that is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "engine/values.h"
#include "os/target.h"
#include "run/checkpoint.h"
#include "run/session.h"

/* ---- saving ------------------------------------------------------------------------------------------------------ */

static ckp_status
load_lossy(const ckp_run *run, size_t g, ckp_error *err)
{
    const ckpi_group *grp = &run->pred->layout->g[g];
    void *raw = ckpi_aligned_alloc((size_t)grp->bytes);

    ckp_status st = raw != NULL ? ckpi_recon_alloc(run->pred, g, err) : ckpi_fail(err, CKP_ENOMEM, "no memory for a base model's weights");
    if (st == CKP_OK)
        st = ckpi_base_model_read(run->model, run->pred->table, grp->piece, grp->n_pieces, raw, err);
    if (st == CKP_OK)
        ckpi_floats_from(grp->dtype, run->pred->rec[g].wrec, raw, (size_t)grp->n);
    ckpi_aligned_free(raw);
    return st;
}

static ckp_status
load_lossless(const ckp_run *run, size_t g, ckp_error *err)
{
    const ckpi_group *grp = &run->pred->layout->g[g];
    uint8_t **raw = &run->pred->raw[g];

    if (*raw == NULL)
        *raw = ckpi_aligned_alloc((size_t)grp->bytes);
    if (*raw == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a base model's weights");
    return ckpi_base_model_read(run->model, run->pred->table, grp->piece, grp->n_pieces, *raw, err);
}

bool
ckpi_session_model_touched(const ckp_run *run)
{
    return run->model != NULL && run->model_stamp != 0 && run->base.on_model && ckpi_target_stamp(run->opt.base_model) != run->model_stamp;
}

static void
lose_model(ckp_run *run, const char *why)
{
    (void)snprintf(run->model_lost, sizeof run->model_lost,
                   "the base model %.120s %s: it is not used any more, and earlier checkpoints need it as it was", run->opt.base_model, why);
    ckpi_base_model_free(run->model);
    run->model = NULL;
    run->opt.base_model = NULL;
    run->model_content = (ckpi_id){0, 0};
}

/* The file by its path once more: what was opened may have been replaced. */
static ckp_status
reopen(ckp_run *run, ckp_error *err)
{
    ckpi_base_model *b = NULL;

    const ckp_status st = ckpi_base_model_open(&b, ckpi_base_model_path(run->model), err);
    if (st != CKP_OK)
        return st;
    ckpi_base_model_free(run->model);
    run->model = b;
    run->opt.base_model = ckpi_base_model_path(b);
    return CKP_OK;
}

static ckp_status
fill_pred(ckp_run *run, ckp_error *err)
{
    const ckpi_layout *l = run->pred->layout;
    ckp_status st = CKP_OK;

    for (size_t g = 0; st == CKP_OK && g < l->n; g++)
        if (l->g[g].lossy)
            st = load_lossy(run, g, err);
        else if (ckpi_role_is_weight(l->g[g].role))
            st = load_lossless(run, g, err);
    return st;
}

ckp_status
ckpi_session_load_model(ckp_run *run, ckp_error *err)
{
    const uint64_t stamp = ckpi_target_stamp(run->opt.base_model);
    const bool known = !ckpi_id_is_zero(run->model_content);
    ckpi_id id = {0, 0};
    ckp_error e;

    ckpi_error_clear(&e);
    ckp_status st = known ? reopen(run, &e) : CKP_OK;
    if (st == CKP_OK && ckpi_base_model_matches(run->model, run->pred->table, run->pred->in_model) == 0 && !known) {
        st = ckpi_fail(err, CKP_EBASE, "the base model has no weight, or several, of every name and shape that this state has");
        ckpi_fail_file(err, run->opt.base_model);
        return st;
    }
    if (st == CKP_OK)
        st = fill_pred(run, &e);
    /* after what was read, so that it is what was read that is proved */
    if (st == CKP_OK)
        st = ckpi_base_file_id(&id, run->model, run->pred->table, run->pred->layout, &e);
    if (st == CKP_OK && (!known || ckpi_id_eq(id, run->model_content))) {
        run->model_content = id;
        run->model_stamp = stamp;
        return CKP_OK;
    }
    if (!known || st == CKP_ENOMEM) {
        if (err != NULL)
            *err = e;
        return st;
    }
    lose_model(run, st == CKP_OK ? "has changed" : "cannot be read");
    return CKP_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

/* Where the base model may be: as given, in the run's directory by its name, where its writer had it. Each is freed by the caller; NULL: none.
   False: no memory for one, which may be the one. */
enum { PLACES = 3 };

static bool
whereabouts(char *place[PLACES], const ckp_checkpoint *ck, const char *recorded, const char *given)
{
    const char *slash = strrchr(recorded, '/'), *name = slash != NULL ? slash + 1 : recorded;
    ckpi_buf path = CKPI_BUF_INIT;

    ckpi_buf_put(&path, ck->run_dir, strlen(ck->run_dir));
    ckpi_buf_put(&path, "/", 1);
    ckpi_buf_put(&path, name, strlen(name) + 1);
    place[0] = given != NULL ? ckpi_strdup(given) : NULL;
    place[1] = !ck->on_objects && ckpi_buf_status(&path, NULL, "") == CKP_OK ? ckpi_strdup((char *)path.data) : NULL;
    place[2] = ckpi_strdup(recorded);
    ckpi_buf_free(&path);
    return (given == NULL || place[0] != NULL) && (ck->on_objects || place[1] != NULL) && place[2] != NULL;
}

static ckp_status
other_model(const char *path, ckpi_id want, ckpi_id have, ckp_error *err)
{
    char w[33], h[33];

    ckpi_id_hex(want, w);
    ckpi_id_hex(have, h);
    const ckp_status st = ckpi_fail(err, CKP_EBASE, "not the base model that the run was begun with: content id %s, needed %s", h, w);
    ckpi_fail_file(err, path);
    return st;
}

/* One place. CKP_EBASE: it is another. */
static ckp_status
try_place(ckpi_base_file *out, const char *path, const ckpi_fmt_file *key, ckp_error *err)
{
    ckpi_base_model *b = NULL;

    ckp_status st = ckpi_base_model_open(&b, path, err);
    if (st == CKP_OK)
        st = ckpi_base_file_make(out, b, key->table, key->chunk, key->n_chunks, err);
    ckpi_base_model_free(b);
    if (st != CKP_OK || ckpi_id_eq(out->f->content, key->info.base_content))
        return st;
    st = other_model(path, key->info.base_content, out->f->content, err);
    ckpi_fmt_close(out->f);
    ckpi_buf_free(&out->bytes);
    *out = (ckpi_base_file){0};
    return st;
}

/* What to do about a base model that is nowhere. */
static ckp_status
nowhere(const char *recorded, ckp_status st, const ckp_error *e, ckp_error *err)
{
    const char *slash = strrchr(recorded, '/');

    if (st == CKP_EBASE)
        (void)ckpi_fail(err, CKP_EBASE, "%s; give the right file (base=, --base), or copy it into the run's directory as %s", e->text,
                        slash != NULL ? slash + 1 : recorded);
    else
        (void)ckpi_fail(err, CKP_EBASE, "the run's base model cannot be read: %s; say where it is now (base=, --base), or copy it into the run's directory as %s",
                        e->text, slash != NULL ? slash + 1 : recorded);
    ckpi_fail_file(err, recorded);
    return CKP_EBASE;
}

ckp_status
ckpi_checkpoint_open_model(ckp_checkpoint *ck, const ckpi_manifest *key, const ckpi_fmt_file *key_file, const char *given, ckpi_fmt_file **out,
                           ckp_error *err)
{
    char *place[PLACES];
    ckp_status st = CKP_ENOMEM, told = CKP_OK;
    ckp_error e, worst;

    ckpi_error_clear(&worst);
    if (key_file->table == NULL)
        return ckpi_fail(err, CKP_ECORRUPT, "a key on a base model without a table of its own");
    const bool all = whereabouts(place, ck, key->base_model, given);
    for (int i = 0; all && i < PLACES && st != CKP_OK; i++) {
        if (place[i] == NULL)
            continue;
        ckpi_error_clear(&e);
        st = try_place(&ck->model, place[i], key_file, &e);
        if (st == CKP_OK) {
            ck->model_path = place[i];
            place[i] = NULL;
        } else if (told == CKP_OK || st == CKP_ENOMEM || (st == CKP_EBASE && told != CKP_ENOMEM)) {
            /* a file that is another says more than one that is not there; without memory nothing is known */
            told = st;
            worst = e;
        }
    }
    for (int i = 0; i < PLACES; i++)
        free(place[i]);
    ck->model_fails = st != CKP_OK;
    *out = ck->model.f;
    if (st == CKP_OK)
        return CKP_OK;
    if (!all || told == CKP_OK)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a base model");
    if (told == CKP_ENOMEM) {
        if (err != NULL)
            *err = worst;
        return told;
    }
    return nowhere(key->base_model, told, &worst, err);
}

/* The one file that can begin on a base model, and whose base is not among the others; NULL: none. */
static const ckpi_fmt_file *
first_on_model(ckpi_fmt_file *const *files, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const ckpi_file_info *f = &files[i]->info;
        bool there = !f->is_delta || f->chain != 1 || files[i]->table == NULL;
        for (size_t k = 0; k < n; k++)
            there = there || ckpi_id_eq(files[k]->content, f->base_content);
        if (!there)
            return files[i];
    }
    return NULL;
}

ckp_status
ckpi_checkpoint_find_model(ckp_checkpoint *ck, ckpi_fmt_file **files, size_t *n, const char *const *paths, size_t n_paths, ckp_error *err)
{
    const ckpi_fmt_file *key = first_on_model(files, *n);

    for (size_t i = 0; key != NULL && i < n_paths; i++) {
        ckpi_base_model *b = NULL;
        ckpi_base_file made = {0};
        ckp_status st = ckpi_base_model_open(&b, paths[i], NULL);
        if (st == CKP_OK)
            st = ckpi_base_file_make(&made, b, key->table, key->chunk, key->n_chunks, NULL);
        ckpi_base_model_free(b);
        if (st == CKP_OK && key->partial)    /* of what is left, the id says nothing: chunks prove themselves */
            made.f->content = key->info.base_content;
        if (st == CKP_OK && ckpi_id_eq(made.f->content, key->info.base_content)) {
            ck->model = made;
            ck->model_path = ckpi_strdup(paths[i]);
            files[(*n)++] = made.f;
            return ck->model_path != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a path");
        }
        ckpi_fmt_close(made.f);
        ckpi_buf_free(&made.bytes);
        if (st == CKP_ENOMEM)
            return ckpi_fail(err, st, "no memory for a base model");
    }
    return CKP_OK;
}

const char *
ckp_checkpoint_base_model(const ckp_checkpoint *ck)
{
    return ck != NULL ? ck->model_path : NULL;
}
