/* SPDX-License-Identifier: Apache-2.0 */
/* A run's life: keys and deltas, changes of the state, failures, going on after a restart. */
#define _GNU_SOURCE
#include "help.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static ckp_save_stats
stats_of(const ckp_run *run)
{
    ckp_save_stats s = {.size = sizeof s};
    ckp_run_stats(run, &s);
    return s;
}

/* ---- chains ---- */
static void
one_chain(ckp_profile profile, unsigned key_every)
{
    char *dir = help_dir();
    sim *m = help_model(5, false);
    ckp_run *run = help_open(dir, profile, key_every, 0);
    help_image *at[7];
    ckp_error err;
    for (unsigned i = 0; i < 7; i++) {
        help_save(run, m, NULL);
        const ckp_save_stats s = stats_of(run);
        assert_true(s.committed && s.is_key == (i % key_every == 0) && s.saves == i + 1 && s.failed == 0);
        at[i] = help_read_run(dir, CKP_STEP_NEWEST);
        if (profile == CKP_PROFILE_LOSSLESS)
            assert_true(help_is_model(at[i], m));
        sim_train(m);
    }
    OK_OR_FAIL(ckp_run_close(run, &err));
    for (unsigned i = 0; i < 7; i++) {                  /* all stay what they were */
        help_image *again = help_read_run(dir, (int64_t)i + 1);
        assert_true(help_same(at[i], again));
        help_image_free(again);
        help_image_free(at[i]);
    }
    OK_OR_FAIL(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    sim_free(m);
    help_remove(dir);
}

static void
test_chains(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_WEIGHTS; p++)
        for (unsigned k = 1; k <= 3; k++)
            one_chain((ckp_profile)p, k);
}

static void
test_keep_last(void **state)
{
    (void)state;
    for (unsigned keep = 1; keep <= 2; keep++) {
        char *dir = help_dir();
        sim *m = help_model(5, false);
        ckp_run *run = help_open(dir, CKP_PROFILE_RESUME, 3, keep);
        ckp_error err;
        for (unsigned i = 0; i < 8; i++) {
            help_save(run, m, NULL);
            assert_true(help_count(dir) <= keep + 3);
            help_image *x = help_read_run(dir, CKP_STEP_NEWEST);
            help_image_free(x);
            sim_train(m);
        }
        assert_int_equal(stats_of(run).warning[0], 0);
        OK_OR_FAIL(ckp_run_close(run, &err));
        sim_free(m);
        help_remove(dir);
    }
}

/* A final save has exact weights; what comes after builds on them. */
static void
test_final_and_on(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_RESUME; p <= CKP_PROFILE_WEIGHTS; p++) {
        char *dir = help_dir();
        sim *m = help_model(6, false);
        ckp_run *run = help_open(dir, (ckp_profile)p, 32, 0);
        ckp_save_options final = CKP_SAVE_OPTIONS_INIT;
        ckp_error err;
        final.final = true;
        for (unsigned i = 0; i < 6; i++) {
            help_save(run, m, i == 2 || i == 3 ? &final : NULL);
            help_image *x = help_read_run(dir, CKP_STEP_NEWEST);
            for (uint32_t t = 0; (i == 2 || i == 3) && t < m->n; t++)
                if (m->t[t].role == CKP_ROLE_WEIGHT)
                    assert_memory_equal(x->data[t], m->t[t].dense, x->len[t]);
            help_image_free(x);
            sim_train(m);
        }
        OK_OR_FAIL(ckp_run_close(run, &err));
        OK_OR_FAIL(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        sim_free(m);
        help_remove(dir);
    }
}

/* Saves of the very same values have the same content id as their base. */
static void
test_nothing_changed(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_WEIGHTS; p++) {
        char *dir = help_dir();
        sim *m = help_model(6, false);
        ckp_run *run = help_open(dir, (ckp_profile)p, 32, 0);
        ckp_error err;
        for (unsigned i = 0; i < 5; i++)
            help_save(run, m, NULL);
        sim_train(m);
        help_save(run, m, NULL);
        help_image *x = help_read_run(dir, CKP_STEP_NEWEST);
        if (p == CKP_PROFILE_LOSSLESS)
            assert_true(help_is_model(x, m));
        help_image_free(x);
        OK_OR_FAIL(ckp_run_close(run, &err));
        OK_OR_FAIL(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));

        ckp_checkpoint *ck = NULL;                       /* and going on from one of them */
        run = help_open(dir, (ckp_profile)p, 32, 0);
        OK_OR_FAIL(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &err));
        OK_OR_FAIL(ckp_run_adopt(run, ck, &err));
        ckp_checkpoint_close(ck);
        help_save(run, m, NULL);
        assert_false(stats_of(run).is_key);
        x = help_read_run(dir, CKP_STEP_NEWEST);
        help_image_free(x);
        OK_OR_FAIL(ckp_run_close(run, &err));
        sim_free(m);
        help_remove(dir);
    }
}

