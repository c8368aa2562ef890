/* SPDX-License-Identifier: Apache-2.0 */
/* All groups to one file: coded in parallel, a few ahead of the frames, which are written in order. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "engine/encode.h"

/* What lossy coding lost, by tensor, summed in the order of groups. */
typedef struct loss { double max_err, err2, sum2; uint64_t n, n_nan, n_inf; double v_max_rel; } loss;

typedef struct slot {
    ckpi_stage own;              /* used when the job has no stages */
    ckpi_encoded chunk[CKPI_CHUNKS_PER_GROUP];
    size_t n;
    bool coded;                  /* to be written */
} slot;

/*
 * A ring: group g has slot g % cap, from its pass to the write of its frames. Every thread of the pool takes the lowest group that nobody has, as long
 * as it has a slot; the caller writes what is ready in between. Nobody waits for a thread that the scheduler does not let run but for a slot.
 *
 *     written <= coded, and whatever is between <= taken <= passed <= written + cap
 */
typedef struct flow {
    ckpi_ctx *ctx;
    const ckpi_encode_job *job;
    ckpi_fmt_writer *fw;
    loss *by_tensor;
    slot *slot;
    size_t cap;
    size_t n;                    /* groups */

    pthread_mutex_t lock;        /* guards all below, and slot[].coded */
    pthread_cond_t moved;        /* a slot is free, a pass done, a group coded, or it failed */
    unsigned waiting;
    size_t passed;               /* groups that may be coded: all, unless the caller passes them one after the other */
    size_t taken;
    size_t written;
    size_t failed_at;            /* SIZE_MAX: nothing has */
    ckp_status st;
    ckp_error err;
    uint64_t bytes_written;      /* of the state; the caller's alone */
} flow;

static slot *
slot_of(const flow *f, size_t g)
{
    return &f->slot[g % f->cap];
}

static ckpi_stage *
stage_of(const flow *f, size_t g)
{
    return f->job->stages != NULL ? &f->job->stages[g] : &slot_of(f, g)->own;
}

static ckp_status
pass_one(const flow *f, size_t g, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_encode_job *job = f->job;
    ckpi_stage *s = stage_of(f, g);

    ckpi_scratch_reset(ws);
    ckpi_stage_free(s);          /* groups differ in what they need */
    ckp_status st = job->load != NULL ? job->load(job->load_user, g, ws, f->ctx->cpu, err) : CKP_OK;
    if (st != CKP_OK)
        return st;
    ckpi_scratch_reset(ws);
    st = ckpi_stage_alloc(s, &job->pred->layout->g[g], job->pass->set, err);
    return st == CKP_OK ? ckpi_pass_group(job->pass, g, s, ws, err) : st;
}

static ckp_status
code_one(const flow *f, size_t g, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_encode_job *job = f->job;
    slot *s = slot_of(f, g);
    ckp_status st = CKP_OK;

    if (job->stages == NULL && !job->serial_pass)
        st = pass_one(f, g, ws, err);
    ckpi_scratch_reset(ws);
    if (st == CKP_OK)
        st = ckpi_encode_group(job->pred, g, stage_of(f, g), job->effort, job->keep_raw, f->ctx->cpu, s->chunk, &s->n, ws, err);
    return st;
}

/* As of other quantizers: second moments' errors are of each value itself. */
static void
add_cluster_loss(loss *l, const ckpi_clusters_loss *c, ckp_role role)
{
    if (role == CKP_ROLE_V) {
        l->v_max_rel = fmax(l->v_max_rel, c->max_rel);
        l->n = 1;
        return;
    }
    l->max_err = fmax(l->max_err, c->max_err);
    l->err2 += c->err2;
    l->sum2 += c->sum2;
    l->n += c->n;
    l->n_nan += c->n_nan;
    l->n_inf += c->n_inf;
}

static void
add_clusters(ckpi_clusters_loss *all, const ckpi_clusters_loss *c)
{
    all->err2 += c->err2;
    all->n += c->n;
    all->rel += c->rel;
    all->n_rel += c->n_rel;
}

