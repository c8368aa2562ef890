/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What steps by all rules share, and the rule of AdamW and Adam: everything is checked, everything is allocated, and only then anything is changed.
 *
 * First, for tensors where it is time, column factors (a job a tensor); then the rows, in parts of about PART elements.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/float.h"
#include "base/pool.h"
#include "optim/half.h"
#include "optim/job.h"
#include "optim/pack.h"

CKPI_NO_CONTRACT

enum { PART = 1 << 17 };

struct ckp_optim {
    ckpi_pool *pool;
    unsigned threads;
    ckpi_o_work *work;                   /* a worker's each */
    ckpi_o_task *tasks;
    ckpi_o_found *found;                 /* a part's each */
    size_t tasks_cap, found_cap;
    const ckpi_o_rule *rule;             /* of this call */
};

ckp_status
ckp_optim_new(ckp_optim **out, unsigned threads, ckp_error *err)
{
    ckpi_error_clear(err);
    if (out == NULL)
        return ckpi_fail(err, CKP_EINVAL, "optim_new: NULL argument");
    *out = NULL;
    ckp_optim *o = ckpi_calloc(1, sizeof *o);
    if (o == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "optim: out of memory");
    ckp_status st = ckpi_pool_new(&o->pool, threads, false, err);
    if (st == CKP_OK) {
        o->threads = ckpi_pool_threads(o->pool);
        o->work = ckpi_calloc(o->threads, sizeof *o->work);
        if (o->work == NULL)
            st = ckpi_fail(err, CKP_ENOMEM, "optim: out of memory");
    }
    if (st == CKP_OK)
        *out = o;
    else
        ckp_optim_free(o);
    return st;
}

void
ckp_optim_free(ckp_optim *o)
{
    if (o == NULL)
        return;
    ckpi_pool_free(o->pool);
    for (unsigned i = 0; o->work != NULL && i < o->threads; i++)
        ckpi_o_work_free(&o->work[i]);
    free(o->work);
    free(o->tasks);
    free(o->found);
    free(o);
}

ckp_status
ckpi_optim_reserve(ckp_optim *o, size_t cols, ckp_error *err)
{
    for (unsigned i = 0; i < o->threads; i++)
        if (!ckpi_o_work_grow(&o->work[i], cols))
            return ckpi_fail(err, CKP_ENOMEM, "optim: out of memory");
    return CKP_OK;
}

ckpi_o_work *
ckpi_optim_work(ckp_optim *o, unsigned worker)
{
    return &o->work[worker];
}

ckpi_pool *
ckpi_optim_pool(ckp_optim *o)
{
    return o->pool;
}

ckp_status
ckpi_o_refuse(const ckp_optim_tensor *t, ckp_error *err, const char *why)
{
    const ckp_status st = ckpi_fail(err, CKP_EINVAL, "optim: %s", why);
    if (t->name != NULL)
        ckpi_fail_tensor(err, t->name);
    return st;
}

static bool
is_float(ckp_dtype d)
{
    return d == CKP_F32 || d == CKP_BF16 || d == CKP_F16;
}

bool
ckpi_o_not_negative(double x)
{
    return x >= 0.0 && x <= (double)FLT_MAX;
}

static ckp_status
check_adamw(const ckp_optim_tensor *t, ckp_error *err)
{
    const ckp_adamw *h = t->how;
    if (h == NULL || t->v_bits == 0)
        return ckpi_o_refuse(t, err, "no settings, or no v");
    if (!ckpi_o_not_negative(h->lr) || !ckpi_o_not_negative(h->eps) || !ckpi_o_not_negative(h->weight_decay))
        return ckpi_o_refuse(t, err, "lr, eps and weight_decay must be finite and not negative");
    if (!(h->beta1 >= 0.0 && h->beta1 < 1.0 && h->beta2 >= 0.0 && h->beta2 < 1.0))
        return ckpi_o_refuse(t, err, "betas must be 0 or more and below 1");
    if (t->sums != NULL && ckpi_o_fits_columns(t) && !ckpi_o_sums_sound(t))
        return ckpi_o_refuse(t, err, CKPI_O_NO_SUMS);
    return CKP_OK;
}

