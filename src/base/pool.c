/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job at a time. A worker joins a job while it is open; the caller works too, closes the job when no index is left,
 * and waits only for workers that joined. So a low-priority worker that the scheduler does not let run never delays
 * a job that it has not begun.
 *
 *     idle --run()--> open --(indices used up)--> closed --(joined == 0)--> idle
 */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/pool.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 1024 };

typedef struct worker {
    ckpi_pool *pool;
    pthread_t thread;
    unsigned id;           /* 1 and up; 0 is the caller */
} worker;

struct ckpi_pool {
    pid_t pid;             /* of the process that made it */
    unsigned threads;      /* workers + the caller */
    bool low_priority;
    worker *workers;       /* threads - 1 of them */

    pthread_mutex_t lock;  /* guards all below but next */
    pthread_cond_t wake;   /* workers: a job opened, or quit */
    pthread_cond_t left;   /* caller: a worker left the job */
    bool quit;
    bool busy;             /* from run() to its return */
    bool open;
    uint64_t generation;   /* number of the job: a worker joins each at most once */
    unsigned joined;

    ckpi_job_fn fn;        /* the job; constant while it is open or somebody has joined */
    void *user;
    size_t count;
    size_t batch;
    atomic_size_t next;
};

unsigned
ckpi_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    /* More processors than the set has bits for. */
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)CKPI_MIN(n, (long)MAX_THREADS) : 1;
}

static void
work(ckpi_pool *p, unsigned id)
{
    for (;;) {
        const size_t first = atomic_fetch_add_explicit(&p->next, p->batch, memory_order_relaxed);
        if (first >= p->count)
            return;
        const size_t end = p->batch < p->count - first ? first + p->batch : p->count;
        for (size_t i = first; i < end; i++)
            p->fn(p->user, i, id);
    }
}

static void *
worker_main(void *arg)
{
    const worker *w = arg;
    ckpi_pool *p = w->pool;
    uint64_t seen = 0;

    if (p->low_priority)
        ckpi_thread_low_priority();
    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        if (!p->open || p->generation == seen) {
            pthread_cond_wait(&p->wake, &p->lock);
            continue;
        }
        seen = p->generation;
        p->joined++;
        pthread_mutex_unlock(&p->lock);
        work(p, w->id);
        pthread_mutex_lock(&p->lock);
        if (--p->joined == 0)
            pthread_cond_signal(&p->left);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Fewer threads than asked for is no failure: the caller alone can do every job. */
static void
start_workers(ckpi_pool *p, unsigned wanted)
{
    for (unsigned i = 0; i < wanted; i++) {
        worker *w = &p->workers[i];
        *w = (worker){.pool = p, .id = i + 1};
        if (ckpi_thread_start(&w->thread, worker_main, w) != 0)
            break;
        (void)pthread_setname_np(w->thread, "ckpress");
        p->threads++;
    }
}

ckp_status
ckpi_pool_new(ckpi_pool **out, unsigned threads, bool low_priority, ckp_error *err)
{
    *out = NULL;
    if (threads == 0)
        threads = ckpi_cpu_count();
    threads = CKPI_MIN(threads, (unsigned)MAX_THREADS);

    ckpi_pool *p = ckpi_calloc(1, sizeof *p);
    worker *workers = ckpi_calloc(threads, sizeof *workers);
    if (p == NULL || workers == NULL) {
        free(workers);
        free(p);
        return ckpi_fail(err, CKP_ENOMEM, "thread pool: out of memory");
    }
    p->pid = getpid();
    p->threads = 1;
    p->low_priority = low_priority;
    p->workers = workers;
    /* None of these can fail with default attributes on Linux. */
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->left, NULL);
    start_workers(p, threads - 1);
    *out = p;
    return CKP_OK;
}

void
ckpi_pool_free(ckpi_pool *p)
{
    /* In a forked child the threads do not exist and the lock may be held for ever: leave all as it is. */
    if (p == NULL || p->pid != getpid())
        return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i + 1 < p->threads; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->left);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}

unsigned
ckpi_pool_threads(const ckpi_pool *p)
{
    return p->threads;
}

ckp_status
ckpi_pool_run(ckpi_pool *p, size_t count, ckpi_job_fn fn, void *user, ckp_error *err)
{
    if (p->pid != getpid())
        return ckpi_fail(err, CKP_EFORK, "thread pool: it belongs to the parent process");

    pthread_mutex_lock(&p->lock);
    if (p->busy) {
        pthread_mutex_unlock(&p->lock);
        return ckpi_fail(err, CKP_EBUSY, "thread pool: another job is running");
    }
    p->busy = true;
    p->fn = fn;
    p->user = user;
    p->count = count;
    /* Many small indices are taken several at a time, but the last tenths of a job still balance. */
    p->batch = CKPI_MAX(count / (p->threads * (size_t)64), (size_t)1);
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    if (p->threads > 1 && count > 1) {
        p->open = true;
        p->generation++;
        pthread_cond_broadcast(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);

    work(p, 0);

    pthread_mutex_lock(&p->lock);
    p->open = false;
    while (p->joined != 0)
        pthread_cond_wait(&p->left, &p->lock);
    p->busy = false;
    pthread_mutex_unlock(&p->lock);
    return CKP_OK;
}

double
ckpi_pool_cpu_seconds(const ckpi_pool *p)
{
    double seconds = 0;
    if (p->pid != getpid())
        return 0;
    for (unsigned i = 0; i + 1 < p->threads; i++) {
        clockid_t clock;
        struct timespec t;
        if (pthread_getcpuclockid(p->workers[i].thread, &clock) == 0 && clock_gettime(clock, &t) == 0)
            seconds += (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
    }
    return seconds;
}
