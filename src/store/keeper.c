/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refreshing a claim from beside. An fsync of many gigabytes and an upload are one call each, and may take longer than the claim lives: a thread refreshes it
 * meanwhile. When the process is stopped the thread is too, so the claim expires as it should.
 */
#include <stdlib.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "store/internal.h"

struct ckpi_keeper {
    ckpi_store *s;
    bool inside;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool stop;
};

static void
beat(const ckpi_keeper *k)
{
    if (k->inside) {
        ckpi_lock_keep(k->s);
    } else if (ckpi_store_enter(k->s, NULL) == CKP_OK) {
        ckpi_lock_keep(k->s);
        ckpi_store_leave(k->s);
    }
}

static void *
keep(void *arg)
{
    ckpi_keeper *k = arg;
    const uint64_t ms = 125 * (uint64_t)k->s->lock.expiry;       /* half of what ckpi_lock_keep waits for */
    (void)pthread_mutex_lock(&k->mutex);
    while (!k->stop) {
        (void)pthread_mutex_unlock(&k->mutex);
        beat(k);
        (void)pthread_mutex_lock(&k->mutex);
        if (!k->stop)
            ckpi_cond_wait_ms(&k->cond, &k->mutex, ms);
    }
    (void)pthread_mutex_unlock(&k->mutex);
    return NULL;
}

ckpi_keeper *
ckpi_keeper_start(ckpi_store *s, bool inside)
{
    if (s->mode != CKPI_STORE_WRITE)
        return NULL;
    ckpi_keeper *k = ckpi_calloc(1, sizeof *k);
    if (k == NULL)
        return NULL;
    k->s = s;
    k->inside = inside;
    if (pthread_mutex_init(&k->mutex, NULL) != 0) {
        free(k);
        return NULL;
    }
    if (ckpi_cond_init(&k->cond) == 0) {
        if (ckpi_thread_start(&k->thread, keep, k) == 0)
            return k;
        (void)pthread_cond_destroy(&k->cond);
    }
    (void)pthread_mutex_destroy(&k->mutex);
    free(k);
    return NULL;
}

ckpi_keeper *
ckpi_store_keep(ckpi_store *s)
{
    return ckpi_keeper_start(s, false);
}

void
ckpi_keeper_stop(ckpi_keeper *k)
{
    if (k == NULL)
        return;
    (void)pthread_mutex_lock(&k->mutex);
    k->stop = true;
    (void)pthread_cond_broadcast(&k->cond);
    (void)pthread_mutex_unlock(&k->mutex);
    (void)pthread_join(k->thread, NULL);
    (void)pthread_cond_destroy(&k->cond);
    (void)pthread_mutex_destroy(&k->mutex);
    free(k);
}
