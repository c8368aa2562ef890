/* SPDX-License-Identifier: Apache-2.0 */
/* Every request and many an allocation of each rank fails: all ranks have the same failure, and go on. Invariant 13. */
#define _GNU_SOURCE
#include "groups.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "harness/failalloc.h"
#include "run/talk.h"

/* ---- every request of every rank fails ---- */

typedef struct stores { bucket *b; gate g[RANKS_MAX]; ckp_objects o[RANKS_MAX]; } stores;

/* A training whose ranks have a gate each before one bucket. */
static void
behind_gates(training *t, stores *s)
{
    s->b = bucket_new();
    *t = (training){.dir = "bucket/run", .key_every = 8, .step = CKP_STEP_NEWEST};
    for (unsigned k = 0; k < WORLD; k++) {
        gate_init(&s->g[k], s->b);
        s->o[k] = gate_table(&s->g[k]);
        t->objects[k] = &s->o[k];
    }
}

static void
faults_of(unsigned rank, ckp_status answer, bool lasting)
{
    static training t;
    static ranks r;
    static stores s;
    ckp_error err = {0};
    unsigned long at = 1, failed = 0;
    ckp_checkpoint *ck = NULL;

    behind_gates(&t, &s);
    s.g[1].slow_ms = 40;         /* what it writes while all have failed must go too */
    ranks_init(&r, WORLD, &t);
    group_make_models(&t, WORLD);
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    for (bool fired = true; fired && at < 200; at++) {
        group_step(&r);
        group_train(&t, WORLD);
        const size_t objects = bucket_count(s.b);
        gate_arm(&s.g[rank], at, lasting, answer);
        ranks_run(&r, group_save_rank);
        fired = s.g[rank].fired != 0;
        gate_arm(&s.g[rank], 0, false, CKP_OK);
        for (unsigned k = 1; k < WORLD; k++) {
            if (r.status[k] != r.status[0] || strcmp(r.err[k].text, r.err[0].text) != 0)
                print_error("fault %lu: rank %u: %d %s; rank 0: %d %s\n", at, k, (int)r.status[k], r.err[k].text, (int)r.status[0], r.err[0].text);
            assert_status(r.status[k], r.status[0]);
            assert_true(r.status[0] == CKP_OK || strcmp(r.err[k].text, r.err[0].text) == 0);
        }
        if (r.status[0] != CKP_OK) {
            char name[16];
            failed++;
            assert_true(fired);
            (void)snprintf(name, sizeof name, "rank %u: ", rank);
            if (strstr(r.err[0].text, name) == NULL)
                print_error("fault %lu: %s\n", at, r.err[0].text);
            assert_non_null(strstr(r.err[0].text, name));
        }
        const bool had_failed = r.status[0] != CKP_OK;
        if (had_failed && rank != 0)           /* rank 0 removes what others have written, also what they could not remove themselves */
            assert_int_equal(bucket_count(s.b), objects);
        assert_ok(ckp_checkpoint_open_run_in(&ck, &s.o[0], t.dir, NULL, CKP_STEP_NEWEST, true, &err));
        ckp_checkpoint_close(ck);
        ranks_run(&r, group_save_rank);
        group_all_ok(&r);
        assert_true(t.key[0] || !had_failed);
    }
    assert_true(failed >= 3 && at < 200);
    ranks_run(&r, group_close_rank);
    group_free_models(&t, WORLD);
    ranks_free(&r);
    bucket_free(s.b);
}

static void
test_every_request_fails(void **state)
{
    (void)state;
    for (unsigned rank = 0; rank < WORLD; rank += 3)
        for (int lasting = 0; lasting < 2; lasting++)
            faults_of(rank, lasting ? CKP_ENOSPC : CKP_EACCESS, lasting != 0);
}

