/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of places: group g has place g % cap, from its pass or its coding to the write of its frames, and there the number of a slot, which holds what was
 * coded. Slots are taken last in, first out: those that only a late file needs are empty again when it has caught up.
 *
 *     written <= coded, and whatever is between <= taken <= passed <= written + cap
 */
#include <math.h>
#include <stdlib.h>
#include "base/bytes.h"
#include "base/clock.h"
#include "base/fail.h"
#include "engine/flow.h"

typedef struct place {
    size_t slot;
    uint64_t held;
    bool coded;                  /* to be written */
} place;

typedef struct ckpi_flow_state {
    ckpi_ctx *ctx;
    const ckpi_flow *job;
    place *place;
    size_t *unused;              /* slots */
    size_t cap;

    pthread_mutex_t lock;        /* guards all below, places and slots */
    pthread_cond_t moved;        /* a slot is free, a pass done, a group coded, it failed, or the helper left */
    unsigned waiting;
    size_t n_unused;
    size_t passed;               /* groups that may be coded: all, unless the caller passes them one after the other */
    size_t taken;
    size_t written;
    size_t failed_at;            /* SIZE_MAX: nothing has */
    ckp_status st;
    ckp_error err;
    bool late, helped;           /* has been late; somebody helps now */
    bool writing;                /* a group is being written */
    uint64_t held, work;         /* bytes that wait for their write; what has been coded so far */
    double cpu;                  /* seconds of processor, all threads' */
    double began, write_began;   /* seconds */
    double blocked;              /* how long those writes took that waited for something else than the processor */
    double threads;              /* that can run at a time */
} flow;

typedef enum who { POOL, CALLER, HELPER } who;
typedef enum verdict { DO, WAIT, LEAVE } verdict;

static place *
place_of(const flow *f, size_t g)
{
    return &f->place[g % f->cap];
}

static bool
has_room(const flow *f, size_t group)
{
    return group < f->written + f->job->slots || (f->late && group < f->written + f->cap && f->held < f->job->late->room);
}

/* The last groups of a late file are the helper's: whoever waits for a thread that does not run should not wait for the file's end. */
static bool
leaves_to_helper(const flow *f)
{
    return f->helped && f->job->groups - f->taken <= 2 * (size_t)f->ctx->workers;
}

/* What a thread does next, and of which group; under the lock. */
static verdict
next_step(flow *f, who w, ckpi_flow_step *s)
{
    const size_t n = f->job->groups;

    if (f->failed_at != SIZE_MAX || f->written == n)
        return LEAVE;
    if (w == (f->helped ? HELPER : CALLER) && !f->writing && place_of(f, f->written)->coded) {
        s->part = CKPI_PART_WRITE;
        s->group = f->written;
        f->writing = true;
        f->write_began = ckpi_seconds();
    } else if (w == CALLER && f->passed < n && has_room(f, f->passed)) {
        s->part = CKPI_PART_PASS;
        s->group = f->passed;
    } else if (f->taken < f->passed && has_room(f, f->taken) && (w == HELPER || !leaves_to_helper(f))) {
        s->part = CKPI_PART_CODE;
        s->group = f->taken++;
    } else {
        return w != POOL || f->taken < n ? WAIT : LEAVE;
    }
    place *p = place_of(f, s->group);
    if (s->part == CKPI_PART_PASS || (s->part == CKPI_PART_CODE && !f->job->serial_pass))
        p->slot = f->unused[--f->n_unused];
    s->slot = p->slot;
    return DO;
}

static void
note_failure(flow *f, size_t group, ckp_status st, const ckp_error *err)
{
    /* the lowest group's wins, so that errors do not depend on timing more than they must */
    if (st == CKP_OK || group > f->failed_at)
        return;
    f->failed_at = group;
    f->st = st;
    f->err = *err;
}

