/* SPDX-License-Identifier: Apache-2.0 */
/* One piece of live weights to indices: its codebook, kept or fitted anew, its codes, and what a decoder will make of them. */
#include <math.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "engine/dynaquant.h"
#include "engine/numbers.h"
#include "engine/values.h"
#include "quant/loss.h"

CKPI_NO_CONTRACT

/*
 * When a codebook is looked at again: its relative square error has grown by REGROWN since it was fitted. It is left when that pays
 * (ckpi_codebook_pays, CHURN bits for a value that changes its index), or when a fresh one has less than 1 / BOUND of its error.
 */
#define REGROWN 1.02
#define BOUND 1.25
#define CHURN 2.0
/* Centres are rounded to f16 where that adds less than this share to the square error, else they are f32. */
#define F16_SHARE (1.0 / 64.0)

/* One piece on its way. */
typedef struct work {
    const ckpi_partition *part;
    const float *w, *score;
    size_t n;
    int8_t *code;
    uint16_t *kept;              /* n */
    size_t n_kept;
    ckpi_codebook book;
    float *value;                /* 2 n: room for copies */
    uint32_t cpu;
    ckpi_scratch *ws;
} work;

static ckp_status
start(work *x, ckp_error *err)
{
    x->kept = ckpi_scratch_get(x->ws, x->n * sizeof *x->kept);
    x->value = ckpi_scratch_get(x->ws, 2 * x->n * sizeof *x->value);
    return x->kept != NULL && x->value != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for the indices of %zu weights", x->n);
}

/* Codes of all values by the book that x has. */
static void
assign(work *x)
{
    x->n_kept = ckpi_codebook_assign(&x->book, x->part, x->w, x->score, x->n, x->code, x->kept, x->cpu);
}

/* Of a large piece, every eighth stretch is looked at: whether a codebook still fits is no matter of single values. */
enum { STRETCH = 1024, ALL_BELOW = 65536 };

/* Square error of the values that have a level, relative to their squares. 0 without any. */
static double
relative_error(const work *x)
{
    const size_t step = x->n < ALL_BELOW ? STRETCH : 8 * STRETCH;
    const uint32_t k = x->book.k;
    double err2 = 0.0, sum2 = 0.0;

    for (size_t at = 0; at < x->n; at += step)
        for (size_t i = at; i < x->n && i < at + STRETCH; i++) {
            const unsigned level = (unsigned)x->code[i] - 1U;
            if (level >= k)
                continue;
            const double w = (double)x->w[i], e = w - (double)x->book.centre[level];
            err2 += e * e;
            sum2 += w * w;
        }
    return sum2 > 0.0 ? err2 / sum2 : 0.0;
}

/* ---- a fresh codebook --------------------------------------------------------------------------------------------- */

