/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model-wide numbers (DESIGN section 3, items 2 and 5). Sums over elements are integers, so that no order of threads shows; what is
 * made of them is double arithmetic in a fixed order. The decoder never computes any of these: files record the results.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/fixed.h"
#include "base/float.h"
#include "engine/numbers.h"
#include "engine/rms.h"

/* A tensor's RMS counts as at least this share of the model's: biases start at zero, and a step of zero codes nothing. */
#define RMS_FLOOR (1.0 / 64.0)
/* Octaves by which the largest tensor's RMS is above the typical: from the first on it makes a model uneven, from the second on wholly. Its steps then
   follow what lies so many octaves below the typical (docs/decisions/0026). */
#define UNEVEN 2.0
#define UNEVEN_WHOLLY 3.0
#define UNEVEN_BELOW 2.0
/* Of the second moments, every 61st (a prime: rows differ in phase) tells the mean logarithm before the first save. */
#define LOG_SAMPLE 61
#define LOG_AHEAD (16 * LOG_SAMPLE)
/* Of the weights, every 61st tells how far a training has come from its base model at its first save. */
#define MOVE_SAMPLE 61

static double
power(double b, uint64_t t)
{
    double r = 1.0;
    for (; t != 0; t >>= 1, b *= b)
        if (t & 1)
            r *= b;
    return r;
}

float
ckpi_bias_correction(const ckpi_adam *a, bool has_v)
{
    if (a == NULL || !has_v || a->step == 0)
        return 1.0F;
    const double c1 = 1.0 - power(a->beta1, a->step), c2 = 1.0 - power(a->beta2, a->step);
    const double k = c1 > 0.0 && c2 > 0.0 ? sqrt(c2) / c1 : 1.0;
    return (float)k;
}

double
ckpi_step_at(const ckpi_grid *g, const int8_t *vcode, size_t j, const ckpi_wstep *s)
{
    const int c = g->has_v && vcode != NULL ? vcode[j] : 0;
    const int32_t row = g->row != NULL ? g->row[j / g->cols] : 0;
    const int32_t col = g->col != NULL ? g->col[j % g->cols] : 0;

    if (c == CKPI_VCODE_ZERO)
        return (double)s->qhi;
    const double rq = (double)(ckpi_exp2_fixed(-row) * ckpi_exp2_fixed(-col)) * (double)ckpi_exp2_fixed(-c * g->vstep);
    return fmin(fmax((double)s->qmul * rq, (double)s->qlo), (double)s->qhi);
}

/* What moments' mean logarithm makes of a step: their shape has a geometric mean of 1 over the model. */
static double
shape_of(const ckpi_pred *d, const ckpi_group *grp)
{
    const double mean_l = d->mean_l[grp->has_v ? 0 : 1];
    return grp->has_v || grp->has_m ? (double)ckpi_exp2_fixed((int32_t)lrint(mean_l)) : 1.0;
}

/* What training does not move stays as the run's key has it, so keys are finer (docs/decisions/0001). */
static double
key_share(const ckpi_pass *p)
{
    return p->key && !p->lone ? 0.5 : 1.0;
}

/* SGD goes on from where its weights are, undivided by the size of the gradient (docs/decisions/0014). */
#define MOMENTUM_FINER 0.75

static double
finer_of(const ckpi_pass *p, const ckpi_group *grp)
{
    return (grp->fine ? ldexp(1.0, -p->set->fine_shift) : 1.0) * (grp->m_role == CKP_ROLE_MOMENTUM ? MOMENTUM_FINER : 1.0);
}

/* Of a key on a base model, weights that are there too are no more than a delta. */
static double
tensor_share(const ckpi_pass *p, uint32_t tensor)
{
    return p->on_model && p->pred->in_model[tensor] ? 1.0 : key_share(p);
}

/* A step by name: small tensors are no exception, and neither the model's RMS nor the movement counts. */
static ckpi_wstep
named_wstep(const ckpi_pass *p, const ckpi_group *grp, uint32_t tensor, double step)
{
    const float q = (float)((double)(float)step * p->set->named * tensor_share(p, tensor));
    const bool shaped = grp->has_v || grp->has_m;
    const ckpi_wstep s = {.qmul = (float)((double)q * shape_of(p->pred, grp)),
                          .qlo = shaped ? (float)((double)q * p->set->clamp_lo) : q,
                          .qhi = shaped ? (float)((double)q * p->set->clamp_hi) : q};

    return s.qmul > 0.0F && isfinite(s.qmul) ? s : (ckpi_wstep){q, q, q};
}

