/* SPDX-License-Identifier: Apache-2.0 */
/* Binding of the fused pass: checks, tables, then v, m and w run by run, so that a run's scale field never leaves the cache. */
#include <math.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/fixed.h"
#include "quant/escape.h"
#include "quant/num.h"
#include "quant/step.h"
#include "quant/walk.h"

CKPI_NO_CONTRACT

typedef struct job {
    const ckpi_enc_in *in;
    ckpi_enc_out *out;
    const ckpi_q_ops *ops;
    ckpi_q_walk walk;
    ckpi_q_vpar v;
    ckpi_q_mpar m;
    ckpi_q_wpar w;
    ckpi_q_acc acc;
    ckpi_q_tile *tile;
    float *table;          /* 256 */
    int8_t *code;          /* absolute codes of a run, before they replace the base's */
} job;

static ckp_status
check_factors(const ckpi_grid *g, ckp_error *err)
{
    bool ok = true;
    for (size_t i = 0; i < g->rows; i++)
        ok = ok && g->row[i] >= CKPI_VROW_MIN && g->row[i] <= CKPI_VROW_MAX;
    for (size_t j = 0; g->col != NULL && j < CKPI_MIN(g->cols, g->n); j++)
        ok = ok && g->col[j] >= -CKPI_VCOL_MAX && g->col[j] <= CKPI_VCOL_MAX;
    return ok ? CKP_OK : ckpi_fail(err, CKP_EINVAL, "quantizer: factors beyond their range");
}

static bool
in_range(float x)
{
    return x > 0 && f32_finite(x);
}

static ckp_status
check_kinds(const ckpi_enc_in *in, const ckpi_enc_out *out, ckp_error *err)
{
    if (in->grid.has_v != (in->v != NULL) || (in->v != NULL && (out->vcode == NULL || out->vdiff == NULL)))
        return ckpi_fail(err, CKP_EINVAL, "quantizer: v, its codes and the grid do not go together");
    if (!(in->vstay >= 0 && in->vstay <= 1))
        return ckpi_fail(err, CKP_EINVAL, "quantizer: codes of v cannot stay within %g steps", (double)in->vstay);
    if (in->m != NULL && in->mkind != CKPI_M_NONE &&
        ((in->mkind != CKPI_M_CLAMPED && in->mkind != CKPI_M_UNIFORM) || !in_range(in->kc) || !in_range(in->mt) || out->mcode == NULL))
        return ckpi_fail(err, CKP_EINVAL, "quantizer: m has no valid kind, scale or place for codes");
    if (in->w == NULL)
        return CKP_OK;
    if (in->w_dtype != CKP_F32 && in->w_dtype != CKP_BF16 && in->w_dtype != CKP_F16)
        return ckpi_fail(err, CKP_EUNSUPPORTED, "quantizer: weights of dtype %d", (int)in->w_dtype);
    if (in->wrec == NULL || out->wcode == NULL || !ckpi_q_wstep_ok(&in->wstep))
        return ckpi_fail(err, CKP_EINVAL, "quantizer: w has no valid step or place for codes");
    return CKP_OK;
}

/* Bounds within which `stay` steps either way keep v^ in 2^-148 .. 2^127, with an octave to spare. */
static void
v_bounds(ckpi_q_vpar *p, int32_t vstep)
{
    const int32_t slack = (int32_t)((float)vstep * 2 * f32_max(p->stay, 0.5f) + 255) / 256 + 1;
    p->bits_lo = f32_bits(ckpi_exp2_fixed((-148 + slack) * 512));
    p->bits_hi = f32_bits(ckpi_exp2_fixed((127 - slack) * 512));
    p->cmax = (float)CKPI_MIN(127, 124 * 256 / vstep);
}

