/* SPDX-License-Identifier: Apache-2.0 */
/* All groups to one file: what is done to each (flow.c: when, and by whom), what coding lost, and the memory of coded chunks. */
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

typedef struct file {
    ckpi_ctx *ctx;
    const ckpi_encode_job *job;
    ckpi_fmt_writer *fw;
    loss *by_tensor;
    slot *slot;
    size_t slots;
    uint64_t written;            /* bytes of the state that are behind us; of who writes */
} file;

static ckpi_stage *
stage_of(const file *f, size_t g, slot *s)
{
    return f->job->stages != NULL ? &f->job->stages[g] : &s->own;
}

static ckp_status
pass_one(const file *f, size_t g, slot *to, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_encode_job *job = f->job;
    ckpi_stage *s = stage_of(f, g, to);

    ckpi_scratch_reset(ws);
    ckpi_stage_free(s);          /* groups differ in what they need */
    ckp_status st = job->load != NULL ? job->load(job->load_user, g, ws, f->ctx->cpu, err) : CKP_OK;
    if (st != CKP_OK)
        return st;
    ckpi_scratch_reset(ws);
    st = ckpi_stage_alloc(s, &job->pred->layout->g[g], job->pass->set, err);
    return st == CKP_OK ? ckpi_pass_group(job->pass, g, s, ws, err) : st;
}

/* Slots that only a late file uses: their memory is not to grow what all saves hold. */
static bool
spare(const file *f, const slot *s)
{
    return s >= f->slot + f->ctx->in_flight;
}

/* Gives back what its chunks' coders did not need. Returns what they hold. */
static uint64_t
fit(slot *s)
{
    uint64_t held = 0;

    for (size_t k = 0; k < CKPI_CHUNKS_PER_GROUP; k++) {
        ckpi_encoded_fit(&s->chunk[k]);
        held += s->chunk[k].body.cap;
    }
    return held;
}

static ckp_status
code_one(const file *f, ckpi_flow_step *step, slot *s, ckp_error *err)
{
    const ckpi_encode_job *job = f->job;
    const size_t g = step->group;
    ckp_status st = CKP_OK;

    if (job->stages == NULL && !job->serial_pass)
        st = pass_one(f, g, s, step->ws, err);
    ckpi_scratch_reset(step->ws);
    if (st == CKP_OK)
        st = ckpi_encode_group(job->pred, g, stage_of(f, g, s), job->effort, job->keep_raw, f->ctx->cpu, s->chunk, &s->n, step->ws, err);
    step->work = job->pred->layout->g[g].bytes;
    step->held = spare(f, s) ? fit(s) : 0;
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

static void
empty_slot(const file *f, slot *s)
{
    for (size_t k = 0; k < CKPI_CHUNKS_PER_GROUP; k++) {
        ckpi_encoded_reset(&s->chunk[k]);
        if (spare(f, s))
            ckpi_buf_free(&s->chunk[k].body);
    }
}

static ckp_status
write_one(file *f, size_t g, slot *s, ckp_error *err)
{
    const ckpi_encode_job *job = f->job;
    ckp_status st = CKP_OK;

    add_loss(job, g, stage_of(f, g, s), f->by_tensor);
    for (size_t k = 0; st == CKP_OK && k < s->n; k++) {
        ckpi_chunk *c = &s->chunk[k].c;
        st = ckpi_fmt_writer_chunk(f->fw, c, err);
        if (st == CKP_OK && job->quantized_w != NULL && c->quant == CKPI_QUANT_W)
            *job->quantized_w += c->frame_len;
    }
    empty_slot(f, s);
    if (job->drop_base)
        ckpi_pred_drop(job->pred, g);
    f->written += job->pred->layout->g[g].bytes;
    if (st == CKP_OK && job->progress != NULL && job->progress(job->progress_user, f->written, job->total_bytes) != 0)
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

static ckp_status
do_step(void *user, ckpi_flow_step *step, ckp_error *err)
{
    file *f = user;
    slot *s = &f->slot[step->slot];

    switch (step->part) {
    case CKPI_PART_PASS:
        return pass_one(f, step->group, s, step->ws, err);
    case CKPI_PART_CODE:
        return code_one(f, step, s, err);
    case CKPI_PART_WRITE:
        break;
    }
    return write_one(f, step->group, s, err);
}

/* Bodies of large lossless chunks are worth more to others than to the next file; all are where memory is so short that bases are dropped. */
enum { KEEP_BODY = 2 << 20 };

static void
take_bodies(ckpi_ctx *ctx, file *f)
{
    for (size_t i = 0; i < ctx->n_bodies; i++) {
        f->slot[i / CKPI_CHUNKS_PER_GROUP].chunk[i % CKPI_CHUNKS_PER_GROUP].body = ctx->bodies[i];
        ctx->bodies[i] = (ckpi_buf){0};
    }
}

static void
give_bodies_back(ckpi_ctx *ctx, file *f)
{
    for (size_t i = 0; i < ctx->n_bodies; i++) {
        ckpi_encoded *e = &f->slot[i / CKPI_CHUNKS_PER_GROUP].chunk[i % CKPI_CHUNKS_PER_GROUP];
        ckpi_encoded_reset(e);
        if (f->job->drop_base || e->body.cap > KEEP_BODY)
            ckpi_buf_free(&e->body);
        ctx->bodies[i] = e->body;
    }
}

/* Slots that only a late file uses: enough for what its helper can code while a group of another thread waits for the scheduler. */
enum { LATE_SLOTS = 200 };

ckp_status
ckpi_encode_file(ckpi_ctx *ctx, const ckpi_encode_job *job, ckpi_fmt_writer *fw, ckpi_fmt_sum *sum, ckp_error *err)
{
    const ckpi_layout *l = job->pred->layout;
    file f = {.ctx = ctx, .job = job, .fw = fw, .slots = ctx->in_flight + (job->late != NULL ? LATE_SLOTS : 0)};
    ckpi_flow flow = {.groups = l->n, .slots = ctx->in_flight, .more_slots = LATE_SLOTS, .serial_pass = job->stages == NULL && job->serial_pass,
                      .step = do_step, .user = &f, .late = job->late};
    ckp_status st = CKP_OK;

    for (size_t g = 0; g < l->n; g++)
        flow.work += l->g[g].bytes;
    f.by_tensor = ckpi_calloc(job->pred->table->n, sizeof *f.by_tensor);
    f.slot = ckpi_calloc(f.slots, sizeof *f.slot);
    if (f.by_tensor == NULL || f.slot == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to encode %zu tensors", job->pred->table->n);
        goto done;
    }
    take_bodies(ctx, &f);
    st = ckpi_flow_run(ctx, &flow, err);
    if (st == CKP_OK)
        st = finish(job, f.by_tensor, fw, sum, err);
    give_bodies_back(ctx, &f);
done:
    for (size_t i = 0; f.slot != NULL && i < f.slots; i++)
        ckpi_stage_free(&f.slot[i].own);
    free(f.slot);
    free(f.by_tensor);
    return st;
}
