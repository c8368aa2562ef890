/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of stages, and the pass over one group. Model-wide numbers: numbers.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/fixed.h"
#include "base/float.h"
#include "base/rng.h"
#include "engine/dynaquant.h"
#include "engine/factors.h"
#include "engine/moments.h"
#include "engine/numbers.h"
#include "engine/stage.h"

void
ckpi_stage_free(ckpi_stage *s)
{
    ckpi_aligned_free(s->wcode);
    ckpi_aligned_free(s->mcode);
    ckpi_pack2_free(&s->vdiff);
    ckpi_aligned_free(s->raw);
    ckpi_indices_free(&s->idx);
    ckpi_escapes_free(&s->wesc);
    ckpi_escapes_free(&s->mesc);
    ckpi_escapes_free(&s->vesc);
    free(s->moves);
    free(s->mg);
    free(s->mshare);
    free(s->wstep);
    free(s->sums);
    free(s->cluster_loss);
    *s = (ckpi_stage){0};
}

static bool
want(void *slot, bool wanted, size_t bytes)
{
    void *p = NULL;
    memcpy(&p, slot, sizeof p);
    if (!wanted || p != NULL)
        return true;
    p = ckpi_aligned_alloc(bytes);
    memcpy(slot, &p, sizeof p);
    return p != NULL;
}

static bool
want_small(ckpi_stage *s, size_t n)
{
    if (s->sums != NULL)
        return true;
    s->sums = ckpi_calloc(n, sizeof *s->sums);
    s->mg = ckpi_calloc(n, sizeof *s->mg);
    s->mshare = ckpi_calloc(n, sizeof *s->mshare);
    s->wstep = ckpi_calloc(n, sizeof *s->wstep);
    return s->sums != NULL && s->mg != NULL && s->mshare != NULL && s->wstep != NULL;
}

/*
 * How a group's first moments are coded. Three values keep the projection of what Adam and SGD step by. A first moment without v belongs to an
 * optimizer that steps by signs (Lion): what counts there is the size of each element beside the gradient's noise, so it is rounded evenly (decision 9).
 */
static ckpi_mkind
moments_kind(const ckpi_group *g, const ckpi_settings *set)
{
    if (!g->has_m)
        return CKPI_M_NONE;
    return !set->mthree || g->fine || (g->m_role == CKP_ROLE_M && !g->has_v) ? CKPI_M_UNIFORM : CKPI_M_CLAMPED;
}

