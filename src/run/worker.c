/* SPDX-License-Identifier: Apache-2.0 */
/* The saving thread: encode, write, fsync, commit, retain. */
#include <stdio.h>
#include <string.h>
#include "base/bytes.h"
#include "base/clock.h"
#include "base/fail.h"
#include "run/group.h"

/* When a fifth of its life is over. A lock that is lost shows at the next commit, which re-reads it. */
void
ckpi_session_refresh(ckp_run *run)
{
    if (ckpi_seconds() - run->refreshed < (double)run->opt.lock_seconds / 5.0)
        return;
    run->refreshed = ckpi_seconds();
    const ckp_status st = ckpi_store_refresh(run->store, NULL);
    (void)st;
}

/* Between windows of an encoding: a save that has failed on another rank need not be written to the end. */
static int
keep_lock(void *user, uint64_t done, uint64_t total)
{
    const ckp_run *run = user;
    (void)done;
    (void)total;
    ckpi_session_refresh(user);
    return run->talk != NULL && ckpi_talk_failed(run->talk);
}

/* ---- one file --------------------------------------------------------------------------------------------------- */

static ckpi_file_info
file_info(const ckp_run *run)
{
    const ckpi_save_job *job = &run->job;
    ckpi_file_info i = {.features = ckpi_settings_features(&run->set), .profile = (uint8_t)(1 + run->opt.coding.profile)};

    if (!job->key) {
        i.is_delta = 1;
        i.features |= CKPI_FEAT_DELTA;
        /* the base model is one more file in the chain */
        i.chain = (uint16_t)(run->base.shard_chain + 1 + run->base.on_model);
        i.base_content = run->base.shard;
        i.table_content = run->base.table_content;
    } else if (job->on_model) {
        i.is_delta = 1;
        i.features |= CKPI_FEAT_DELTA;
        i.chain = 1;
        i.base_content = run->model_content;
    }
    return i;
}

/* What a save takes of the memory budget. */
typedef struct footprint {
    uint64_t held;               /* stages, and what the next save is predicted from, but for ... */
    uint64_t lossless;           /* ... the bytes of lossless groups */
    uint64_t in_flight;          /* chunks on their way to the file, at most */
    uint64_t budget;
} footprint;

static footprint
footprint_of(const ckp_run *run)
{
    footprint f = {.held = ckpi_pred_bytes(run->pred), .budget = ckpi_memory_budget(&run->opt.coding)};
    uint64_t largest = 0;

    for (size_t g = 0; g < run->pred->layout->n; g++) {
        const ckpi_group *grp = &run->pred->layout->g[g];
        f.lossless += grp->lossy ? 0 : grp->bytes;
        f.held += ckpi_stage_bytes(&run->stages[g], grp);
        f.held -= run->pred->raw[g] != NULL ? grp->bytes : 0;
        largest = CKPI_MAX(largest, grp->bytes);
    }
    f.in_flight = largest * run->back->in_flight;
    return f;
}

/* Whether lossless bytes may stay in memory as the base of the next save: beside the stages, within the budget. */
static bool
keeps_raw(const ckp_run *run, const footprint *f)
{
    return run->opt.key_every > 1 && f->held + f->lossless <= f->budget;
}

/* What a helper may hold of a file that is late. */
static void
limit_room(ckpi_late *late, const footprint *f, bool keep_raw)
{
    const uint64_t need = f->held + (keep_raw ? f->lossless : 0) + f->in_flight;
    late->room = CKPI_MIN(late->room, f->budget - CKPI_MIN(f->budget, need));
}

