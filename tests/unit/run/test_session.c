/* SPDX-License-Identifier: Apache-2.0 */
/* A run from first save to restore, going on, keys, retention, failures. Numbers in brackets: invariants of docs/runs.md. */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "model.h"

static ckp_run_options
options(ckp_profile p, unsigned key_every)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = p;
    o.key_every = key_every;
    return o;
}

static ckp_save_stats
stats(const ckp_run *run)
{
    ckp_save_stats s = {.size = sizeof s};
    ckp_run_stats(run, &s);
    return s;
}

static ckp_checkpoint_info
info_of(const char *dir, int64_t step)
{
    ckp_checkpoint_info i = {.size = sizeof i};
    ckp_checkpoint *ck = NULL;
    assert_ok(ckp_checkpoint_open_run(&ck, dir, step, true, NULL));
    ckp_checkpoint_get_info(ck, &i);
    ckp_checkpoint_close(ck);
    return i;
}

/* A state that is drawn anew at each save: a delta saves nothing, so the next is a key; when it settles, deltas go on. Also after a restart. */
static void
deltas_that_do_not_pay_end_the_chain(void **state)
{
    const char *dir = model_path(state, "run");
    static const bool key[] = {true, false, true, false, false, false, true, false};
    model m = {.rng = test_rng_new("rekey"), .step = 1};
    ckp_error e = {0};

    (void)model_add(&m, "x", CKP_ROLE_OTHER, NULL, CKP_F32, (const uint64_t[4]){64, 300});
    ckp_run *run = model_run(dir, options(CKP_PROFILE_LOSSLESS, 32));
    for (size_t i = 0; i < CHECK_COUNT(key); i++) {
        for (uint64_t k = 0; (i < 3 || i == 5) && k < m.t[0].n; k++)
            model_set(&m.t[0], k, (float)test_normal(&m.rng));
        if (i == 5) {            /* the process starts anew, and what it restores is thrown away */
            ckp_checkpoint *ck = NULL;
            assert_ok(ckp_run_close(run, &e));
            run = model_run(dir, options(CKP_PROFILE_LOSSLESS, 32));
            assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &e));
            assert_ok(ckp_run_adopt(run, ck, &e));
            ckp_checkpoint_close(ck);
        }
        assert_ok(model_save(run, &m, NULL, &e));
        assert_int_equal(stats(run).is_key, key[i]);
        m.step++;
    }
    assert_ok(ckp_run_close(run, &e));
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &e));
    model_free(&m);
}

static void
lossless_round_trips(void **state)
{
    const char *dir = model_path(state, "run");
    model m, was[6], got;

    model_small(&m, "lossless");
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, options(CKP_PROFILE_LOSSLESS, 4));
    for (int i = 0; i < 6; i++) {
        assert_ok(model_save(run, &m, NULL, NULL));
        assert_int_equal(stats(run).is_key, i % 4 == 0);
        model_copy(&was[i], &m);
        model_step(&m);
    }
    assert_ok(ckp_run_close(run, NULL));
    for (int i = 0; i < 6; i++) {
        model_clear(&got);
        model_restore(dir, i + 1, &got);
        assert_true(model_equal(&got, &was[i]));
        assert_int_equal(got.step, i + 1);
        model_free(&was[i]);
    }
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
    model_free(&got);
    model_free(&m);
}

/* Relative RMS distance of a tensor from what it was. */
static double
distance(const model_tensor *a, const model_tensor *b)
{
    double e2 = 0.0, s2 = 0.0;
    for (uint64_t i = 0; i < a->n; i++) {
        const double x = (double)model_get(a, i), y = (double)model_get(b, i);
        e2 += (x - y) * (x - y);
        s2 += x * x;
    }
    return sqrt(e2 / s2);
}

/* Largest distance of an element from what it was, in RMS of the tensor. */
static double
farthest(const model_tensor *a, const model_tensor *b)
{
    double worst = 0.0, s2 = 0.0;
    for (uint64_t i = 0; i < a->n; i++) {
        const double x = (double)model_get(a, i), y = (double)model_get(b, i);
        worst = fmax(worst, fabs(x - y));
        s2 += x * x;
    }
    return worst / sqrt(s2 / (double)a->n);
}

