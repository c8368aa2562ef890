/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows whose moments are floats, as torch keeps them: not corrected, without factors. For parameters that have no rows, which are few and small.
 * Plain C: what comes of an element depends on nothing but itself. Names are kern.h's; python/ckpress/torch/_torch_step.py has the same order of operations.
 */
#include <float.h>
#include <math.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "optim/job.h"

CKPI_NO_CONTRACT

ckp_status
ckpi_o_wide_shape(ckpi_o_shape *s, const ckp_optim_tensor *t, ckp_error *err)
{
    const bool alone = t->v_bits == 0;
    if (t->cols == 0 || t->cols > CKPI_O_COLS_MAX || t->numel > (uint64_t)INT64_MAX / 8)
        return ckpi_o_refuse(t, err, "rows of no or too many elements");
    if (t->m_bits != CKPI_O_WIDE || (!alone && t->v_bits != CKPI_O_WIDE) || t->col != NULL)
        return ckpi_o_refuse(t, err, "moments in f32 are both that, and have no factors");
    if (t->numel != 0 && (t->m == NULL || (t->v == NULL && !alone)))
        return ckpi_o_refuse(t, err, "no memory for its state");
    *s = (ckpi_o_shape){.cols = (size_t)t->cols, .rows = (size_t)((t->numel + t->cols - 1) / t->cols)};
    s->last = s->rows != 0 ? (size_t)(t->numel - (s->rows - 1) * t->cols) : 0;
    return CKP_OK;
}

void
ckpi_o_wide_parameters(ckpi_o_task *k)
{
    const ckp_adamw *h = k->t->how;
    k->wpar = (ckpi_o_wpar){
        .sign = h->maximize ? -1.0f : 1.0f,
        .l2 = h->coupled ? (float)h->weight_decay : 0.0f,
        .am = (float)h->beta1,
        .bm = (float)(1.0 - h->beta1),
        .av = (float)h->beta2,
        .bv = (float)(1.0 - h->beta2),
        .decay = (float)(h->coupled ? 1.0 : 1.0 - h->lr * h->weight_decay),
        .size = (float)(h->lr / k->m_corr),
        .root = (float)(1.0 / sqrt(k->v_corr)),
        .add = CKPI_MAX((float)h->eps, FLT_MIN),     /* 0 / 0 is no step */
    };
}

static bool
usable(float g)
{
    return (ckpi_f32_bits(g) & 0x7fffffffu) < CKPI_O_GRAD_END;
}

static float *
moments(uint8_t *at)
{
    return (float *)(void *)at;
}

void
ckpi_o_wide_adamw(const ckpi_o_task *k, ckpi_o_work *w, size_t i, ckpi_o_found *f)
{
    const ckpi_o_wpar *c = &k->wpar;
    const size_t n = ckpi_o_row_len(&k->shape, i), at = i * k->shape.cols;
    float *const p = ckpi_o_p_row(k->t, w, at, n), *const m = moments(k->t->m) + at, *const v = moments(k->t->v) + at;
    const float *const g = ckpi_o_g_row(k->t, at, n, w->g);
    for (size_t j = 0; j < n; j++) {
        const float x = c->l2 != 0.0f ? c->sign * g[j] + c->l2 * p[j] : c->sign * g[j];
        if (!usable(x)) {
            f->unusable++;
            continue;
        }
        m[j] = c->am * m[j] + c->bm * x;
        v[j] = c->av * v[j] + c->bv * (x * x);
        p[j] = p[j] * c->decay - c->size * m[j] / (sqrtf(v[j]) * c->root + c->add);
    }
    ckpi_o_p_back(k, w, at, n);
}

void
ckpi_o_wide_momentum(const ckpi_o_task *k, ckpi_o_work *w, size_t i, ckpi_o_found *f)
{
    const ckpi_o_mpar *c = &k->mpar;
    const size_t n = ckpi_o_row_len(&k->shape, i), at = i * k->shape.cols;
    float *const p = ckpi_o_p_row(k->t, w, at, n), *const m = moments(k->t->m) + at;
    const float *const g = ckpi_o_g_row(k->t, at, n, w->g);
    for (size_t j = 0; j < n; j++) {
        const float x = c->sign * g[j] + c->l2 * p[j];
        if (usable(x))
            m[j] = ckpi_o_move(c, &p[j], m[j], x);
        else
            f->unusable++;
    }
    ckpi_o_p_back(k, w, at, n);
}
