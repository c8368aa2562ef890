/* SPDX-License-Identifier: Apache-2.0 */
/* ckp_run_save: the part on the caller's thread, up to the moment when the live tensors may change. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "run/checkpoint.h"
#include "run/group.h"
#include "run/steps.h"

void
ckpi_session_job_clear(ckpi_save_job *job)
{
    for (size_t i = 0; i < job->n_metrics; i++)
        free((char *)(uintptr_t)job->metrics[i].name);
    free(job->metrics);
    ckpi_buf_free(&job->tree);
    *job = (ckpi_save_job){0};
}

ckp_status
ckpi_session_add_metrics(ckpi_save_job *job, const ckp_metric *m, size_t n, ckp_error *err)
{
    if (n == 0)
        return CKP_OK;
    ckp_metric *all = ckpi_realloc(job->metrics, job->n_metrics + n, sizeof *all);
    if (all == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu metrics", n);
    job->metrics = all;
    for (size_t i = 0; i < n; i++) {
        if (m[i].name == NULL)
            return ckpi_fail(err, CKP_EINVAL, "metric %zu has no name", i);
        const char *name = ckpi_strdup(m[i].name);
        if (name == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory for metrics");
        job->metrics[job->n_metrics++] = (ckp_metric){name, m[i].value};
    }
    return CKP_OK;
}

/* ---- predictor for this state ----------------------------------------------------------------------------------- */

static void
empty_stages(ckp_run *run)
{
    for (size_t g = 0; run->stages != NULL && g < run->pred->layout->n; g++)
        ckpi_stage_free(&run->stages[g]);
}

static void
drop_pred(ckp_run *run)
{
    empty_stages(run);
    free(run->stages);
    run->stages = NULL;
    ckpi_pred_free(run->pred);
    run->pred = NULL;
    run->model_content = (ckpi_id){0, 0};
    run->key_next = true;
}

/* A save that may be a delta keeps its base's copies, so that it stays one; a key looks for them anew. */
static ckpi_copies
copies_for(const ckp_run *run)
{
    const bool key = run->job.key || run->key_next || run->base.chain + 1 >= run->opt.key_every;
    const ckpi_table *base = run->adopted != NULL ? run->adopted->lin->table : run->pred != NULL ? run->pred->table : NULL;
    return (ckpi_copies){run->front, key ? NULL : base, !run->set.lossy};
}

/* The predictor in hand fits when tables and layouts are equal; otherwise it is made anew and the save is a key. */
static ckp_status
fit_pred(ckp_run *run, const ckp_state *state, ckp_error *err)
{
    ckpi_table *table = NULL;
    ckpi_layout *layout = NULL;
    const ckpi_copies copies = copies_for(run);

    ckp_status st = ckpi_lay_out(&table, &layout, state, &run->job.set, &run->opt.coding, CKPI_PACK_GROUPED, &copies, err);
    if (st != CKP_OK)
        return st;
    if (run->pred != NULL && ckpi_id_eq(run->pred->table->id, table->id) && ckpi_layout_equal(run->pred->layout, layout)) {
        ckpi_table_free(table);
        ckpi_layout_free(layout);
    } else {
        drop_pred(run);
        st = ckpi_pred_new(&run->pred, table, layout, err);
        if (st == CKP_OK)
            st = ckpi_steps_set(run->pred, state, &run->opt.coding, err);
        if (st != CKP_OK)
            drop_pred(run);
    }
    if (st == CKP_OK && run->stages == NULL) {
        run->stages = ckpi_calloc(run->pred->layout->n, sizeof *run->stages);
        if (run->stages == NULL)
            st = ckpi_fail(err, CKP_ENOMEM, "no memory for stages");
    }
    return st;
}

/* Bytes that stages of all groups take, and what is kept of lossy ones to predict from (pred.h). Lossless bases come when there is room. */
static uint64_t
memory_need(const ckpi_layout *l, const ckpi_settings *set)
{
    uint64_t sum = 0;
    for (size_t g = 0; g < l->n; g++) {
        const ckpi_group *grp = &l->g[g];
        sum += !grp->lossy ? grp->bytes : (set->exact_weights ? grp->bytes : grp->n) + (grp->has_m ? grp->n : 0) + (grp->has_v ? grp->n : 0);
        sum += !grp->lossy ? 0 : 4 * grp->n + (grp->has_v ? grp->n : 0) + (ckpi_dq_takes(grp, set) ? grp->n : 0);
    }
    return sum;
}

