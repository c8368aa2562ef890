/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include "harness/failalloc.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
int __real_posix_memalign(void **out, size_t align, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);
int __wrap_posix_memalign(void **out, size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

/* Live allocations: open addressing, TOMB where one was. Large enough for any test; a full table aborts. */
enum { SLOTS = 1 << 18 };
#define TOMB ((uintptr_t)1)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool active;
static uintptr_t slots[SLOTS];
static unsigned long live;
static unsigned long used;      /* slots that are not 0 */
static unsigned long count;
static unsigned long fail_at;
static bool fired;

static size_t
slot_of(uintptr_t p)
{
    return (size_t)((uint64_t)p * UINT64_C(0x9e3779b97f4a7c15) >> 40) % SLOTS;
}

/* Both under the lock. */
static void
track(void *ptr)
{
    const uintptr_t p = (uintptr_t)ptr;
    if (used > SLOTS * 3UL / 4) {
        fputs("failalloc: too many allocations to track\n", stderr);
        abort();
    }
    size_t i = slot_of(p);
    while (slots[i] > TOMB)
        i = (i + 1) % SLOTS;
    if (slots[i] == 0)
        used++;
    slots[i] = p;
    live++;
}

static void
untrack(void *ptr)
{
    const uintptr_t p = (uintptr_t)ptr;
    for (size_t i = slot_of(p); slots[i] != 0; i = (i + 1) % SLOTS)
        if (slots[i] == p) {
            slots[i] = TOMB;
            live--;
            return;
        }
}

/* Counts one allocation; true if it is the one to fail. */
static bool
fails(void)
{
    pthread_mutex_lock(&lock);
    const bool hit = ++count == fail_at;
    if (hit)
        fired = true;
    pthread_mutex_unlock(&lock);
    return hit;
}

static void *
tracked(void *p)
{
    if (p != NULL) {
        pthread_mutex_lock(&lock);
        track(p);
        pthread_mutex_unlock(&lock);
    }
    return p;
}

void *
__wrap_malloc(size_t n)
{
    if (!active)
        return __real_malloc(n);
    return fails() ? NULL : tracked(__real_malloc(n));
}

void *
__wrap_calloc(size_t n, size_t size)
{
    if (!active)
        return __real_calloc(n, size);
    return fails() ? NULL : tracked(__real_calloc(n, size));
}

void *
__wrap_aligned_alloc(size_t align, size_t n)
{
    if (!active)
        return __real_aligned_alloc(align, n);
    return fails() ? NULL : tracked(__real_aligned_alloc(align, n));
}

int
__wrap_posix_memalign(void **out, size_t align, size_t n)
{
    if (!active)
        return __real_posix_memalign(out, align, n);
    if (fails())
        return ENOMEM;
    const int rc = __real_posix_memalign(out, align, n);
    if (rc == 0)
        tracked(*out);
    return rc;
}

/* The lock is held across the real calls: otherwise another thread could get the old address and be untracked. */
void *
__wrap_realloc(void *p, size_t n)
{
    if (!active)
        return __real_realloc(p, n);
    if (fails())
        return NULL;
    pthread_mutex_lock(&lock);
    if (p != NULL)
        untrack(p);
    void *q = __real_realloc(p, n);
    if (q != NULL)
        track(q);
    else if (p != NULL)
        track(p);
    pthread_mutex_unlock(&lock);
    return q;
}

void
__wrap_free(void *p)
{
    if (!active || p == NULL) {
        __real_free(p);
        return;
    }
    pthread_mutex_lock(&lock);
    untrack(p);
    __real_free(p);
    pthread_mutex_unlock(&lock);
}

void
failalloc_begin(unsigned long n)
{
    pthread_mutex_lock(&lock);
    if (used != 0)
        memset(slots, 0, sizeof slots);
    used = live = count = 0;
    fail_at = n;
    fired = false;
    active = true;
    pthread_mutex_unlock(&lock);
}

void
failalloc_end(unsigned long *live_out, bool *fired_out)
{
    pthread_mutex_lock(&lock);
    active = false;
    if (live_out != NULL)
        *live_out = live;
    if (fired_out != NULL)
        *fired_out = fired;
    pthread_mutex_unlock(&lock);
}

unsigned long
failalloc_count(void)
{
    pthread_mutex_lock(&lock);
    const unsigned long n = count;
    pthread_mutex_unlock(&lock);
    return n;
}

unsigned
failalloc_run(failalloc_fn fn, void *user, unsigned at_least, unsigned step)
{
    const char *every = getenv("CKP_FAIL_EVERY");
    if (step == 0 || (every != NULL && strcmp(every, "1") == 0))
        step = 1;
    unsigned faults = 0;
    for (unsigned long n = 1;; n += step) {
        unsigned long left;
        bool hit;
        failalloc_begin(n);
        const ckp_status st = fn(user);
        failalloc_end(&left, &hit);
        if (left != 0) {
            fprintf(stderr, "failalloc: %lu allocations leaked when number %lu %s\n", left, n, hit ? "failed" : "did not exist");
            abort();
        }
        if (st != CKP_OK && !(hit && st == CKP_ENOMEM)) {
            fprintf(stderr, "failalloc: status %d (%s) when allocation %lu %s\n", (int)st, ckp_status_name(st), n,
                    hit ? "failed" : "did not exist");
            abort();
        }
        if (!hit)
            break;
        faults++;
    }
    if (faults < at_least) {
        fprintf(stderr, "failalloc: only %u faults fired, %u expected\n", faults, at_least);
        abort();
    }
    return faults;
}