/*
 * An average is what is used in the end, and moves so little between two saves that fine steps cost next to nothing (docs/decisions/0013). It
 * has no moments to follow.
 */
static ckpi_wstep
average_wstep(const ckpi_pass *p, const ckpi_group *grp, uint32_t tensor)
{
    const ckpi_lasting *l = p->lasting;
    const double rms = fmax((double)p->pred->rms[tensor], p->pred->rms_all * RMS_FLOOR);
    double q = p->set->average * rms * (grp->fine ? ldexp(1.0, -p->set->fine_shift) : 1.0);

    if (l != NULL && l->moved && p->set->average_move > 0.0)
        q = fmin(q, p->set->average_move * l->move);
    const float step = (float)(q * tensor_share(p, tensor));
    return step > 0.0F && isfinite(step) ? (ckpi_wstep){step, step, step} : (ckpi_wstep){1.0F, 1.0F, 1.0F};
}

ckpi_wstep
ckpi_pass_wstep(const ckpi_pass *p, size_t g, uint32_t tensor)
{
    const ckpi_group *grp = &p->pred->layout->g[g];
    const ckpi_pred *d = p->pred;
    if (d->step[tensor] != 0.0)
        return named_wstep(p, grp, tensor, d->step[tensor]);
    if (grp->role == CKP_ROLE_AVERAGE)
        return average_wstep(p, grp, tensor);
    const double finer = finer_of(p, grp) * (p->on_model ? tensor_share(p, tensor) : 1.0);
    /* f as the movement rule left it: the clamps move along */
    const double f = d->scale > 0.0 ? d->q0 / d->scale : 0.0;
    /* gains of norms have an RMS of 1 and matter far more than a share of that: small tensors count as no larger than the model's weights;
       so do embeddings that were never scaled down */
    const double size = (double)d->rms[tensor], own = grp->fine ? fmin(size, d->scale) : d->cap < size ? d->cap : size;
    const double rms = fmax(own, d->scale * RMS_FLOOR);
    ckpi_wstep s = {.qmul = (float)(d->q0 * finer * shape_of(d, grp)),
                    .qlo = (float)(f * rms * p->set->clamp_lo * finer),
                    .qhi = (float)(f * rms * p->set->clamp_hi * finer)};

    if (!(s.qlo > 0.0F && s.qmul > 0.0F && isfinite(s.qmul) && isfinite(s.qhi)))
        s.qmul = s.qlo = s.qhi = 1.0F;   /* a model of zeros, or out of range: what no code can carry escapes */
    return s;
}

/* ---- from the live tensors, before a key ------------------------------------------------------------------------ */

typedef struct sampled { double sum; uint64_t n; } sampled;

typedef struct survey {
    const ckpi_pass *p;
    ckpi_wstats **w;             /* by group, by piece */
    int64_t (*lsum)[2];          /* by group */
    uint64_t (*lcount)[2];
    sampled *move;               /* by group: from the base model */
    bool squares;                /* second round */
} survey;

static void
sample_logs(const float *x, size_t n, bool momentum, int64_t *sum, uint64_t *count)
{
    for (size_t i = 0; i < n; i += LOG_SAMPLE) {
        __builtin_prefetch(x + CKPI_MIN(i + LOG_AHEAD, n - 1));
        const uint32_t a = ckpi_f32_bits(x[i]) & 0x7fffffffU;
        if (a == 0 || a >= 0x7f800000U || (!momentum && x[i] < 0.0F))
            continue;
        const int32_t l = ckpi_log2_half(momentum ? fabsf(x[i]) : x[i]);
        *sum += momentum ? 2 * l : l;
        *count += 1;
    }
}

/* How far weights are from the base model's. */
static void
sample_movement(const survey *s, size_t g, size_t k, const float *w, size_t n)
{
    const ckpi_group *grp = &s->p->pred->layout->g[g];
    const float *base = s->p->pred->rec[g].wrec;

    sampled here = {0};

    if (!s->p->pred->in_model[grp->piece[k].tensor])
        return;
    for (size_t i = 0; i < k; i++)
        base += grp->piece[i].count;
    for (size_t i = 0; i < n; i += MOVE_SAMPLE) {
        const double d = (double)w[i] - (double)base[i];
        here.sum += isfinite(d) ? d * d : 0.0;
        here.n += isfinite(d) ? 1 : 0;
    }
    s->move[g].sum += here.sum;
    s->move[g].n += here.n;
}