static ckp_status
write_shard(ckp_run *run, ckpi_writer *w, ckpi_fmt_sum *sum, ckpi_late *late, ckp_error *err)
{
    ckpi_save_job *job = &run->job;
    const ckpi_file_info info = file_info(run);
    ckpi_encode_job ej = {.pred = run->pred, .stages = job->inline_pass ? NULL : run->stages, .pass = job->pass,
                          .effort = (ckpi_effort)run->opt.coding.effort,
                          /* after an inline pass the next save is a key: its reconstructions are not worth their memory */
                          .serial_pass = job->inline_pass && ckpi_state_pulls(job->pass->state), .drop_base = job->inline_pass,
                          .clusters = job->clusters, .late = late,
                          .progress = job->inline_pass ? NULL : keep_lock, .progress_user = run};
    ckpi_fmt_writer *fw = NULL;

    if (!job->inline_pass) {
        const footprint f = footprint_of(run);
        ej.keep_raw = keeps_raw(run, &f);
        limit_room(late, &f, ej.keep_raw);
    }
    ckp_status st = ckpi_fmt_writer_new(&fw, w, &info, run->pred->table, job->tree.data, job->tree.len, job->key ? NULL : run->pred->table,
                                        run->base.table_tree.data, job->key ? 0 : run->base.table_tree.len, err);
    if (st == CKP_OK)
        st = ckpi_encode_file(job->inline_pass ? run->front : run->back, &ej, fw, sum, err);
    ckpi_fmt_writer_free(fw);
    return st;
}

typedef struct shard_call {
    ckp_run *run;
    ckpi_writer *w;
    ckpi_fmt_sum sum;
    double cpu;                  /* of the threads that are not the pool's, in seconds */
    ckp_status st;
    ckp_error *err;
    ckpi_late late;              /* not of an inline pass */
} shard_call;

static void
call_write_shard(shard_call *c, ckpi_late *late)
{
    const double before = ckpi_thread_cpu_seconds();
    c->st = write_shard(c->run, c->w, &c->sum, late, c->err);
    c->cpu = ckpi_thread_cpu_seconds() - before;
}

static void
write_low(void *arg)
{
    shard_call *c = arg;
    call_write_shard(c, &c->late);
    ckpi_late_over(&c->late);
}

static void
help_when_late(void *arg)
{
    shard_call *c = arg;
    ckpi_late_help(&c->late);
}

/*
 * What calculates in the background has the lowest priority. What comes before and after does not calculate but waits, for disks, servers and other ranks,
 * and at the lowest priority each of these waits would be followed by one for the training's time slices: a tenth of a second for a commit that takes 3 ms.
 * Where the training leaves so little that the save is late, this thread helps.
 */
static void
write_shard_beside(shard_call *c)
{
    if (c->run->job.inline_pass) {
        call_write_shard(c, NULL);
        return;
    }
    ckpi_late_init(&c->late);
    c->late.before = c->run->job.cpu_front / ckpi_ctx_at_once(c->run->front);
    ckpi_run_low(write_low, help_when_late, c);
    c->cpu += c->late.cpu;
    ckpi_late_destroy(&c->late);
}

/* ---- manifest --------------------------------------------------------------------------------------------------- */

/* What this save was coded with, for people who look back on a training, and for the process that goes on from it (adopt.c). Nothing is
   decoded by it. */
static ckp_status
fill_settings(const ckp_run *run, ckpi_manifest *m, ckp_error *err)
{
    const ckpi_save_job *job = &run->job;
    const ckpi_pred *p = run->pred;
    bool w = false, mo = false, v = false;

    for (size_t g = 0; g < p->layout->n; g++) {
        const ckpi_group *grp = &p->layout->g[g];
        w = w || grp->lossy;
        mo = mo || (grp->lossy && grp->has_m);
        v = v || (grp->lossy && grp->has_v);
    }
    /* after exact weights nobody took their RMS: it is the last save's */
    const double rms = p->scale > 0.0 ? p->scale : 1.0;
    const struct { bool is; const char *name; double value; } all[] = {
        {w, "quality", job->quality},
        {w, "step", job->set.exact_weights ? 0.0 : p->q0 / rms},
        {w, "rms", rms},
        {w && run->lasting.moved, "movement", run->lasting.move / rms},
        {mo && job->set.lossy && job->set.mthree, "m_share", job->set.mshare},
        {v, "v_octaves", (double)job->set.vstep / 256.0},
        {job->set.clusters != CKPI_CLUSTERS_NONE, "optimizer_states_bits", job->set.clusters == CKPI_CLUSTERS_AFFINE ? 16.0 : 8.0},
    };
    ckp_status st = CKP_OK;
    for (size_t i = 0; st == CKP_OK && i < sizeof all / sizeof *all; i++)
        if (all[i].is)
            st = ckpi_manifest_add_setting(m, all[i].name, all[i].value, err);
    return st;
}