static void
set_params(job *j)
{
    const ckpi_enc_in *in = j->in;
    const float s = in->grid.has_v ? 128.0f / (float)in->grid.vstep : 128.0f;
    ckpi_q_code_table(j->table, &in->grid, CKPI_Q_RQ, INFINITY);
    j->v = (ckpi_q_vpar){.table = j->table, .s = s, .a1 = CKPI_Q_A1 * s, .a2 = CKPI_Q_A2 * s, .vstep = 128.0f / s, .stay = in->vstay};
    if (in->grid.has_v)
        v_bounds(&j->v, in->grid.vstep);
    if (in->m != NULL && in->mkind != CKPI_M_NONE)
        j->m = (ckpi_q_mpar){.kind = in->mkind, .t = in->kc / in->mt};
    j->w = (ckpi_q_wpar){.step = in->wstep, .dtype = in->w_dtype, .key = in->key && !in->w_based, .phase = in->round == CKPI_ROUND_PHASE};
    if (in->w != NULL) {
        j->w.err_unit = ckpi_q_err_unit(in->wstep.qhi);
        j->w.sq_unit = ckpi_q_sq_unit(in->wsq_exp);
    }
}

static ckp_status
set_up(job *j, ckpi_scratch *ws, ckp_error *err)
{
    j->tile = ckpi_scratch_get(ws, sizeof *j->tile);
    j->table = ckpi_scratch_get(ws, 256 * sizeof(float));
    j->code = ckpi_scratch_get(ws, CKPI_Q_RUN + CKPI_Q_PAD);
    if (j->tile == NULL || j->table == NULL || j->code == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "quantizer: no memory for a tile");
    j->tile->any_dead = true;            /* whatever is in its memory */
    set_params(j);
    return ckpi_q_walk_init(&j->walk, &j->in->grid, CKPI_Q_RQ, true, ws, err);
}

/* Without codes the scale field is the factors alone (or 1). */
static void
field_without_v(const ckpi_q_run *r, ckpi_q_tile *t)
{
    for (size_t k = 0; k < r->n; k++)
        t->rq[k] = (r->frow[r->spread ? k : 0] * 1.0f) * r->fcol[k];
    ckpi_q_tile_begin(t);
}

static ckp_status
run_v(job *j, const ckpi_q_run *r, size_t at, ckp_error *err)
{
    ckpi_enc_out *out = j->out;
    if (j->in->v == NULL) {
        field_without_v(r, j->tile);
        return CKP_OK;
    }
    j->ops->enc_v(r, &j->v, j->in->v + at, j->in->key ? NULL : out->vcode + at, j->code, j->tile, &j->acc);
    j->ops->diff(r->n, j->code, j->in->key, out->vdiff + at, out->vcode + at);
    return ckpi_q_escapes_add(&out->vesc, at, j->tile->esc, j->tile->n_esc, j->in->v + at, err);
}

static ckp_status
run_m(job *j, const ckpi_q_run *r, size_t at, ckp_error *err)
{
    if (j->m.kind == CKPI_M_NONE)
        return CKP_OK;
    j->ops->enc_m(r->n, &j->m, j->in->m + at, j->out->mcode + at, j->tile);
    return ckpi_q_escapes_add(&j->out->mesc, at, j->tile->esc, j->tile->n_esc, j->in->m + at, err);
}

static ckp_status
run_w(job *j, const ckpi_q_run *r, size_t at, ckp_error *err)
{
    if (j->in->w == NULL)
        return CKP_OK;
    j->w.z = j->in->phase_key + (j->in->first + (uint32_t)at) * CKPI_Q_PHASE_STEP;
    j->ops->enc_w(r->n, &j->w, j->in->w + at, j->in->wrec + at, j->out->wcode + at, j->tile, &j->acc);
    return ckpi_q_escapes_add(&j->out->wesc, at, j->tile->esc, j->tile->n_esc, j->in->w + at, err);
}