ckp_status
ckpi_o_check(const ckp_optim_tensor *t, ckp_error *err)
{
    if (t->step == 0)
        return ckpi_o_refuse(t, err, "steps are counted from 1");
    if (!is_float(t->p_dtype) || !is_float(t->g_dtype))
        return ckpi_o_refuse(t, err, "parameters and gradients must be float32, bfloat16 or float16");
    if (t->numel != 0 && (t->p == NULL || t->g == NULL))
        return ckpi_o_refuse(t, err, "no parameter or no gradient");
    if (t->rest_bits != 0 && (t->p_dtype != CKP_BF16 || (t->rest_bits != 8 && t->rest_bits != 16) || (t->rest == NULL && t->numel != 0)))
        return ckpi_o_refuse(t, err, "a master weight is bfloat16 with 8 or 16 more bits");
    return CKP_OK;
}

/* b to the n, by squaring: libm's pow is not the same everywhere. */
static double
power(double b, uint64_t n)
{
    double r = 1.0;
    for (; n > 0; n >>= 1, b *= b)
        if (n & 1)
            r *= b;
    return r;
}

/* What torch computes from uncorrected moments, in terms of corrected ones, m in units of h. */
static void
parameters(ckpi_o_task *k)
{
    const ckp_adamw *h = k->t->how;
    ckpi_o_par *p = &k->par;
    k->m_corr = 1.0 - power(h->beta1, k->t->step);
    k->v_corr = 1.0 - power(h->beta2, k->t->step);
    if (k->t->m_bits == CKPI_O_WIDE) {
        ckpi_o_wide_parameters(k);
        return;
    }
    const double unit = (double)k->shape.mg.h, gs = sqrt((1.0 - h->beta2) / k->v_corr), bm = (1.0 - h->beta1) / k->m_corr;
    const double noise = (double)k->shape.vg.noise, l2 = h->coupled ? h->weight_decay : 0.0;
    k->fresh = k->t->v_corr == 0.0;
    p->gs = (float)gs;
    p->l2 = (float)(h->maximize ? -l2 : l2);
    p->am = (float)(h->beta1 * k->t->m_corr / k->m_corr * (double)CKPI_O_AGAIN);
    p->bm = (float)((h->maximize ? -bm : bm) / gs / unit);
    p->av = (float)(h->beta2 * k->t->v_corr / k->v_corr);
    p->decay = (float)(h->coupled ? 1.0 : 1.0 - h->lr * h->weight_decay);
    p->root = (float)(noise / h->lr / unit);
    p->add = (float)(h->eps / h->lr / unit);
    if (!(p->root <= 0x1p100f)) {        /* lr next to nothing or nothing at all: p gets its decay alone */
        p->root = 0.0f;
        p->add = INFINITY;
    } else if (!(p->add >= FLT_MIN))     /* 0 / 0 is no step */
        p->add = FLT_MIN;
    p->m = k->shape.mg;
    p->vmant = k->shape.vg.mant;
    p->vtop = k->shape.vg.top;
    p->plain = p->gs * p->gs >= CKPI_O_G2_MIN;
    ckpi_o_par_tables(p);
}

static bool
reserve(void **at, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap)
        return true;
    void *more = ckpi_realloc(*at, n, size);
    if (more == NULL)
        return false;
    *at = more;
    *cap = n;
    return true;
}