/* The same of weights that were coded by DynaQuant. */
static ckp_status
fill_dynaquant(const ckpi_dq_numbers *n, ckpi_manifest *m, ckp_error *err)
{
    const ckp_metric all[] = {{"dynaquant_bins", n->bins}, {"dynaquant_bins_embedding", n->bins_embedding}, {"dynaquant_prune", n->prune},
                              {"dynaquant_prune_by_sensitivity", n->by_score}, {"dynaquant_protect", n->protect}};
    ckp_status st = CKP_OK;

    for (size_t i = 0; st == CKP_OK && i < sizeof all / sizeof *all; i++)
        st = ckpi_manifest_add_setting(m, all[i].name, all[i].value, err);
    return st;
}

ckp_status
ckpi_session_manifest(const ckp_run *run, ckpi_manifest *m, ckp_error *err)
{
    const ckpi_save_job *job = &run->job;

    m->kind = job->key ? CKPI_CKPT_KEY : CKPI_CKPT_DELTA;
    m->chain = job->key ? 0 : run->base.chain + 1;
    m->restores = (uint32_t)run->restore_count;
    m->raw_bytes = job->raw_bytes;
    m->params = job->params_by_role[CKP_ROLE_WEIGHT] + job->params_by_role[CKP_ROLE_MASTER];
    ckp_status st = ckpi_manifest_set(&m->profile, ckp_profile_name(run->opt.coding.profile), err);
    if (st == CKP_OK && run->parent[0] != '\0')
        st = ckpi_manifest_set(&m->parent, run->parent, err);
    if (st == CKP_OK && !job->key) {
        m->base = run->base.checkpoint;
        st = ckpi_manifest_set(&m->base_dir, run->base.dir, err);
    }
    if (st == CKP_OK && job->on_model)
        st = ckpi_manifest_set(&m->base_model, run->opt.base_model, err);
    for (size_t i = 0; st == CKP_OK && i < job->n_metrics; i++)
        st = ckpi_manifest_add_metric(m, job->metrics[i].name, job->metrics[i].value, err);
    if (st == CKP_OK)
        st = fill_settings(run, m, err);
    return st == CKP_OK && job->set.dynaquant && !job->set.exact_weights ? fill_dynaquant(&job->dq, m, err) : st;
}

/* What a delta must save of the key's bytes, or restores read a chain for nothing. */
#define PAYS 64

/*
 * A delta as large as the key behind it saved nothing: what is saved is other by now (put in anew, or moved far in a few steps), and a chain that
 * begins with it is worth more than one that goes on. A final save's exact weights say nothing of that, and a key on a base model is no larger than
 * a delta.
 */
static bool
pays(const ckp_run *run, const ckpi_fmt_sum *sum)
{
    const ckpi_save_job *job = &run->job;
    return job->key || run->base.on_model || job->set.exact_weights || run->base.key_bytes == 0 || sum->length < run->base.key_bytes - run->base.key_bytes / PAYS;
}

/* The committed checkpoint becomes the base of the next. */
static ckp_status
become_base(ckp_run *run, const ckpi_made *made, const ckpi_fmt_sum *sum, ckp_error *err)
{
    ckpi_save_job *job = &run->job;
    ckp_status st = CKP_OK;

    if (job->key) {
        run->base.on_model = job->on_model;
        run->base.table_content = sum->content;
        run->base.key_bytes = sum->length;
        ckpi_buf_clear(&run->base.table_tree);
        ckpi_buf_put(&run->base.table_tree, job->tree.data, job->tree.len);
        st = ckpi_buf_status(&run->base.table_tree, err, "the state tree");
    }
    (void)memcpy(run->base.dir, made->dir, sizeof run->base.dir);
    (void)memcpy(run->parent, made->dir, sizeof run->parent);
    run->base.checkpoint = made->content;
    run->base.shard = sum->content;
    run->base.chain = made->chain;
    run->base.shard_chain = job->key ? 0 : run->base.shard_chain + 1;
    /* an inline pass leaves no numbers for steps */
    run->key_next = st != CKP_OK || job->inline_pass || run->lasting.stale || !pays(run, sum);
    run->pred->valid = !run->key_next;
    return CKP_OK;               /* the checkpoint is there; at worst the next is a key */
}

