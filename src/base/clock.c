/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"

static double
read_clock(clockid_t id)
{
    struct timespec t = {0};
    (void)clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double
ckpi_seconds(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double
ckpi_thread_cpu_seconds(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

ckpi_usage
ckpi_thread_usage(void)
{
    struct rusage r = {0};
    (void)getrusage(RUSAGE_THREAD, &r);
    return (ckpi_usage){ckpi_seconds(), ckpi_thread_cpu_seconds(), r.ru_nvcsw};
}

int
ckpi_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int e = pthread_condattr_init(&attr);
    if (e != 0)
        return e;
    e = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (e == 0)
        e = pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    return e;
}

void
ckpi_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ms)
{
    struct timespec at = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(ms / 1000);
    at.tv_nsec += (long)(ms % 1000) * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(cond, mutex, &at);
}

uint64_t
ckpi_ram_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

void
ckpi_thread_low_priority(void)
{
    const id_t me = (id_t)syscall(SYS_gettid);
    if (getpriority(PRIO_PROCESS, me) < CKPI_LOW_NICE)
        (void)setpriority(PRIO_PROCESS, me, CKPI_LOW_NICE);
}

typedef struct low_call { void (*fn)(void *arg); void *arg; } low_call;

static void *
call_low(void *arg)
{
    const low_call *c = arg;
    ckpi_thread_low_priority();
    c->fn(c->arg);
    return NULL;
}

void
ckpi_run_low(void (*fn)(void *arg), void (*meanwhile)(void *arg), void *arg)
{
    low_call c = {fn, arg};
    pthread_t thread;

    if (ckpi_thread_start(&thread, call_low, &c) != 0) {
        fn(arg);
        return;
    }
    (void)pthread_setname_np(thread, "ckpress");
    meanwhile(arg);
    (void)pthread_join(thread, NULL);
}

int
ckpi_thread_start(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    const bool masked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
    const int e = pthread_create(thread, NULL, fn, arg);
    if (masked)
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}
