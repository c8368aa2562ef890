/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "engine/engine.h"

/* Two groups a thread, and some more: one whose thread the scheduler does not let run holds up the frames behind it, not those who code them. */
static size_t
groups_in_flight(unsigned workers)
{
    enum { PER_WORKER = 2, MORE = 4 };
    return workers > 1 ? (size_t)PER_WORKER * workers + MORE : 1;
}

ckp_status
ckpi_ctx_new(ckpi_ctx **out, unsigned threads, bool low_priority, ckp_error *err)
{
    ckpi_ctx *ctx = ckpi_calloc(1, sizeof *ctx);
    ckp_status st = CKP_ENOMEM;

    *out = NULL;
    if (ctx == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a thread context");
    ctx->cpu = ckpi_cpu();
    st = ckpi_pool_new(&ctx->pool, threads, low_priority, err);
    if (st != CKP_OK)
        goto done;
    ctx->workers = ckpi_pool_threads(ctx->pool);
    ctx->ws = ckpi_calloc(ctx->workers, sizeof *ctx->ws);
    st = ctx->ws != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a thread context");
    ctx->in_flight = groups_in_flight(ctx->workers);
    ctx->n_bodies = ctx->in_flight * CKPI_CHUNKS_PER_GROUP;
    ctx->bodies = ckpi_calloc(ctx->n_bodies, sizeof *ctx->bodies);
    if (st == CKP_OK && ctx->bodies == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for a thread context");
    for (unsigned i = 0; st == CKP_OK && i < ctx->workers; i++) {
        ctx->ws[i] = ckpi_scratch_new();
        if (ctx->ws[i] == NULL)
            st = ckpi_fail(err, CKP_ENOMEM, "no memory for a thread's scratch");
    }
    if (st != CKP_OK)
        goto done;
    *out = ctx;
    ctx = NULL;
done:
    ckpi_ctx_free(ctx);
    return st;
}

void
ckpi_ctx_free(ckpi_ctx *ctx)
{
    if (ctx == NULL)
        return;
    ckpi_pool_free(ctx->pool);
    for (unsigned i = 0; ctx->ws != NULL && i < ctx->workers; i++)
        ckpi_scratch_free(ctx->ws[i]);
    for (size_t i = 0; ctx->bodies != NULL && i < ctx->n_bodies; i++)
        ckpi_buf_free(&ctx->bodies[i]);
    free(ctx->bodies);
    free(ctx->ws);
    free(ctx);
}

unsigned
ckpi_ctx_at_once(const ckpi_ctx *ctx)
{
    return CKPI_MIN(ctx->workers, ckpi_cpu_count());
}

uint64_t
ckpi_ctx_bytes(const ckpi_ctx *ctx)
{
    uint64_t n = 0;
    for (size_t i = 0; i < ctx->n_bodies; i++)
        n += ctx->bodies[i].cap;
    return n;
}

/* One parallel run: the failure with the lowest index wins, so that errors do not depend on timing more than they must. */
typedef struct run_job {
    ckpi_ctx *ctx;
    ckpi_task_fn fn;
    void *user;
    atomic_size_t failed_at;     /* lowest failing index so far, SIZE_MAX: none */
    atomic_flag lock;
    ckp_status st;
    ckp_error err;
} run_job;

static void
note_failure(run_job *job, size_t index, ckp_status st, const ckp_error *e)
{
    while (atomic_flag_test_and_set_explicit(&job->lock, memory_order_acquire))
        ;
    if (index < atomic_load(&job->failed_at)) {
        atomic_store(&job->failed_at, index);
        job->st = st;
        job->err = *e;
    }
    atomic_flag_clear_explicit(&job->lock, memory_order_release);
}

static void
run_one(void *user, size_t index, unsigned worker)
{
    run_job *job = user;
    ckpi_scratch *ws = job->ctx->ws[worker];
    ckp_error e;

    if (index > atomic_load(&job->failed_at))
        return;
    ckpi_error_clear(&e);
    ckpi_scratch_reset(ws);
    ckp_status st = job->fn(job->user, index, ws, &e);
    if (st != CKP_OK)
        note_failure(job, index, st, &e);
}

ckp_status
ckpi_ctx_run(ckpi_ctx *ctx, size_t count, ckpi_task_fn fn, void *user, ckp_error *err)
{
    run_job job = {.ctx = ctx, .fn = fn, .user = user, .lock = ATOMIC_FLAG_INIT, .st = CKP_OK};

    atomic_init(&job.failed_at, SIZE_MAX);
    ckp_status st = ckpi_pool_run(ctx->pool, count, run_one, &job, err);
    if (st != CKP_OK)
        return st;
    if (job.st != CKP_OK && err != NULL)
        *err = job.err;
    return job.st;
}
