/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/cpu.h"
#include "base/clock.h"
#include "base/pool.h"
#include "harness/check.h"
#include "harness/failalloc.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct seen {
    unsigned threads;
    _Atomic unsigned char *hits;
    atomic_bool bad_worker;
};

static void
mark(void *user, size_t index, unsigned worker)
{
    struct seen *s = user;
    atomic_fetch_add(&s->hits[index], 1);
    if (worker >= s->threads)
        s->bad_worker = true;
}

/* Every index once, with a worker number in range, whatever the counts. */
static void
every_index_runs_once(void **state)
{
    (void)state;
    static const unsigned threads[] = {1, 2, 8};
    static const size_t counts[] = {0, 1, 2, 7, 100, 5000, 100003};
    for (size_t t = 0; t < CHECK_COUNT(threads); t++)
        for (int low = 0; low < 2; low++) {
            ckpi_pool *p;
            assert_ok(ckpi_pool_new(&p, threads[t], low, NULL));
            assert_int_equal(ckpi_pool_threads(p), threads[t]);
            for (size_t c = 0; c < CHECK_COUNT(counts); c++)
                for (int round = 0; round < 5; round++) {
                    struct seen s = {.threads = threads[t], .hits = calloc(counts[c] + 1, 1)};
                    assert_non_null(s.hits);
                    assert_ok(ckpi_pool_run(p, counts[c], mark, &s, NULL));
                    assert_false(s.bad_worker);
                    for (size_t i = 0; i < counts[c]; i++)
                        assert_int_equal(s.hits[i], 1);
                    assert_int_equal(s.hits[counts[c]], 0);
                    free((void *)s.hits);
                }
            ckpi_pool_free(p);
        }
    ckpi_pool_free(NULL);
}

/* Results of one job are seen by the caller and by the next job: many short jobs in a row. */
static void
add_worker(void *user, size_t index, unsigned worker)
{
    (void)worker;
    ((unsigned *)user)[index]++;
}

static void
short_jobs_in_a_row(void **state)
{
    (void)state;
    ckpi_pool *p;
    unsigned cells[16] = {0};
    assert_ok(ckpi_pool_new(&p, 4, false, NULL));
    for (unsigned round = 1; round <= 1000; round++) {
        assert_ok(ckpi_pool_run(p, 16, add_worker, cells, NULL));
        for (int i = 0; i < 16; i++)
            assert_int_equal(cells[i], round);
    }
    ckpi_pool_free(p);
}

struct nested { ckpi_pool *pool; _Atomic int inner; };

static void
run_inside(void *user, size_t index, unsigned worker)
{
    (void)index;
    (void)worker;
    struct nested *n = user;
    n->inner = (int)ckpi_pool_run(n->pool, 1, run_inside, user, NULL);
}

static void
a_nested_run_is_refused(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct nested n = {0};
        assert_ok(ckpi_pool_new(&n.pool, threads, false, NULL));
        assert_ok(ckpi_pool_run(n.pool, 1, run_inside, &n, NULL));
        assert_status(n.inner, CKP_EBUSY);
        n.inner = 0;
        assert_ok(ckpi_pool_run(n.pool, 3, run_inside, &n, NULL));
        assert_status(n.inner, CKP_EBUSY);
        ckpi_pool_free(n.pool);
    }
}

struct meet { pthread_barrier_t barrier; };

static void
meet_others(void *user, size_t index, unsigned worker)
{
    (void)index;
    (void)worker;
    pthread_barrier_wait(&((struct meet *)user)->barrier);
}

/* Four indices that wait for each other end only if four threads really run at once, the caller among them. */
static void
threads_run_at_once(void **state)
{
    (void)state;
    struct meet m;
    ckpi_pool *p;
    pthread_barrier_init(&m.barrier, NULL, 4);
    assert_ok(ckpi_pool_new(&p, 4, false, NULL));
    assert_ok(ckpi_pool_run(p, 4, meet_others, &m, NULL));
    ckpi_pool_free(p);
    pthread_barrier_destroy(&m.barrier);
}