/* A rank that goes on writing long after a save has failed, and rank 0 has stopped waiting for it, removes its shard itself. */
static void
test_slow_rank(void **state)
{
    (void)state;
    static training t;
    static ranks r;
    static stores s;

    behind_gates(&t, &s);
    ranks_init(&r, WORLD, &t);
    r.seconds = 1.0;
    group_make_models(&t, WORLD);
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    for (int again = 0; again < 2; again++) {
        group_step(&r);
        const size_t objects = bucket_count(s.b);
        group_train(&t, WORLD);
        s.g[1].slow_ms = 3000;
        gate_arm(&s.g[2], 1, true, CKP_ENOSPC);
        ranks_run(&r, group_save_rank);
        gate_arm(&s.g[2], 0, false, CKP_OK);
        s.g[1].slow_ms = 0;
        for (unsigned k = 0; k < WORLD; k++)
            assert_true(r.status[k] != CKP_OK);
        assert_int_equal(bucket_count(s.b), objects);
    }
    ranks_run(&r, group_close_rank);
    group_free_models(&t, WORLD);
    ranks_free(&r);
    bucket_free(s.b);
}

/* ---- what rank 0 may be committing, or may yet have committed, keeps its shards ---- */

static struct { bool lost; char key[128]; uint8_t data[4096]; size_t n; } manifest;   /* the last one that was put; lost: nowhere yet, and without an answer */

static void
rest(long ms)
{
    const struct timespec t = {0, ms * 1000000L};
    (void)nanosleep(&t, NULL);
}

/* Rank 0's puts: a manifest takes long enough for another rank to remove a shard meanwhile. */
static ckp_status
lead_put(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err)
{
    if (strstr(key, "/manifest.json") == NULL)
        return bucket_table(user).put(user, key, bytes, replace, err);
    rest(300);
    if (!manifest.lost)
        return bucket_table(user).put(user, key, bytes, replace, err);
    if (bytes->size > sizeof manifest.data || bytes->read(bytes, 0, manifest.data, (size_t)bytes->size, err) != CKP_OK)
        abort();
    manifest.n = (size_t)bytes->size;
    (void)snprintf(manifest.key, sizeof manifest.key, "%s", key);
    return ckp_objects_fail(err, CKP_EIO, "no answer");
}

/* Others' puts: their shards are the last to be written. */
static ckp_status
follow_put(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err)
{
    rest(300);
    return bucket_table(user).put(user, key, bytes, replace, err);
}

static bool deaf;                /* rank 1, as soon as it has said that it is written: others hear that */
static ckp_status (*exchange)(void *ctx, const void *mine, size_t n, void *all, double seconds, ckp_error *err);

static ckp_status
deaf_exchange(void *ctx, const void *mine, size_t n, void *all, double seconds, ckp_error *err)
{
    uint32_t phase;
    const ckp_status st = exchange(ctx, mine, n, all, seconds, err);
    memcpy(&phase, (const uint8_t *)mine + 12, sizeof phase);
    return st == CKP_OK && deaf && phase == CKPI_SAID_WRITTEN ? ckp_objects_fail(err, CKP_EIO, "the answer is lost") : st;
}

static ckp_status
open_deaf(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_group g = ranks_group(r, rank);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    exchange = g.exchange;
    g.exchange = rank == 1 ? deaf_exchange : g.exchange;
    o.coding.threads = 1;
    o.objects = t->objects[rank];
    o.group = &g;
    return ckp_run_open(&t->run[rank], t->dir, &o, &r->err[rank]);
}

/* Two ranks save twice; the second time nobody is told of success, and all the same the checkpoint is whole. */
static void
fails_and_is_there(bool lost_manifest)
{
    static training t;
    static ranks r;
    bucket *b = bucket_new();
    ckp_objects o[2] = {bucket_table(b), bucket_table(b)};
    ckp_checkpoint_info info = {.size = sizeof info};
    ckp_checkpoint *ck = NULL;
    ckp_error err = {0};
    t = (training){.dir = "bucket/run", .objects = {&o[0], &o[1]}};
    o[0].put = lead_put;
    o[1].put = follow_put;
    manifest.lost = deaf = false;
    ranks_init(&r, 2, &t);
    r.seconds = 1.0;
    group_make_models(&t, 2);
    ranks_run(&r, open_deaf);
    group_all_ok(&r);
    group_step(&r);
    manifest.lost = lost_manifest;
    deaf = !lost_manifest;
    group_train(&t, 2);
    ranks_run(&r, group_save_rank);
    assert_true(r.status[0] != CKP_OK && r.status[1] != CKP_OK);
    if (lost_manifest)
        bucket_set(b, manifest.key, manifest.data, manifest.n);
    if (ckp_checkpoint_open_run_in(&ck, &o[0], t.dir, NULL, CKP_STEP_NEWEST, true, &err) != CKP_OK)
        fail_msg("%s", err.text);
    ckp_checkpoint_get_info(ck, &info);
    assert_int_equal(info.step, t.m[0].step);
    ckp_checkpoint_close(ck);
    manifest.lost = deaf = false;
    ranks_run(&r, group_close_rank);
    group_free_models(&t, 2);
    ranks_free(&r);
    bucket_free(b);
}