static void
test_table_changes(void **state)
{
    (void)state;
    static const uint64_t shape[2] = {12, 40};
    char *dir = help_dir();
    sim *m = help_model(6, false);
    ckp_run *run = help_open(dir, CKP_PROFILE_RESUME, 32, 0);
    ckp_error err;
    help_save(run, m, NULL);
    sim_train(m);
    help_save(run, m, NULL);
    assert_false(stats_of(run).is_key);
    (void)sim_add_weight(m, "new.weight", CKP_F32, CKP_F32, CKP_F32, 2, shape);
    sim_train(m);
    help_save(run, m, NULL);
    assert_true(stats_of(run).is_key);
    sim_train(m);
    help_save(run, m, NULL);
    assert_false(stats_of(run).is_key);
    m->t[0].lossless = true;                             /* another coding of the same table */
    sim_train(m);
    help_save(run, m, NULL);
    assert_true(stats_of(run).is_key);
    help_image *x = help_read_run(dir, CKP_STEP_NEWEST);
    assert_memory_equal(x->data[0], m->t[0].dense, x->len[0]);
    help_image_free(x);
    OK_OR_FAIL(ckp_run_close(run, &err));
    OK_OR_FAIL(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    sim_free(m);
    help_remove(dir);
}

/* ---- memory ---- */

static pthread_t pulled_by;
static unsigned pulls_elsewhere;

static ckp_status
pull(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    const sim_tensor *t = user;
    (void)err;
    pulls_elsewhere += !pthread_equal(pthread_self(), pulled_by);
    memcpy(dst, t->dense + first * 4, (size_t)count * 4);
    return CKP_OK;
}

/* Without room for stages the pass is part of the encoding; pull sources are still read on the calling thread. */
static void
test_small_budget(void **state)
{
    (void)state;
    static const uint64_t shape[2] = {300, 64};
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_WEIGHTS; p++) {
        char *dir = help_dir();
        sim *m = sim_new(9);
        ckp_run *run = NULL;
        ckp_error err;
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        o.coding.profile = (ckp_profile)p;
        o.coding.threads = 4;
        o.coding.memory_budget = 4096;
        for (int i = 0; i < 12; i++) {
            char name[16];
            (void)snprintf(name, sizeof name, "w%d", i);
            (void)sim_add_weight(m, name, CKP_F32, CKP_F32, CKP_F32, 2, shape);
        }
        OK_OR_FAIL(ckp_run_open(&run, dir, &o, &err));
        pulled_by = pthread_self();
        pulls_elsewhere = 0;
        for (int i = 0; i < 3; i++) {
            ckp_state *s = NULL;
            sim_train(m);
            OK_OR_FAIL(ckp_state_new(&s, &err));
            for (uint32_t t = 0; t < m->n; t++) {
                ckp_tensor x = CKP_TENSOR_INIT;
                x.dtype = CKP_F32;
                x.ndim = 2;
                x.shape = shape;
                x.pull = pull;
                x.pull_user = &m->t[t];
                OK_OR_FAIL(ckp_state_add_tensor(s, m->t[t].name, m->t[t].role, m->t[t].owner != SIM_NONE ? m->t[m->t[t].owner].name : NULL,
                                                &x, NULL, &err));
            }
            OK_OR_FAIL(ckp_run_save(run, m->step, s, NULL, NULL, &err));
            OK_OR_FAIL(ckp_run_wait(run, &err));
            ckp_state_free(s);
            assert_int_equal(stats_of(run).saves, i + 1);
            assert_true(stats_of(run).memory_bytes < 4096);
            help_image *x = help_read_run(dir, CKP_STEP_NEWEST);
            if (p == CKP_PROFILE_LOSSLESS)
                assert_true(help_is_model(x, m));
            help_image_free(x);
        }
        assert_int_equal(pulls_elsewhere, 0);
        OK_OR_FAIL(ckp_run_close(run, &err));
        sim_free(m);
        help_remove(dir);
    }
}