/* Under the lock: a step has been done. */
static void
note_step(flow *f, const ckpi_flow_step *s, const ckpi_usage *before, const ckpi_usage *after)
{
    place *p = place_of(f, s->group);

    f->cpu += after->cpu - before->cpu;
    switch (s->part) {
    case CKPI_PART_PASS:
        f->passed++;
        break;
    case CKPI_PART_CODE:
        p->coded = true;
        p->held = s->held;
        f->held += s->held;
        f->work += s->work;
        break;
    case CKPI_PART_WRITE:
        p->coded = false;
        f->held -= p->held;
        f->unused[f->n_unused++] = p->slot;
        f->written++;
        f->writing = false;
        f->blocked += after->waits != before->waits ? after->wall - before->wall : 0.0;
        break;
    }
}

/* Takes the lock away for as long as it lasts. */
static void
do_step(flow *f, ckpi_flow_step *s)
{
    ckp_error err;

    pthread_mutex_unlock(&f->lock);
    ckpi_error_clear(&err);
    const ckpi_usage before = ckpi_thread_usage();
    const ckp_status st = f->job->step(f->job->user, s, &err);
    const ckpi_usage after = ckpi_thread_usage();
    pthread_mutex_lock(&f->lock);
    note_failure(f, s->group, st, &err);
    note_step(f, s, &before, &after);
    const bool wake = f->waiting != 0;
    pthread_mutex_unlock(&f->lock);
    /* Whoever is woken may take this thread's processor at once, for long: not with the lock in its hand. */
    if (wake)
        pthread_cond_broadcast(&f->moved);
    pthread_mutex_lock(&f->lock);
}

static void
wait_for_others(flow *f)
{
    f->waiting++;
    pthread_cond_wait(&f->moved, &f->lock);
    f->waiting--;
}

static ckp_status
take_steps(void *user, size_t index, ckpi_scratch *ws, ckp_error *unused)
{
    flow *f = user;
    const who w = ws == f->ctx->ws[0] ? CALLER : POOL;
    ckpi_flow_step s = {.ws = ws};

    (void)index;
    (void)unused;
    pthread_mutex_lock(&f->lock);
    for (verdict v; (v = next_step(f, w, &s)) != LEAVE;) {
        if (v == WAIT)
            wait_for_others(f);
        else
            do_step(f, &s);
    }
    pthread_mutex_unlock(&f->lock);
    return CKP_OK;
}

/* ---- help -------------------------------------------------------------------------------------------------------- */

/*
 * Beside a training that leaves no processor idle, half of all saves take 3.5 to 6 times their time alone (docs/decisions/0032). Help takes from the training
 * what the lowest priority would have left to it, so it begins as late as it may: when the helper needs until ENDS_BY for what is left. Its processor is shared.
 */
#define AT_LEAST 0.25
#define FROM 2.0
#define ENDS_BY 3.8
#define SHARED 2.0
#define ROOM ((uint64_t)64 << 20)
enum { LOOK_MS = 10 };

void
ckpi_late_init(ckpi_late *l)
{
    *l = (ckpi_late){.at_least = AT_LEAST, .from = FROM, .ends_by = ENDS_BY, .room = ROOM};
    pthread_mutex_init(&l->lock, NULL);
    (void)ckpi_cond_init(&l->moved);
}

void
ckpi_late_destroy(ckpi_late *l)
{
    ckpi_scratch_free(l->ws);
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
}

void
ckpi_late_over(ckpi_late *l)
{
    pthread_mutex_lock(&l->lock);
    l->over = true;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
}

/* While nothing has been coded nobody knows how long it should take: who then waits for long codes a group. */
static bool
is_late(const flow *f, const ckpi_late *l)
{
    /* of a write that goes on nobody knows yet what it waits for */
    const double took = (f->writing ? f->write_began : ckpi_seconds()) - f->began - f->blocked;

    if (f->work == 0)
        return took > l->at_least;
    const double per_work = f->cpu / (double)f->work, all = (double)f->job->work, left = all - (double)f->work;
    const double alone = l->before + per_work * all / f->threads, end = l->ends_by * alone - l->before;
    return took > CKPI_MAX(l->at_least, l->from * alone) && took * all / (double)f->work > end && took + SHARED * per_work * left > end;
}

