/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan for a budget: curves by plan/rd, what else the file costs by coding it to nowhere, steps again for what is left of the budget.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "plan/rd.h"
#include "run/plan.h"

struct ckp_plan {
    ckp_plan_info info;
    ckp_plan_row *row;           /* names owned */
    size_t n;
    ckp_tensor_step *steps;      /* names are the rows' */
    size_t n_steps;
};

typedef struct work {
    const ckp_plan_options *opt;
    const ckp_state *state;
    ckpi_ctx *ctx;
    ckpi_pred *pred;
    ckpi_settings set;
    ckpi_pass pass;
    double *score;               /* by tensor */
    ckpi_rdplan *rd;
    double rest;                 /* bits of the file that are not codes of planned weights */
    double scale;                /* bits in the file for one of the curves */
    ckp_plan_info info;
} work;

/* ---- options ---------------------------------------------------------------------------------------------------------- */

ckp_status
ckpi_plan_check(const ckp_plan_options *opt, ckp_error *err)
{
    if (opt->size != sizeof *opt || (opt->n_scores != 0 && opt->scores == NULL))
        return ckpi_fail(err, CKP_EINVAL, "plan: options of another version, or scores at NULL");
    if ((unsigned)opt->target > CKP_PLAN_LOSS || !(opt->value > 0.0) || !isfinite(opt->value))
        return ckpi_fail(err, CKP_EINVAL, "plan: no target %d, or its value %g is not above 0", (int)opt->target, opt->value);
    if (opt->encodes < 1 || opt->encodes > 3)
        return ckpi_fail(err, CKP_EINVAL, "plan: %u encodes are not 1 to 3", opt->encodes);
    if (opt->coding.profile == CKP_PROFILE_LOSSLESS)
        return ckpi_fail(err, CKP_EINVAL, "a plan chooses steps, but the profile lossless has none");
    if (opt->coding.dynaquant != NULL)
        return ckpi_fail(err, CKP_EINVAL, "a plan chooses steps, but DynaQuant's codebooks have none");
    if (opt->coding.quality != 1.0)
        return ckpi_fail(err, CKP_EINVAL, "a plan chooses the steps: quality %g has nothing to scale", opt->coding.quality);
    for (size_t i = 0; i < opt->n_scores; i++) {
        const ckp_tensor_score *s = &opt->scores[i];
        if (s->name != NULL && s->score > 0.0 && isfinite(s->score))
            continue;
        const ckp_status st = ckpi_fail(err, CKP_EINVAL, "score %zu has no name, or %g is not above 0", i, s->score);
        ckpi_fail_tensor(err, s->name != NULL ? s->name : "");
        return st;
    }
    return ckpi_coding_check(&opt->coding, err);
}

static bool
is_weight(const ckpi_rec *r)
{
    return (r->role == CKP_ROLE_WEIGHT || r->role == CKP_ROLE_MASTER) && r->alias_of == CKPI_NO_TENSOR;
}