/* Points of the values that are neither pruned nor protected: those have code 1 under a book of one level. */
static ckp_status
points_of(work *x, ckpi_points *points, ckp_error *err)
{
    ckpi_sketch *s = ckpi_scratch_get(x->ws, sizeof *s);
    size_t n = 0;

    if (s == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a sketch of weights");
    x->book = (ckpi_codebook){.k = 1};
    assign(x);
    for (size_t i = 0; i < x->n; i++) {
        x->value[n] = x->w[i];
        n += x->code[i] == 1;
    }
    ckpi_sketch_clear(s);
    const ckp_status st = ckpi_sketch_add(s, x->value, n, x->ws, x->cpu, err);
    return st == CKP_OK ? ckpi_points_of(points, s, 0.0F, INFINITY, x->ws, err) : st;
}

/* Rounded to f16 where that hardly shows. */
static void
shorten(work *x)
{
    ckpi_level_sums sums = {0};
    ckpi_codebook half = x->book;
    double err2 = 0.0, more = 0.0;

    assign(x);
    ckpi_level_sums_add(&sums, x->w, x->code, x->n);
    for (size_t i = 0; i < x->n; i++) {
        const unsigned level = (unsigned)x->code[i] - 1U;
        const double e = level < x->book.k ? (double)x->w[i] - (double)x->book.centre[level] : 0.0;
        err2 += e * e;
    }
    for (uint32_t k = 0; k < half.k; k++) {
        half.centre[k] = ckpi_f16_to_f32(ckpi_f32_to_f16(x->book.centre[k]));
        const double off = (double)half.centre[k] - (double)x->book.centre[k];
        more += (double)sums.count[k] * (off * off);
    }
    if (ckpi_codebook_valid(&half) && more <= F16_SHARE * err2)
        x->book = half;
}

/* Centres become the means of their values: exact for a tensor of few values. */
static void
recentre(work *x)
{
    ckpi_level_sums sums = {0};
    ckpi_codebook better = x->book;

    assign(x);
    ckpi_level_sums_add(&sums, x->w, x->code, x->n);
    ckpi_codebook_recentre(&better, &sums);
    if (ckpi_codebook_valid(&better))
        x->book = better;
}

/* The book to code with: `old`, or a fresh one in its place. *fit: as in ckpi_indices. */
static ckp_status
choose_book(work *x, const ckpi_codebook *old, uint32_t bins, double *fit, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(x->ws);
    ckpi_points points;
    ckpi_codebook_fit all;
    ckpi_codebook fresh = {0};

    ckp_status st = points_of(x, &points, err);
    if (st == CKP_OK)
        st = ckpi_codebook_fit_all(&all, &points, bins, x->ws, err);
    if (st != CKP_OK)
        return st;
    ckpi_codebook_take(&fresh, &all, bins);
    const bool leave = old == NULL || ckpi_codebook_pays(old, &fresh, &points, CHURN) ||
                       ckpi_codebook_error(old, &points) > BOUND * ckpi_codebook_error(&fresh, &points);
    x->book = fresh;
    if (leave) {
        recentre(x);
        shorten(x);
    }
    assign(x);
    *fit = relative_error(x);    /* where the old one stays: what it is measured against */
    if (!leave) {
        x->book = *old;
        assign(x);
    }
    ckpi_scratch_release(x->ws, mark);
    return CKP_OK;
}

/* A book of the last save with as many levels as are wanted. Fewer mean that there were fewer values: that is no pattern to keep. */
static const ckpi_codebook *
last_book(const ckpi_pass *p, const ckpi_indices *last, size_t k, uint32_t bins)
{
    return !p->key && last->code != NULL && last->book[k].k == bins ? &last->book[k] : NULL;
}

static ckp_status
set_codes(work *x, const ckpi_codebook *old, double last_fit, uint32_t bins, double *fit, ckp_error *err)
{
    *fit = last_fit;
    if (old != NULL && last_fit >= 0.0) {
        x->book = *old;
        assign(x);
        if (relative_error(x) <= REGROWN * last_fit)
            return CKP_OK;
    }
    return choose_book(x, old, bins, fit, err);
}

/* ---- what comes back ---------------------------------------------------------------------------------------------- */

static void
round_to(ckp_dtype dt, float *x, size_t n)
{
    for (size_t i = 0; dt == CKP_BF16 && i < n; i++)
        x[i] = ckpi_bf16_to_f32(ckpi_f32_to_bf16(x[i]));
    for (size_t i = 0; dt == CKP_F16 && i < n; i++)
        x[i] = ckpi_f16_to_f32(ckpi_f32_to_f16(x[i]));
}

static ckp_status
add_escape(ckpi_escapes *all, size_t index, uint32_t bits, ckp_error *err)
{
    if (all->n == all->cap) {
        const size_t cap = 2 * all->cap + 8;
        ckpi_escape *e = ckpi_realloc(all->at, cap, sizeof *e);
        if (e == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu escapes", cap);
        all->at = e;
        all->cap = cap;
    }
    all->at[all->n++] = (ckpi_escape){(uint32_t)index, bits};
    return CKP_OK;
}

/* What neither a centre nor a bf16 can carry is exact: an escape, and w itself in w^. Only kept values can be such. */
static ckp_status
add_escapes(const work *x, float *wrec, size_t at, const uint16_t *w16, ckpi_escapes *esc, ckpi_piece_sums *sums, ckp_error *err)
{
    const int8_t protect = (int8_t)(x->book.k + 1);
    ckp_status st = CKP_OK;

    for (size_t i = 0; st == CKP_OK && x->n_kept != 0 && i < x->n; i++) {
        if (x->code[i] != protect || isfinite(wrec[i]))
            continue;
        sums->n_nan += isnan(x->w[i]) != 0;
        sums->n_inf += isinf(x->w[i]) != 0;
        wrec[i] = x->w[i];
        st = add_escape(esc, at + i, w16 != NULL ? w16[i] : ckpi_f32_bits(x->w[i]), err);
    }
    return st;
}

/* The errors of what is finite. x->value has served: it holds copies where something is not. */
static void
add_errors(work *x, const float *wrec, ckpi_piece_sums *sums)
{
    const float *w = x->w, *r = wrec;
    ckpi_loss_sums l;
    size_t n = x->n;

    if (sums->n_nan + sums->n_inf != 0) {
        float *finite = x->value, *back = x->value + x->n;
        n = 0;
        for (size_t i = 0; i < x->n; i++) {
            finite[n] = w[i];
            back[n] = wrec[i];
            n += isfinite(w[i]) != 0;
        }
        w = finite;
        r = back;
    }
    ckpi_loss_of(&l, w, r, n, x->cpu);
    sums->w_max_err = l.max_err;
    sums->w_err2 = l.err2;
    sums->w_sum2 = l.sum2;
}

/* w^ of all values, and what it cost. */
static ckp_status
reconstruct(work *x, ckp_dtype dt, float *wrec, size_t at, const uint16_t *w16, ckpi_escapes *esc, ckpi_piece_sums *sums, ckp_error *err)
{
    ckp_status st = ckpi_codebook_decode(&x->book, x->code, x->n, x->kept, x->n_kept, wrec, err);

    round_to(dt, wrec, x->n);
    if (st == CKP_OK)
        st = add_escapes(x, wrec, at, w16, esc, sums, err);
    if (st == CKP_OK)
        add_errors(x, wrec, sums);
    return st;
}

static ckp_status
keep_values(ckpi_indices *idx, const work *x, ckp_error *err)
{
    uint16_t *to = ckpi_indices_room(idx, x->n_kept);

    if (to == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu protected weights", x->n_kept);
    memcpy(to, x->kept, x->n_kept * sizeof *to);
    idx->n_kept += x->n_kept;
    return CKP_OK;
}

ckp_status
ckpi_dq_piece(const ckpi_pass *p, size_t g, size_t k, size_t at, const float *w, const uint16_t *w16, const float *v, ckpi_stage *s,
              ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &p->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    ckpi_recon *r = &p->pred->rec[g];
    const uint8_t kind = p->dq->kind[pc->tensor];
    const uint32_t bins = kind == CKPI_LAYER_EMBEDDING ? p->dq->num.bins_embedding : p->dq->num.bins;
    const ckpi_codebook *old = last_book(p, &r->idx, k, bins);
    ckpi_piece_sums *sums = &s->sums[k];
    work x = {.w = w, .n = (size_t)pc->count, .code = s->idx.code + at, .cpu = p->cpu, .ws = ws};

    sums->n_nan = sums->n_inf = 0;
    ckp_status st = ckpi_dq_scores(p->dq, grp, k, w, v, x.n, &x.score, p->cpu, ws, err);
    if (st == CKP_OK)
        st = start(&x, err);
    if (st != CKP_OK)
        return st;
    x.part = &p->dq->part[kind][x.score != NULL];
    const ckpi_fpenv env = ckpi_fp_enter();
    st = set_codes(&x, old, old != NULL ? r->idx.fit[k] : -1.0, bins, &s->idx.fit[k], err);
    if (st == CKP_OK)
        st = reconstruct(&x, grp->dtype, r->wrec + at, at, w16, &s->wesc, sums, err);
    if (st == CKP_OK)
        st = keep_values(&s->idx, &x, err);
    ckpi_fp_leave(env);
    s->idx.book[k] = x.book;
    return st;
}

static ckp_status
piece_again(const ckpi_pass *p, size_t g, size_t k, size_t at, ckpi_stage *s, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &p->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    const float *w = NULL, *v = NULL;
    const uint16_t *w16 = NULL, *v16 = NULL;

    ckp_status st = ckpi_piece_f32(&p->state->t[pc->tensor], pc->first, (size_t)pc->count, &w, &w16, ws, err);
    if (st == CKP_OK && grp->has_v)
        st = ckpi_piece_f32(&p->state->t[grp->v[k]], pc->first, (size_t)pc->count, &v, &v16, ws, err);
    return st == CKP_OK ? ckpi_dq_piece(p, g, k, at, w, w16, v, s, ws, err) : st;
}

ckp_status
ckpi_dq_again(const ckpi_pass *p, size_t g, ckpi_stage *s, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_group *grp = &p->pred->layout->g[g];
    ckp_status st = CKP_OK;
    size_t at = 0;

    if (!s->indexed)
        return CKP_OK;
    s->wesc.n = s->idx.n_kept = 0;
    for (size_t k = 0; st == CKP_OK && k < grp->n_pieces; k++) {
        const size_t mark = ckpi_scratch_mark(ws);
        st = piece_again(p, g, k, at, s, ws, err);
        ckpi_scratch_release(ws, mark);
        at += (size_t)grp->piece[k].count;
        if (st != CKP_OK)
            ckpi_fail_tensor(err, p->pred->table->rec[grp->piece[k].tensor].name);
    }
    return st;
}