static void
add_loss(const ckpi_encode_job *job, size_t g, const ckpi_stage *s, loss *by_tensor)
{
    const ckpi_group *grp = &job->pred->layout->g[g];

    for (size_t k = 0; grp->clustered && k < grp->n_pieces; k++) {
        add_cluster_loss(&by_tensor[grp->piece[k].tensor], &s->cluster_loss[k], grp->role);
        if (job->clusters != NULL)
            add_clusters(&job->clusters[grp->role], &s->cluster_loss[k]);
    }
    for (size_t k = 0; grp->lossy && k < grp->n_pieces; k++) {
        const ckpi_piece_sums *p = &s->sums[k];
        loss *l = &by_tensor[grp->piece[k].tensor];
        if (!s->exact_w) {
            l->max_err = fmax(l->max_err, p->w_max_err);
            l->err2 += p->w_err2;
            l->sum2 += p->w_sum2;
            l->n += p->w.n_finite;
            l->n_nan += p->n_nan;
            l->n_inf += p->n_inf;
        }
        if (grp->has_v) {
            by_tensor[grp->v[k]].v_max_rel = fmax(by_tensor[grp->v[k]].v_max_rel, p->v_max_rel);
            by_tensor[grp->v[k]].n = 1;
        }
    }
}

static ckp_status
write_one(flow *f, size_t g, ckp_error *err)
{
    const ckpi_encode_job *job = f->job;
    slot *s = slot_of(f, g);
    ckp_status st = CKP_OK;

    add_loss(job, g, stage_of(f, g), f->by_tensor);
    for (size_t k = 0; st == CKP_OK && k < s->n; k++) {
        ckpi_chunk *c = &s->chunk[k].c;
        st = ckpi_fmt_writer_chunk(f->fw, c, err);
        if (st == CKP_OK && job->quantized_w != NULL && c->quant == CKPI_QUANT_W)
            *job->quantized_w += c->frame_len;
    }
    for (size_t k = 0; k < CKPI_CHUNKS_PER_GROUP; k++)
        ckpi_encoded_reset(&s->chunk[k]);
    if (job->drop_base)
        ckpi_pred_drop(job->pred, g);
    f->bytes_written += job->pred->layout->g[g].bytes;
    if (st == CKP_OK && job->progress != NULL && job->progress(job->progress_user, f->bytes_written, job->total_bytes) != 0)
        st = ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
    return st;
}

static ckp_status
finish(const ckpi_encode_job *job, const loss *by_tensor, ckpi_fmt_writer *fw, ckpi_fmt_sum *sum, ckp_error *err)
{
    ckpi_errrec *e = ckpi_calloc(job->pred->table->n, sizeof *e);
    size_t n = 0;

    if (e == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for error records");
    for (uint32_t t = 0; t < job->pred->table->n; t++) {
        const loss *l = &by_tensor[t];
        if (l->n == 0 && l->n_nan + l->n_inf == 0 && l->v_max_rel <= 0.0)
            continue;
        const double rms = l->n != 0 && l->sum2 > 0.0 ? sqrt(l->sum2 / (double)l->n) : 0.0;
        ckpi_errrec r = {.tensor = t, .n_nan = l->n_nan, .n_inf = l->n_inf};
        if (rms > 0.0) {
            r.max_rel = (float)(l->max_err / rms);
            r.rms_rel = (float)(sqrt(l->err2 / (double)l->n) / rms);
        } else if (l->v_max_rel > 0.0) {
            r.max_rel = (float)l->v_max_rel;      /* of each value itself: see docs/format.md */
        }
        e[n++] = r;
    }
    const ckp_status st = ckpi_fmt_writer_finish(fw, e, n, sum, err);
    free(e);
    return st;
}

typedef enum part { WRITE, PASS, CODE, WAIT, LEAVE } part;

/* What a thread does next, and of which group; under the lock. */
static part
next_part(flow *f, bool caller, size_t *g)
{
    if (f->failed_at != SIZE_MAX || f->written == f->n)
        return LEAVE;
    if (caller && slot_of(f, f->written)->coded) {
        *g = f->written;
        return WRITE;
    }
    if (caller && f->passed < CKPI_MIN(f->n, f->written + f->cap)) {
        *g = f->passed;
        return PASS;
    }
    if (f->taken < CKPI_MIN(f->passed, f->written + f->cap)) {
        *g = f->taken++;
        return CODE;
    }
    return caller || f->taken < f->n ? WAIT : LEAVE;
}

static ckp_status
do_part(flow *f, part what, size_t g, ckpi_scratch *ws, ckp_error *err)
{
    if (what == PASS)
        return pass_one(f, g, ws, err);
    return what == CODE ? code_one(f, g, ws, err) : write_one(f, g, err);
}

/* Under the lock: a part has been done. */
static void
note_part(flow *f, part what, size_t g, ckp_status st, const ckp_error *err)
{
    if (st != CKP_OK && g < f->failed_at) {
        /* the lowest group's wins, so that errors do not depend on timing more than they must */
        f->failed_at = g;
        f->st = st;
        f->err = *err;
    }
    f->passed += what == PASS;
    f->written += what == WRITE;
    if (what != PASS)
        slot_of(f, g)->coded = what == CODE;
    if (f->waiting != 0)
        pthread_cond_broadcast(&f->moved);
}

static ckp_status
take_part(void *user, size_t index, ckpi_scratch *ws, ckp_error *unused)
{
    flow *f = user;
    const bool caller = ws == f->ctx->ws[0];
    size_t g = 0;
    ckp_error err;

    (void)index;
    (void)unused;
    pthread_mutex_lock(&f->lock);
    for (part what; (what = next_part(f, caller, &g)) != LEAVE;) {
        if (what == WAIT) {
            f->waiting++;
            pthread_cond_wait(&f->moved, &f->lock);
            f->waiting--;
            continue;
        }
        pthread_mutex_unlock(&f->lock);
        ckpi_error_clear(&err);
        const ckp_status st = do_part(f, what, g, ws, &err);
        pthread_mutex_lock(&f->lock);
        note_part(f, what, g, st, &err);
    }
    pthread_mutex_unlock(&f->lock);
    return CKP_OK;
}

static ckp_status
run_flow(flow *f, ckp_error *err)
{
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->moved, NULL);
    /* A thread of the pool leaves, and may come back, only when every group is taken: before that, one of the places is the caller's. Where all were
       used up, what is left is to write. */
    ckp_status st = ckpi_ctx_run(f->ctx, f->ctx->workers, take_part, f, err);
    if (st == CKP_OK)
        st = take_part(f, 0, f->ctx->ws[0], NULL);
    pthread_cond_destroy(&f->moved);
    pthread_mutex_destroy(&f->lock);
    if (st == CKP_OK && f->st != CKP_OK) {
        st = f->st;
        if (err != NULL)
            *err = f->err;
    }
    return st;
}