ckp_status
ckpi_stage_alloc(ckpi_stage *s, const ckpi_group *g, const ckpi_settings *set, ckp_error *err)
{
    const size_t n = (size_t)g->n;
    const bool exact_w = set->exact_weights, raw = !g->lossy || exact_w;
    const bool indexed = ckpi_dq_takes(g, set);

    s->raw_len = raw ? g->bytes : 0;
    if (!want(&s->raw, raw, (size_t)g->bytes) || !want(&s->wcode, g->lossy && !exact_w && !indexed, n) ||
        (indexed && !ckpi_indices_alloc(&s->idx, n, g->n_pieces)) ||
        !want(&s->mcode, g->lossy && g->has_m, n) || (g->lossy && !want_small(s, g->n_pieces)))
        return ckpi_fail(err, CKP_ENOMEM, "no memory to stage %llu elements", (unsigned long long)g->n);
    if (g->clustered && s->cluster_loss == NULL)
        s->cluster_loss = ckpi_calloc(g->n_pieces, sizeof *s->cluster_loss);
    if (g->clustered && s->cluster_loss == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to stage %zu tensors", g->n_pieces);
    return CKP_OK;
}

uint64_t
ckpi_stage_bytes(const ckpi_stage *s, const ckpi_group *g)
{
    return (s->raw != NULL ? g->bytes : 0) + (uint64_t)((s->wcode != NULL) + (s->mcode != NULL) + (s->idx.code != NULL)) * g->n + s->idx.cap * 2 +
           ckpi_pack2_held(&s->vdiff);
}

/* ---- getting at live memory ------------------------------------------------------------------------------------- */

/* A piece as contiguous fp32: in place when it is that, else converted into scratch. *raw16 gets the 16-bit words of half dtypes. */
ckp_status
ckpi_piece_f32(const ckpi_tensor *t, uint64_t first, size_t n, const float **out, const uint16_t **raw16, ckpi_scratch *ws, ckp_error *err)
{
    const void *src = ckpi_tensor_direct(t, first);
    const size_t width = t->dtype == CKP_F32 ? 4 : 2;

    *raw16 = NULL;
    if (src == NULL || ((uintptr_t)src & (width - 1)) != 0) {
        void *tmp = ckpi_scratch_get(ws, n * width);
        if (tmp == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory to gather %zu elements", n);
        const ckp_status st = ckpi_tensor_copy_out(t, first, n, tmp, err);
        if (st != CKP_OK)
            return st;
        src = tmp;
    }
    if (t->dtype == CKP_F32) {
        *out = src;
        return CKP_OK;
    }
    float *f = ckpi_scratch_get(ws, n * sizeof *f);
    if (f == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to convert %zu elements", n);
    if (t->dtype == CKP_BF16)
        ckpi_bf16_to_f32_n(f, src, n);
    else
        ckpi_f16_to_f32_n(f, src, n);
    *out = f;
    *raw16 = src;
    return CKP_OK;
}

/* ---- the pass --------------------------------------------------------------------------------------------------- */

/* Moves a piece's escapes behind the group's, as group indices; half dtypes keep their own words. */
static ckp_status
take_escapes(ckpi_escapes *all, ckpi_escapes *piece, size_t at, const uint16_t *raw16, ckp_error *err)
{
    if (piece->n == 0)
        return CKP_OK;
    if (all->n + piece->n > all->cap) {
        const size_t cap = 2 * (all->n + piece->n);
        ckpi_escape *e = ckpi_realloc(all->at, cap, sizeof *e);
        if (e == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu escapes", cap);
        all->at = e;
        all->cap = cap;
    }
    for (size_t i = 0; i < piece->n; i++) {
        ckpi_escape e = piece->at[i];
        if (raw16 != NULL)
            e.bits = raw16[e.index];
        e.index += (uint32_t)at;
        all->at[all->n++] = e;
    }
    return CKP_OK;
}

static void
count_nonfinite(const float *w, size_t n, ckpi_piece_sums *s)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = ckpi_f32_bits(w[i]) & 0x7fffffffU;
        s->n_nan += a > 0x7f800000U;
        s->n_inf += a == 0x7f800000U;
    }
}

enum { SAMPLES_AHEAD = 16 };     /* each is a page of its own, which no hardware foresees */

/* Movement since the last save at every CKPI_SAMPLE-th weight, in units of its step; then the sample is renewed. */
static void
measure_movement(const ckpi_pass *p, size_t g, size_t k, size_t at, const float *w, size_t n, ckpi_stage *s)
{
    const ckpi_recon *r = &p->pred->rec[g];
    const ckpi_group *grp = &p->pred->layout->g[g];
    const ckpi_grid grid = ckpi_recon_grid(r, k, n, grp->has_v);
    /* steps by name are no measure of the movement, and averages move less */
    const bool counts = !p->key && !grp->fine && grp->role != CKP_ROLE_AVERAGE && p->pred->step[grp->piece[k].tensor] == 0.0;

    for (size_t j = (CKPI_SAMPLE - at % CKPI_SAMPLE) % CKPI_SAMPLE; j < n; j += CKPI_SAMPLE) {
        const size_t ahead = CKPI_MIN(j + SAMPLES_AHEAD * CKPI_SAMPLE, n - 1);
        __builtin_prefetch(w + ahead);
        if (r->vcode != NULL)
            __builtin_prefetch(r->vcode + at + ahead);
        float *old = &r->sample[(at + j) / CKPI_SAMPLE];
        const double q = ckpi_step_at(&grid, r->vcode != NULL ? r->vcode + at : NULL, j, &s->wstep[k]);
        const double x = fabs((double)w[j] - (double)*old) / q;
        if (counts && x <= 16.0) {
            s->move += (int64_t)(x * x * 268435456.0);
            s->n_move++;
        }
        *old = w[j];
    }
}

/* Step of small tensors' first moments, in u: it is off by a third of its own noise. */
#define FINE_MOMENTS 0.25F

const ckpi_adam *
ckpi_pass_adam(const ckp_state *s, uint32_t tensor)
{
    const ckpi_adam *a = ckpi_state_adam(s, tensor);
    const bool master = a == NULL && s->t[tensor].role == CKP_ROLE_MASTER && s->t[tensor].owner != CKPI_NO_TENSOR;
    return master ? ckpi_state_adam(s, s->t[tensor].owner) : a;
}

static ckpi_enc_in
piece_input(const ckpi_pass *p, size_t g, size_t k, const ckpi_stage *s)
{
    const ckpi_group *grp = &p->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    const char *name = p->pred->table->rec[pc->tensor].name;
    const ckpi_settings *set = p->set;
    const bool on_model = p->on_model && p->pred->in_model[pc->tensor];
    ckpi_enc_in in = {
        .grid = ckpi_recon_grid(&p->pred->rec[g], k, (size_t)pc->count, grp->has_v),
        .w_dtype = grp->dtype,
        .key = p->key,
        .w_based = on_model,
        .vstay = (float)set->vstay,
        .wstep = s->wstep[k],
        .round = p->key && (!on_model || set->weights_only) ? CKPI_ROUND_NEAREST : CKPI_ROUND_PHASE,
        .phase_key = ckpi_rng_key(p->run_key, p->restore_count, ckpi_hash64(name, strlen(name)), pc->first >> 32),
        .first = (uint32_t)pc->first,
        .mkind = moments_kind(grp, set),
        .mt = grp->fine ? FINE_MOMENTS : (float)set->mstep,
        .kc = ckpi_bias_correction(ckpi_pass_adam(p->state, pc->tensor), grp->has_v),
        .wsq_exp = p->pred->sq_exp[pc->tensor],
    };
    return in;
}

/* Factors of one piece: made for a key, following v for a delta. Without v they are momentum's, and stay. */
static ckp_status
set_factors(const ckpi_pass *p, size_t g, size_t k, const ckpi_enc_in *in, ckpi_stage *s, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &p->pred->layout->g[g];
    ckpi_factors *all = &p->pred->rec[g].fac;

    if (!grp->has_v && (!p->key || !grp->has_m))
        return CKP_OK;
    ckpi_fac *f = &all->at[k];
    ckp_status st = CKP_OK;
    if (p->key) {
        f->vstep = grp->fine ? CKPI_MAX(1, p->set->vstep >> p->set->fine_shift) : p->set->vstep;
        st = ckpi_factors_set(f, grp->has_v ? in->v : in->m, !grp->has_v, ws, p->cpu, err);
    } else {
        st = ckpi_factors_follow(f, in->v, s->moves + (f->row - all->mem), ws, p->cpu, err);
    }
    if (st == CKP_OK && grp->has_v)
        ckpi_factors_lift(f, in->v);
    return st;
}

/* u of momentum as its factors see it: 2 in RMS. Far from that they were made for something else. */
#define FACTORS_LOW 0x1p-3F
#define FACTORS_HIGH 0x1p9F

/* Adam divides momentum by the gradient's size, and a few large values pass as more of its noise. SGD does not: it feels their sum of squares. */
#define MOMENTUM_SHARE 3.2
/* Beyond this every doubling costs a third of a bit and changes little. */
#define SHARE_AT_MOST 0.1
/* Of the profile's share, by what a piece's moments are worth. */
#define SHARE_LOW 0.25
#define SHARE_HIGH 6.0

/* Noise falls about as 1 / share, in units of what a piece's moments are worth: shares that follow its root do the least harm by as many codes (decision 9). */
static double
share_of(const ckpi_pass *p, size_t g, size_t k)
{
    const ckpi_pred *d = p->pred;

    if (!d->layout->g[g].has_v)
        return fmin(p->set->mshare * MOMENTUM_SHARE, SHARE_AT_MOST);
    const double worth = d->mworth[g] != NULL && d->mworth_all > 0.0 ? (double)d->mworth[g][k] / d->mworth_all : 1.0;
    return fmin(p->set->mshare * fmin(fmax(worth, SHARE_LOW), SHARE_HIGH), SHARE_AT_MOST);
}

/* The step of a piece's moments that will have three values, from a sample. */
static void
set_mstep(const ckpi_pass *p, size_t g, size_t k, ckpi_enc_in *in, ckpi_stage *s)
{
    ckpi_reach reach;

    if (in->mkind != CKPI_M_CLAMPED)
        return;
    ckpi_moments_sample(&reach, in);
    in->mt = reach.step > 0.0F ? reach.step : 1.0F;
    s->mshare[k] = (float)share_of(p, g, k);
    /* momentum's factors stand still while it grows and shrinks */
    s->stale = s->stale || (in->v == NULL && !p->key && reach.largest > 0.0F && (reach.largest < FACTORS_LOW || reach.largest > FACTORS_HIGH));
}

/* Room for the moves of a group's factors, and for differences of v. Each piece's begin on a multiple of 4. */
static ckp_status
alloc_delta(const ckpi_pass *p, size_t g, ckpi_stage *s, ckp_error *err)
{
    const ckpi_factors *f = &p->pred->rec[g].fac;
    const ckpi_group *grp = &p->pred->layout->g[g];
    s->vdiff.n = s->vdiff.n_other = 0;
    if (p->key || !grp->has_v)
        return CKP_OK;
    if (s->moves == NULL)
        s->moves = ckpi_malloc(f->mem_n, 1);
    if (s->moves == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu factors", f->mem_n);
    if (!ckpi_pack2_alloc(&s->vdiff, (size_t)grp->n + 3 * grp->n_pieces))
        return ckpi_fail(err, CKP_ENOMEM, "no memory to stage %llu differences", (unsigned long long)grp->n);
    return CKP_OK;
}

/* What the pass found of v, and what it is worth to know of m. */
static ckp_status
take_moments(const ckpi_pass *p, const ckpi_enc_in *in, const ckpi_enc_out *out, size_t k, ckpi_stage *s, ckp_error *err)
{
    s->mg[k] = in->mkind != CKPI_M_NONE ? ckpi_quant_mg(in) : 0.0F;
    if (in->v == NULL || p->key || ckpi_pack2_add(&s->vdiff, out->vdiff, in->grid.n, p->cpu))
        return CKP_OK;
    return ckpi_fail(err, CKP_ENOMEM, "no memory to stage differences of %zu elements", in->grid.n);
}

static ckp_status
pass_piece(const ckpi_pass *p, size_t g, size_t k, size_t at, ckpi_stage *s, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &p->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    ckpi_recon *r = &p->pred->rec[g];
    const size_t n = (size_t)pc->count;
    const size_t mark = ckpi_scratch_mark(ws);
    const ckpi_tensor *t = p->state->t;
    const uint16_t *w16 = NULL, *m16 = NULL, *v16 = NULL;
    ckpi_enc_in in;
    ckpi_enc_out out = {0};
    ckp_status st;

    s->wstep[k] = ckpi_pass_wstep(p, g, pc->tensor);
    in = piece_input(p, g, k, s);
    st = ckpi_piece_f32(&t[pc->tensor], pc->first, n, &in.w, &w16, ws, err);
    if (st == CKP_OK && grp->has_m)
        st = ckpi_piece_f32(&t[grp->m[k]], pc->first, n, &in.m, &m16, ws, err);
    if (st == CKP_OK && grp->has_v)
        st = ckpi_piece_f32(&t[grp->v[k]], pc->first, n, &in.v, &v16, ws, err);
    if (st == CKP_OK)
        st = set_factors(p, g, k, &in, s, ws, err);
    if (st != CKP_OK)
        goto done;
    in.grid = ckpi_recon_grid(r, k, n, grp->has_v);
    set_mstep(p, g, k, &in, s);
    const float *w = in.w;
    if (s->exact_w || s->indexed)
        in.w = NULL;             /* staged as bytes already, or as indices below: only the moments go through these quantizers */
    in.wrec = r->wrec + at;
    out.wcode = s->wcode != NULL ? s->wcode + at : NULL;
    out.mcode = s->mcode != NULL ? s->mcode + at : NULL;
    out.vdiff = grp->has_v ? ckpi_scratch_get(ws, n) : NULL;
    if (grp->has_v && out.vdiff == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for %zu codes", n);
        goto done;
    }
    out.vcode = r->vcode != NULL ? r->vcode + at : NULL;
    st = ckpi_quant_encode(&in, &out, ws, p->cpu, err);
    if (st != CKP_OK)
        goto done;
    st = take_moments(p, &in, &out, k, s, err);
    if (st != CKP_OK)
        goto done;
    s->lsum += grp->fine ? 0 : out.lsum + (int64_t)out.lcount * in.grid.lift;
    s->lcount += grp->fine ? 0 : out.lcount;
    s->sums[k] = (ckpi_piece_sums){.w = out.wstats, .w_max_err = out.w_max_err, .v_max_rel = out.v_max_err,
                                   .w_err2 = out.w_sum_err2, .w_sum2 = out.w_sum_w2};
    if (out.wesc.n != 0)
        count_nonfinite(w, n, &s->sums[k]);
    if (s->indexed) {
        ckpi_quant_wmax(w, n, &s->sums[k].w, p->cpu);
        ckpi_quant_wsq(w, n, in.wsq_exp, &s->sums[k].w, p->cpu);
        st = ckpi_dq_piece(p, g, k, at, w, w16, in.v, s, ws, err);
    }
    measure_movement(p, g, k, at, w, n, s);
    if (st == CKP_OK)
        st = take_escapes(&s->wesc, &out.wesc, at, w16, err);
    if (st == CKP_OK)
        st = take_escapes(&s->mesc, &out.mesc, at, m16, err);
    if (st == CKP_OK)
        st = take_escapes(&s->vesc, &out.vesc, at, v16, err);
done:
    ckpi_escapes_free(&out.wesc);
    ckpi_escapes_free(&out.mesc);
    ckpi_escapes_free(&out.vesc);
    ckpi_scratch_release(ws, mark);
    if (st != CKP_OK)
        ckpi_fail_tensor(err, p->pred->table->rec[pc->tensor].name);
    return st;
}

/* Bytes of a group's pieces, one after another. */
static ckp_status
stage_bytes(const ckpi_pass *p, const ckpi_group *grp, uint8_t *dst, ckp_error *err)
{
    for (size_t k = 0; k < grp->n_pieces; k++) {
        const ckpi_piece *pc = &grp->piece[k];
        const ckpi_tensor *t = &p->state->t[pc->tensor];
        uint64_t len = 0;
        (void)ckpi_dtype_bytes(t->dtype, pc->count, &len);
        const ckp_status st = ckpi_tensor_copy_out(t, pc->first, pc->count, dst, err);
        if (st != CKP_OK) {
            ckpi_fail_tensor(err, t->name);
            return st;
        }
        dst += len;
    }
    return CKP_OK;
}

bool
ckpi_state_pulls(const ckp_state *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->t[i].pull != NULL && !s->t[i].shared_pull)
            return true;
    return false;
}

ckp_status
ckpi_pass_group(const ckpi_pass *p, size_t g, ckpi_stage *s, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &p->pred->layout->g[g];
    size_t at = 0;
    ckp_status st = CKP_OK;

    s->key = p->key;
    s->w_key = p->key && !(p->on_model && ckpi_role_is_weight(grp->role));
    s->exact_w = grp->lossy && p->set->exact_weights;
    s->indexed = ckpi_dq_takes(grp, p->set);
    s->wesc.n = s->mesc.n = s->vesc.n = s->idx.n_kept = 0;
    s->mthree = moments_kind(grp, p->set) == CKPI_M_CLAMPED;
    s->clusters = grp->clustered ? p->set->clusters : CKPI_CLUSTERS_NONE;
    s->stale = false;
    s->lsum = s->move = 0;
    s->lcount = s->n_move = 0;
    if (grp->lossy && p->key)
        st = ckpi_recon_alloc(p->pred, g, err);
    if (st == CKP_OK && (!grp->lossy || s->exact_w))
        st = stage_bytes(p, grp, s->raw, err);
    if (st == CKP_OK && grp->lossy)
        st = alloc_delta(p, g, s, err);
    for (size_t k = 0; st == CKP_OK && grp->lossy && k < grp->n_pieces; k++) {
        st = pass_piece(p, g, k, at, s, ws, err);
        at += (size_t)grp->piece[k].count;
    }
    return st;
}