/* ---- the copy in memory ------------------------------------------------------------------------------------------ */

static void
begin_copy(ckp_run *run, const ckpi_attempt *a, ckpi_writer *w)
{
    char name[CKPI_DIR_NAME_MAX];
    ckpi_shard_name(name, run->group.rank, run->group.world);
    ckpi_memory_begin(&run->memory, ckpi_attempt_dir(a), name, run->job.key);
    ckpi_writer_watch(w, ckpi_memory_put, &run->memory);
}

void
ckpi_session_note_memory(ckp_run *run)
{
    ckp_save_stats *s = &run->stats;
    s->copy_bytes = run->memory.fs != NULL ? run->memory.used : 0;
    (void)snprintf(s->copy_note, sizeof s->copy_note, "%s", run->memory.note);
}

/* ---- the job ---------------------------------------------------------------------------------------------------- */

static void
add_stats(ckp_run *run, const ckpi_fmt_sum *sum, const ckpi_manifest *m, double encode, double cpu, double write)
{
    const ckpi_save_job *job = &run->job;
    ckp_save_stats *s = &run->stats;

    s->step = job->step;
    s->sequence = m->sequence;
    s->is_key = job->key;
    s->committed = true;
    s->stall = run->last_stall;
    s->encode = encode;
    s->write = write;
    s->total = ckpi_seconds() - job->started;
    s->cpu = job->cpu_front + cpu;
    s->raw_bytes = job->raw_bytes;
    uint64_t by_role = 0;
    for (int r = 0; r < CKP_ROLE_COUNT_; r++) {
        s->raw_by_role[r] = job->raw_by_role[r];
        s->params_by_role[r] = job->params_by_role[r];
        s->stored_by_role[r] = sum->stored_by_role[r];
        by_role += sum->stored_by_role[r];
        s->mse_by_role[r] = job->clusters[r].n != 0 ? job->clusters[r].err2 / (double)job->clusters[r].n : 0.0;
        s->mre_by_role[r] = job->clusters[r].n_rel != 0 ? job->clusters[r].rel / (double)job->clusters[r].n_rel : 0.0;
    }
    ckpi_buf b = CKPI_BUF_INIT;
    s->stored_bytes = sum->length;
    if (ckpi_manifest_print(m, &b, NULL) == CKP_OK)
        s->stored_bytes += b.len;
    ckpi_buf_free(&b);
    s->overhead_bytes = s->stored_bytes - by_role;
    s->memory_bytes = ckpi_pred_bytes(run->pred) + ckpi_ctx_bytes(run->front) + ckpi_ctx_bytes(run->back);
    for (size_t g = 0; g < run->pred->layout->n; g++)
        s->memory_bytes += ckpi_stage_bytes(&run->stages[g], &run->pred->layout->g[g]);
    s->memory_peak = CKPI_MAX(s->memory_peak, s->memory_bytes);
    s->sum_stall += job->inline_pass ? 0.0 : s->stall;     /* of those it is not over yet */
    s->sum_encode += s->encode;
    s->sum_write += s->write;
    s->sum_raw += s->raw_bytes;
    s->sum_stored += s->stored_bytes;
}

/* What this save has cost, for the quality of the next. */
static void
note_rate(ckp_run *run)
{
    const ckpi_save_job *job = &run->job;
    const ckp_save_stats *s = &run->stats;
    const double params = (double)(s->params_by_role[CKP_ROLE_WEIGHT] + s->params_by_role[CKP_ROLE_MASTER]);

    if (job->set.exact_weights || !(params > 0.0))
        return;
    const double weights = 8.0 * (double)(s->stored_by_role[CKP_ROLE_WEIGHT] + s->stored_by_role[CKP_ROLE_MASTER]) / params;
    ckpi_rate_saw(&run->rate, job->key, weights, 8.0 * (double)s->stored_bytes / params, run->opt.key_every);
}