/* Bodies of large lossless chunks are worth more to others than to the next file; all are where memory is so short that bases are dropped. */
enum { KEEP_BODY = 2 << 20 };

static void
take_bodies(ckpi_ctx *ctx, flow *f)
{
    for (size_t i = 0; i < ctx->n_bodies; i++) {
        f->slot[i / CKPI_CHUNKS_PER_GROUP].chunk[i % CKPI_CHUNKS_PER_GROUP].body = ctx->bodies[i];
        ctx->bodies[i] = (ckpi_buf){0};
    }
}

static void
give_bodies_back(ckpi_ctx *ctx, flow *f)
{
    for (size_t i = 0; i < ctx->n_bodies; i++) {
        ckpi_encoded *e = &f->slot[i / CKPI_CHUNKS_PER_GROUP].chunk[i % CKPI_CHUNKS_PER_GROUP];
        ckpi_encoded_reset(e);
        if (f->job->drop_base || e->body.cap > KEEP_BODY)
            ckpi_buf_free(&e->body);
        ctx->bodies[i] = e->body;
    }
}

ckp_status
ckpi_encode_file(ckpi_ctx *ctx, const ckpi_encode_job *job, ckpi_fmt_writer *fw, ckpi_fmt_sum *sum, ckp_error *err)
{
    const size_t groups = job->pred->layout->n;
    flow f = {.ctx = ctx, .job = job, .fw = fw, .cap = ctx->in_flight, .n = groups,
              .passed = job->stages == NULL && job->serial_pass ? 0 : groups, .failed_at = SIZE_MAX, .st = CKP_OK};
    ckp_status st = CKP_OK;

    f.by_tensor = ckpi_calloc(job->pred->table->n, sizeof *f.by_tensor);
    f.slot = ckpi_calloc(f.cap, sizeof *f.slot);
    if (f.by_tensor == NULL || f.slot == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to encode %zu tensors", job->pred->table->n);
        goto done;
    }
    take_bodies(ctx, &f);
    st = run_flow(&f, err);
    if (st == CKP_OK)
        st = finish(job, f.by_tensor, fw, sum, err);
    give_bodies_back(ctx, &f);
done:
    for (size_t i = 0; f.slot != NULL && i < f.cap; i++)
        ckpi_stage_free(&f.slot[i].own);
    free(f.slot);
    free(f.by_tensor);
    return st;
}
