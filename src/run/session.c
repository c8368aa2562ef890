/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a run, waiting, statistics. */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/limits.h"
#include "os/host.h"
#include "os/private.h"
#include "run/retention.h"
#include "run/group.h"
#include "run/steps.h"

ckp_status
ckpi_session_check(const ckp_run *run, ckp_error *err)
{
    if (run == NULL)
        return ckpi_fail(err, CKP_EINVAL, "no run");
    if (run->pid != ckpi_pid())
        return ckpi_fail(err, CKP_EFORK, "this run was opened by process %lld; a forked child cannot use it", (long long)run->pid);
    return CKP_OK;
}

ckp_status
ckpi_session_check_free(const ckp_run *run, ckp_error *err)
{
    const ckp_status st = ckpi_session_check(run, err);
    if (st == CKP_OK && run->staged)
        return ckpi_fail(err, CKP_EINVAL, "a save of step %llu is staged: commit or unstage it first", (unsigned long long)run->job.step);
    return st;
}

static ckp_status
check_options(const ckp_run_options *o, ckp_error *err)
{
    if (o->size != sizeof *o)
        return ckpi_fail(err, CKP_EINVAL, "run options of size %zu; this library knows %zu", o->size, sizeof *o);
    if (o->key_every == 0 || o->key_every > CKPI_MAX_CHAIN)
        return ckpi_fail(err, CKP_EINVAL, "key_every %u is not between 1 and %u", o->key_every, (unsigned)CKPI_MAX_CHAIN);
    if (o->base_model != NULL && o->base_model[0] == '\0')
        return ckpi_fail(err, CKP_EINVAL, "the base model's path is empty");
    if (o->base_model != NULL && o->key_every == CKPI_MAX_CHAIN)
        return ckpi_fail(err, CKP_EINVAL, "key_every %u: with a base model less than %u", o->key_every, (unsigned)CKPI_MAX_CHAIN);
    if (o->lock_seconds < 2 || o->lock_seconds > 86400)
        return ckpi_fail(err, CKP_EINVAL, "lock_seconds %u is not between 2 and 86400", o->lock_seconds);
    if ((unsigned)o->busy > CKP_BUSY_SKIP)
        return ckpi_fail(err, CKP_EINVAL, "no busy policy %d", (int)o->busy);
    if (o->target_bits != 0.0 && !(o->target_bits >= 0.05 && o->target_bits <= 32.0))
        return ckpi_fail(err, CKP_EINVAL, "target_bits %g is not between 0.05 and 32", o->target_bits);
    if (o->target_bits != 0.0 && (o->coding.profile == CKP_PROFILE_LOSSLESS || o->coding.dynaquant != NULL || o->key_every == 1))
        return ckpi_fail(err, CKP_EINVAL, "target_bits is for deltas of lossy profiles, by grids");
    if (o->group != NULL && o->busy != CKP_BUSY_WAIT)
        return ckpi_fail(err, CKP_EINVAL, "CKP_BUSY_SKIP in a group: ranks would skip different saves");
    if (o->group != NULL && o->base_model != NULL)
        return ckpi_fail(err, CKP_EUNSUPPORTED, "a base model in a group");
    ckp_status st = o->objects != NULL ? ckpi_objects_check(o->objects, err) : CKP_OK;
    if (st == CKP_OK)
        st = ckpi_rules_check(o->retention, err);
    if (st == CKP_OK && o->retention != NULL && o->retention->keep_last != 0 && o->keep_last != 0)
        return ckpi_fail(err, CKP_EINVAL, "keep_last is given twice: in the options, and in their retention");
    return st == CKP_OK ? ckpi_coding_check(&o->coding, err) : st;
}

/* Rules that outlive the caller's. */
static ckp_status
copy_rules(ckp_run *run, ckp_error *err)
{
    ckpi_rules_of(&run->rules, run->opt.retention);
    run->rules.last = run->opt.keep_last != 0 ? run->opt.keep_last : run->rules.last;
    run->opt.retention = NULL;
    if (run->rules.best == NULL)
        return CKP_OK;
    run->rules.best = ckpi_strdup(run->rules.best);
    return run->rules.best != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a metric's name");
}

/* Behind callbacks where nothing was said; a directory's newest files lie in memory anyway, as long as the machine lives (decision 19). */
static void
open_memory(ckp_run *run)
{
    const bool unsaid = run->opt.memory == CKP_MEMORY_DEFAULT;
    const uint64_t budget = !unsaid ? run->opt.memory : run->opt.objects != NULL ? CKPI_MEMORY_USUAL : 0;
    const ckpi_memory_ask ask = {.base = CKPI_SHARED_MEMORY, .user = ckpi_user(), .run = ckpi_store_run_id(run->store), .place = run->dir,
                                 .budget = budget, .room = unsaid ? 4 : 2};
    ckpi_memory_open(&run->memory, &ask);
    ckpi_session_note_memory(run);
}