/* The closed loop: after any number of deltas each weight is within one step, at most 1.5 f RMS (RMS of the save before). Errors that added up would
   leave that behind: a weight rounded twice in the same direction is off by two steps. */
static void
error_does_not_add_up(void **state)
{
    for (ckp_profile p = CKP_PROFILE_RESUME; p <= CKP_PROFILE_SMALL; p++) {
        const char *dir = model_path(state, ckp_profile_name(p));
        const double step = 1.5 * (p == CKP_PROFILE_RESUME ? 1.6 : 2.4);
        model m, got;

        model_small(&m, "loop");
        model_copy(&got, &m);
        ckp_run *run = model_run(dir, options(p, 32));
        for (int i = 0; i < 12; i++) {
            assert_ok(model_save(run, &m, NULL, NULL));
            model_restore(dir, CKP_STEP_NEWEST, &got);
            assert_true(farthest(&m.t[0], &got.t[0]) < 1.02 * step);
            model_step(&m);
        }
        assert_true(distance(&m.t[3], &got.t[3]) < 0.2);   /* small tensors are coded much finer */
        assert_true(info_of(dir, CKP_STEP_NEWEST).is_delta);
        assert_ok(ckp_run_close(run, NULL));
        assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
        model_free(&got);
        model_free(&m);
    }
}

/* Weights that were zero, or much larger, when the base was saved: steps follow what they are now. */
static void
steps_follow_a_change_of_size(void **state)
{
    static const float sizes[][2] = {{0.0F, 1e-4F}, {1e-1F, 1e-4F}, {1e-4F, 1e-1F}};
    for (size_t k = 0; k < CHECK_COUNT(sizes); k++) {
        const char *dir = model_path(state, k == 0 ? "a" : k == 1 ? "b" : "c");
        ckp_run *run = model_run(dir, options(CKP_PROFILE_RESUME, 32));
        test_rng r = test_rng_new("sizes");
        model m = {0}, got;

        model_add_adam(&m, "w", CKP_F32, CKP_F32, (uint64_t[4]){80, 90, 0, 0});
        model_copy(&got, &m);
        for (int save = 0; save < 2; save++) {
            for (uint64_t i = 0; i < m.t[0].n; i++)
                model_set(&m.t[0], i, sizes[k][save] * (float)(2.0 * test_unit(&r) - 1.0));
            m.step++;
            assert_ok(model_save(run, &m, NULL, NULL));
            assert_int_equal(stats(run).is_key, save == 0);
        }
        model_restore(dir, -1, &got);
        /* a step is at most 1.5 RMS */
        assert_true(distance(&m.t[0], &got.t[0]) < 1.8);
        assert_ok(ckp_run_close(run, NULL));
        model_free(&m);
        model_free(&got);
    }
}

static void
final_save_has_exact_weights(void **state)
{
    const char *dir = model_path(state, "run");
    ckp_save_options final = CKP_SAVE_OPTIONS_INIT;
    model m, got;

    final.final = true;
    model_small(&m, "final");
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, options(CKP_PROFILE_RESUME, 32));
    for (int i = 0; i < 3; i++) {
        assert_ok(model_save(run, &m, NULL, NULL));
        model_step(&m);
    }
    assert_ok(model_save(run, &m, &final, NULL));
    model_restore(dir, CKP_STEP_NEWEST, &got);
    for (size_t i = 0; i < m.n; i++)
        if (m.t[i].role == CKP_ROLE_WEIGHT)
            assert_memory_equal(m.t[i].data, got.t[i].data, model_bytes(&m.t[i]));
    /* and the run can go on after it */
    model_step(&m);
    assert_ok(model_save(run, &m, NULL, NULL));
    model_restore(dir, CKP_STEP_NEWEST, &got);
    assert_ok(ckp_run_close(run, NULL));
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
    model_free(&got);
    model_free(&m);
}