static void
test_may_be_committed(void **state)
{
    (void)state;
    fails_and_is_there(true);
    fails_and_is_there(false);
}

/* ---- the n-th allocation fails, whichever rank's it is ---- */

/* The test's own state may be what there is no memory for. */
static ckp_status
save_or_refuse(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
    o.alike = 7;
    o.wait = true;
    ckp_state *s = model_state(&t->m[rank]);
    const ckp_status st = s != NULL ? ckp_run_save(t->run[rank], t->m[rank].step, s, &o, NULL, &r->err[rank])
                                    : ckp_run_refuse(t->run[rank], t->m[rank].step, CKP_ENOMEM, "no state", true, &r->err[rank]);
    ckp_state_free(s);
    return s == NULL ? CKP_ENOMEM : st;
}

static ckp_status
save_twice(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_status st = save_or_refuse(r, rank);
    model_step(&t->m[rank]);
    const ckp_status again = save_or_refuse(r, rank);
    return st == CKP_OK ? again : st;
}

static void
test_allocations(void **state)
{
    static training t;
    static ranks r;
    ckp_error err = {0};
    unsigned failed = 0;
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r, 2, &t);
    group_make_models(&t, 2);
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    for (unsigned long n = 1; n < 400; n += 3) {
        bool fired = false;
        failalloc_begin(n);
        ranks_run(&r, save_twice);
        failalloc_end(NULL, &fired);
        for (unsigned k = 0; k < 2; k++) {
            if (r.status[k] != CKP_OK && (r.status[k] != CKP_ENOMEM || !fired))
                print_error("allocation %lu: rank %u: %d %s\n", n, k, (int)r.status[k], r.err[k].text);
            assert_true(r.status[k] == CKP_OK || (r.status[k] == CKP_ENOMEM && fired));
            assert_status(r.status[k], r.status[0]);
        }
        failed += r.status[0] != CKP_OK || r.status[1] != CKP_OK;
        if (n % 5 != 0)
            continue;
        group_train(&t, 2);
        ranks_run(&r, group_save_rank);
        group_all_ok(&r);
    }
    assert_true(failed > 20);
    group_train(&t, 2);
    ranks_run(&r, group_save_rank);
    group_all_ok(&r);
    ranks_run(&r, group_close_rank);
    assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    group_free_models(&t, 2);
    ranks_free(&r);
}

/* Readers of all shards: a status, no leak. */
static ckp_status
read_all(void *user)
{
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    ckp_status st = ckp_checkpoint_open_run(&ck, user, CKP_STEP_NEWEST, true, &err);
    if (st == CKP_OK)
        st = ckp_checkpoint_verify(ck, CKP_VERIFY_DECODE, 1, NULL, NULL, &err);
    ckp_checkpoint_close(ck);
    return st;
}

static void
test_reading_allocations(void **state)
{
    static training t;
    static ranks r;
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r, 3, &t);
    group_make_models(&t, 3);
    ranks_run(&r, group_open_rank);
    for (int i = 0; i < 2; i++) {
        group_train(&t, 3);
        ranks_run(&r, group_save_rank);
        group_all_ok(&r);
    }
    ranks_run(&r, group_close_rank);
    assert_true(failalloc_run(read_all, (void *)(uintptr_t)t.dir, 100, 3) > 30);
    group_free_models(&t, 3);
    ranks_free(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_allocations, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_reading_allocations, model_setup, model_teardown),
        cmocka_unit_test(test_slow_rank), cmocka_unit_test(test_every_request_fails),
        cmocka_unit_test(test_may_be_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