static ckp_status
take_scores(work *w, ckp_error *err)
{
    w->score = ckpi_calloc(w->state->n + 1, sizeof *w->score);
    if (w->score == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for scores");
    for (size_t i = 0; i < w->opt->n_scores; i++) {
        const char *name = w->opt->scores[i].name;
        uint32_t t = ckpi_state_find(w->state, name);
        if (t != CKPI_NO_TENSOR && w->state->t[t].alias_of != CKPI_NO_TENSOR)
            t = w->state->t[t].alias_of;
        if (t != CKPI_NO_TENSOR && w->pred->table->rec[t].copy_of != CKPI_NO_TENSOR)
            t = w->pred->table->rec[t].copy_of;
        if (t == CKPI_NO_TENSOR || !is_weight(&w->pred->table->rec[t])) {
            const ckp_status st = ckpi_fail(err, CKP_EINVAL, "a score for what is no weight of the state");
            ckpi_fail_tensor(err, name);
            return st;
        }
        w->score[t] = w->opt->scores[i].score;
    }
    return CKP_OK;
}

static double
cpu_seconds(const work *w)
{
    return ckpi_thread_cpu_seconds() + ckpi_pool_cpu_seconds(w->ctx->pool);
}

/* ---- what the file costs ---------------------------------------------------------------------------------------------- */

static void
apply_steps(work *w)
{
    for (size_t i = 0; i < w->rd->n_units; i++) {
        const ckpi_rdplan_unit *u = &w->rd->unit[i];
        for (size_t k = 0; k < u->n_tensors; k++)
            w->pred->step[u->tensor[k]] = ckpi_rdplan_step(w->rd, u, u->tensor[k]);
    }
}

/* Codes everything at the steps in hand; what is no code of theirs is the rest. */
static ckp_status
weigh(work *w, ckp_error *err)
{
    ckpi_writer *sink = NULL;
    uint64_t codes = 0;
    const double start = cpu_seconds(w), planned = ckpi_rdplan_total(w->rd).bits;

    apply_steps(w);
    ckp_status st = ckpi_writer_null(&sink, err);
    if (st == CKP_OK)
        st = ckpi_state_encode(w->ctx, sink, &w->pass, &w->opt->coding, NULL, &codes, err);
    if (st == CKP_OK) {
        w->rest = 8.0 * ((double)ckpi_writer_pos(sink) - (double)codes);
        w->scale = planned > 0.0 ? 8.0 * (double)codes / planned : 1.0;
        w->info.encodes++;
        w->info.encode_cpu = cpu_seconds(w) - start;
    }
    ckpi_writer_free(sink);
    return st;
}

static double
budget_bits(const work *w)
{
    switch (w->opt->target) {
    case CKP_PLAN_BITS: return w->opt->value * (double)w->info.params;
    case CKP_PLAN_RATIO: return 8.0 * (double)w->info.raw_bytes / w->opt->value;
    case CKP_PLAN_BYTES: return 8.0 * w->opt->value;
    case CKP_PLAN_ERROR:
    case CKP_PLAN_LOSS: break;
    }
    return 0.0;
}

static ckp_status
solve(work *w, ckp_error *err)
{
    const double bits = budget_bits(w), left = (bits - w->rest) / w->scale;
    const ckpi_rdplan_budget b = {.bits = bits > 0.0 ? fmax(left, 1e-9) : 0.0,
                              .err = w->opt->target == CKP_PLAN_ERROR ? w->opt->value : 0.0,
                              .loss = w->opt->target == CKP_PLAN_LOSS ? w->opt->value : 0.0};
    return ckpi_rdplan_solve(w->rd, &b, &w->info.met, &w->info.multiplier, err);
}

/* A size is of the whole file, which only coding it tells; each coding is nearer to the budget than the one before. */
static ckp_status
search(work *w, ckp_error *err)
{
    const bool size = budget_bits(w) > 0.0;

    ckp_status st = solve(w, err);
    for (unsigned i = 0; st == CKP_OK && size && i < w->opt->encodes; i++) {
        st = weigh(w, err);
        if (st == CKP_OK)
            st = solve(w, err);
    }
    return st;
}

/* ---- the plan --------------------------------------------------------------------------------------------------------- */

static const char *
reason(const ckpi_rdplan_unit *u)
{
    if (u->fixed)
        return "given";
    if (u->at == CKPI_RD_LOWEST)
        return "finest step";
    if (u->at == CKPI_RD_HIGHEST)
        return "coarsest step";
    return u->fine ? "small: 16 times finer" : "multiplier";
}

static ckp_status
add_row(ckp_plan *p, const work *w, uint32_t t, const ckpi_rdplan_unit *u, ckp_error *err)
{
    const ckpi_rec *r = &w->pred->table->rec[t];
    const double rms = (double)w->pred->rms[t];
    char *name = ckpi_strdup(r->name);

    if (name == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a plan");
    ckp_plan_row row = {.size = sizeof row, .name = name, .role = (ckp_role)r->role, .numel = r->numel, .why = "lossless"};
    if (u != NULL) {
        const ckpi_rdplan_sum s = ckpi_rdplan_at(u, u->at);
        row.step = ckpi_rdplan_step(w->rd, u, t);
        row.step_rms = rms > 0.0 ? row.step / rms : 0.0;
        row.bits = s.bits * w->scale;
        row.error = sqrt(s.err2);
        row.loss = s.loss * (double)r->numel;
        row.why = reason(u);
        p->steps[p->n_steps++] = (ckp_tensor_step){name, row.step};
    }
    p->row[p->n++] = row;
    return CKP_OK;
}

static ckp_status
make_rows(ckp_plan *p, const work *w, ckp_error *err)
{
    const ckpi_table *t = w->pred->table;
    const ckpi_rdplan_unit **unit_of = ckpi_calloc(t->n + 1, sizeof *unit_of);
    ckp_status st = CKP_OK;

    p->row = ckpi_calloc(t->n + 1, sizeof *p->row);
    p->steps = ckpi_calloc(t->n + 1, sizeof *p->steps);
    if (unit_of == NULL || p->row == NULL || p->steps == NULL) {
        free(unit_of);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a plan of %zu tensors", t->n);
    }
    for (size_t i = 0; i < w->rd->n_units; i++)
        for (size_t k = 0; k < w->rd->unit[i].n_tensors; k++)
            unit_of[w->rd->unit[i].tensor[k]] = &w->rd->unit[i];
    for (uint32_t i = 0; st == CKP_OK && i < t->n; i++)
        if (is_weight(&t->rec[i]) && t->rec[i].numel != 0)
            st = add_row(p, w, i, unit_of[i], err);
    free(unit_of);
    return st;
}

/* A step of 0 that was given stays given, for whoever codes with the plan alone. */
static void
keep_lossless(ckp_plan *p, const ckp_coding *c)
{
    for (size_t i = 0; i < c->n_steps; i++)
        for (size_t k = 0; c->steps[i].step == 0.0 && k < p->n; k++)
            if (strcmp(p->row[k].name, c->steps[i].name) == 0) {
                p->row[k].why = "given";
                p->steps[p->n_steps++] = (ckp_tensor_step){p->row[k].name, 0.0};
            }
}

static void
sum_up(work *w)
{
    const ckpi_rdplan_sum s = ckpi_rdplan_total(w->rd);
    const double all = s.bits * w->scale + w->rest;

    w->info.bits = s.bits * w->scale / s.n;
    w->info.error = sqrt(s.err2 / s.n);
    w->info.loss = s.loss;
    if (w->info.encodes != 0) {
        w->info.bytes = (uint64_t)(all / 8.0);
        w->info.bits_all = all / (double)w->info.params;
    }
}

static void
count(work *w)
{
    for (size_t i = 0; i < w->pred->table->n; i++) {
        const ckpi_rec *r = &w->pred->table->rec[i];
        w->info.params += is_weight(r) ? r->numel : 0;
        w->info.raw_bytes += r->alias_of == CKPI_NO_TENSOR ? r->bytes : 0;
    }
}

static ckp_status
measure(work *w, ckp_error *err)
{
    ckp_status st = ckpi_pass_prepare(w->ctx, &w->pass, err);
    if (st != CKP_OK)
        return st;
    const double start = cpu_seconds(w);
    ckpi_pass_steps(&w->pass);
    st = ckpi_rdplan_measure(&w->rd, w->ctx, &w->pass, w->score, err);
    if (st == CKP_OK && w->rd->n_units == 0)
        st = ckpi_fail(err, CKP_EINVAL, "nothing to plan: no weight would be coded lossily");
    w->info.cpu = cpu_seconds(w) - start;
    return st;
}

ckp_status
ckpi_plan_make(ckp_plan **out, ckp_state *state, const ckp_plan_options *opt, ckpi_packing packing, ckp_error *err)
{
    work w = {.opt = opt, .state = state, .set = ckpi_profile_settings(&opt->coding), .scale = 1.0, .info = {.size = sizeof w.info}};
    ckp_plan *p = ckpi_calloc(1, sizeof *p);

    ckp_status st = p != NULL ? ckpi_state_seal(state, err) : ckpi_fail(err, CKP_ENOMEM, "no memory for a plan");
    if (st == CKP_OK)
        st = ckpi_ctx_new(&w.ctx, opt->coding.threads, false, err);
    if (st == CKP_OK)
        st = ckpi_state_pred(&w.pred, state, &w.set, &opt->coding, packing, &(ckpi_copies){.ctx = w.ctx}, err);
    if (st == CKP_OK)
        st = take_scores(&w, err);
    if (st != CKP_OK)
        goto done;
    w.pass = (ckpi_pass){.pred = w.pred, .state = state, .set = &w.set, .key = true, .lone = true, .cpu = w.ctx->cpu};
    count(&w);
    st = measure(&w, err);
    if (st == CKP_OK)
        st = search(&w, err);
    if (st == CKP_OK)
        st = make_rows(p, &w, err);
    if (st != CKP_OK)
        goto done;
    keep_lossless(p, &opt->coding);
    sum_up(&w);
    p->info = w.info;
    *out = p;
    p = NULL;
done:
    ckp_plan_free(p);
    ckpi_rdplan_free(w.rd);
    free(w.score);
    ckpi_pred_free(w.pred);
    ckpi_ctx_free(w.ctx);
    return st;
}

ckp_status
ckp_plan_state(ckp_plan **out, ckp_state *state, const ckp_plan_options *opt, ckp_error *err)
{
    if (out == NULL || state == NULL || opt == NULL)
        return ckpi_fail(err, CKP_EINVAL, "plan_state: NULL argument");
    *out = NULL;
    const ckp_status st = ckpi_plan_check(opt, err);
    return st == CKP_OK ? ckpi_plan_make(out, state, opt, CKPI_PACK_GROUPED, err) : st;
}

/* ---- reading a plan --------------------------------------------------------------------------------------------------- */

void
ckp_plan_free(ckp_plan *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->n; i++)
        free((char *)(uintptr_t)p->row[i].name);
    free(p->row);
    free(p->steps);
    free(p);
}

void
ckp_plan_get_info(const ckp_plan *p, ckp_plan_info *info)
{
    if (p != NULL && info != NULL && info->size == sizeof *info)
        *info = p->info;
}

size_t
ckp_plan_count(const ckp_plan *p)
{
    return p != NULL ? p->n : 0;
}

void
ckp_plan_get_row(const ckp_plan *p, size_t index, ckp_plan_row *row)
{
    if (p != NULL && row != NULL && row->size == sizeof *row && index < p->n)
        *row = p->row[index];
}

const ckp_tensor_step *
ckp_plan_steps(const ckp_plan *p, size_t *n)
{
    *n = p != NULL ? p->n_steps : 0;
    return p != NULL ? p->steps : NULL;
}