static void
restored_training_goes_on_with_deltas(void **state)
{
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        const char *dir = model_path(state, ckp_profile_name(p));
        model m, got;

        model_small(&m, "adopt");
        model_copy(&got, &m);
        for (int life = 0; life < 3; life++) {
            ckp_checkpoint *ck = NULL;
            ckp_run *run = model_run(dir, options(p, 32));
            const ckp_status st = ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, NULL);
            assert_status(st, life == 0 ? CKP_ENOTFOUND : CKP_OK);
            if (life != 0) {
                assert_ok(model_read(ck, &m, NULL));
                m.step = model_tree_step(ck);
                assert_ok(ckp_run_adopt(run, ck, NULL));
                ckp_checkpoint_close(ck);
            }
            for (int i = 0; i < 3; i++) {
                model_step(&m);
                assert_ok(model_save(run, &m, NULL, NULL));
                assert_int_equal(stats(run).is_key, life == 0 && i == 0);
            }
            assert_ok(ckp_run_close(run, NULL));
            assert_int_equal(info_of(dir, CKP_STEP_NEWEST).restore_count, life);
            if (p == CKP_PROFILE_LOSSLESS) {
                model_restore(dir, CKP_STEP_NEWEST, &got);
                assert_true(model_equal(&got, &m));
            }
        }
        assert_int_equal(info_of(dir, CKP_STEP_NEWEST).chain, 8);
        assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
        model_free(&got);
        model_free(&m);
    }
}

/* [6]: going back to an older step changes nothing on disk until the next commit, which is then the newest. */
static void
an_older_step_can_be_continued(void **state)
{
    const char *dir = model_path(state, "run");
    model m, got;
    ckp_checkpoint *ck = NULL;

    model_small(&m, "older");
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, options(CKP_PROFILE_LOSSLESS, 32));
    for (int i = 0; i < 3; i++) {
        assert_ok(model_save(run, &m, NULL, NULL));
        model_step(&m);
    }
    assert_ok(ckp_checkpoint_open(&ck, run, 2, NULL));
    assert_ok(model_read(ck, &m, NULL));
    m.step = 2;
    assert_ok(ckp_run_adopt(run, ck, NULL));
    ckp_checkpoint_close(ck);
    assert_int_equal(info_of(dir, CKP_STEP_NEWEST).step, 3);
    model_step(&m);                              /* to a second checkpoint of step 3 */
    assert_ok(model_save(run, &m, NULL, NULL));
    model_restore(dir, CKP_STEP_NEWEST, &got);
    assert_true(model_equal(&got, &m));
    assert_int_equal(info_of(dir, CKP_STEP_NEWEST).sequence, 4);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&got);
    model_free(&m);
}

static int
count_entry(void *user, const ckp_list_entry *e)
{
    size_t *n = user;
    assert_string_equal(e->health, "ok");
    n[0]++;
    n[1] = (size_t)e->step;
    return 0;
}

/* [5]: bases of what is kept stay. */
static void
keep_last_keeps_bases(void **state)
{
    const char *dir = model_path(state, "run");
    ckp_run_options o = options(CKP_PROFILE_RESUME, 4);
    model m, got;

    o.keep_last = 2;
    model_small(&m, "keep");
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, o);
    for (int i = 0; i < 10; i++) {
        size_t n[2] = {0, 0};
        assert_ok(model_save(run, &m, NULL, NULL));
        assert_ok(ckp_run_list(dir, count_entry, n, NULL));
        assert_int_equal(n[1], i + 1);
        assert_true(n[0] <= 5);                  /* two points, and at most a chain of four behind the older one */
        model_restore(dir, CKP_STEP_NEWEST, &got);
        if (i > 0)
            model_restore(dir, i, &got);
        model_step(&m);
    }
    assert_ok(ckp_run_close(run, NULL));
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DATA, 1, NULL, NULL, NULL));
    model_free(&got);
    model_free(&m);
}