/* Budgets at which bases in memory come and go, as a final save's staging takes their room. */
static void
test_budgets_between(void **state)
{
    (void)state;
    for (uint64_t budget = 20000; budget < 200000; budget += 9000) {
        char *dir = help_dir();
        sim *m = help_model(9, false);
        static const uint64_t ids[2] = {60, 60};
        ckp_run *run = NULL;
        ckp_error err;
        ckp_save_options final = CKP_SAVE_OPTIONS_INIT;
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        final.final = true;
        o.coding.profile = CKP_PROFILE_RESUME;
        o.coding.threads = 1;
        o.coding.memory_budget = budget;
        (void)sim_add(m, "ids", CKP_ROLE_OTHER, SIM_NONE, CKP_I64, 2, ids);
        OK_OR_FAIL(ckp_run_open(&run, dir, &o, &err));
        for (int i = 0; i < 6; i++) {
            help_save(run, m, i == 2 ? &final : NULL);
            help_image *x = help_read_run(dir, CKP_STEP_NEWEST);
            assert_memory_equal(x->data[x->n - 1], m->t[m->n - 1].dense, x->len[x->n - 1]);
            help_image_free(x);
            sim_train(m);
        }
        OK_OR_FAIL(ckp_run_close(run, &err));
        sim_free(m);
        help_remove(dir);
    }
}

/* ---- failures ---- */

static void
limit_files(rlim_t n)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

/* A save that cannot be written is told of once; the one after it is a key, and all that was committed restores. */
static void
test_failed_save(void **state)
{
    (void)state;
    (void)signal(SIGXFSZ, SIG_IGN);
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        char *dir = help_dir();
        sim *m = help_model(5, false);
        ckp_run *run = help_open(dir, (ckp_profile)p, 32, 0);
        ckp_error err;
        help_save(run, m, NULL);
        sim_train(m);
        help_save(run, m, NULL);
        help_image *good = help_read_run(dir, CKP_STEP_NEWEST);

        ckp_state *s = NULL;
        sim_train(m);
        s = sim_state(m);
        limit_files(300);
        const ckp_status st = ckp_run_save(run, m->step, s, NULL, NULL, &err);
        const ckp_status told = ckp_run_wait(run, &err);
        limit_files(RLIM_INFINITY);
        assert_ok(st);
        assert_true(told == CKP_EIO || told == CKP_ENOSPC);
        assert_true(strstr(err.text, "shard") != NULL);
        ckp_state_free(s);
        assert_int_equal(stats_of(run).failed, 1);
        assert_ok(ckp_run_wait(run, &err));              /* once is enough */
        help_image *x = help_read_run(dir, CKP_STEP_NEWEST);
        assert_true(help_same(good, x));
        help_image_free(x);
        help_image_free(good);

        for (int i = 0; i < 3; i++) {
            sim_train(m);
            help_save(run, m, NULL);
            assert_true(stats_of(run).is_key == (i == 0));
            x = help_read_run(dir, CKP_STEP_NEWEST);
            if (p == CKP_PROFILE_LOSSLESS)
                assert_true(help_is_model(x, m));
            help_image_free(x);
        }
        OK_OR_FAIL(ckp_run_close(run, &err));
        OK_OR_FAIL(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        sim_free(m);
        help_remove(dir);
    }
}

static void
test_bad_calls(void **state)
{
    (void)state;
    char *dir = help_dir();
    sim *m = help_model(5, true);
    ckp_run *run = NULL, *other = NULL;
    ckp_error err;
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.key_every = 0;
    assert_status(ckp_run_open(&run, dir, &o, &err), CKP_EINVAL);
    o = (ckp_run_options)CKP_RUN_OPTIONS_INIT;
    o.coding.quality = NAN;
    assert_status(ckp_run_open(&run, dir, &o, &err), CKP_EINVAL);
    o = (ckp_run_options)CKP_RUN_OPTIONS_INIT;
    o.size = 3;
    assert_status(ckp_run_open(&run, dir, &o, &err), CKP_EINVAL);
    assert_status(ckp_run_open(&run, NULL, NULL, &err), CKP_EINVAL);
    run = help_open(dir, CKP_PROFILE_LOSSLESS, 2, 0);
    assert_status(ckp_run_open(&other, dir, NULL, &err), CKP_EBUSY);
    ckp_state *s = sim_state(m);
    const ckp_metric nameless = {NULL, 1.0};
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    so.metrics = &nameless;
    so.n_metrics = 1;
    assert_status(ckp_run_save(run, 1, s, &so, NULL, &err), CKP_EINVAL);
    assert_status(ckp_run_save(run, UINT64_MAX, s, NULL, NULL, &err), CKP_EINVAL);
    assert_status(ckp_run_save(run, 1, NULL, NULL, NULL, &err), CKP_EINVAL);
    ckp_state_free(s);
    help_save(run, m, NULL);
    assert_ok(ckp_run_close(run, &err));
    assert_ok(ckp_run_close(NULL, NULL));
    help_image *x = help_read_run(dir, CKP_STEP_NEWEST);
    assert_true(help_is_model(x, m));
    help_image_free(x);
    sim_free(m);
    help_remove(dir);
}