/* ---- the pass --------------------------------------------------------------------------------------------------- */

typedef struct pass_job { const ckpi_pass *pass; ckpi_stage *stages; } pass_job;

static ckp_status
pass_one(void *user, size_t g, ckpi_scratch *ws, ckp_error *err)
{
    const pass_job *j = user;
    const ckpi_group *grp = &j->pass->pred->layout->g[g];
    const ckp_status st = ckpi_stage_alloc(&j->stages[g], grp, j->pass->set, err);
    return st == CKP_OK ? ckpi_pass_group(j->pass, g, &j->stages[g], ws, err) : st;
}

/* Pull sources are read on this thread only. */
static ckp_status
each_group(ckp_run *run, const ckpi_pass *pass, ckpi_task_fn fn, pass_job *j, ckp_error *err)
{
    ckp_status st = CKP_OK;

    if (!ckpi_state_pulls(pass->state))
        return ckpi_ctx_run(run->front, run->pred->layout->n, fn, j, err);
    for (size_t g = 0; st == CKP_OK && g < run->pred->layout->n; g++) {
        ckpi_scratch_reset(run->front->ws[0]);
        st = fn(j, g, run->front->ws[0], err);
    }
    return st;
}

static ckp_status
run_pass(ckp_run *run, const ckpi_pass *pass, ckp_error *err)
{
    pass_job j = {pass, run->stages};
    return each_group(run, pass, pass_one, &j, err);
}

static void
count_raw(ckpi_save_job *job, const ckpi_table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const ckpi_rec *r = &t->rec[i];
        if (r->alias_of != CKPI_NO_TENSOR)
            continue;
        job->raw_bytes += r->bytes;
        job->raw_by_role[r->role] += r->bytes;
        job->params_by_role[r->role] += r->numel;
    }
}

static ckpi_pass
pass_of(ckp_run *run, const ckp_state *state)
{
    return (ckpi_pass){.pred = run->pred, .state = state, .set = &run->job.set, .dq = &run->dq, .lasting = &run->lasting, .key = run->job.key, .on_model = run->job.on_model,
                       .run_key = ckpi_store_run_id(run->store).lo, .restore_count = run->restore_count, .cpu = run->front->cpu};
}

/* Thresholds of a configuration for the state of a pass. */
static ckp_status
prepare_dynaquant(ckp_run *run, const ckpi_pass *pass, const ckp_dynaquant *config, ckp_error *err)
{
    const ckp_status st = ckpi_dynaquant_bind(&run->dq, config, run->pred->table, err);
    run->job.dq = run->dq.num;
    return st == CKP_OK ? ckpi_dq_prepare(run->front, pass, err) : st;
}

/* From sealed state to a job that the worker can do without the live tensors. config: with DynaQuant. */
static ckp_status
take(ckp_run *run, ckp_state *state, const ckp_dynaquant *config, ckpi_pass *pass, ckp_error *err)
{
    ckpi_save_job *job = &run->job;
    const bool lossy = run->set.lossy;

    ckp_status st = fit_pred(run, state, err);
    const bool loads = run->adopted != NULL;
    if (st == CKP_OK)
        st = ckpi_session_load(run, err);
    if (st != CKP_OK)
        return st;
    job->key = job->key || run->key_next || run->base.chain + 1 >= run->opt.key_every || ckpi_session_model_touched(run);
    job->inline_pass = memory_need(run->pred->layout, &job->set) > ckpi_memory_budget(&run->opt.coding);
    if (job->key && run->model != NULL && !job->inline_pass)
        st = ckpi_session_load_model(run, err);
    job->on_model = job->key && run->model != NULL && !job->inline_pass;
    if (st != CKP_OK)
        return st;
    count_raw(job, run->pred->table);
    *pass = pass_of(run, state);
    const bool rescaled = lossy && ckpi_pass_rescaled(pass);
    if (lossy && (job->key || loads || rescaled))
        st = ckpi_pass_prepare(run->front, pass, err);
    if (st != CKP_OK)
        return st;
    if (lossy)
        ckpi_pass_steps(pass);
    if (job->set.dynaquant && !job->set.exact_weights)
        st = prepare_dynaquant(run, pass, config, err);
    if (st != CKP_OK)
        return st;
    if (job->inline_pass) {
        empty_stages(run);
        job->pass = pass;
        return CKP_OK;
    }
    st = run_pass(run, pass, err);
    if (st == CKP_OK && lossy)
        ckpi_pass_finish(pass, run->stages);
    return st;
}