ckp_status
ckpi_o_task_of(ckpi_o_task *k, ckp_optim_tensor *t, const ckpi_o_rule *rule, ckp_error *err)
{
    ckp_status st = t->m_bits == CKPI_O_WIDE ? ckpi_o_wide_shape(&k->shape, t, err) : ckpi_o_shape_of(&k->shape, t, err);
    if (st == CKP_OK)
        st = ckpi_o_check(t, err);
    if (st == CKP_OK)
        st = rule->check(t, err);
    if (st != CKP_OK)
        return st;
    k->t = t;
    rule->parameters(k);
    k->key = ckpi_o_key(t, CKPI_O_USE_STEP);
    k->p_key = ckpi_o_key(t, CKPI_O_USE_P);
    return CKP_OK;
}

static ckp_status
prepare(ckp_optim *o, ckp_optim_tensor *t, size_t n, size_t *cols, ckp_error *err)
{
    size_t parts = 0;
    *cols = 0;
    for (size_t i = 0; i < n; i++) {
        ckpi_o_task *k = &o->tasks[i];
        const ckp_status st = ckpi_o_task_of(k, &t[i], o->rule, err);
        if (st != CKP_OK)
            return st;
        k->part = CKPI_MAX((size_t)PART / k->shape.cols, (size_t)1);
        parts += (k->shape.rows + k->part - 1) / k->part;
        k->parts = parts;
        *cols = CKPI_MAX(*cols, k->shape.cols);
    }
    return CKP_OK;
}

const float *
ckpi_o_g_row(const ckp_optim_tensor *t, size_t at, size_t n, float *to)
{
    if (t->g_dtype == CKP_F32)
        return (const float *)t->g + at;
    ckpi_half_up(to, (const uint16_t *)t->g + at, n, t->g_dtype);
    return to;
}

static void *
rest_at(const ckp_optim_tensor *t, size_t at)
{
    return (uint8_t *)t->rest + at * (t->rest_bits / 8);
}

float *
ckpi_o_p_row(const ckp_optim_tensor *t, ckpi_o_work *w, size_t at, size_t n)
{
    if (t->p_dtype == CKP_F32)
        return (float *)t->p + at;
    const uint16_t *p = (const uint16_t *)t->p + at;
    if (t->rest_bits != 0)
        ckpi_split_up(w->p, p, rest_at(t, at), t->rest_bits, n);
    else
        ckpi_half_up(w->p, p, n, t->p_dtype);
    return w->p;
}

void
ckpi_o_p_back(const ckpi_o_task *k, const ckpi_o_work *w, size_t at, size_t n)
{
    const ckp_optim_tensor *t = k->t;
    const uint32_t z = k->p_key + (uint32_t)(t->first + at) * CKPI_O_WALK;
    if (t->rest_bits != 0)
        ckpi_split_down((uint16_t *)t->p + at, rest_at(t, at), t->rest_bits, w->p, n, z);
    else if (t->p_dtype != CKP_F32)
        ckpi_half_down((uint16_t *)t->p + at, w->p, n, t->p_dtype, z);
}

static void
fit_columns(void *user, size_t index, unsigned worker)
{
    ckp_optim *o = user;
    if (!ckpi_o_fits_columns(o->tasks[index].t))
        return;
    const ckpi_fpenv env = ckpi_fp_enter();
    o->rule->fit(&o->tasks[index], &o->work[worker]);
    ckpi_fp_leave(env);
}

/* A row of the step: its codes in a worker's memory, or where they belong (8 bits). */
static ckpi_o_row
row_of(const ckpi_o_task *k, ckpi_o_work *w, size_t i, int8_t *m, uint8_t *v)
{
    const ckp_optim_tensor *t = k->t;
    const size_t n = ckpi_o_row_len(&k->shape, i), at = i * k->shape.cols;
    return (ckpi_o_row){
        .row = t->row[i] != 0 ? t->row[i] : CKPI_O_ROW_MIN,
        .col = w->col,
        .z = k->key + (uint32_t)(t->first + at) * CKPI_O_WALK,
        .p = ckpi_o_p_row(t, w, at, n),
        .g = ckpi_o_g_row(t, at, n, w->g),
        .m = m,
        .v = v,
        .raw = w->raw,
    };
}