static void
a_forked_child_gets_an_error(void **state)
{
    (void)state;
    ckpi_pool *p;
    unsigned cell = 0;
    assert_ok(ckpi_pool_new(&p, 2, false, NULL));
    const pid_t child = fork();
    if (child == 0) {
        ckp_error err;
        const ckp_status st = ckpi_pool_run(p, 1, add_worker, &cell, &err);
        const double cpu = ckpi_pool_cpu_seconds(p);
        ckpi_pool_free(p);   /* does nothing, and does not hang */
        _exit(st == CKP_EFORK && err.code == CKP_EFORK && cell == 0 && cpu == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_ok(ckpi_pool_run(p, 1, add_worker, &cell, NULL));
    assert_int_equal(cell, 1);
    ckpi_pool_free(p);
}

/* Without a single thread to be had the caller does the work. */
static void
no_threads_no_deadlock(void **state)
{
    (void)state;
    if (CKPI_ARM)
        return;   /* qemu-user tries to map any stack, for minutes */
    const pid_t child = fork();
    if (child == 0) {
        /* Thread stacks of 64 TiB: pthread_create fails with EAGAIN. */
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, (size_t)1 << 46);
        pthread_setattr_default_np(&attr);
        ckpi_pool *p;
        unsigned cells[9] = {0};
        int ok = ckpi_pool_new(&p, 8, true, NULL) == CKP_OK && ckpi_pool_threads(p) < 8;
        ok = ok && ckpi_pool_run(p, 9, add_worker, cells, NULL) == CKP_OK && cells[0] == 1 && cells[8] == 1;
        ckpi_pool_free(p);
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void
spin(void *user, size_t index, unsigned worker)
{
    (void)index;
    (void)worker;
    for (int i = 0; i < 2000000; i++)
        atomic_fetch_add_explicit((atomic_uint *)user, 1, memory_order_relaxed);
}

static void
cpu_seconds_grow(void **state)
{
    (void)state;
    ckpi_pool *p;
    atomic_uint sum = 0;
    assert_ok(ckpi_pool_new(&p, 2, false, NULL));
    const double before = ckpi_pool_cpu_seconds(p);
    for (int i = 0; i < 200 && ckpi_pool_cpu_seconds(p) <= before + 0.01; i++)
        assert_ok(ckpi_pool_run(p, 2, spin, &sum, NULL));
    assert_true(ckpi_pool_cpu_seconds(p) > before);
    ckpi_pool_free(p);
}

struct policy { _Atomic int low, masked, workers; pthread_barrier_t barrier; };

static void
look(void *user, size_t index, unsigned worker)
{
    (void)index;
    struct policy *l = user;
    if (worker != 0) {
        sigset_t mask;
        l->workers++;
        l->low += getpriority(PRIO_PROCESS, (id_t)gettid()) >= CKPI_LOW_NICE;
        pthread_sigmask(SIG_SETMASK, NULL, &mask);
        l->masked += sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM);
    }
    pthread_barrier_wait(&l->barrier);
}

static void
workers_are_low_and_take_no_signals(void **state)
{
    (void)state;
    struct policy l = {0};
    ckpi_pool *p;
    pthread_barrier_init(&l.barrier, NULL, 2);
    assert_ok(ckpi_pool_new(&p, 2, true, NULL));
    assert_ok(ckpi_pool_run(p, 2, look, &l, NULL));
    assert_int_equal(l.workers, 1);
    assert_int_equal(l.low, 1);
    assert_int_equal(l.masked, 1);
    ckpi_pool_free(p);
    pthread_barrier_destroy(&l.barrier);
}

static void
zero_means_all_processors(void **state)
{
    (void)state;
    ckpi_pool *p;
    assert_true(ckpi_cpu_count() >= 1);
    assert_ok(ckpi_pool_new(&p, 0, false, NULL));
    assert_int_equal(ckpi_pool_threads(p), ckpi_cpu_count());
    ckpi_pool_free(p);
}

static ckp_status
make_pool(void *user)
{
    (void)user;
    ckpi_pool *p;
    unsigned cells[3] = {0};
    ckp_error err;
    ckp_status st = ckpi_pool_new(&p, 3, false, &err);
    if (st != CKP_OK)
        return p == NULL && err.code == st ? st : CKP_EINTERNAL;
    st = ckpi_pool_run(p, 3, add_worker, cells, NULL);
    ckpi_pool_free(p);
    return st;
}

static void
failing_allocations(void **state)
{
    (void)state;
    failalloc_run(make_pool, NULL, 2, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_runs_once),
        cmocka_unit_test(short_jobs_in_a_row),
        cmocka_unit_test(a_nested_run_is_refused),
        cmocka_unit_test(threads_run_at_once),
        cmocka_unit_test(a_forked_child_gets_an_error),
        cmocka_unit_test(no_threads_no_deadlock),
        cmocka_unit_test(cpu_seconds_grow),
        cmocka_unit_test(workers_are_low_and_take_no_signals),
        cmocka_unit_test(zero_means_all_processors),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