static ckp_status
run_all(job *j, ckp_error *err)
{
    ckpi_q_run r;
    size_t at;
    while (ckpi_q_walk_next(&j->walk, &r, &at)) {
        ckp_status st = run_v(j, &r, at, err);
        if (st == CKP_OK)
            st = run_m(j, &r, at, err);
        if (st == CKP_OK)
            st = run_w(j, &r, at, err);
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

/* Sum of row + col over all elements: rows weighted by their length, columns by how many rows reach them. */
static int64_t
factor_sum(const ckpi_grid *g)
{
    const size_t last = g->n - (g->rows - 1) * g->cols;
    int64_t sum = 0;
    for (size_t i = 0; i < g->rows; i++)
        sum += (int64_t)g->row[i] * (int64_t)(i + 1 < g->rows ? g->cols : last);
    for (size_t c = 0; g->col != NULL && c < CKPI_MIN(g->cols, g->n); c++)
        sum += (int64_t)g->col[c] * (int64_t)(c < last ? g->rows : g->rows - 1);
    return sum;
}

/* The relative error of v that a distance of d steps (in log2 sqrt v, of either sign) stands for, rounded up past log2's own error. */
static double
v_error(float below, float above, float vstep)
{
    const int32_t slack = 4;    /* 512 * 0.005, and the rounding of the cast */
    const double up = (double)ckpi_exp2_fixed((int32_t)(-above * vstep * 4) + slack) - 1;
    const double down = 1 - (double)ckpi_exp2_fixed(-(int32_t)(below * vstep * 4) - slack);
    return CKPI_MAX(up, down);
}

static void
finish(const job *j)
{
    const ckpi_enc_in *in = j->in;
    const ckpi_q_acc *a = &j->acc;
    ckpi_enc_out *out = j->out;
    if (in->v != NULL) {
        out->lcount = in->grid.n - a->not_pos;
        out->lsum = factor_sum(&in->grid) - a->not_pos_p + a->csum * in->grid.vstep;
        if (out->lcount != 0)
            out->v_max_err = v_error(a->step_max, a->step_min, j->v.vstep);
    }
    if (in->w != NULL) {
        out->wstats = (ckpi_wstats){.max_bits = a->max_bits, .n_finite = in->grid.n - a->not_finite, .sum_sq = a->sq};
        out->w_max_err = (double)a->max_err;
        out->w_sum_err2 = (double)a->err2 / ((double)j->w.err_unit * (double)j->w.err_unit);
        out->w_sum_w2 = (double)a->sq / ((double)j->w.sq_unit * (double)j->w.sq_unit);
    }
}

static void
reset(ckpi_enc_out *out)
{
    out->wesc.n = out->mesc.n = out->vesc.n = 0;
    out->lsum = 0;
    out->lcount = 0;
    out->wstats = (ckpi_wstats){0};
    out->w_max_err = out->v_max_err = out->w_sum_err2 = out->w_sum_w2 = 0;
}

static ckp_status
check(const ckpi_enc_in *in, const ckpi_enc_out *out, ckp_error *err)
{
    ckp_status st = ckpi_q_grid_check(&in->grid, err);
    if (st == CKP_OK)
        st = check_kinds(in, out, err);
    if (st == CKP_OK && in->grid.has_v)
        st = check_factors(&in->grid, err);
    return st;
}

static ckp_status
encode(const ckpi_enc_in *in, ckpi_enc_out *out, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    job j = {.in = in, .out = out, .ops = ckpi_q_pick(cpu)};
    const size_t mark = ckpi_scratch_mark(ws);
    ckp_status st = set_up(&j, ws, err);
    if (st == CKP_OK)
        st = run_all(&j, err);
    if (st == CKP_OK)
        finish(&j);
    ckpi_scratch_release(ws, mark);
    return st;
}

ckp_status
ckpi_quant_encode(const ckpi_enc_in *in, ckpi_enc_out *out, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    /* Before the checks: under the caller's DAZ a denormal step would compare as 0. */
    const ckpi_fpenv env = ckpi_fp_enter();
    ckp_status st = check(in, out, err);
    if (st == CKP_OK) {
        reset(out);
        if (in->grid.n != 0)
            st = encode(in, out, ws, cpu, err);
    }
    ckpi_fp_leave(env);
    return st;
}

float
ckpi_quant_mg(const ckpi_enc_in *in)
{
    const ckpi_fpenv env = ckpi_fp_enter();
    const float mg = (float)((double)in->mt / (double)in->kc);
    ckpi_fp_leave(env);
    return mg;
}