static ckp_status
start_worker(ckp_run *run, ckp_error *err)
{
    if (pthread_mutex_init(&run->mutex, NULL) != 0)
        return ckpi_fail(err, CKP_ENOMEM, "no mutex");
    if (ckpi_cond_init(&run->cond) != 0) {
        (void)pthread_mutex_destroy(&run->mutex);
        return ckpi_fail(err, CKP_ENOMEM, "no condition variable");
    }
    run->sync_made = true;
    const int e = ckpi_thread_start(&run->thread, ckpi_session_worker, run);
    if (e != 0)
        return ckpi_fail_errno(err, e, "cannot start the saving thread");
    run->thread_made = true;
    return CKP_OK;
}

/* What outlives the caller's options. */
static ckp_status
copy_options(ckp_run *run, const ckp_run_options *opt, ckp_error *err)
{
    ckp_status st = run->dir != NULL ? ckpi_steps_copy(&run->steps, &opt->coding, err) : ckpi_fail(err, CKP_ENOMEM, "no memory for a path");
    run->opt.coding.steps = run->steps;
    if (st == CKP_OK && opt->objects != NULL)
        st = ckpi_place_copy_objects(&run->objects, &run->stage_dir, opt->objects, err);
    run->opt.objects = opt->objects != NULL ? &run->objects : NULL;
    if (st == CKP_OK && opt->coding.dynaquant != NULL)
        st = ckpi_dynaquant_copy(&run->dynaquant, opt->coding.dynaquant, err);
    run->opt.coding.dynaquant = run->dynaquant;
    if (st == CKP_OK && run->opt.base_model != NULL)
        st = ckpi_base_model_open(&run->model, run->opt.base_model, err);
    if (st == CKP_OK)
        st = copy_rules(run, err);
    run->opt.base_model = run->model != NULL ? ckpi_base_model_path(run->model) : NULL;
    return st;
}

static ckp_status
open_store(ckp_run *run, ckp_error *err)
{
    const ckpi_store_options so = {.lock_expiry_s = run->opt.lock_seconds};
    ckpi_fs *fs = NULL;
    const ckp_status st = ckpi_place_fs(&fs, &(ckpi_place){run->dir, run->opt.objects}, true, err);
    return st == CKP_OK ? ckpi_store_open(&run->store, fs, CKPI_STORE_WRITE, &so, err) : st;
}

static ckp_status
start_threads(ckp_run *run, ckp_error *err)
{
    ckp_status st = ckpi_ctx_new(&run->front, run->opt.coding.threads, false, err);
    if (st == CKP_OK)
        st = ckpi_ctx_new(&run->back, run->opt.coding.threads, true, err);
    return st == CKP_OK ? start_worker(run, err) : st;
}

