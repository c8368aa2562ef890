/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "engine/pred.h"

static bool
alloc_worth(ckpi_pred *p)
{
    p->mworth = ckpi_calloc(p->layout->n, sizeof *p->mworth);
    for (size_t g = 0; p->mworth != NULL && g < p->layout->n; g++) {
        const ckpi_group *grp = &p->layout->g[g];
        if (!grp->lossy || grp->fine || !grp->has_m || !grp->has_v)
            continue;
        p->mworth[g] = ckpi_calloc(grp->n_pieces, sizeof **p->mworth);
        if (p->mworth[g] == NULL)
            return false;
    }
    return p->mworth != NULL;
}

ckp_status
ckpi_pred_new(ckpi_pred **out, ckpi_table *table, ckpi_layout *layout, ckp_error *err)
{
    ckpi_pred *p = ckpi_calloc(1, sizeof *p);

    *out = NULL;
    if (p == NULL) {
        ckpi_table_free(table);
        ckpi_layout_free(layout);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for the predictor");
    }
    p->table = table;
    p->layout = layout;
    p->most = HUGE_VAL;
    p->rec = ckpi_calloc(layout->n, sizeof *p->rec);
    p->raw = ckpi_calloc(layout->n, sizeof *p->raw);
    p->step = ckpi_calloc(table->n, sizeof *p->step);
    p->in_model = ckpi_calloc(table->n, sizeof *p->in_model);
    p->rms = ckpi_calloc(table->n, sizeof *p->rms);
    p->sq_exp = ckpi_calloc(table->n, sizeof *p->sq_exp);
    p->probe = ckpi_calloc(table->n, sizeof *p->probe);
    if (p->rec == NULL || p->raw == NULL || p->step == NULL || p->in_model == NULL || p->rms == NULL || p->sq_exp == NULL || p->probe == NULL ||
        !alloc_worth(p)) {
        const ckp_status st = ckpi_fail(err, CKP_ENOMEM, "no memory for the predictor of %zu tensors", table->n);
        ckpi_pred_free(p);       /* and the table with it */
        return st;
    }
    *out = p;
    return CKP_OK;
}

uint64_t
ckpi_settings_features(const ckpi_settings *set)
{
    const bool clusters = set->clusters != CKPI_CLUSTERS_NONE;
    return (set->lossy || clusters ? CKPI_FEAT_LOSSY : 0) | (clusters ? CKPI_FEAT_CLUSTERS : 0);
}

ckpi_alone
ckpi_settings_alone(const ckpi_settings *set)
{
    if (set->clusters != CKPI_CLUSTERS_NONE)
        return CKPI_ALONE_CLUSTERS;
    return set->weights_only ? CKPI_ALONE_LOSSY : set->dynaquant ? CKPI_ALONE_LARGE : CKPI_ALONE_LOSSLESS;
}

bool
ckpi_indices_alloc(ckpi_indices *x, size_t n, size_t n_pieces)
{
    if (x->code == NULL)
        x->code = ckpi_aligned_alloc(n);
    if (x->book == NULL)
        x->book = ckpi_calloc(n_pieces, sizeof *x->book);
    if (x->fit == NULL)
        x->fit = ckpi_calloc(n_pieces, sizeof *x->fit);
    return x->code != NULL && x->book != NULL && x->fit != NULL;
}

void
ckpi_indices_free(ckpi_indices *x)
{
    ckpi_aligned_free(x->code);
    free(x->book);
    free(x->fit);
    free(x->kept);
    *x = (ckpi_indices){0};
}

uint16_t *
ckpi_indices_room(ckpi_indices *x, size_t more)
{
    if (more > x->cap - x->n_kept || x->kept == NULL) {
        const size_t cap = x->n_kept + more + (x->n_kept + more) / 2 + 8;
        uint16_t *kept = ckpi_realloc(x->kept, cap, sizeof *kept);
        if (kept == NULL)
            return NULL;
        x->kept = kept;
        x->cap = cap;
    }
    return x->kept + x->n_kept;
}

void
ckpi_recon_drop(ckpi_pred *p, size_t g)
{
    ckpi_recon *r = &p->rec[g];
    ckpi_aligned_free(r->wrec);
    ckpi_aligned_free(r->vcode);
    free(r->sample);
    ckpi_factors_free(&r->fac);
    ckpi_indices_free(&r->idx);
    *r = (ckpi_recon){0};
}

