/* SPDX-License-Identifier: Apache-2.0 */
/* Several writers: one checkpoint of all ranks' shards or none, one answer for all. Invariant 13. */
#define _GNU_SOURCE
#include "groups.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool
exists(const char *dir, const char *name)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (f != NULL)
        fclose(f);
    return f != NULL;
}

static void
one_training(void **state, ckp_profile profile)
{
    static training t;
    static ranks r;
    char dir[256] = "", name[600];
    ckp_error err = {0};
    t = (training){.dir = model_path(state, "run"), .profile = profile, .key_every = 4, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    group_make_models(&t, WORLD);
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    for (int i = 0; i < SAVES; i++) {
        group_step(&r);
        for (unsigned k = 0; k < WORLD; k++)
            assert_true(t.key[k] == t.key[0] && t.key[k] == (i % 4 == 0));
    }
    assert_ok(ckp_run_list(t.dir, group_last_dir, dir, &err));
    for (unsigned k = 0; k < WORLD; k++) {
        (void)snprintf(name, sizeof name, "%s/shard-%05u-of-%05u.ckp", dir, k, WORLD);
        assert_true(exists(t.dir, name));
    }
    ranks_run(&r, group_restore_rank);
    group_all_ok(&r);
    for (unsigned k = 0; k < WORLD; k++) {
        assert_string_equal(t.found[k], dir);
        assert_true(profile != CKP_PROFILE_LOSSLESS || t.equal[k]);
    }
    group_step(&r);    /* a delta against what was restored */
    for (unsigned k = 0; k < WORLD; k++)
        assert_false(t.key[k]);
    ranks_run(&r, group_close_rank);
    group_all_ok(&r);
    assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    int n = 0;
    assert_ok(ckp_run_list(t.dir, group_count_ok, &n, &err));
    assert_int_equal(n, SAVES + 1);
    group_free_models(&t, WORLD);
    ranks_free(&r);
}

static void
test_lossless(void **state)
{
    one_training(state, CKP_PROFILE_LOSSLESS);
}

static void
test_resume(void **state)
{
    one_training(state, CKP_PROFILE_RESUME);
}

/* Four ranks have saved; one process, and two ranks, read it all. */
static void
test_other_worlds(void **state)
{
    static training t, two;
    static ranks r, r2;
    ckp_error err = {0};
    ckp_checkpoint *ck = NULL;
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    group_make_models(&t, WORLD);
    ranks_run(&r, group_open_rank);
    for (int i = 0; i < 3; i++) {
        group_step(&r);
    }
    ranks_run(&r, group_close_rank);
    group_all_ok(&r);

    assert_ok(ckp_checkpoint_open_run(&ck, t.dir, CKP_STEP_NEWEST, true, &err));
    assert_int_equal(ckp_checkpoint_shards(ck), WORLD);
    for (unsigned k = 0; k < WORLD; k++) {
        model got = {0};
        model_copy(&got, &t.m[k]);
        model_clear(&got);
        if (k != 0)
            (void)snprintf(got.t[got.n - 1].name, sizeof got.t[0].name, "shard-%05u/rng", k);
        assert_ok(model_read(ck, &got, &err));
        assert_true(model_equal(&got, &t.m[k]));
        model_free(&got);
    }
    ckp_checkpoint_close(ck);

    two = (training){.dir = t.dir, .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r2, 2, &two);
    for (unsigned k = 0; k < 2; k++)
        model_copy(&two.m[k], &t.m[k]);
    ranks_run(&r2, group_open_rank);
    group_all_ok(&r2);
    ranks_run(&r2, group_restore_rank);
    group_all_ok(&r2);
    for (unsigned k = 0; k < 2; k++)
        assert_true(two.equal[k]);
    group_train(&two, 2);
    ranks_run(&r2, group_save_rank);   /* no shard of four is a base of one of two */
    group_all_ok(&r2);
    assert_true(two.key[0] && two.key[1]);
    ranks_run(&r2, group_close_rank);
    assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    group_free_models(&two, 2);
    group_free_models(&t, WORLD);
    ranks_free(&r2);
    ranks_free(&r);
}

/* ---- failures of one ---- */

static ckp_status
save_or_refuse(ranks *r, unsigned rank)
{
    training *t = r->user;
    if (rank != t->odd)
        return group_save_rank(r, rank);
    const ckp_status st = ckp_run_refuse(t->run[rank], t->m[rank].step, CKP_ENOSPC, "nothing fits here", true, &r->err[rank]);
    if (st != CKP_OK)
        return st;
    return ckp_objects_fail(&r->err[rank], CKP_ENOSPC, "rank 2: nothing fits here");
}

static ckp_status
save_bad(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
    o.quality = rank == t->odd ? 1e9 : 0.0;
    o.alike = 7;
    const ckp_status st = model_save(t->run[rank], &t->m[rank], &o, &r->err[rank]);
    if (rank == t->odd && strstr(r->err[rank].text, "quality") != NULL)
        (void)ckp_objects_fail(&r->err[rank], st, "rank 2: of its own, without its number");
    return st;
}

static ckp_status
save_another_step(ranks *r, unsigned rank)
{
    training *t = r->user;
    t->m[rank].step += rank == t->odd;
    const ckp_status st = group_save_rank(r, rank);
    t->m[rank].step -= rank == t->odd;
    return st;
}

static ckp_status
save_unlike(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
    o.alike = 7 + (rank == t->odd);
    return model_save(t->run[rank], &t->m[rank], &o, &r->err[rank]);
}

static void
test_one_fails(void **state)
{
    static training t;
    static ranks r;
    char before[256] = "", after[256] = "";
    ckp_error err = {0};
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .odd = 2, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    group_make_models(&t, WORLD);
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    const rank_fn fails[] = {save_or_refuse, save_bad, save_another_step, save_unlike};
    const ckp_status want[] = {CKP_ENOSPC, CKP_EINVAL, CKP_EINVAL, CKP_EINVAL};
    const char *text[] = {"rank 2: nothing fits", "rank 2: ", "rank 2 saves at step", "rank 2 has other options, or other tensors"};
    for (size_t i = 0; i < CHECK_COUNT(fails); i++) {
        group_step(&r);
        assert_ok(ckp_run_list(t.dir, group_last_dir, before, &err));
        group_train(&t, WORLD);
        const size_t files = model_count_files(t.dir);
        ranks_run(&r, fails[i]);
        group_all_say(&r, want[i], text[i]);
        assert_ok(ckp_run_list(t.dir, group_last_dir, after, &err));
        assert_string_equal(before, after);
        assert_int_equal(model_count_files(t.dir), files);         /* nothing stays of it */
        group_step(&r);
        for (unsigned k = 0; k < WORLD; k++)
            assert_true(t.key[k]);
    }
    ranks_run(&r, group_close_rank);
    group_all_ok(&r);
    assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    group_free_models(&t, WORLD);
    ranks_free(&r);
}

/* A failure that is told by the next call: that call saves all the same, so that all ranks talk of the same save. */
static ckp_status
save_in_background(ranks *r, unsigned rank)
{
    training *t = r->user;
    ckp_state *s = model_state(&t->m[rank]);
    bool taken = false;
    ckp_status st = rank == t->odd && t->saves == 1 ? ckp_run_refuse(t->run[rank], t->m[rank].step, CKP_ENOSPC, "full", false, &r->err[rank])
                                                    : ckp_run_save(t->run[rank], t->m[rank].step, s, NULL, &taken, &r->err[rank]);
    ckp_state_free(s);
    t->equal[rank] = taken;
    if (t->saves == 1 && rank == 0)          /* one waits, and hears of it there; the others at their next save */
        st = ckp_run_wait(t->run[rank], &r->err[rank]);
    return st;
}

static void
test_told_later(void **state)
{
    static training t;
    static ranks r;
    ckp_error err = {0};
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .odd = 3, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    group_make_models(&t, WORLD);
    ranks_run(&r, group_open_rank);
    for (t.saves = 0; t.saves < 4; t.saves++) {
        group_train(&t, WORLD);
        ranks_run(&r, save_in_background);
        for (unsigned k = 0; k < WORLD; k++) {
            const bool told = t.saves == 1 ? k == 0 : t.saves == 2 && k != 0 && k != 3;
            assert_status(r.status[k], told ? CKP_ENOSPC : CKP_OK);
            if (told)
                assert_non_null(strstr(r.err[k].text, "rank 3: full"));
            assert_true(t.equal[k] || (t.saves == 1 && k == 3));
        }
    }
    ranks_run(&r, group_close_rank);
    group_all_ok(&r);
    int n = 0;
    assert_ok(ckp_run_list(t.dir, group_count_ok, &n, &err));
    assert_int_equal(n, 3);
    group_free_models(&t, WORLD);
    ranks_free(&r);
}

/* ---- a rank is gone ---- */

static ckp_status
save_or_die(ranks *r, unsigned rank)
{
    training *t = r->user;
    if (rank == t->odd) {
        ranks_die(r, rank);
        return CKP_EIO;
    }
    return group_save_rank(r, rank);
}

static void
test_one_dies(void **state)
{
    for (unsigned odd = 0; odd < WORLD; odd += 3) {
        static training t;
        static ranks r;
        char name[16];
        ckp_error err = {0};
        (void)snprintf(name, sizeof name, "run%u", odd);
        t = (training){.dir = model_path(state, name), .key_every = 8, .odd = odd, .step = CKP_STEP_NEWEST};
        ranks_init(&r, WORLD, &t);
        group_make_models(&t, WORLD);
        ranks_run(&r, group_open_rank);
        group_step(&r);
        for (int i = 0; i < 2; i++) {        /* and for good */
            ranks_run(&r, save_or_die);
            for (unsigned k = 0; k < WORLD; k++) {
                assert_status(r.status[k], CKP_EIO);
                assert_true(k == odd || strstr(r.err[k].text, "a rank has died") != NULL);
            }
        }
        ranks_run(&r, group_close_rank);
        ranks_free(&r);
        ranks_init(&r, WORLD, &t);
        ranks_run(&r, group_open_rank);
        group_all_ok(&r);
        ranks_run(&r, group_restore_rank);
        group_all_ok(&r);
        for (unsigned k = 0; k < WORLD; k++)
            assert_true(t.equal[k]);
        ranks_run(&r, group_save_rank);
        group_all_ok(&r);
        ranks_run(&r, group_close_rank);
        group_all_ok(&r);
        assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        group_free_models(&t, WORLD);
        ranks_free(&r);
    }
}

/* ---- opening ---- */

static ckp_status
open_odd(ranks *r, unsigned rank)
{
    training *t = r->user;
    const ckp_group g = ranks_group(r, rank);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.key_every = t->saves == 0 && rank == t->odd ? 3 : 8;
    o.busy = t->saves == 1 && rank == t->odd ? CKP_BUSY_SKIP : CKP_BUSY_WAIT;
    o.group = &g;
    return ckp_run_open(&t->run[rank], t->dir, &o, &r->err[rank]);
}

static void
test_opening(void **state)
{
    static training t;
    static ranks r;
    ckp_error err = {0};
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .odd = 1};
    ranks_init(&r, WORLD, &t);
    ranks_run(&r, open_odd);
    group_all_say(&r, CKP_EINVAL, "rank 1 has other options");
    t.saves = 1;
    ranks_run(&r, open_odd);
    group_all_say(&r, CKP_EINVAL, "rank 1: CKP_BUSY_SKIP in a group");
    ckp_run *alone = model_run(t.dir, (ckp_run_options)CKP_RUN_OPTIONS_INIT);
    ranks_run(&r, group_open_rank);
    group_all_say(&r, CKP_EBUSY, "rank 0: ");
    assert_ok(ckp_run_close(alone, &err));
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    ranks_run(&r, group_close_rank);
    group_all_ok(&r);
    ckp_group g = ranks_group(&r, 0);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.group = &g;
    g.rank = g.world;
    assert_status(ckp_run_open(&alone, t.dir, &o, &err), CKP_EINVAL);
    ranks_free(&r);
}

