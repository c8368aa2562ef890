/* SPDX-License-Identifier: Apache-2.0 */
/* Every request and many an allocation of each rank fails: all ranks have the same failure, and go on. Invariant 13. */
#include "groups.h"
#include <stdio.h>
#include <stdlib.h>
#include "harness/failalloc.h"

/* ---- every request of every rank fails ---- */

typedef struct stores { bucket *b; gate g[RANKS_MAX]; ckp_objects o[RANKS_MAX]; } stores;

static void
faults_of(unsigned rank, ckp_status answer, bool lasting)
{
    static training t;
    static ranks r;
    static stores s;
    ckp_error err = {0};
    unsigned long at = 1, failed = 0;
    ckp_checkpoint *ck = NULL;

    s.b = bucket_new();
    t = (training){.dir = "bucket/run", .key_every = 8, .step = CKP_STEP_NEWEST};
    for (unsigned k = 0; k < WORLD; k++) {
        gate_init(&s.g[k], s.b);
        s.o[k] = gate_table(&s.g[k]);
        t.objects[k] = &s.o[k];
    }
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
        cmocka_unit_test(test_every_request_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