void
ckpi_pred_drop(ckpi_pred *p, size_t g)
{
    ckpi_recon_drop(p, g);
    ckpi_aligned_free(p->raw[g]);
    p->raw[g] = NULL;
}

void
ckpi_pred_free(ckpi_pred *p)
{
    if (p == NULL)
        return;
    for (size_t g = 0; p->rec != NULL && g < p->layout->n; g++)
        ckpi_recon_drop(p, g);
    for (size_t g = 0; p->raw != NULL && g < p->layout->n; g++)
        ckpi_aligned_free(p->raw[g]);
    for (size_t g = 0; p->mworth != NULL && g < p->layout->n; g++)
        free(p->mworth[g]);
    free(p->mworth);
    free(p->rec);
    free(p->raw);
    free(p->step);
    free(p->rms);
    free(p->in_model);
    free(p->sq_exp);
    free(p->probe);
    ckpi_table_free(p->table);
    ckpi_layout_free(p->layout);
    free(p);
}

void
ckpi_group_cols(const ckpi_table *t, const ckpi_group *g, size_t *cols)
{
    for (size_t k = 0; k < g->n_pieces; k++)
        cols[k] = g->fine ? 0 : ckpi_matrix_cols(&t->rec[g->piece[k].tensor]);
}

ckp_status
ckpi_recon_alloc(ckpi_pred *p, size_t g, ckp_error *err)
{
    const ckpi_group *grp = &p->layout->g[g];
    ckpi_recon *r = &p->rec[g];
    if (r->wrec != NULL)         /* a later key: every value is written anew */
        return CKP_OK;
    size_t *cols = ckpi_calloc(grp->n_pieces, sizeof *cols);
    ckp_status st = CKP_OK;

    r->wrec = ckpi_aligned_alloc((size_t)grp->n * sizeof *r->wrec);
    r->vcode = grp->has_v ? ckpi_aligned_alloc((size_t)grp->n) : NULL;
    r->n_sample = ((size_t)grp->n + CKPI_SAMPLE - 1) / CKPI_SAMPLE;
    r->sample = ckpi_calloc(r->n_sample, sizeof *r->sample);
    if (cols == NULL || r->wrec == NULL || r->sample == NULL || (grp->has_v && r->vcode == NULL)) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for the reconstruction of %llu weights", (unsigned long long)grp->n);
        goto done;
    }
    memset(r->wrec, 0, (size_t)grp->n * sizeof *r->wrec);
    if (r->vcode != NULL)
        memset(r->vcode, 0, (size_t)grp->n);
    if (grp->has_v || grp->has_m) {
        ckpi_group_cols(p->table, grp, cols);
        st = ckpi_factors_alloc(&r->fac, grp->piece, cols, grp->n_pieces, 1, err);
    }
done:
    free(cols);
    if (st != CKP_OK)
        ckpi_recon_drop(p, g);
    return st;
}

uint64_t
ckpi_pred_bytes(const ckpi_pred *p)
{
    uint64_t sum = 0;

    for (size_t g = 0; g < p->layout->n; g++) {
        const ckpi_group *grp = &p->layout->g[g];
        const ckpi_recon *r = &p->rec[g];
        sum += p->raw[g] != NULL ? grp->bytes : 0;
        sum += (r->wrec != NULL ? grp->n * 4 : 0) + (r->vcode != NULL ? grp->n : 0) + r->n_sample * 4 + r->fac.mem_n * 2 +
               (r->idx.code != NULL ? grp->n : 0) + r->idx.cap * 2;
    }
    return sum;
}

ckpi_grid
ckpi_recon_grid(const ckpi_recon *r, size_t k, size_t n, bool has_v)
{
    if (r->fac.at == NULL)
        return (ckpi_grid){.n = n, .cols = CKPI_BLOCK, .rows = (n + CKPI_BLOCK - 1) / CKPI_BLOCK, .vstep = 1};
    const ckpi_fac *a = &r->fac.at[k];
    return (ckpi_grid){.n = n, .cols = a->cols, .rows = a->rows, .row = a->row, .col = a->col, .vstep = a->vstep, .lift = a->lift, .has_v = has_v};
}