/* Root of the mean of m * m / sqrt(v): what a step by it is worth. */
static ckp_status
sample_worth(const survey *s, size_t g, size_t k, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &s->p->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    const ckpi_tensor *t = s->p->state->t;
    const float *m = NULL, *v = NULL;
    const uint16_t *raw16 = NULL;
    double sum = 0.0;
    size_t n = 0;

    ckp_status st = ckpi_piece_f32(&t[grp->m[k]], pc->first, (size_t)pc->count, &m, &raw16, ws, err);
    if (st == CKP_OK)
        st = ckpi_piece_f32(&t[grp->v[k]], pc->first, (size_t)pc->count, &v, &raw16, ws, err);
    if (st != CKP_OK)
        return st;
    const ckpi_fpenv env = ckpi_fp_enter();
    for (size_t i = 0; i < pc->count; i += LOG_SAMPLE) {
        const double x = v[i] > 0.0F ? (double)m[i] * (double)m[i] / sqrt((double)v[i]) : 0.0;
        sum += isfinite(x) ? x : 0.0;
        n++;
    }
    s->p->pred->mworth[g][k] = n != 0 ? (float)sqrt(sum / (double)n) : 0.0F;
    ckpi_fp_leave(env);
    return CKP_OK;
}

static ckp_status
survey_piece(survey *s, size_t g, size_t k, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_pass *p = s->p;
    const ckpi_group *grp = &p->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    const size_t n = (size_t)pc->count;
    const float *w = NULL, *x = NULL;
    const uint16_t *raw16 = NULL;

    ckp_status st = ckpi_piece_f32(&p->state->t[pc->tensor], pc->first, n, &w, &raw16, ws, err);
    if (st != CKP_OK)
        return st;
    if (s->squares) {
        ckpi_quant_wsq(w, n, p->pred->sq_exp[pc->tensor], &s->w[g][k], p->cpu);
        if (p->on_model && !grp->fine && grp->role != CKP_ROLE_AVERAGE)
            sample_movement(s, g, k, w, n);
        return s->p->pred->mworth[g] != NULL ? sample_worth(s, g, k, ws, err) : CKP_OK;
    }
    ckpi_quant_wmax(w, n, &s->w[g][k], p->cpu);
    if (!grp->has_v && !grp->has_m)
        return CKP_OK;
    const uint32_t moment = grp->has_v ? grp->v[k] : grp->m[k];
    st = ckpi_piece_f32(&p->state->t[moment], pc->first, n, &x, &raw16, ws, err);
    if (st != CKP_OK)
        return st;
    if (!grp->fine)
        sample_logs(x, n, !grp->has_v, &s->lsum[g][!grp->has_v], &s->lcount[g][!grp->has_v]);
    return CKP_OK;
}

static ckp_status
survey_group(void *user, size_t g, ckpi_scratch *ws, ckp_error *err)
{
    survey *s = user;
    const ckpi_group *grp = &s->p->pred->layout->g[g];
    ckp_status st = CKP_OK;

    if (!grp->lossy)
        return CKP_OK;
    for (size_t k = 0; st == CKP_OK && k < grp->n_pieces; k++) {
        const size_t mark = ckpi_scratch_mark(ws);
        st = survey_piece(s, g, k, ws, err);
        ckpi_scratch_release(ws, mark);
    }
    return st;
}

/* Pull sources are read on the calling thread only. */
static ckp_status
survey_all(ckpi_ctx *ctx, survey *s, ckp_error *err)
{
    const size_t n = s->p->pred->layout->n;
    ckp_status st = CKP_OK;

    if (!ckpi_state_pulls(s->p->state))
        return ckpi_ctx_run(ctx, n, survey_group, s, err);
    for (size_t g = 0; st == CKP_OK && g < n; g++) {
        ckpi_scratch_reset(ctx->ws[0]);
        st = survey_group(s, g, ctx->ws[0], err);
    }
    return st;
}