static void
warn_of_rate(ckp_run *run)
{
    if (ckpi_rate_out_of_reach(&run->rate))
        (void)snprintf(run->stats.warning, sizeof run->stats.warning, "target_bits %g is out of reach: even at quality %.3g the run costs more",
                       run->rate.target, ckpi_rate_quality(&run->rate));
}

/* Consumes *a, and makes it NULL. */
static ckp_status
commit(ckp_run *run, ckpi_attempt **a, const ckpi_writer *w, const ckpi_fmt_sum *sum, ckpi_manifest *m, ckpi_made *made, ckp_error *err)
{
    char name[CKPI_DIR_NAME_MAX];
    ckpi_id hash;

    ckpi_shard_name(name, 0, 1);
    (void)snprintf(made->dir, sizeof made->dir, "%s", ckpi_attempt_dir(*a));
    ckp_status st = ckpi_writer_hash(w, &hash, err);
    if (st == CKP_OK)
        st = ckpi_session_manifest(run, m, err);
    if (st == CKP_OK)
        st = ckpi_manifest_add_shard(m, name, ckpi_writer_pos(w), hash, sum->content, err);
    if (st != CKP_OK)
        return st;
    m->content = ckpi_hash128(&m->shards[0].content, sizeof m->shards[0].content);
    st = ckpi_store_commit(run->store, *a, m, err);
    *a = NULL;
    made->content = m->content;
    made->chain = m->chain;
    made->sequence = m->sequence;
    return st;
}

/* What failed is no checkpoint: its attempt goes. In a group the failure is that of all ranks. */
static ckp_status
give_up(ckp_run *run, ckpi_attempt *a, ckp_status st, ckp_error *err)
{
    if (run->talk != NULL)
        return ckpi_group_fail(run, a, st, err);
    ckpi_store_abort(run->store, a);
    return st;
}

static void
warn_of_bytes(ckp_run *run)
{
    (void)snprintf(run->stats.warning, sizeof run->stats.warning,
                   "the run takes more than max_bytes (%llu): the newest checkpoint stays, and all that it is a difference to, back to the last key; a smaller key_every makes less of it",
                   (unsigned long long)run->rules.max_bytes);
}

/* Old checkpoints go only after the new one is committed. What stops that (damage elsewhere in the run) does not make this save a
   failed one: it is a warning in the statistics. */
static void
retain(ckp_run *run)
{
    ckpi_retained done = {0};
    ckp_error e;

    ckpi_error_clear(&e);
    /* without rules, and nobody to tell, the run is not listed */
    const ckp_status st = ckpi_store_retain(run->store, &run->rules, run->rules.max_bytes != 0 ? &done : NULL, &e);
    (void)pthread_mutex_lock(&run->mutex);
    (void)snprintf(run->stats.warning, sizeof run->stats.warning, "%.255s", st != CKP_OK ? e.text : run->model_lost);
    if (run->stats.warning[0] == '\0' && done.left_bytes > run->rules.max_bytes)
        warn_of_bytes(run);
    if (run->stats.warning[0] == '\0')
        warn_of_rate(run);
    (void)pthread_mutex_unlock(&run->mutex);
}

/* All of it is fsynced here, or uploaded and read back. */
static ckp_status
finish_shard(ckp_run *run, ckpi_writer *w, ckp_error *err)
{
    ckpi_keeper *k = ckpi_store_keep(run->store);
    const ckp_status st = ckpi_writer_finish(w, err);
    ckpi_keeper_stop(k);
    return st;
}