static void
another_table_makes_a_key(void **state)
{
    const char *dir = model_path(state, "run");
    model m, got;

    model_small(&m, "table");
    ckp_run *run = model_run(dir, options(CKP_PROFILE_RESUME, 32));
    for (int i = 0; i < 2; i++) {
        assert_ok(model_save(run, &m, NULL, NULL));
        model_step(&m);
    }
    model_add_adam(&m, "new", CKP_F32, CKP_F32, (const uint64_t[4]){8, 32});
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_true(stats(run).is_key);
    model_step(&m);
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_false(stats(run).is_key);
    model_copy(&got, &m);
    model_restore(dir, CKP_STEP_NEWEST, &got);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&got);
    model_free(&m);
}

/* [10]: no delta against what was never committed; the failed save's state is not half there. */
static void
a_failed_save_is_told_and_the_next_is_a_key(void **state)
{
    const char *dir = model_path(state, "run");
    struct rlimit was, tight;
    ckp_error e = {0};
    model m, got;

    model_small(&m, "failed");
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, options(CKP_PROFILE_LOSSLESS, 32));
    assert_ok(model_save(run, &m, NULL, NULL));
    model_step(&m);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    tight = (struct rlimit){3000, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    const ckp_status st = model_save(run, &m, NULL, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    (void)signal(SIGXFSZ, handler);
    assert_status(st, CKP_EIO);
    assert_true(e.text[0] != '\0' && e.sys_errno != 0);
    model_restore(dir, CKP_STEP_NEWEST, &got);
    assert_int_equal(got.step, 1);
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_true(stats(run).is_key);
    assert_int_equal(stats(run).failed, 1);
    model_step(&m);
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_false(stats(run).is_key);
    model_restore(dir, CKP_STEP_NEWEST, &got);
    assert_true(model_equal(&got, &m));
    assert_ok(ckp_run_close(run, NULL));
    model_free(&got);
    model_free(&m);
}

/* [11] */
static void
a_forked_child_is_refused(void **state)
{
    const char *dir = model_path(state, "run");
    ckp_checkpoint *ck = NULL;
    int status = 0;
    model m;

    model_small(&m, "fork");
    ckp_run *run = model_run(dir, options(CKP_PROFILE_RESUME, 32));
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, NULL));
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool ok = model_save(run, &m, NULL, NULL) == CKP_EFORK && ckp_run_wait(run, NULL) == CKP_EFORK;
        ok = ok && ckp_run_adopt(run, ck, NULL) == CKP_EFORK && !ckp_run_busy(run);
        ok = ok && ckp_checkpoint_read(ck, NULL, 0, 1, NULL) == CKP_EFORK && ckp_checkpoint_count(ck) == 0;
        ckp_checkpoint *other = NULL;
        ok = ok && ckp_checkpoint_open(&other, run, 1, NULL) == CKP_EFORK && ckp_run_close(run, NULL) == CKP_EFORK;
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    model_step(&m);
    assert_ok(model_save(run, &m, NULL, NULL));      /* the parent's is as it was */
    ckp_checkpoint_close(ck);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
}

static void
two_writers_are_refused(void **state)
{
    const char *dir = model_path(state, "run");
    const ckp_run_options o = options(CKP_PROFILE_RESUME, 32);
    ckp_run *second = NULL;
    ckp_error e = {0};

    ckp_run *run = model_run(dir, o);
    assert_status(ckp_run_open(&second, dir, &o, &e), CKP_EBUSY);
    assert_null(second);
    assert_non_null(strstr(e.text, "run"));
    assert_ok(ckp_run_close(run, NULL));
    run = model_run(dir, o);
    assert_ok(ckp_run_close(run, NULL));
}