void
ckpi_session_hand_over(ckp_run *run)
{
    (void)pthread_mutex_lock(&run->mutex);
    run->busy = true;
    (void)pthread_cond_broadcast(&run->cond);
    (void)pthread_mutex_unlock(&run->mutex);
}

static ckp_status
check_call(const ckp_run *run, uint64_t step, const ckp_state *state, const ckp_save_options *opt, ckp_error *err)
{
    const ckp_status st = ckpi_session_check_free(run, err);
    if (st != CKP_OK)
        return st;
    if (state == NULL || opt->size != sizeof *opt || (opt->n_metrics != 0 && opt->metrics == NULL))
        return ckpi_fail(err, CKP_EINVAL, "run_save: NULL state or bad options");
    if (step > INT64_MAX)
        return ckpi_fail(err, CKP_EINVAL, "step %llu is out of range", (unsigned long long)step);
    if (opt->quality != 0.0 && !(opt->quality >= 0.01 && opt->quality <= 100.0))
        return ckpi_fail(err, CKP_EINVAL, "quality %g is not between 0.01 and 100", opt->quality);
    return opt->dynaquant != NULL ? ckpi_dynaquant_check(opt->dynaquant, run->opt.coding.profile, err) : CKP_OK;
}

bool
ckpi_session_skip(ckp_run *run)
{
    if (run->opt.busy != CKP_BUSY_SKIP || !ckp_run_busy(run))
        return false;
    (void)pthread_mutex_lock(&run->mutex);
    run->stats.skipped++;
    (void)pthread_mutex_unlock(&run->mutex);
    return true;
}

/* What fine-tuning does lies in small movements from a model that was trained to the end: steps of so much less of them (decision 12). */
#define BASE_MODEL_FINER (1.0 / 6.5)
/* A short training of a good model has more signal in its gradients' averages than a long one from scratch. */
#define BASE_MODEL_MOMENTS 1.8
/* Of averages, in movements of the weights. */
#define BASE_MODEL_AVERAGE 2.0
/* Of weights to pass on, in movements: well below what was learned. */
#define BASE_MODEL_WEIGHTS 0.5

/* Settings of the run's profile with another quality and another way for weights. */
static ckpi_settings
settings_at(const ckp_run *run, double quality, const ckp_dynaquant *config)
{
    ckp_coding c = run->opt.coding;
    c.quality = quality;
    c.dynaquant = config;
    ckpi_settings set = ckpi_profile_settings(&c);
    if (run->model == NULL)
        return set;
    set.mshare *= BASE_MODEL_MOMENTS;
    set.average_move = BASE_MODEL_AVERAGE * quality;
    set.k_move = set.weights_only ? BASE_MODEL_WEIGHTS * quality : set.k_move * BASE_MODEL_FINER;
    return set;
}

/* CPU seconds that the caller's side has used. */
static double
front_cpu(const ckp_run *run)
{
    return ckpi_thread_cpu_seconds() + ckpi_pool_cpu_seconds(run->front->pool);
}

ckp_status
ckpi_session_take(ckp_run *run, uint64_t step, ckp_state *state, const ckp_save_options *opt, ckpi_pass *pass, ckp_error *err)
{
    const double started = ckpi_seconds();
    const ckp_dynaquant *config = opt->dynaquant != NULL ? opt->dynaquant : run->dynaquant;
    ckpi_save_job *job = &run->job;

    ckp_status st = check_call(run, step, state, opt, err);
    if (st == CKP_OK)
        st = ckp_run_wait(run, err);
    if (st == CKP_OK)
        st = ckpi_state_seal(state, err);
    if (st != CKP_OK)
        return st;
    const double cpu0 = front_cpu(run);
    ckpi_session_job_clear(job);
    job->step = step;
    job->key = opt->key;
    job->quality = opt->quality != 0.0 ? opt->quality : ckpi_rate_quality(&run->rate);
    job->set = settings_at(run, job->quality, config);
    job->set.exact_weights = opt->final && run->set.lossy;
    job->started = started;
    ckpi_buf_put(&job->tree, state->tree.data, state->tree.len);
    st = ckpi_buf_status(&job->tree, err, "the state tree");
    if (st == CKP_OK)
        st = ckpi_session_add_metrics(job, opt->metrics, opt->n_metrics, err);
    if (st == CKP_OK)
        st = take(run, state, config, pass, err);
    if (st != CKP_OK)
        run->key_next = true;    /* the reconstruction may have moved half way */
    job->cpu_front = front_cpu(run) - cpu0;
    return st;
}