/* Codes groups for as long as the file is late, and there are any. */
static void
help(flow *f, ckpi_late *l)
{
    ckpi_flow_step s = {0};

    pthread_mutex_lock(&f->lock);
    while (is_late(f, l)) {
        l->ws = l->ws != NULL ? l->ws : ckpi_scratch_new();
        s.ws = l->ws;
        f->late = f->helped = l->ws != NULL;
        const verdict v = f->helped ? next_step(f, HELPER, &s) : LEAVE;
        if (v == LEAVE)
            break;
        if (v == WAIT)
            wait_for_others(f);
        else
            do_step(f, &s);
    }
    f->helped = false;
    pthread_cond_broadcast(&f->moved);
    pthread_mutex_unlock(&f->lock);
}

void
ckpi_late_help(ckpi_late *l)
{
    const double before = ckpi_thread_cpu_seconds();

    pthread_mutex_lock(&l->lock);
    while (!l->over) {
        ckpi_cond_wait_ms(&l->moved, &l->lock, LOOK_MS);
        flow *f = l->flow;
        if (f == NULL)
            continue;
        l->inside = true;
        pthread_mutex_unlock(&l->lock);
        help(f, l);
        pthread_mutex_lock(&l->lock);
        l->inside = false;
        pthread_cond_broadcast(&l->moved);
    }
    pthread_mutex_unlock(&l->lock);
    l->cpu = ckpi_thread_cpu_seconds() - before;
}

/* NULL: no more, and the helper has left. */
static void
offer(ckpi_late *l, flow *f)
{
    if (l == NULL)
        return;
    pthread_mutex_lock(&l->lock);
    l->flow = f;
    while (f == NULL && l->inside)
        pthread_cond_wait(&l->moved, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static ckp_status
run_all(flow *f, ckp_error *err)
{
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->moved, NULL);
    f->began = ckpi_seconds();
    f->threads = ckpi_ctx_at_once(f->ctx);
    offer(f->job->late, f);
    /* A thread of the pool leaves, and may come back, only when every group is taken: before that, one of the places is the caller's. Where all were
       used up, what is left is to write. */
    ckp_status st = ckpi_ctx_run(f->ctx, f->ctx->workers, take_steps, f, err);
    if (st == CKP_OK)
        st = take_steps(f, 0, f->ctx->ws[0], NULL);
    offer(f->job->late, NULL);
    pthread_cond_destroy(&f->moved);
    pthread_mutex_destroy(&f->lock);
    if (st == CKP_OK && f->st != CKP_OK) {
        st = f->st;
        if (err != NULL)
            *err = f->err;
    }
    return st;
}

ckp_status
ckpi_flow_run(ckpi_ctx *ctx, const ckpi_flow *job, ckp_error *err)
{
    flow f = {.ctx = ctx, .job = job, .cap = job->slots + (job->late != NULL ? job->more_slots : 0),
              .passed = job->serial_pass ? 0 : job->groups, .failed_at = SIZE_MAX, .st = CKP_OK};

    f.place = ckpi_calloc(f.cap, sizeof *f.place);
    f.unused = ckpi_calloc(f.cap, sizeof *f.unused);
    ckp_status st = f.place != NULL && f.unused != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu groups at a time", f.cap);
    while (st == CKP_OK && f.n_unused < f.cap) {
        f.unused[f.n_unused] = f.cap - 1 - f.n_unused;
        f.n_unused++;
    }
    if (st == CKP_OK)
        st = run_all(&f, err);
    free(f.place);
    free(f.unused);
    return st;
}