/* ---- going on ---- */

static void
adopt(ckp_run *run, int64_t step)
{
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    OK_OR_FAIL(ckp_checkpoint_open(&ck, run, step, &err));
    OK_OR_FAIL(ckp_run_adopt(run, ck, &err));
    ckp_checkpoint_close(ck);
}

/* A lossless run that stopped and went on writes what one that never stopped would have written. */
static void
test_going_on_is_the_same(void **state)
{
    (void)state;
    char *a = help_dir(), *b = help_dir();
    sim *m = help_model(5, false);
    ckp_run *ra = help_open(a, CKP_PROFILE_LOSSLESS, 32, 0), *rb = help_open(b, CKP_PROFILE_LOSSLESS, 32, 0);
    ckp_error err;
    for (uint64_t i = 1; i <= 6; i++) {
        help_save(ra, m, NULL);
        help_save(rb, m, NULL);
        size_t na = 0, nb = 0;
        char *pa = help_shard(a, i), *pb = help_shard(b, i);
        uint8_t *fa = help_file(pa, &na), *fb = help_file(pb, &nb);
        assert_int_equal(na, nb);
        assert_memory_equal(fa, fb, na);
        free(fa);
        free(fb);
        free(pa);
        free(pb);
        if (i == 2 || i == 4) {
            OK_OR_FAIL(ckp_run_close(rb, &err));
            rb = help_open(b, CKP_PROFILE_LOSSLESS, 32, 0);
            adopt(rb, CKP_STEP_NEWEST);
        }
        sim_train(m);
    }
    OK_OR_FAIL(ckp_run_close(ra, &err));
    OK_OR_FAIL(ckp_run_close(rb, &err));
    sim_free(m);
    help_remove(a);
    help_remove(b);
}

/* Deltas go on from the adopted one, also an older one, also after a final save; restores are counted. */
static void
test_adopt(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_WEIGHTS; p++) {
        char *dir = help_dir();
        sim *m = help_model(5, false);
        ckp_run *run = help_open(dir, (ckp_profile)p, 32, 0);
        ckp_save_options final = CKP_SAVE_OPTIONS_INIT;
        ckp_error err;
        final.final = true;
        help_save(run, m, NULL);
        sim_train(m);
        help_save(run, m, NULL);
        sim_train(m);
        help_save(run, m, &final);
        OK_OR_FAIL(ckp_run_close(run, &err));
        for (unsigned i = 0; i < 4; i++) {
            run = help_open(dir, (ckp_profile)p, 32, 0);
            adopt(run, i == 2 ? 2 : CKP_STEP_NEWEST);
            if (i == 3)
                adopt(run, 1);                           /* the last word counts */
            sim_train(m);
            help_save(run, m, NULL);
            /* weights without moments that were stored exactly say nothing of lossy coding: a key */
            assert_true(!stats_of(run).is_key || p == CKP_PROFILE_WEIGHTS || p == CKP_PROFILE_RESUME || p == CKP_PROFILE_SMALL);
            sim_train(m);
            help_save(run, m, NULL);
            ckp_checkpoint *ck = NULL;
            ckp_checkpoint_info info = {.size = sizeof info};
            OK_OR_FAIL(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &err));
            ckp_checkpoint_get_info(ck, &info);
            assert_int_equal(info.restore_count, i < 2 ? i + 1 : 1);
            help_image *x = help_read(ck);
            if (p == CKP_PROFILE_LOSSLESS)
                assert_true(help_is_model(x, m));
            help_image_free(x);
            ckp_checkpoint_close(ck);
            OK_OR_FAIL(ckp_run_close(run, &err));
        }
        OK_OR_FAIL(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        sim_free(m);
        help_remove(dir);
    }
}