static ckp_status
write_job(ckp_run *run, ckp_error *err)
{
    const ckpi_pool *pool = run->job.inline_pass ? run->front->pool : run->back->pool;
    const double t0 = ckpi_seconds(), p0 = ckpi_pool_cpu_seconds(pool);
    ckpi_manifest *m = ckpi_manifest_new();
    ckpi_attempt *a = NULL;
    ckpi_writer *w = NULL;
    shard_call shard = {.run = run, .err = err};
    ckpi_made made = {0};
    double t1 = t0, cpu = 0.0;
    ckp_status st = m != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a manifest");

    run->key_next = true;        /* until this save is committed */
    if (run->talk != NULL)
        st = ckpi_group_begin(run, st, &a, err);
    else if (st == CKP_OK)
        st = ckpi_store_begin(run->store, run->job.step, &a, err);
    if (st == CKP_OK)
        st = ckpi_store_shard(run->store, a, run->group.rank, run->group.world, &w, err);
    if (st == CKP_OK)
        begin_copy(run, a, w);
    if (st == CKP_OK) {
        shard.w = w;
        write_shard_beside(&shard);
        st = shard.st;
    }
    if (st == CKP_OK) {
        t1 = ckpi_seconds();
        cpu = shard.cpu + ckpi_pool_cpu_seconds(pool) - p0;
        st = finish_shard(run, w, err);
    }
    if (st == CKP_OK)
        ckpi_memory_finish(&run->memory);
    if (st == CKP_OK)
        st = run->talk != NULL ? ckpi_group_commit(run, &a, w, &shard.sum, m, &made, err) : commit(run, &a, w, &shard.sum, m, &made, err);
    ckpi_writer_free(w);
    if (st == CKP_OK) {
        st = become_base(run, &made, &shard.sum, err);
    } else {
        ckpi_memory_abort(&run->memory);
        st = give_up(run, a, st, err);
    }
    if (st == CKP_OK) {
        ckpi_memory_commit(&run->memory);
        (void)pthread_mutex_lock(&run->mutex);
        m->sequence = made.sequence;
        add_stats(run, &shard.sum, m, t1 - t0, cpu, ckpi_seconds() - t1);
        note_rate(run);
        ckpi_session_note_memory(run);
        (void)pthread_mutex_unlock(&run->mutex);
    }
    if (st == CKP_OK && run->group.rank == 0)
        retain(run);
    ckpi_manifest_free(m);
    return st;
}

ckp_status
ckpi_session_write(ckp_run *run, ckp_error *err)
{
    const ckp_status st = write_job(run, err);
    (void)pthread_mutex_lock(&run->mutex);
    run->stats.saves += st == CKP_OK;
    run->stats.failed += st != CKP_OK;
    (void)pthread_mutex_unlock(&run->mutex);
    return st;
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

static void
finish_job(ckp_run *run, ckp_status st, const ckp_error *e)
{
    (void)pthread_mutex_lock(&run->mutex);
    run->failed = run->job.told ? CKP_OK : st;
    if (st != CKP_OK)
        run->failure = *e;
    run->busy = false;
    (void)pthread_cond_broadcast(&run->cond);
    (void)pthread_mutex_unlock(&run->mutex);
}

/* Waits for a job, or for the time to refresh the lock. Called with the mutex held. */
static void
wait_for_work(ckp_run *run)
{
    ckpi_cond_wait_ms(&run->cond, &run->mutex, 1000 * (uint64_t)(run->opt.lock_seconds / 4 != 0 ? run->opt.lock_seconds / 4 : 1));
}

void *
ckpi_session_worker(void *arg)
{
    ckp_run *run = arg;
    ckp_error e;

    (void)pthread_mutex_lock(&run->mutex);
    while (!run->stop) {
        (void)pthread_mutex_unlock(&run->mutex);
        ckpi_session_refresh(run);
        (void)pthread_mutex_lock(&run->mutex);
        if (run->busy) {
            (void)pthread_mutex_unlock(&run->mutex);
            ckpi_error_clear(&e);
            const ckp_status st = ckpi_session_write(run, &e);
            finish_job(run, st, &e);
            (void)pthread_mutex_lock(&run->mutex);
        }
        if (!run->busy && !run->stop)
            wait_for_work(run);
    }
    (void)pthread_mutex_unlock(&run->mutex);
    return NULL;
}
