/* SPDX-License-Identifier: Apache-2.0 */
/* Rate and distortion of each unit's sample at every point: quantized by the engine's pass, coded by the codec that writes codes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "engine/numbers.h"
#include "plan/rd_sample.h"

typedef struct job {
    ckpi_rdplan *rd;
    ckpi_pred *pred;             /* of the samples */
    ckpi_pass pass;
    const double *score;
} job;

/* A tensor's RMS counts as at least this share of the model's, as for the profiles' steps. */
#define RMS_FLOOR (1.0 / 64.0)

static double
rms_of(const ckpi_pred *p, uint32_t tensor, bool fine)
{
    const double own = fine ? fmin((double)p->rms[tensor], p->rms_all) : (double)p->rms[tensor];
    return fmax(own, p->rms_all * RMS_FLOOR);
}

static double
power(double b, uint64_t t)
{
    double r = 1.0;
    for (; t != 0; t >>= 1, b *= b)
        if (t & 1)
            r *= b;
    return r;
}

/* What v must be multiplied by to have lost its bias. */
static double
unbias(const ckpi_adam *a)
{
    const double c2 = a != NULL && a->step != 0 ? 1.0 - power(a->beta2, a->step) : 1.0;
    return c2 > 0.0 ? 1.0 / c2 : 1.0;
}

/* h of a tensor's weights where it is one number for all; with second moments, what v is multiplied by, and its root for h. */
static double
curvature(const job *j, const ckpi_group *g, uint32_t tensor)
{
    if (j->score != NULL && j->score[tensor] > 0.0)
        return j->score[tensor];
    if (g->has_v)
        return unbias(ckpi_pass_adam(j->pass.state, tensor));
    const double h = 1.0 / (rms_of(j->pred, tensor, g->fine) * j->pred->rms_all);
    return g->fine ? ldexp(h, 2 * j->pass.set->fine_shift) : h;
}

static bool
follows_v(const job *j, const ckpi_group *g, uint32_t tensor)
{
    return g->has_v && (j->score == NULL || !(j->score[tensor] > 0.0));
}

/* ---- distortion ------------------------------------------------------------------------------------------------------ */

typedef struct point { double err2, cost, loss; } point;

static ckp_status
add_piece(const job *j, size_t g, size_t k, size_t at, point *to, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &j->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    const size_t n = (size_t)pc->count;
    const float *w = NULL, *v = NULL, *rec = j->pred->rec[g].wrec + at;
    const uint16_t *raw16 = NULL;
    const bool fisher = follows_v(j, grp, pc->tensor);
    double sum = 0.0, by_root = 0.0, by_v = 0.0;

    ckp_status st = ckpi_piece_f32(&j->pass.state->t[pc->tensor], pc->first, n, &w, &raw16, ws, err);
    if (st == CKP_OK && fisher)
        st = ckpi_piece_f32(&j->pass.state->t[grp->v[k]], pc->first, n, &v, &raw16, ws, err);
    if (st != CKP_OK)
        return st;
    for (size_t i = 0; i < n; i++) {
        const double e = (double)w[i] - (double)rec[i];
        if (!isfinite(e))
            continue;            /* escapes: exact */
        sum += e * e;
        if (fisher && v[i] > 0.0F && isfinite(v[i])) {
            by_root += e * e * sqrt((double)v[i]);
            by_v += e * e * (double)v[i];
        }
    }
    const double rms = (double)j->pred->rms[pc->tensor];
    const double h = curvature(j, grp, pc->tensor);
    to->err2 += rms > 0.0 ? sum / (rms * rms) : 0.0;
    to->cost += 0.5 * (fisher ? sqrt(h) * by_root : h * sum);
    to->loss += 0.5 * h * (fisher ? by_v : sum);
    return CKP_OK;
}

static ckp_status
distortion(const job *j, size_t g, point *to, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &j->pred->layout->g[g];
    size_t at = 0;
    ckp_status st = CKP_OK;

    *to = (point){0};
    for (size_t k = 0; st == CKP_OK && k < grp->n_pieces; k++) {
        const size_t mark = ckpi_scratch_mark(ws);
        st = add_piece(j, g, k, at, to, ws, err);
        at += (size_t)grp->piece[k].count;
        ckpi_scratch_release(ws, mark);
    }
    to->err2 /= (double)grp->n;
    to->cost /= (double)grp->n;
    to->loss /= (double)grp->n;
    return st;
}

/* ---- rate ------------------------------------------------------------------------------------------------------------ */