static void
skip_policy_skips(void **state)
{
    const char *dir = model_path(state, "run");
    ckp_run_options o = options(CKP_PROFILE_LOSSLESS, 32);
    unsigned taken_n = 0, skipped = 0;
    model m;

    o.busy = CKP_BUSY_SKIP;
    model_small(&m, "skip");
    ckp_run *run = model_run(dir, o);
    for (int i = 0; i < 50; i++) {
        bool taken = false;
        ckp_state *s = model_state(&m);
        assert_ok(ckp_run_save(run, m.step, s, NULL, &taken, NULL));
        ckp_state_free(s);
        taken_n += taken;
        skipped += !taken;
        model_step(&m);
    }
    assert_ok(ckp_run_wait(run, NULL));
    assert_int_equal(stats(run).saves, taken_n);
    assert_int_equal(stats(run).skipped, skipped);
    assert_true(taken_n >= 1);
    assert_ok(ckp_run_close(run, NULL));
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
    model_free(&m);
}

static void
figures_add_up(void **state)
{
    const char *dir = model_path(state, "run");
    uint64_t stored = 0, raw = 0;
    model m;

    model_small(&m, "figures");
    ckp_run *run = model_run(dir, options(CKP_PROFILE_RESUME, 32));
    assert_ok(model_save(run, &m, NULL, NULL));
    const ckp_save_stats s = stats(run);
    for (int r = 0; r < CKP_ROLE_COUNT_; r++) {
        stored += s.stored_by_role[r];
        raw += s.raw_by_role[r];
    }
    assert_int_equal(s.stored_bytes, stored + s.overhead_bytes);
    assert_int_equal(s.raw_bytes, raw);
    assert_int_equal(s.params_by_role[CKP_ROLE_WEIGHT], 48 * 96 + 16 * 20 + 40);
    assert_true(s.committed && s.total >= s.stall && s.stall > 0.0);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
}

static void
bad_options_are_refused(void **state)
{
    const char *dir = model_path(state, "run");
    ckp_run *run = NULL;
    ckp_run_options o = options(CKP_PROFILE_RESUME, 32);

    o.key_every = 0;
    assert_status(ckp_run_open(&run, dir, &o, NULL), CKP_EINVAL);
    o = options((ckp_profile)9, 32);
    assert_status(ckp_run_open(&run, dir, &o, NULL), CKP_EINVAL);
    o = options(CKP_PROFILE_RESUME, 32);
    o.coding.quality = NAN;
    assert_status(ckp_run_open(&run, dir, &o, NULL), CKP_EINVAL);
    o = options(CKP_PROFILE_RESUME, 32);
    o.size = 8;
    assert_status(ckp_run_open(&run, dir, &o, NULL), CKP_EINVAL);
    assert_status(ckp_run_open(&run, NULL, NULL, NULL), CKP_EINVAL);
    assert_null(run);
    assert_ok(ckp_run_close(NULL, NULL));
    ckp_checkpoint_close(NULL);
}

/* Other files in a run's directory are left alone; checkpoints without their run.json are no new run. */
static void
what_else_lies_there(void **state)
{
    const char *dir = model_path(state, "run");
    ckp_run *run = NULL;
    model m;

    model_store_file(model_path(state, "notes"), "mine", 4);
    run = model_run(*state, options(CKP_PROFILE_LOSSLESS, 4));
    assert_ok(ckp_run_close(run, NULL));
    size_t n = 0;
    uint8_t *notes = model_load_file(model_path(state, "notes"), &n);
    assert_int_equal(n, 4);
    free(notes);
    model_small(&m, "orphans");
    run = model_run(dir, options(CKP_PROFILE_LOSSLESS, 4));
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_ok(ckp_run_close(run, NULL));
    assert_int_equal(remove(model_path(state, "run/run.json")), 0);
    assert_status(ckp_run_open(&run, dir, NULL, NULL), CKP_ECORRUPT);
    model_free(&m);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(lossless_round_trips), T(deltas_that_do_not_pay_end_the_chain), T(error_does_not_add_up),
        T(steps_follow_a_change_of_size), T(final_save_has_exact_weights), T(restored_training_goes_on_with_deltas),
        T(an_older_step_can_be_continued), T(keep_last_keeps_bases), T(another_table_makes_a_key),
        T(a_failed_save_is_told_and_the_next_is_a_key), T(a_forked_child_is_refused), T(two_writers_are_refused), T(skip_policy_skips),
        T(figures_add_up), T(bad_options_are_refused), T(what_else_lies_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