static void
step_any(const ckpi_o_task *k, const ckpi_o_ops *ops, ckpi_o_work *w, size_t i, ckpi_o_found *f)
{
    const ckpi_o_shape *s = &k->shape;
    ckp_optim_tensor *t = k->t;
    const size_t n = ckpi_o_row_len(s, i);
    uint8_t *m = t->m + i * s->m_bytes, *v = t->v + i * s->v_bytes;
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    int8_t *const km = t->m_bits == 8 ? (int8_t *)m : w->m;
    uint8_t *const kv = t->v_bits == 8 ? v : w->v;
    if (t->m_bits != 8)
        pk->unpack_signed(km, m, n, t->m_bits);
    if (t->v_bits != 8)
        pk->unpack(kv, v, n, t->v_bits);
    const ckpi_o_row r = row_of(k, w, i, km, kv);
    const ckpi_o_seen seen = ops->step(n, &k->par, &r);
    f->unusable += seen.unusable;
    if (!ckpi_o_row_stays(&s->vg, seen.raw_max, t->row[i])) {
        if (seen.raw_max <= s->vg.top)
            ckpi_o_widen(w->raw, kv, n);
        f->raised += ckpi_o_row_end(&s->mg, &s->vg, n, r.z, seen.raw_max, w->raw, km, kv, &t->row[i]);
    }
    if (t->m_bits != 8)
        pk->pack(m, (const uint8_t *)km, n, t->m_bits);
    if (t->v_bits != 8)
        pk->pack(v, kv, n, t->v_bits);
}

/* Codes of 4 bits are taken apart and put together in the step. What is left of the row behind its whole groups goes the common way. */
static void
step_4_4(const ckpi_o_task *k, const ckpi_o_ops *ops, ckpi_o_work *w, size_t i, ckpi_o_found *f)
{
    const ckpi_o_shape *s = &k->shape;
    ckp_optim_tensor *t = k->t;
    const size_t n = ckpi_o_row_len(s, i), whole = n / CKPI_O_GROUP * CKPI_O_GROUP, rest = n - whole;
    uint8_t *m = t->m + i * s->m_bytes, *v = t->v + i * s->v_bytes;
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    const ckpi_o_row r = row_of(k, w, i, w->m, w->v);
    const ckpi_o_row4 groups = {r.row, r.col, r.z, r.p, r.g, m, v, w->v};
    const ckpi_o_row last = {r.row, r.col + whole, r.z + (uint32_t)whole * CKPI_O_WALK, r.p + whole, r.g + whole, w->m + whole, w->v + whole, w->raw + whole};
    const ckpi_o_seen seen = ops->step4(whole, &k->par, &groups);
    ckpi_o_seen tail = {0, 0};
    if (rest != 0) {
        pk->unpack_signed(last.m, m + whole / 2, rest, 4);
        pk->unpack(w->v + whole, v + whole / 2, rest, 4);
        tail = ops->step(rest, &k->par, &last);
    }
    const uint32_t max = CKPI_MAX(seen.raw_max, tail.raw_max);
    const bool stays = ckpi_o_row_stays(&s->vg, max, t->row[i]);
    const size_t from = stays ? whole : 0;
    f->unusable += seen.unusable + tail.unusable;
    if (!stays) {
        pk->unpack_signed(w->m, m, whole, 4);
        for (size_t j = 0; j < whole; j++)
            w->raw[j] = w->v[j / CKPI_O_GROUP * CKPI_O_GROUP + ckpi_o_raw4_at(j % CKPI_O_GROUP)];
        if (tail.raw_max <= s->vg.top)
            ckpi_o_widen(w->raw + whole, w->v + whole, rest);
        f->raised += ckpi_o_row_end(&s->mg, &s->vg, n, r.z, max, w->raw, w->m, w->v, &t->row[i]);
    }
    pk->pack(m + from / 2, (const uint8_t *)w->m + from, n - from, 4);
    pk->pack(v + from / 2, w->v + from, n - from, 4);
}