static ckp_status
coded(const job *j, const int8_t *codes, size_t n, size_t *len, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_block b = {.data = codes, .n = n, .width = 1, .dtype = CKP_I8};
    const size_t cap = ckpi_codec_pick_bound(&b), mark = ckpi_scratch_mark(ws);
    uint8_t *tmp = ckpi_scratch_get(ws, cap);
    uint8_t id = 0;

    if (tmp == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to code %zu elements", n);
    const ckp_status st = ckpi_codec_codes(codes, n, tmp, cap, len, &id, ws, j->pass.cpu, err);
    ckpi_scratch_release(ws, mark);
    return st;
}

/*
 * What the coder's tables and states take, in bytes: twice the length of half the sample less the length of all of it. A chunk is so much
 * longer than the sample that they hardly count there. They grow with the number of codes, about evenly with the octaves.
 */
typedef struct overhead { double at_finest, at_zero; } overhead;

static double
overhead_at(const overhead *o, int p)
{
    return fmax(0.0, o->at_finest + (o->at_zero - o->at_finest) * (double)p / CKPI_RD_ZERO);
}

static ckp_status
measure_overhead(const job *j, const int8_t *codes, size_t n, size_t all, double *bytes, ckpi_scratch *ws, ckp_error *err)
{
    size_t half = 0;

    const ckp_status st = coded(j, codes, n / 2, &half, ws, err);
    *bytes = 2.0 * (double)half > (double)all ? 2.0 * (double)half - (double)all : 0.0;
    return st;
}

/* Bytes of the codes and of the escapes. */
static ckp_status
rate(const job *j, size_t g, const ckpi_stage *s, size_t *codes, size_t *escapes, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &j->pred->layout->g[g];
    ckpi_buf esc = CKPI_BUF_INIT;

    ckp_status st = coded(j, s->wcode, (size_t)grp->n, codes, ws, err);
    ckpi_params_put_escapes(&esc, s->wesc.at, s->wesc.n, grp->dtype == CKP_F32 ? 4 : 2);
    if (st == CKP_OK)
        st = ckpi_buf_status(&esc, err, "escapes");
    *escapes = esc.len;
    ckpi_buf_free(&esc);
    return st;
}

/* Sampling is no exact science: a finer step never costs less nor loses more. */
static void
make_monotonic(ckpi_rdplan_unit *u)
{
    for (size_t p = CKPI_RD_POINTS - 1; p-- > 0;) {
        u->bits[p] = fmax(u->bits[p], u->bits[p + 1]);
        u->err2[p] = fmin(u->err2[p], u->err2[p + 1]);
        u->cost[p] = fmin(u->cost[p], u->cost[p + 1]);
        u->loss[p] = fmin(u->loss[p], u->loss[p + 1]);
    }
}

typedef struct lengths { size_t codes[CKPI_RD_POINTS], escapes[CKPI_RD_POINTS]; overhead over; } lengths;

static ckp_status
measure_point(const job *j, size_t i, int p, ckpi_stage *stage, lengths *len, ckpi_scratch *ws, ckp_error *err)
{
    ckpi_rdplan_unit *u = &j->rd->unit[i];
    const size_t n = (size_t)j->pred->layout->g[i].n;
    point lost;

    for (size_t k = 0; k < u->n_tensors; k++)
        j->pred->step[u->tensor[k]] = ldexp(j->rd->anchor[u->tensor[k]], p - CKPI_RD_ZERO);
    ckp_status st = ckpi_pass_group(&j->pass, i, stage, ws, err);
    if (st == CKP_OK)
        st = distortion(j, i, &lost, ws, err);
    if (st != CKP_OK)
        return st;
    u->err2[p] = lost.err2;
    u->cost[p] = lost.cost;
    u->loss[p] = lost.loss;
    st = rate(j, i, stage, &len->codes[p], &len->escapes[p], ws, err);
    if (st == CKP_OK && p == 0)
        st = measure_overhead(j, stage->wcode, n, len->codes[p], &len->over.at_finest, ws, err);
    if (st == CKP_OK && p == CKPI_RD_ZERO)
        st = measure_overhead(j, stage->wcode, n, len->codes[p], &len->over.at_zero, ws, err);
    return st;
}

static ckp_status
measure_unit(void *user, size_t i, ckpi_scratch *ws, ckp_error *err)
{
    const job *j = user;
    ckpi_rdplan_unit *u = &j->rd->unit[i];
    ckpi_stage stage = {0};
    lengths len = {0};

    ckp_status st = ckpi_stage_alloc(&stage, &j->pred->layout->g[i], j->pass.set, err);
    for (int p = 0; st == CKP_OK && p < CKPI_RD_POINTS; p++) {
        const size_t mark = ckpi_scratch_mark(ws);
        st = measure_point(j, i, p, &stage, &len, ws, err);
        ckpi_scratch_release(ws, mark);
    }
    for (int p = 0; p < CKPI_RD_POINTS; p++) {
        const double codes = fmax(0.0, (double)len.codes[p] - overhead_at(&len.over, p));
        u->bits[p] = 8.0 * (codes + (double)len.escapes[p]) / (double)j->pred->layout->g[i].n;
    }
    ckpi_recon_drop(j->pred, i);
    ckpi_stage_free(&stage);
    if (st == CKP_OK)
        make_monotonic(u);
    return st;
}

/* Pull sources are read on the calling thread only. */
static ckp_status
measure_all(ckpi_ctx *ctx, job *j, ckp_error *err)
{
    ckp_status st = CKP_OK;

    if (!ckpi_state_pulls(j->pass.state))
        return ckpi_ctx_run(ctx, j->rd->n_units, measure_unit, j, err);
    for (size_t i = 0; st == CKP_OK && i < j->rd->n_units; i++) {
        ckpi_scratch_reset(ctx->ws[0]);
        st = measure_unit(j, i, ctx->ws[0], err);
    }
    return st;
}

/* ---- all --------------------------------------------------------------------------------------------------------------- */

static void
set_anchors(ckpi_rdplan *rd, const ckpi_pred *p, const ckpi_settings *set)
{
    for (size_t i = 0; i < rd->n_units; i++)
        for (size_t k = 0; k < rd->unit[i].n_tensors; k++) {
            const uint32_t t = rd->unit[i].tensor[k];
            const double step = ldexp(rms_of(p, t, rd->unit[i].fine), rd->unit[i].fine ? -set->fine_shift : 0);
            rd->anchor[t] = p->step[t] != 0.0 ? p->step[t] : fmin(fmax(step, 0x1p-80), 0x1p80);
        }
}

/* The whole model's numbers, for the samples. */
static void
take_numbers(ckpi_pred *to, const ckpi_pred *from)
{
    (void)memcpy(to->rms, from->rms, from->table->n * sizeof *to->rms);
    (void)memcpy(to->sq_exp, from->sq_exp, from->table->n * sizeof *to->sq_exp);
    (void)memcpy(to->mean_l, from->mean_l, sizeof to->mean_l);
    to->most = from->most;
    to->rms_all = from->rms_all;
    to->scale = from->scale;
    to->cap = from->cap;
    to->q0 = from->q0;
}

static ckp_status
start(ckpi_rdplan *rd, ckpi_pred **pred, const ckpi_pass *pass, ckp_error *err)
{
    ckpi_layout *sample = NULL;

    rd->n_tensors = pass->pred->table->n;
    rd->anchor = ckpi_calloc(rd->n_tensors + 1, sizeof *rd->anchor);
    ckp_status st = rd->anchor != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to plan %zu tensors", rd->n_tensors);
    if (st == CKP_OK)
        st = ckpi_rdplan_sample(rd, &sample, pass->pred, err);
    if (st != CKP_OK)
        return st;
    set_anchors(rd, pass->pred, pass->set);
    st = ckpi_pred_new(pred, ckpi_table_share(pass->pred->table), sample, err);
    if (st == CKP_OK)
        take_numbers(*pred, pass->pred);
    return st;
}

ckp_status
ckpi_rdplan_measure(ckpi_rdplan **out, ckpi_ctx *ctx, const ckpi_pass *pass, const double *score, ckp_error *err)
{
    ckpi_settings set = *pass->set;
    job j = {.rd = ckpi_calloc(1, sizeof *j.rd), .pass = *pass, .score = score};

    *out = NULL;
    if (j.rd == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to plan %zu tensors", pass->pred->table->n);
    ckp_status st = start(j.rd, &j.pred, pass, err);
    set.exact_weights = false;
    j.pass.pred = j.pred;
    j.pass.set = &set;
    j.pass.key = j.pass.lone = true;
    if (st == CKP_OK)
        st = measure_all(ctx, &j, err);
    ckpi_pred_free(j.pred);
    if (st == CKP_OK)
        *out = j.rd;
    else
        ckpi_rdplan_free(j.rd);
    return st;
}

void
ckpi_rdplan_free(ckpi_rdplan *rd)
{
    if (rd == NULL)
        return;
    for (size_t i = 0; i < rd->n_units; i++)
        free(rd->unit[i].tensor);
    free(rd->unit);
    free(rd->anchor);
    free(rd);
}
