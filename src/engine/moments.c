/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/fixed.h"
#include "base/float.h"
#include "engine/moments.h"

enum { SAMPLE = 2048, SHARE_OF_PIECE = 8, AHEAD = 16 };
/* Codes of u are of this size where its energy is: clamped at ten times that, and off by less than three values by far. */
#define SIZE_IN_STEPS 20.0
/* At the shares in use, a kept value stands for 10 to 20 times the smallest that is kept. A distribution that has changed must not become a blow. */
#define AT_MOST 32.0
/* Steps outside are of no use: scales reach 2^-148. */
#define TINY 0x1p-110
#define HUGE_STEP 0x1p100

static double
size_of(const ckpi_enc_in *in, size_t i)
{
    const double m = fabs((double)in->m[i]);

    if (!isfinite(m))
        return 0.0;
    if (in->v != NULL) {
        const float v = in->v[i];
        return v > 0.0F && isfinite(v) ? m * (double)in->kc / sqrt((double)v) : 0.0;
    }
    const int32_t row = in->grid.row != NULL ? in->grid.row[i / in->grid.cols] : 0;
    const int32_t col = in->grid.col != NULL ? in->grid.col[i % in->grid.cols] : 0;
    const double rq = (double)ckpi_exp2_fixed(-row) * (double)ckpi_exp2_fixed(-col);
    return m * (double)in->kc * rq * rq;
}

/* The k-th of a sample: not along a column. */
static size_t
nth(size_t every, size_t k)
{
    return every * k + (k * 7) % every;
}

/* Elements of a sample are far from each other, and memory is what they wait for. */
static void
fetch(const ckpi_enc_in *in, size_t i)
{
    __builtin_prefetch(in->m + i);
    if (in->v != NULL)
        __builtin_prefetch(in->v + i);
}

/* count elements, spread over the piece. */
static ckpi_reach
reach_of(const ckpi_enc_in *in, size_t count)
{
    const size_t every = in->grid.n / count;
    double two = 0.0, four = 0.0, largest = 0.0;

    for (size_t k = 0; k < count; k++) {
        fetch(in, nth(every, CKPI_MIN(k + AHEAD, count - 1)));
        const double u = fmin(size_of(in, nth(every, k)), HUGE_STEP);
        const double sq = u * u;
        two += sq;
        four += sq * sq;
        largest = fmax(largest, u);
    }
    /* where the energy is: most elements of an embedding's moments are zero */
    const double size = two > 0.0 ? sqrt(four / two) : 0.0;
    return (ckpi_reach){(float)(fmin(fmax(size / SIZE_IN_STEPS, largest > 0.0 ? TINY : 0.0), HUGE_STEP)), (float)largest};
}

void
ckpi_moments_sample(ckpi_reach *out, const ckpi_enc_in *in)
{
    const size_t n = in->grid.n;

    *out = (ckpi_reach){0};
    if (n == 0)
        return;
    const ckpi_fpenv env = ckpi_fp_enter();
    *out = reach_of(in, CKPI_MIN(CKPI_MAX(n / SHARE_OF_PIECE, 1), SAMPLE));
    if (!(out->largest > 0.0F))
        *out = reach_of(in, n);
    ckpi_fp_leave(env);
}

/* Momentum of SGD has none: what directions hold of convolutions does not pay (docs/decisions/0014). */
static ckp_status
code_piece(ckpi_low *low, float *mg, const ckpi_fac *f, bool directions, const int8_t *u, double step, double share, int8_t *code, ckpi_scratch *ws,
           uint32_t cpu, ckp_error *err)
{
    ckpi_three three;
    ckp_status st = CKP_OK;

    *low = (ckpi_low){.rows = f->rows, .cols = f->cols};
    if (directions && !f->blocks)
        st = ckpi_low_fit(low, u, f->n, f->cols, share, ws, cpu, err);
    if (st == CKP_OK)
        st = ckpi_three_code(&three, u, f->n, low, share, AT_MOST, code, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    *mg = (float)(three.size * step);
    return CKP_OK;
}

ckp_status
ckpi_moments_code(ckpi_moments *out, const ckpi_group *g, const ckpi_factors *fac, const int8_t *staged, const float *step, const float *share,
                  ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t n = g->n_pieces;
    ckpi_low *low = ckpi_scratch_get(ws, n * sizeof *low);
    int8_t *code = share != NULL ? ckpi_scratch_get(ws, (size_t)g->n) : NULL;
    bool any = false;
    size_t at = 0;
    ckp_status st = CKP_OK;

    *out = (ckpi_moments){.code = share != NULL ? code : staged, .mg = ckpi_scratch_get(ws, n * sizeof *out->mg)};
    if (low == NULL || out->mg == NULL || out->code == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %llu moments", (unsigned long long)g->n);
    if (share == NULL) {
        memcpy(out->mg, step, n * sizeof *step);
        return CKP_OK;
    }
    for (size_t k = 0; st == CKP_OK && k < n; k++) {
        st = code_piece(&low[k], &out->mg[k], &fac->at[k], g->has_v, staged + at, (double)step[k], (double)share[k], code + at, ws, cpu, err);
        /* from here on in m's own unit, as mg */
        if (st == CKP_OK && low[k].rank != 0) {
            low[k].gain = (float)((double)low[k].gain * (double)step[k]);
            any = true;
        }
        at += (size_t)g->piece[k].count;
    }
    out->low = any ? low : NULL;
    return st;
}
