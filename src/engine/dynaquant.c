/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thresholds: which values are pruned and protected. One fraction for all layers of a kind; the threshold is a quantile of their pooled
 * values, from a sketch (DynaQuant, sections 3.2 and 3.3). A group's own sketch is merged into its kind's under a lock: sums of counts.
 */
#include <math.h>
#include <pthread.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "engine/dynaquant.h"
#include "engine/numbers.h"
#include "quant/loss.h"

/* Exact zeros are pruned whatever the fraction: they come back as they are, and cost what the commonest index costs. */
#define ANY_BUT_ZERO 0x1p-149F

bool
ckpi_dq_takes(const ckpi_group *g, const ckpi_settings *set)
{
    return set->dynaquant && !set->exact_weights && g->lossy && !g->fine && g->role != CKP_ROLE_AVERAGE;
}

bool
ckpi_dq_scored(const ckpi_dq *d, const ckpi_group *g, size_t k)
{
    return d->score[g->piece[k].tensor] != NULL || g->has_v;
}

static bool
needs_scores(const ckpi_dq_numbers *n)
{
    return n->protect > 0.0 || (n->by_score && n->prune > 0.0);
}

ckp_status
ckpi_dq_scores(const ckpi_dq *d, const ckpi_group *g, size_t k, const float *w, const float *v, size_t n, const float **out, uint32_t cpu,
               ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_piece *pc = &g->piece[k];

    *out = NULL;
    if (!needs_scores(&d->num) || !ckpi_dq_scored(d, g, k))
        return CKP_OK;
    if (d->score[pc->tensor] != NULL) {
        *out = d->score[pc->tensor] + pc->first;
        return CKP_OK;
    }
    float *s = ckpi_scratch_get(ws, n * sizeof *s);
    if (s == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for the sensitivity of %zu weights", n);
    ckpi_loss_scores(s, v, w, n, cpu);
    *out = s;
    return CKP_OK;
}

/* ---- pooled sketches ---------------------------------------------------------------------------------------------- */

typedef struct pool {
    const ckpi_pass *p;
    ckpi_sketch *size[CKPI_LAYERS], *score[CKPI_LAYERS];   /* NULL until a group needs one */
    pthread_mutex_t lock;
} pool;

static ckp_status
merge(pool *x, ckpi_sketch **into, const ckpi_sketch *s, ckp_error *err)
{
    ckp_status st = CKP_OK;

    (void)pthread_mutex_lock(&x->lock);
    if (*into == NULL)
        *into = ckpi_sketch_new();
    if (*into != NULL)
        ckpi_sketch_merge(*into, s);
    else
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for a sketch of weights");
    (void)pthread_mutex_unlock(&x->lock);
    return st;
}

/* x is one sketch in scratch, used for both. */
static ckp_status
add_piece(pool *x, size_t g, size_t k, ckpi_sketch *own, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_pass *p = x->p;
    const ckpi_group *grp = &p->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    const uint8_t kind = p->dq->kind[pc->tensor];
    const size_t n = (size_t)pc->count;
    const float *w = NULL, *v = NULL, *score = NULL;
    const uint16_t *raw16 = NULL;

    ckp_status st = ckpi_piece_f32(&p->state->t[pc->tensor], pc->first, n, &w, &raw16, ws, err);
    if (st == CKP_OK && grp->has_v)
        st = ckpi_piece_f32(&p->state->t[grp->v[k]], pc->first, n, &v, &raw16, ws, err);
    if (st == CKP_OK)
        st = ckpi_dq_scores(p->dq, grp, k, w, v, n, &score, p->cpu, ws, err);
    if (st != CKP_OK)
        return st;
    ckpi_sketch_clear(own);
    st = ckpi_sketch_add(own, w, n, ws, p->cpu, err);
    if (st == CKP_OK)
        st = merge(x, &x->size[kind], own, err);
    if (st != CKP_OK || score == NULL)
        return st;
    ckpi_sketch_clear(own);
    st = ckpi_sketch_add(own, score, n, ws, p->cpu, err);
    return st == CKP_OK ? merge(x, &x->score[kind], own, err) : st;
}

static ckp_status
add_group(void *user, size_t g, ckpi_scratch *ws, ckp_error *err)
{
    pool *x = user;
    const ckpi_group *grp = &x->p->pred->layout->g[g];
    ckp_status st = CKP_OK;

    if (!ckpi_dq_takes(grp, x->p->set))
        return CKP_OK;
    ckpi_sketch *own = ckpi_scratch_get(ws, sizeof *own);
    if (own == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a sketch of weights");
    for (size_t k = 0; st == CKP_OK && k < grp->n_pieces; k++) {
        const size_t mark = ckpi_scratch_mark(ws);
        st = add_piece(x, g, k, own, ws, err);
        ckpi_scratch_release(ws, mark);
        if (st != CKP_OK)
            ckpi_fail_tensor(err, x->p->pred->table->rec[grp->piece[k].tensor].name);
    }
    return st;
}

/* Pull sources are read on the calling thread only. */
static ckp_status
add_all(ckpi_ctx *ctx, pool *x, ckp_error *err)
{
    const size_t n = x->p->pred->layout->n;
    ckp_status st = CKP_OK;

    if (!ckpi_state_pulls(x->p->state))
        return ckpi_ctx_run(ctx, n, add_group, x, err);
    for (size_t g = 0; st == CKP_OK && g < n; g++) {
        ckpi_scratch_reset(ctx->ws[0]);
        st = add_group(x, g, ctx->ws[0], err);
    }
    return st;
}

/* ---- thresholds --------------------------------------------------------------------------------------------------- */

static uint64_t
share(const ckpi_sketch *s, double fraction)
{
    return (uint64_t)(fraction * (double)ckpi_sketch_total(s));
}

/* The threshold below which `fraction` goes, 0 when it would take more. */
static float
below(const ckpi_sketch *s, double fraction)
{
    const float t = s != NULL && fraction > 0.0 ? ckpi_sketch_below(s, share(s, fraction)) : 0.0F;
    return isfinite(t) ? t : 0.0F;
}

/* The threshold from which `fraction` is kept. Zero means nothing here: a zero is pruned. */
static float
from(const ckpi_sketch *s, double fraction)
{
    const float t = s != NULL && fraction > 0.0 ? ckpi_sketch_above(s, share(s, fraction)) : INFINITY;
    return CKPI_MAX(t, ANY_BUT_ZERO);
}

static void
set_thresholds(ckpi_dq *d, const pool *x)
{
    for (int kind = 0; kind < CKPI_LAYERS; kind++) {
        const ckpi_sketch *size = x->size[kind], *score = x->score[kind];
        ckpi_partition *plain = &d->part[kind][0], *scored = &d->part[kind][1];
        *plain = (ckpi_partition){.prune_below = CKPI_MAX(below(size, d->num.prune), ANY_BUT_ZERO), .keep_from = from(size, d->num.protect),
                                  .keep_score_from = INFINITY};
        *scored = *plain;
        scored->g_is_score = true;
        scored->keep_score_from = from(score, d->num.protect);
        if (!d->num.by_score)
            continue;
        /* rows that no gradient reached all have the score 0: no reason to lose them */
        const float t = below(score, d->num.prune);
        scored->prune_by_score = t > 0.0F;
        scored->prune_below = CKPI_MAX(t, ANY_BUT_ZERO);
    }
}

ckp_status
ckpi_dq_prepare(ckpi_ctx *ctx, const ckpi_pass *p, ckp_error *err)
{
    pool x = {.p = p};
    ckp_status st = CKP_OK;

    if (p->dq->num.prune > 0.0 || p->dq->num.protect > 0.0) {
        if (pthread_mutex_init(&x.lock, NULL) != 0)
            return ckpi_fail(err, CKP_ENOMEM, "no mutex");
        st = add_all(ctx, &x, err);
        (void)pthread_mutex_destroy(&x.lock);
    }
    if (st == CKP_OK)
        set_thresholds(p->dq, &x);
    for (int kind = 0; kind < CKPI_LAYERS; kind++) {
        ckpi_sketch_free(x.size[kind]);
        ckpi_sketch_free(x.score[kind]);
    }
    return st;
}