ckp_status
ckpi_session_retake(ckp_run *run, ckp_state *state, double quality, const ckp_dynaquant *config, ckp_error *err)
{
    const double cpu0 = front_cpu(run);
    ckpi_save_job *job = &run->job;
    ckpi_pass pass;

    run->key_next = true;        /* the reconstruction of the base is gone: a key needs none */
    job->quality = quality != 0.0 ? quality : run->opt.coding.quality;
    job->set = settings_at(run, job->quality, config);
    job->raw_bytes = 0;
    (void)memset(job->raw_by_role, 0, sizeof job->raw_by_role);
    (void)memset(job->params_by_role, 0, sizeof job->params_by_role);
    ckp_status st = ckpi_state_seal(state, err);
    if (st == CKP_OK)
        st = take(run, state, config, &pass, err);
    job->cpu_front += front_cpu(run) - cpu0;
    return st;
}

/* ---- again, by another configuration ------------------------------------------------------------------------------ */

static ckp_status
again_one(void *user, size_t g, ckpi_scratch *ws, ckp_error *err)
{
    const pass_job *j = user;
    return ckpi_dq_again(j->pass, g, &j->stages[g], ws, err);
}

ckp_status
ckpi_session_same(ckp_run *run, ckp_state *state, ckp_error *err)
{
    ckpi_table *table = NULL;

    ckp_status st = ckpi_state_seal(state, err);
    if (st == CKP_OK)
        st = ckpi_table_from_state(&table, state, err);
    if (st == CKP_OK)
        st = ckpi_copies_link(table, state, &(ckpi_copies){run->front, run->pred->table, false}, err);
    const bool same = st == CKP_OK && ckpi_id_eq(run->pred->table->id, table->id);
    ckpi_table_free(table);
    return st == CKP_OK && !same ? ckpi_fail(err, CKP_EINVAL, "another state than the staged one") : st;
}

ckp_status
ckpi_session_recode(ckp_run *run, ckp_state *state, const ckp_dynaquant *config, ckp_error *err)
{
    const double cpu0 = front_cpu(run);
    const ckpi_pass pass = pass_of(run, state);
    pass_job j = {&pass, run->stages};

    ckp_status st = prepare_dynaquant(run, &pass, config, err);
    if (st == CKP_OK)
        st = each_group(run, &pass, again_one, &j, err);
    run->job.cpu_front += front_cpu(run) - cpu0;
    return st;
}

ckp_status
ckp_run_save(ckp_run *run, uint64_t step, ckp_state *state, const ckp_save_options *opt, bool *taken, ckp_error *err)
{
    const ckp_save_options defaults = CKP_SAVE_OPTIONS_INIT;
    const double started = ckpi_seconds();
    ckpi_pass pass;

    if (taken != NULL)
        *taken = false;
    opt = opt != NULL ? opt : &defaults;
    if (run != NULL && run->talk != NULL && opt->size == sizeof *opt && ckpi_session_check(run, err) == CKP_OK)
        return ckpi_group_save(run, step, state, opt, taken != NULL ? taken : &(bool){false}, err);
    ckp_status st = check_call(run, step, state, opt, err);
    if (st != CKP_OK || ckpi_session_skip(run))
        return st;
    st = ckpi_session_take(run, step, state, opt, &pass, err);
    if (st != CKP_OK)
        return st;
    if (run->job.inline_pass) {
        st = ckpi_session_write(run, err);
        (void)pthread_mutex_lock(&run->mutex);
        run->stats.stall = ckpi_seconds() - started;
        run->stats.sum_stall += st == CKP_OK ? run->stats.stall : 0.0;
        (void)pthread_mutex_unlock(&run->mutex);
        if (taken != NULL)
            *taken = st == CKP_OK;
        return st;
    }
    run->last_stall = ckpi_seconds() - started;
    ckpi_session_hand_over(run);
    if (taken != NULL)
        *taken = true;
    return opt->wait ? ckp_run_wait(run, err) : CKP_OK;
}
