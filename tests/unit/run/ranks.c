/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "ranks.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

void
ranks_init(ranks *r, unsigned world, void *user)
{
    memset(r, 0, sizeof *r);
    r->world = world;
    r->seconds = 10.0;
    r->join_seconds = 20.0;
    r->user = user;
    if (pthread_mutex_init(&r->mutex, NULL) != 0 || pthread_cond_init(&r->cond, NULL) != 0)
        abort();
}

void
ranks_free(ranks *r)
{
    pthread_cond_destroy(&r->cond);
    pthread_mutex_destroy(&r->mutex);
}

typedef struct job { ranks *r; unsigned rank; rank_fn fn; } job;

static void *
run_one(void *arg)
{
    job *j = arg;
    j->r->status[j->rank] = j->fn(j->r, j->rank);
    return NULL;
}

void
ranks_run(ranks *r, rank_fn fn)
{
    pthread_t t[RANKS_MAX];
    job j[RANKS_MAX];
    memset(r->err, 0, sizeof r->err);
    for (unsigned i = 0; i < r->world; i++) {
        j[i] = (job){r, i, fn};
        if (pthread_create(&t[i], NULL, run_one, &j[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < r->world; i++)
        pthread_join(t[i], NULL);
}

/* Two sets of slots: a rank that is slow to copy a round out must not find the next one's bytes. */
static ckp_status
exchange(void *ctx, const void *mine, size_t n, void *all, double seconds, ckp_error *err)
{
    const rank_ctx *c = ctx;
    ranks *r = c->r;
    struct timespec until;
    ckp_status st = CKP_OK;

    timespec_get(&until, TIME_UTC);
    until.tv_sec += (time_t)seconds + 1;
    pthread_mutex_lock(&r->mutex);
    const uint64_t round = r->round;
    memcpy(r->slot[round % 2][c->rank], mine, n);
    if (++r->come == r->world) {
        r->come = 0;
        r->round++;
        pthread_cond_broadcast(&r->cond);
    }
    while (r->round == round && r->gone == 0 && st == CKP_OK)
        if (pthread_cond_timedwait(&r->cond, &r->mutex, &until) != 0)
            st = CKP_EIO;
    if (r->round == round)
        st = ckp_objects_fail(err, CKP_EIO, r->gone != 0 ? "a rank has died" : "a rank does not come");
    else
        for (unsigned i = 0; i < r->world; i++)
            memcpy((uint8_t *)all + i * n, r->slot[round % 2][i], n);
    pthread_mutex_unlock(&r->mutex);
    return st;
}

void
ranks_die(ranks *r, unsigned rank)
{
    pthread_mutex_lock(&r->mutex);
    r->gone |= 1u << rank;
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->mutex);
}

ckp_group
ranks_group(ranks *r, unsigned rank)
{
    ckp_group g = CKP_GROUP_INIT;
    r->ctx[rank] = (rank_ctx){r, rank};
    g.ctx = &r->ctx[rank];
    g.rank = rank;
    g.world = r->world;
    g.exchange = exchange;
    g.seconds = r->seconds;
    g.join_seconds = r->join_seconds;
    return g;
}

/* ---- a bucket behind a gate ---- */

static bool
passes(gate *g, ckp_status *st, ckp_error *err)
{
    pthread_mutex_lock(&g->mutex);
    g->calls++;
    const bool fails = g->at != 0 && (g->lasting ? g->calls >= g->at : g->calls == g->at);
    g->fired += fails;
    pthread_mutex_unlock(&g->mutex);
    if (fails)
        *st = ckp_objects_fail(err, g->answer, "the gate is shut");
    return !fails;
}

static ckp_status
on_stat(void *user, const char *key, uint64_t *bytes, ckp_error *err)
{
    gate *g = user;
    ckp_status st = CKP_OK;
    return passes(g, &st, err) ? g->below.stat(g->below.user, key, bytes, err) : st;
}

static ckp_status
on_get(void *user, const char *key, uint64_t off, void *dst, size_t n, ckp_error *err)
{
    gate *g = user;
    ckp_status st = CKP_OK;
    return passes(g, &st, err) ? g->below.get(g->below.user, key, off, dst, n, err) : st;
}

static ckp_status
on_put(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err)
{
    gate *g = user;
    ckp_status st = CKP_OK;
    const struct timespec slow = {g->slow_ms / 1000, g->slow_ms % 1000 * 1000000L};
    (void)nanosleep(&slow, NULL);
    return passes(g, &st, err) ? g->below.put(g->below.user, key, bytes, replace, err) : st;
}

static ckp_status
on_list(void *user, const char *dir, bool (*fn)(void *fn_user, const char *name, bool is_dir), void *fn_user, ckp_error *err)
{
    gate *g = user;
    ckp_status st = CKP_OK;
    return passes(g, &st, err) ? g->below.list(g->below.user, dir, fn, fn_user, err) : st;
}

static ckp_status
on_list_all(void *user, bool (*fn)(void *fn_user, const char *key, uint64_t bytes), void *fn_user, ckp_error *err)
{
    gate *g = user;
    ckp_status st = CKP_OK;
    return passes(g, &st, err) ? g->below.list_all(g->below.user, fn, fn_user, err) : st;
}

static ckp_status
on_remove(void *user, const char *key, ckp_error *err)
{
    gate *g = user;
    ckp_status st = CKP_OK;
    return passes(g, &st, err) ? g->below.remove(g->below.user, key, err) : st;
}

void
gate_init(gate *g, bucket *b)
{
    memset(g, 0, sizeof *g);
    g->below = bucket_table(b);
    if (pthread_mutex_init(&g->mutex, NULL) != 0)
        abort();
}

ckp_objects
gate_table(gate *g)
{
    ckp_objects t = g->below;
    t.user = g;
    t.stat = on_stat;
    t.get = on_get;
    t.put = on_put;
    t.list = on_list;
    t.list_all = on_list_all;
    t.remove = on_remove;
    return t;
}

void
gate_arm(gate *g, unsigned long at, bool lasting, ckp_status answer)
{
    pthread_mutex_lock(&g->mutex);
    g->calls = g->fired = 0;
    g->at = at;
    g->lasting = lasting;
    g->answer = answer;
    pthread_mutex_unlock(&g->mutex);
}