static const ckpi_wstats *
get_surveyed(const void *user, size_t g, size_t k)
{
    return &((const survey *)user)->w[g][k];
}

static void
set_scales(const ckpi_pass *p, const survey *s)
{
    ckpi_pred *d = p->pred;

    memset(d->sq_exp, 0, d->table->n * sizeof *d->sq_exp);
    for (int round = 0; round < 2; round++)
        for (size_t g = 0; g < d->layout->n; g++)
            for (size_t k = 0; d->layout->g[g].lossy && k < d->layout->g[g].n_pieces; k++) {
                const uint32_t t = d->layout->g[g].piece[k].tensor;
                /* sq_exp holds the largest bits in the first round (always below 2^31) */
                if (round == 0)
                    d->sq_exp[t] = CKPI_MAX(d->sq_exp[t], (int)s->w[g][k].max_bits);
                else if (d->layout->g[g].piece[k].first == 0)
                    d->sq_exp[t] = ckpi_quant_sq_exp((uint32_t)d->sq_exp[t]);
            }
}

static void
set_means(const ckpi_pass *p, const survey *s)
{
    for (int j = 0; j < 2; j++) {
        int64_t sum = 0;
        uint64_t n = 0;
        for (size_t g = 0; g < p->pred->layout->n; g++) {
            sum += s->lsum[g][j];
            n += s->lcount[g][j];
        }
        p->pred->mean_l[j] = n != 0 ? (double)sum / (double)n : 0.0;
    }
}

static void
set_worth(const ckpi_pass *p)
{
    ckpi_pred *d = p->pred;
    double sum = 0.0, n = 0.0;

    for (size_t g = 0; g < d->layout->n; g++)
        for (size_t k = 0; d->mworth[g] != NULL && k < d->layout->g[g].n_pieces; k++) {
            sum += (double)d->mworth[g][k] * (double)d->layout->g[g].piece[k].count;
            n += (double)d->layout->g[g].piece[k].count;
        }
    d->mworth_all = n > 0.0 ? sum / n : 0.0;
}

/* A run's first movement: all that it has moved. Later saves measure their own. */
static void
set_movement(const ckpi_pass *p, const survey *s)
{
    sampled all = {0};

    for (size_t g = 0; g < p->pred->layout->n; g++) {
        all.sum += s->move[g].sum;
        all.n += s->move[g].n;
    }
    if (!p->on_model || p->lasting == NULL || p->lasting->moved || !(all.sum > 0.0))
        return;
    p->lasting->move = sqrt(all.sum / (double)all.n);
    p->lasting->moved = true;
}

static ckp_status
survey_alloc(survey *s, const ckpi_layout *l, ckp_error *err)
{
    bool ok = true;

    s->w = ckpi_calloc(l->n, sizeof *s->w);
    s->lsum = ckpi_calloc(l->n, sizeof *s->lsum);
    s->lcount = ckpi_calloc(l->n, sizeof *s->lcount);
    s->move = ckpi_calloc(l->n, sizeof *s->move);
    ok = s->w != NULL && s->lsum != NULL && s->lcount != NULL && s->move != NULL;
    for (size_t g = 0; ok && g < l->n; g++) {
        s->w[g] = ckpi_calloc(l->g[g].n_pieces, sizeof **s->w);
        ok = s->w[g] != NULL;
    }
    return ok ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to survey %zu groups", l->n);
}

ckp_status
ckpi_pass_prepare(ckpi_ctx *ctx, const ckpi_pass *p, ckp_error *err)
{
    survey s = {.p = p};
    const ckpi_layout *l = p->pred->layout;

    ckp_status st = survey_alloc(&s, l, err);
    if (st == CKP_OK)
        st = survey_all(ctx, &s, err);
    if (st != CKP_OK)
        goto done;
    set_scales(p, &s);
    s.squares = true;
    st = survey_all(ctx, &s, err);
    if (st != CKP_OK)
        goto done;
    ckpi_rms_sum_up(p->pred, get_surveyed, &s);
    set_means(p, &s);
    set_worth(p);
    set_movement(p, &s);
done:
    for (size_t g = 0; s.w != NULL && g < l->n; g++)
        free(s.w[g]);
    free(s.w);
    free(s.lsum);
    free(s.lcount);
    free(s.move);
    return st;
}