/* A group of one is a group all the same. */
static void
test_one_rank(void **state)
{
    static training t;
    static ranks r;
    ckp_error err = {0};
    t = (training){.dir = model_path(state, "run"), .profile = CKP_PROFILE_RESUME, .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r, 1, &t);
    group_make_models(&t, 1);
    ranks_run(&r, group_open_rank);
    for (int i = 0; i < 4; i++) {
        group_train(&t, 1);
        ranks_run(&r, group_save_rank);
        group_all_ok(&r);
        assert_true(t.key[0] == (i == 0));
        ranks_run(&r, group_restore_rank);
        group_all_ok(&r);
    }
    ranks_run(&r, group_close_rank);
    assert_ok(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    group_free_models(&t, 1);
    ranks_free(&r);
}

static volatile sig_atomic_t caught;

static void
catch(int number)
{
    (void)number;
    caught = 1;
}

/* A signal to the process is the application's: neither the saving threads nor those that talk take it. */
static void
test_signals(void **state)
{
    static training t;
    static ranks r;
    sigset_t usr1;
    const struct sigaction action = {.sa_handler = catch};
    struct sigaction before;
    t = (training){.dir = model_path(state, "run"), .key_every = 4};
    ranks_init(&r, 2, &t);
    group_make_models(&t, 2);
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    (void)sigemptyset(&usr1);
    (void)sigaddset(&usr1, SIGUSR1);
    caught = 0;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &usr1, NULL), 0);      /* of this thread alone: the run's are there already */
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    group_step(&r);
    assert_int_equal(caught, 0);
    assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL), 0);
    assert_int_equal(caught, 1);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    ranks_run(&r, group_close_rank);
    group_free_models(&t, 2);
    ranks_free(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lossless, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_resume, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_other_worlds, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_one_fails, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_told_later, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_one_dies, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_one_rank, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_opening, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_signals, model_setup, model_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
