/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Column factors: when they are fitted, the sums they follow from, and codes rewritten for them.
 *
 * They are fitted to the first gradient, and then, at steps that are powers of two, to v. All else is a row's own affair, so that
 * sums added over the parts of a parameter are all that parts must tell each other.
 */
#include <string.h>
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/float.h"
#include "optim/job.h"
#include "optim/pack.h"

CKPI_NO_CONTRACT

/* More elements have no memory anywhere, and sums of their exponents, times 512, no int64. */
#define ELEMENTS_MAX (INT64_C(1) << 44)
#define EXPONENT_END 512                 /* of a sum's: of a row, a column and a code, or of a float */

bool
ckp_optim_sums_due(const ckp_optim_tensor *t, uint64_t total)
{
    return t != NULL && t->col != NULL && total > t->cols && (t->v_corr == 0.0 || (t->step & (t->step - 1)) == 0);
}

bool
ckpi_o_fits_columns(const ckp_optim_tensor *t)
{
    return ckp_optim_sums_due(t, t->sums != NULL ? UINT64_MAX : t->numel);
}

bool
ckpi_o_sums_sound(const ckp_optim_tensor *t)
{
    int64_t all = 0;
    for (uint64_t j = 0; j < t->cols; j++) {
        const int64_t sum = t->sums[2 * j], count = t->sums[2 * j + 1];
        if (count < 0 || count > ELEMENTS_MAX || sum < 0 || sum > EXPONENT_END * count || (all += count) > ELEMENTS_MAX)
            return false;
    }
    return true;
}

void
ckpi_o_sums_take(const ckp_optim_tensor *t, ckpi_o_colsum *to)
{
    for (uint64_t j = 0; j < t->cols; j++)
        to[j] = (ckpi_o_colsum){t->sums[2 * j], (uint64_t)t->sums[2 * j + 1]};
}

/* Exponents by column of what factors are fitted to, into w->sum. */
static void
add_up(const ckp_optim_tensor *t, const ckpi_o_shape *s, ckpi_o_work *w)
{
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    memset(w->sum, 0, s->cols * sizeof *w->sum);
    for (size_t i = 0; i < s->rows; i++) {
        const size_t n = ckpi_o_row_len(s, i);
        if (t->v_corr == 0.0) {
            ckpi_o_cols_of_floats(w->sum, n, ckpi_o_g_row(t, i * s->cols, n, w->g), true);
            continue;
        }
        pk->unpack(w->v, t->v + i * s->v_bytes, n, t->v_bits);
        ckpi_o_cols_of_codes(w->sum, n, w->v, t->col, t->row[i], s->vg.mant);
    }
}

/* Raw codes of a row under columns' factors `now`, and the row's own raised by `lift`; v that falls below code 1 becomes that. */
static uint32_t
lifted(uint16_t *raw, const uint8_t *v, size_t n, const int8_t *was, const int8_t *now, int lift, unsigned mant)
{
    uint32_t max = 0;
    for (size_t j = 0; j < n; j++) {
        const int c = v[j] + (was[j] - now[j] + lift) * (1 << mant);
        raw[j] = (uint16_t)(v[j] == 0 ? 0 : c < 1 ? 1 : c);
        max = max > raw[j] ? max : raw[j];
    }
    return max;
}

/* Factors from the sums in w->sum, and all codes for them. */
static void
refit(ckp_optim_tensor *t, const ckpi_o_shape *s, ckpi_o_work *w, uint32_t key)
{
    int8_t *now = (int8_t *)w->p;        /* p's memory serves: nobody else needs it here */
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    int most = 0;
    ckpi_o_cols_fit(w->sum, s->cols, now);
    if (memcmp(now, t->col, s->cols) == 0)
        return;
    for (size_t j = 0; j < s->cols; j++)
        most = most > now[j] - t->col[j] ? most : now[j] - t->col[j];
    for (size_t i = 0; i < s->rows; i++) {
        const size_t n = ckpi_o_row_len(s, i);
        if (t->row[i] == 0)
            continue;
        pk->unpack(w->v, t->v + i * s->v_bytes, n, t->v_bits);
        pk->unpack_signed(w->m, t->m + i * s->m_bytes, n, t->m_bits);
        /* A row that cannot bear it all takes what it can, whatever other rows do: its v is next to nothing. */
        const int room = t->row[i] - (int)CKPI_O_ROW_MIN, lift = room < most ? room : most;
        const uint32_t max = lifted(w->raw, w->v, n, t->col, now, lift, s->vg.mant);
        uint8_t row = (uint8_t)(t->row[i] - lift);
        ckpi_o_row_end(&s->mg, &s->vg, n, key + (uint32_t)(t->first + i * t->cols) * CKPI_O_WALK, max, w->raw, w->m, w->v, &row);
        t->row[i] = row;
        pk->pack(t->v + i * s->v_bytes, w->v, n, t->v_bits);
        pk->pack(t->m + i * s->m_bytes, (uint8_t *)w->m, n, t->m_bits);
    }
    memcpy(t->col, now, s->cols);
}

void
ckpi_o_fit_columns(const ckpi_o_task *k, ckpi_o_work *w)
{
    const ckp_optim_tensor *t = k->t;
    if (t->sums == NULL)
        add_up(t, &k->shape, w);
    else
        ckpi_o_sums_take(t, w->sum);
    if (t->v_corr == 0.0)
        ckpi_o_cols_fit(w->sum, k->shape.cols, t->col);
    else
        refit(k->t, &k->shape, w, ckpi_o_key(t, CKPI_O_USE_REFIT));
}

typedef struct sums_job {
    ckp_optim *o;
    ckp_optim_tensor *t;
} sums_job;

static void
sums_of(void *user, size_t index, unsigned worker)
{
    const sums_job *job = user;
    const ckp_optim_tensor *t = &job->t[index];
    ckpi_o_work *w = ckpi_optim_work(job->o, worker);
    ckpi_o_shape s;
    if (ckpi_o_shape_of(&s, t, NULL) != CKP_OK)
        return;                          /* it was looked at before */
    const ckpi_fpenv env = ckpi_fp_enter();
    add_up(t, &s, w);
    ckpi_fp_leave(env);
    for (size_t j = 0; j < s.cols; j++) {
        t->sums[2 * j] = w->sum[j].sum;
        t->sums[2 * j + 1] = (int64_t)w->sum[j].count;
    }
}

ckp_status
ckp_optim_sums(ckp_optim *o, ckp_optim_tensor *t, size_t n, ckp_error *err)
{
    size_t cols = 0;
    ckpi_error_clear(err);
    if (o == NULL || (t == NULL && n != 0))
        return ckpi_fail(err, CKP_EINVAL, "optim_sums: NULL argument");
    for (size_t i = 0; i < n; i++) {
        ckpi_o_shape s;
        ckp_status st = ckpi_o_shape_of(&s, &t[i], err);
        if (st == CKP_OK)
            st = ckpi_o_check(&t[i], err);
        if (st == CKP_OK && (t[i].v_bits == 0 || t[i].col == NULL || t[i].sums == NULL))
            st = ckpi_o_refuse(&t[i], err, "no columns' factors, or no memory for their sums");
        if (st != CKP_OK)
            return st;
        cols = CKPI_MAX(cols, s.cols);
    }
    const ckp_status ready = ckpi_optim_reserve(o, cols, err);
    if (ready != CKP_OK || n == 0)
        return ready;
    sums_job job = {o, t};
    return ckpi_pool_run(ckpi_optim_pool(o), n, sums_of, &job, err);
}