/* Of the large tensors' RMS, each counting once whatever its size; in 1/128 octave, as ckpi_log2_half has it. */
typedef struct sizes { int64_t sum, n; int32_t most; } sizes;

static sizes
sizes_of(const ckpi_pred *d)
{
    sizes z = {.most = INT32_MIN};

    for (size_t g = 0; g < d->layout->n; g++) {
        const ckpi_group *grp = &d->layout->g[g];
        for (size_t k = 0; ckpi_rms_counts(grp) && k < grp->n_pieces; k++) {
            /* what starts at zero has hardly a size of its own yet */
            const float rms = (float)fmin(fmax((double)d->rms[grp->piece[k].tensor], d->rms_all * RMS_FLOOR), d->most);
            if (grp->piece[k].first != 0 || !(rms > 0.0F) || !isfinite(rms))
                continue;
            const int32_t l = ckpi_log2_half(rms);
            z.most = CKPI_MAX(z.most, l);
            z.sum += l;
            z.n++;
        }
    }
    return z;
}

static double
exp2_128(double l)
{
    return (double)ckpi_exp2_fixed((int32_t)lrint(4.0 * l));
}

/*
 * The RMS that steps are shares of, and as no larger than which a tensor counts: the model's, and any, unless a few tensors make the model's RMS.
 * Embeddings that start at N(0, 1) do, among matrices of 0.05, and take a loss with them that feels an error anywhere (docs/decisions/0026). Weights to
 * pass on have far finer steps as it is.
 */
static void
set_scale(const ckpi_pass *p)
{
    ckpi_pred *d = p->pred;
    const sizes z = sizes_of(d);
    const float all = (float)d->rms_all;

    d->scale = d->rms_all;
    d->cap = HUGE_VAL;
    if (z.n == 0 || p->set->weights_only || !(all > 0.0F) || !isfinite(all))
        return;
    const double typical = (double)z.sum / (double)z.n, above = ((double)z.most - typical) / 128.0;
    const double part = fmin((above - UNEVEN) / (UNEVEN_WHOLLY - UNEVEN), 1.0);
    if (!(part > 0.0))
        return;
    const double l_all = (double)ckpi_log2_half(all), l_scale = l_all + part * fmin(typical - 128.0 * UNEVEN_BELOW - l_all, 0.0);
    d->scale = fmin(d->rms_all, exp2_128(l_scale));
    d->cap = exp2_128((double)z.most + part * (l_scale - (double)z.most));
}

void
ckpi_pass_steps(const ckpi_pass *p)
{
    ckpi_pred *d = p->pred;
    ckpi_lasting *l = p->lasting;

    set_scale(p);
    d->q0 = p->set->f * (p->on_model ? 1.0 : key_share(p)) * d->scale;
    if (l != NULL && l->moved && p->set->k_move > 0.0)
        d->q0 = fmin(d->q0, p->set->k_move * l->move);
}

/* ---- from a pass, for the next one ------------------------------------------------------------------------------- */

static const ckpi_wstats *
get_staged(const void *user, size_t g, size_t k)
{
    return &((const ckpi_stage *)user)[g].sums[k].w;
}

void
ckpi_pass_finish(const ckpi_pass *p, const ckpi_stage *stages)
{
    ckpi_pred *d = p->pred;
    int64_t lsum = 0, move = 0;
    uint64_t lcount = 0, n_move = 0;

    if (p->lasting != NULL)
        p->lasting->stale = false;
    for (size_t g = 0; g < d->layout->n; g++) {
        if (p->lasting != NULL)
            p->lasting->stale = p->lasting->stale || stages[g].stale;
        lsum += stages[g].lsum;
        lcount += stages[g].lcount;
        move += stages[g].move;
        n_move += stages[g].n_move;
    }
    if (lcount != 0)
        d->mean_l[0] = (double)lsum / (double)lcount;
    if (n_move != 0 && p->lasting != NULL) {
        const double moved = d->q0 * sqrt((double)move / 268435456.0 / (double)n_move);
        /* a training that stands still tells nothing of how far it moves */
        if (moved > 0.0) {
            p->lasting->move = moved;
            p->lasting->moved = true;
        }
    }
    if (p->set->lossy && !p->set->exact_weights)
        ckpi_rms_sum_up(p->pred, get_staged, stages);
}