static void
test_adopt_of_another_run(void **state)
{
    (void)state;
    char *a = help_dir(), *b = help_dir();
    sim *m = help_model(5, true);
    ckp_run *ra = help_open(a, CKP_PROFILE_RESUME, 32, 0), *rb = help_open(b, CKP_PROFILE_RESUME, 32, 0);
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    help_save(ra, m, NULL);
    OK_OR_FAIL(ckp_checkpoint_open(&ck, ra, CKP_STEP_NEWEST, &err));
    assert_status(ckp_run_adopt(rb, ck, &err), CKP_EINVAL);
    assert_status(ckp_run_adopt(rb, NULL, &err), CKP_EINVAL);
    ckp_checkpoint_close(ck);
    OK_OR_FAIL(ckp_run_close(ra, &err));
    OK_OR_FAIL(ckp_run_close(rb, &err));
    sim_free(m);
    help_remove(a);
    help_remove(b);
}

/* Threads do not show in what is written. */
static void
test_threads(void **state)
{
    (void)state;
    static const unsigned counts[] = {1, 2, 5};
    static const uint64_t big[2] = {2100, 600};
    uint8_t *first[3] = {NULL};
    size_t len[3] = {0};
    for (size_t c = 0; c < CHECK_COUNT(counts); c++) {
        char *dir = help_dir();
        sim *m = help_model(5, false);
        ckp_run *run = NULL;
        ckp_error err;
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        (void)sim_add_weight(m, "big", CKP_F32, CKP_F32, CKP_F32, 2, big);
        o.coding.threads = counts[c];
        OK_OR_FAIL(ckp_run_open(&run, dir, &o, &err));
        for (uint64_t i = 0; i < 3; i++) {
            size_t n = 0;
            help_save(run, m, NULL);
            char *path = help_shard(dir, i + 1);
            uint8_t *p = help_file(path, &n);
            if (c == 0) {
                first[i] = p;
                len[i] = n;
            } else {
                assert_int_equal(n, len[i]);
                assert_memory_equal(p, first[i], n);
                free(p);
            }
            free(path);
            sim_train(m);
        }
        OK_OR_FAIL(ckp_run_close(run, &err));
        sim_free(m);
        help_remove(dir);
    }
    for (size_t i = 0; i < 3; i++)
        free(first[i]);
}

/* ---- a reader beside a writer that deletes ---- */

typedef struct reader { const char *dir; _Atomic bool stop; unsigned reads; char failed[800]; } reader;

static void *
read_on(void *arg)
{
    reader *r = arg;
    while (!r->stop && r->failed[0] == '\0') {
        ckp_checkpoint *ck = NULL;
        ckp_error err;
        if (ckp_checkpoint_open_run(&ck, r->dir, CKP_STEP_NEWEST, true, &err) != CKP_OK)
            (void)snprintf(r->failed, sizeof r->failed, "open: %s", err.text);
        else
            help_image_free(help_read(ck));
        ckp_checkpoint_close(ck);
        r->reads++;
    }
    return NULL;
}

static void
read_beside(unsigned keep_last)
{
    char *dir = help_dir();
    sim *m = help_model(5, true);
    ckp_run *run = help_open(dir, CKP_PROFILE_RESUME, keep_last, keep_last);
    reader r = {.dir = dir};
    pthread_t t;
    ckp_error err;
    help_save(run, m, NULL);
    assert_int_equal(pthread_create(&t, NULL, read_on, &r), 0);
    for (int i = 0; i < 100; i++) {
        sim_train(m);
        help_save(run, m, NULL);
    }
    r.stop = true;
    assert_int_equal(pthread_join(t, NULL), 0);
    if (r.failed[0] != '\0')
        fail_msg("after %u reads: %s", r.reads, r.failed);
    assert_true(r.reads > 2);
    OK_OR_FAIL(ckp_run_close(run, &err));
    sim_free(m);
    help_remove(dir);
}

static void
test_reader_beside(void **state)
{
    (void)state;
    read_beside(1);
    read_beside(2);
}

#define T(f) cmocka_unit_test(f)
int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_chains),      T(test_keep_last),       T(test_final_and_on), T(test_nothing_changed), T(test_table_changes), T(test_small_budget),
        T(test_budgets_between), T(test_failed_save), T(test_bad_calls),    T(test_going_on_is_the_same), T(test_adopt),
        T(test_adopt_of_another_run), T(test_threads), T(test_reader_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