static void
step_adamw(const ckpi_o_task *k, const ckpi_o_ops *ops, ckpi_o_work *w, size_t i, ckpi_o_found *f)
{
    const ckpi_o_shape *s = &k->shape;
    if (k->t->m_bits == 4 && k->t->v_bits == 4)
        step_4_4(k, ops, w, i, f);
    else
        step_any(k, ops, w, i, f);
    ckpi_o_p_back(k, w, i * s->cols, ckpi_o_row_len(s, i));
}

static void
step_part(void *user, size_t index, unsigned worker)
{
    ckp_optim *o = user;
    ckpi_o_work *w = &o->work[worker];
    const ckpi_o_ops *ops = ckpi_o_pick(ckpi_cpu());
    const ckpi_o_task *k = o->tasks;
    while (k->parts <= index)
        k++;
    const size_t before = k == o->tasks ? 0 : k[-1].parts, first = (index - before) * k->part;
    const size_t end = CKPI_MIN(first + k->part, k->shape.rows);
    const ckpi_fpenv env = ckpi_fp_enter();
    ckpi_o_cols_up(w->col, k->t->col, k->shape.cols);
    o->found[index] = (ckpi_o_found){0, 0};
    for (size_t i = first; i < end; i++)
        if (k->t->m_bits == CKPI_O_WIDE)
            o->rule->wide(k, w, i, &o->found[index]);
        else
            o->rule->row(k, ops, w, i, &o->found[index]);
    ckpi_fp_leave(env);
}

static void
finish(ckp_optim *o, size_t n)
{
    for (size_t i = 0, part = 0; i < n; i++) {
        const ckpi_o_task *k = &o->tasks[i];
        k->t->unusable = k->t->raised = 0;
        for (; part < k->parts; part++) {
            k->t->unusable += o->found[part].unusable;
            k->t->raised += o->found[part].raised;
        }
        k->t->m_corr = k->m_corr;
        k->t->v_corr = k->v_corr;
    }
}

ckp_status
ckpi_o_run(ckp_optim *o, ckp_optim_tensor *t, size_t n, const ckpi_o_rule *rule, ckp_error *err)
{
    if (n == 0)
        return CKP_OK;
    size_t cols = 0;
    o->rule = rule;
    bool room = reserve((void **)&o->tasks, &o->tasks_cap, n, sizeof *o->tasks);
    if (room) {
        const ckp_status st = prepare(o, t, n, &cols, err);
        if (st != CKP_OK)
            return st;
        room = reserve((void **)&o->found, &o->found_cap, o->tasks[n - 1].parts, sizeof *o->found);
    }
    if (!room)
        return ckpi_fail(err, CKP_ENOMEM, "optim: out of memory");
    const ckp_status ready = ckpi_optim_reserve(o, cols, err);
    if (ready != CKP_OK)
        return ready;
    bool fits = false;
    for (size_t i = 0; i < n; i++)
        fits = fits || (rule->fit != NULL && ckpi_o_fits_columns(&t[i]));
    ckp_status st = CKP_OK;
    if (fits)
        st = ckpi_pool_run(o->pool, n, fit_columns, o, err);
    if (st == CKP_OK)
        st = ckpi_pool_run(o->pool, o->tasks[n - 1].parts, step_part, o, err);
    if (st == CKP_OK)
        finish(o, n);
    return st;
}

const ckpi_o_rule ckpi_o_adamw_rule = {check_adamw, parameters, ckpi_o_fit_columns, step_adamw, ckpi_o_wide_adamw};

ckp_status
ckp_optim_adamw(ckp_optim *o, ckp_optim_tensor *t, size_t n, ckp_error *err)
{
    ckpi_error_clear(err);
    if (o == NULL || (t == NULL && n != 0))
        return ckpi_fail(err, CKP_EINVAL, "optim_adamw: NULL argument");
    return ckpi_o_run(o, t, n, &ckpi_o_adamw_rule, err);
}
