/* SPDX-License-Identifier: Apache-2.0 */
/* Keys on a base model: its weights into the predictor of a save, and into the chain of a checkpoint that is read. */
#include <stdio.h>
#include <string.h>
#include "base/fail.h"
#include "engine/values.h"
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

ckp_status
ckpi_session_load_model(ckp_run *run, ckp_error *err)
{
    const ckpi_layout *l = run->pred->layout;
    ckp_status st = CKP_OK;

    if (ckpi_id_is_zero(run->model_content)) {
        if (ckpi_base_model_matches(run->model, run->pred->table) == 0) {
            st = ckpi_fail(err, CKP_EBASE, "the base model has no weight of a name and shape that this state has");
            ckpi_fail_file(err, run->opt.base_model);
            return st;
        }
        st = ckpi_base_file_id(&run->model_content, run->model, run->pred->table, l, err);
    }
    for (size_t g = 0; st == CKP_OK && g < l->n; g++)
        if (l->g[g].lossy)
            st = load_lossy(run, g, err);
        else if (ckpi_group_is_weight(&l->g[g]))
            st = load_lossless(run, g, err);
    return st;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

/* Whether a file of that path can be opened. */
static bool
is_there(const char *path)
{
    ckpi_reader *r = NULL;
    const bool there = ckpi_reader_plain(&r, path, NULL) == CKP_OK;
    ckpi_reader_free(r);
    return there;
}

/* Where the base model is: as given, in the run's directory by its name, or where its writer had it. */
static char *
whereabouts(const ckp_checkpoint *ck, const char *recorded, const char *given)
{
    const char *slash = strrchr(recorded, '/'), *name = slash != NULL ? slash + 1 : recorded;
    ckpi_buf path = CKPI_BUF_INIT;

    if (given != NULL)
        return ckpi_strdup(given);
    ckpi_buf_put(&path, ck->run_dir, strlen(ck->run_dir));
    ckpi_buf_put(&path, "/", 1);
    ckpi_buf_put(&path, name, strlen(name) + 1);
    char *out = ckpi_buf_status(&path, NULL, "") == CKP_OK ? ckpi_strdup(is_there((char *)path.data) ? (char *)path.data : recorded) : NULL;
    ckpi_buf_free(&path);
    return out;
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

ckp_status
ckpi_checkpoint_open_model(ckp_checkpoint *ck, const ckpi_manifest *key, const ckpi_fmt_file *key_file, const char *given, ckpi_fmt_file **out,
                           ckp_error *err)
{
    ckpi_base_model *b = NULL;
    ckp_error e;

    ckpi_error_clear(&e);
    ck->model_path = whereabouts(ck, key->base_model, given);
    if (ck->model_path == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a path");
    if (key_file->table == NULL)
        return ckpi_fail(err, CKP_ECORRUPT, "a key on a base model without a table of its own");
    ckp_status st = ckpi_base_model_open(&b, ck->model_path, &e);
    ck->model_fails = st != CKP_OK;
    if (st != CKP_OK && st != CKP_ENOMEM) {
        st = ckpi_fail(err, CKP_EBASE, "the run's base model cannot be read: %s (it is looked for in the run's directory, too)", e.text);
        ckpi_fail_file(err, ck->model_path);
        return st;
    }
    if (st != CKP_OK) {
        if (err != NULL)
            *err = e;
        return st;
    }
    st = ckpi_base_file_make(&ck->model, b, key_file->table, key_file->chunk, key_file->n_chunks, err);
    ckpi_base_model_free(b);
    if (st == CKP_OK && !ckpi_id_eq(ck->model.f->content, key_file->info.base_content)) {
        st = other_model(ck->model_path, key_file->info.base_content, ck->model.f->content, err);
        ckpi_fmt_close(ck->model.f);
        ckpi_buf_free(&ck->model.bytes);
        ck->model = (ckpi_base_file){0};
    }
    ck->model_fails = st != CKP_OK;
    *out = ck->model.f;
    return st;
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