/* st: of what came before. In a group a failure of any rank is one of all, so each has to hear of the others' whatever has become of its own. */
static ckp_status
open_all(ckp_run *run, ckp_status st, ckp_error *err)
{
    if (run->talk == NULL) {
        if (st == CKP_OK)
            st = open_store(run, err);
        if (st == CKP_OK)
            open_memory(run);
        return st == CKP_OK ? start_threads(run, err) : st;
    }
    st = ckpi_group_lead(run, st, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_group_follow(run, err);
    if (st == CKP_OK)
        st = start_threads(run, err);
    return ckpi_group_opened(run, st, err);
}

static ckp_run *
new_run(const char *dir, const ckp_run_options *opt)
{
    const ckp_group alone = CKP_GROUP_INIT;
    ckp_run *run = ckpi_calloc(1, sizeof *run);
    if (run == NULL)
        return NULL;
    run->pid = ckpi_pid();
    run->opt = *opt;
    run->group = opt->group != NULL ? *opt->group : alone;
    run->opt.group = opt->group != NULL ? &run->group : NULL;
    run->dir = ckpi_strdup(dir);
    run->opt.coding.dynaquant = NULL;
    run->opt.coding.steps = NULL;
    run->opt.retention = NULL;
    run->key_next = true;
    run->stats.size = sizeof run->stats;
    return run;
}

ckp_status
ckp_run_open(ckp_run **out, const char *dir, const ckp_run_options *opt, ckp_error *err)
{
    const ckp_run_options defaults = CKP_RUN_OPTIONS_INIT;

    if (out == NULL || dir == NULL)
        return ckpi_fail(err, CKP_EINVAL, "run_open: NULL argument");
    *out = NULL;
    opt = opt != NULL ? opt : &defaults;
    const bool group = opt->size == sizeof *opt && opt->group != NULL;
    ckp_status st = group ? ckpi_group_check(opt->group, err) : check_options(opt, err);
    if (st != CKP_OK)
        return st;
    ckp_run *run = new_run(dir, opt);
    if (run == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a run");
    st = group ? ckpi_talk_new(&run->talk, opt->group, err) : CKP_OK;
    if (st == CKP_OK) {
        if (group)
            st = check_options(opt, err);
        if (st == CKP_OK) {
            run->opt.retention = opt->retention;
            run->set = ckpi_profile_settings(&opt->coding);
            ckpi_rate_start(&run->rate, opt->target_bits, opt->coding.quality);
            st = copy_options(run, opt, err);
        }
        st = open_all(run, st, err);
    }
    if (st != CKP_OK) {
        ckpi_fail_file(err, dir);
        (void)ckp_run_close(run, NULL);
        return st;
    }
    *out = run;
    return CKP_OK;
}

void
ckpi_session_drain(ckp_run *run)
{
    if (!run->thread_made)
        return;
    (void)pthread_mutex_lock(&run->mutex);
    while (run->busy)
        (void)pthread_cond_wait(&run->cond, &run->mutex);
    (void)pthread_mutex_unlock(&run->mutex);
}

ckp_status
ckp_run_wait(ckp_run *run, ckp_error *err)
{
    ckp_status st = ckpi_session_check_free(run, err);
    if (st != CKP_OK)
        return st;
    ckpi_session_drain(run);
    st = run->failed;            /* no job in flight: this thread's alone */
    if (st != CKP_OK && err != NULL)
        *err = run->failure;
    run->failed = CKP_OK;
    return st;
}

bool
ckp_run_busy(const ckp_run *run)
{
    ckp_run *r = (ckp_run *)(uintptr_t)run;   /* a lock is no change that the caller could see */
    if (ckpi_session_check(run, NULL) != CKP_OK)
        return false;
    (void)pthread_mutex_lock(&r->mutex);
    const bool busy = r->busy;
    (void)pthread_mutex_unlock(&r->mutex);
    return busy;
}

void
ckp_run_stats(const ckp_run *run, ckp_save_stats *st)
{
    ckp_run *r = (ckp_run *)(uintptr_t)run;
    if (run == NULL || st == NULL || st->size != sizeof *st || run->pid != ckpi_pid())
        return;
    (void)pthread_mutex_lock(&r->mutex);
    *st = r->stats;
    (void)pthread_mutex_unlock(&r->mutex);
}

void
ckp_run_keep_memory(ckp_run *run)
{
    if (run != NULL)
        run->keep_memory = true;
}

static void
free_stages(ckp_run *run)
{
    for (size_t g = 0; run->stages != NULL && g < run->pred->layout->n; g++)
        ckpi_stage_free(&run->stages[g]);
    free(run->stages);
    run->stages = NULL;
}

ckp_status
ckp_run_close(ckp_run *run, ckp_error *err)
{
    ckp_status st = CKP_OK;

    if (run == NULL)
        return CKP_OK;
    if (run->pid != ckpi_pid())  /* a forked child: the worker and the lock are the parent's; memory goes with the process */
        return ckpi_session_check(run, err);
    ckp_run_unstage(run);
    if (run->thread_made) {
        st = ckp_run_wait(run, err);
        (void)pthread_mutex_lock(&run->mutex);
        run->stop = true;
        (void)pthread_cond_broadcast(&run->cond);
        (void)pthread_mutex_unlock(&run->mutex);
        (void)pthread_join(run->thread, NULL);
    }
    if (run->sync_made) {
        (void)pthread_cond_destroy(&run->cond);
        (void)pthread_mutex_destroy(&run->mutex);
    }
    free_stages(run);
    ckpi_pred_free(run->pred);
    ckpi_session_job_clear(&run->job);
    ckpi_buf_free(&run->base.table_tree);
    ckpi_ctx_free(run->front);
    ckpi_ctx_free(run->back);
    ckpi_memory_close(&run->memory, run->keep_memory);
    ckpi_store_free(run->store);
    ckp_checkpoint_close(run->adopted);
    ckpi_steps_free(run->steps, run->opt.coding.n_steps);
    ckpi_dynaquant_unbind(&run->dq);
    ckpi_dynaquant_free(run->dynaquant);
    ckpi_base_model_free(run->model);
    ckpi_talk_free(run->talk);
    free((char *)(uintptr_t)run->rules.best);
    free(run->stage_dir);
    free(run->dir);
    free(run);
    return st;
}
