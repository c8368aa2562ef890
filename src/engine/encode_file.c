/* SPDX-License-Identifier: Apache-2.0 */
/* All groups to one file: windows of groups are coded in parallel, frames are written in order. */
#include <math.h>
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
} slot;

typedef struct window {
    const ckpi_encode_job *job;
    slot *slot;
    size_t first, count, cap;
    uint32_t cpu;
} window;

static ckpi_stage *
stage_of(const window *w, size_t i)
{
    return w->job->stages != NULL ? &w->job->stages[w->first + i] : &w->slot[i].own;
}

static ckp_status
pass_one(const window *w, size_t i, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_encode_job *job = w->job;
    const size_t g = w->first + i;
    ckpi_stage *s = stage_of(w, i);

    ckpi_stage_free(s);          /* groups differ in what they need */
    ckp_status st = job->load != NULL ? job->load(job->load_user, g, ws, w->cpu, err) : CKP_OK;
    if (st != CKP_OK)
        return st;
    ckpi_scratch_reset(ws);
    st = ckpi_stage_alloc(s, &job->pred->layout->g[g], job->pass->set, err);
    return st == CKP_OK ? ckpi_pass_group(job->pass, g, s, ws, err) : st;
}

static ckp_status
code_one(void *user, size_t i, ckpi_scratch *ws, ckp_error *err)
{
    const window *w = user;
    const ckpi_encode_job *job = w->job;
    ckp_status st = CKP_OK;

    if (job->stages == NULL && !job->serial_pass)
        st = pass_one(w, i, ws, err);
    if (st == CKP_OK)
        st = ckpi_encode_group(job->pred, w->first + i, stage_of(w, i), job->effort, job->keep_raw, w->cpu, w->slot[i].chunk, &w->slot[i].n,
                               ws, err);
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
write_window(window *w, ckpi_fmt_writer *fw, loss *by_tensor, ckp_error *err)
{
    ckp_status st = CKP_OK;

    for (size_t i = 0; i < w->count; i++) {
        add_loss(w->job, w->first + i, stage_of(w, i), by_tensor);
        for (size_t k = 0; st == CKP_OK && k < w->slot[i].n; k++) {
            ckpi_chunk *c = &w->slot[i].chunk[k].c;
            st = ckpi_fmt_writer_chunk(fw, c, err);
            if (st == CKP_OK && w->job->quantized_w != NULL && c->quant == CKPI_QUANT_W)
                *w->job->quantized_w += c->frame_len;
        }
        for (size_t k = 0; k < CKPI_CHUNKS_PER_GROUP; k++)
            ckpi_encoded_reset(&w->slot[i].chunk[k]);
        if (w->job->drop_base)
            ckpi_pred_drop(w->job->pred, w->first + i);
    }
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

static ckp_status
run_windows(ckpi_ctx *ctx, window *w, ckpi_fmt_writer *fw, loss *by_tensor, ckp_error *err)
{
    const ckpi_encode_job *job = w->job;
    const size_t groups = job->pred->layout->n;
    uint64_t done = 0;
    ckp_status st = CKP_OK;

    for (w->first = 0; st == CKP_OK && w->first < groups; w->first += w->count) {
        w->count = CKPI_MIN(w->cap, groups - w->first);
        for (size_t i = 0; st == CKP_OK && job->stages == NULL && job->serial_pass && i < w->count; i++) {
            ckpi_scratch_reset(ctx->ws[0]);
            st = pass_one(w, i, ctx->ws[0], err);
        }
        if (st == CKP_OK)
            st = ckpi_ctx_run(ctx, w->count, code_one, w, err);
        if (st == CKP_OK)
            st = write_window(w, fw, by_tensor, err);
        for (size_t i = 0; i < w->count; i++)
            done += job->pred->layout->g[w->first + i].bytes;
        if (st == CKP_OK && job->progress != NULL && job->progress(job->progress_user, done, job->total_bytes) != 0)
            st = ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
    }
    return st;
}

/* Bodies of large lossless chunks are worth more to others than to the next file; all are where memory is so short that bases are dropped. */
enum { KEEP_BODY = 2 << 20 };

static void
take_bodies(ckpi_ctx *ctx, window *w)
{
    for (size_t i = 0; i < ctx->n_bodies; i++) {
        w->slot[i / CKPI_CHUNKS_PER_GROUP].chunk[i % CKPI_CHUNKS_PER_GROUP].body = ctx->bodies[i];
        ctx->bodies[i] = (ckpi_buf){0};
    }
}

static void
give_bodies_back(ckpi_ctx *ctx, window *w)
{
    for (size_t i = 0; i < ctx->n_bodies; i++) {
        ckpi_encoded *e = &w->slot[i / CKPI_CHUNKS_PER_GROUP].chunk[i % CKPI_CHUNKS_PER_GROUP];
        ckpi_encoded_reset(e);
        if (w->job->drop_base || e->body.cap > KEEP_BODY)
            ckpi_buf_free(&e->body);
        ctx->bodies[i] = e->body;
    }
}

ckp_status
ckpi_encode_file(ckpi_ctx *ctx, const ckpi_encode_job *job, ckpi_fmt_writer *fw, ckpi_fmt_sum *sum, ckp_error *err)
{
    window w = {.job = job, .cap = CKPI_GROUPS_PER_WORKER * (size_t)ctx->workers, .cpu = ctx->cpu};
    loss *by_tensor = ckpi_calloc(job->pred->table->n, sizeof *by_tensor);
    ckp_status st = CKP_OK;

    w.slot = ckpi_calloc(w.cap, sizeof *w.slot);
    if (by_tensor == NULL || w.slot == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to encode %zu tensors", job->pred->table->n);
        goto done;
    }
    take_bodies(ctx, &w);
    st = run_windows(ctx, &w, fw, by_tensor, err);
    if (st == CKP_OK)
        st = finish(job, by_tensor, fw, sum, err);
    give_bodies_back(ctx, &w);
done:
    for (size_t i = 0; w.slot != NULL && i < w.cap; i++)
        ckpi_stage_free(&w.slot[i].own);
    free(w.slot);
    free(by_tensor);
    return st;
}
