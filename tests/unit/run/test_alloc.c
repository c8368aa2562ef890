/* SPDX-License-Identifier: Apache-2.0 */
/* The n-th allocation fails: a status, no leak, earlier checkpoints as they were, targets untouched. */
#define _GNU_SOURCE
#include "help.h"
#include <ckpress/run_plan.h>
#include "harness/failalloc.h"

typedef struct fixture { char *dir; sim *m; ckp_profile profile; const char *base_model; } fixture;

static sim *
tiny(void)
{
    static const uint64_t mat[2] = {5, 16}, vec[1] = {9};
    sim *m = sim_new(4);
    (void)sim_add_weight(m, "w", CKP_F32, CKP_F32, CKP_F32, 2, mat);
    (void)sim_add_weight(m, "h", CKP_BF16, CKP_F32, 0, 1, vec);
    (void)sim_add(m, "o", CKP_ROLE_OTHER, SIM_NONE, CKP_I32, 1, vec);
    sim_train(m);
    return m;
}

static ckp_status
open_run(const fixture *f, ckp_run **run, ckp_error *err)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = f->profile;
    o.coding.threads = 1;
    o.keep_last = 1;
    o.base_model = f->base_model;
    /*
     * To give a lock back, and to forget those of the dead, takes memory too: claims would pile up, and with them the allocations
     * of the next opening, faster than this test counts.
     */
    help_remove(strdup(help_path(f->dir, "lock")));
    return ckp_run_open(run, f->dir, &o, err);
}

/* What came before must always be there. */
static void
must_restore(const fixture *f)
{
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    failalloc_begin(0);
    failalloc_end(NULL, NULL);
    if (ckp_checkpoint_open_run(&ck, f->dir, CKP_STEP_NEWEST, true, &err) != CKP_OK)
        fail_msg("%s", err.text);
    ckp_checkpoint_close(ck);
}

/* ---- saving ---- */

static ckp_status
save_twice(void *user)
{
    const fixture *f = user;
    ckp_run *run = NULL;
    ckp_error err;
    const ckp_metric metric = {"loss", 1.5};
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    so.metrics = &metric;
    so.n_metrics = 1;
    ckp_status st = open_run(f, &run, &err);
    for (int i = 0; st == CKP_OK && i < 2; i++)
        st = help_save_try(run, f->m, &so, &err);
    so.final = true;
    if (st == CKP_OK)
        st = help_save_try(run, f->m, &so, &err);
    const ckp_status closed = ckp_run_close(run, &err);
    return st == CKP_OK ? closed : st;
}

static void
test_save(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        fixture f = {help_dir(), tiny(), (ckp_profile)p, NULL};
        assert_ok(save_twice(&f));
        assert_true(failalloc_run(save_twice, &f, 50, 7) > 50);
        must_restore(&f);
        ckp_error err;
        OK_OR_FAIL(ckp_verify(f.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        sim_free(f.m);
        help_remove(f.dir);
    }
}

/* After a save that failed for want of memory the same run goes on. */
static void
test_save_goes_on(void **state)
{
    (void)state;
    fixture f = {help_dir(), tiny(), CKP_PROFILE_RESUME, NULL};
    ckp_run *run = NULL;
    ckp_error err;
    OK_OR_FAIL(open_run(&f, &run, &err));
    unsigned failed = 0;
    for (unsigned long n = 1; n < 260; n += 3) {
        bool fired = false;
        sim_train(f.m);
        ckp_state *s = sim_state(f.m);
        failalloc_begin(n);
        ckp_status st = ckp_run_save(run, f.m->step, s, NULL, NULL, &err);
        if (st == CKP_OK)
            st = ckp_run_wait(run, &err);
        failalloc_end(NULL, &fired);
        ckp_state_free(s);
        if (st != CKP_OK && (st != CKP_ENOMEM || !fired))
            fail_msg("allocation %lu: status %d: %s", n, (int)st, err.text);
        failed += st != CKP_OK;
        if (n % 5 == 0) {
            sim_train(f.m);
            help_save(run, f.m, NULL);
            help_image *x = help_read_run(f.dir, CKP_STEP_NEWEST);
            help_image_free(x);
        }
    }
    assert_true(failed > 20);
    OK_OR_FAIL(ckp_run_close(run, &err));
    OK_OR_FAIL(ckp_verify(f.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    sim_free(f.m);
    help_remove(f.dir);
}

/* ---- reading ---- */

static void
fill(const char *dir, ckp_profile profile)
{
    sim *m = tiny();
    ckp_error err;
    ckp_run *run = help_open(dir, profile, 32, 0);
    for (int i = 0; i < 3; i++) {
        help_save(run, m, NULL);
        sim_train(m);
    }
    OK_OR_FAIL(ckp_run_close(run, &err));
    sim_free(m);
}

static ckp_status
read_all(void *user)
{
    const fixture *f = user;
    static uint8_t mem[8][2048];
    ckp_target t[8];
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    ckp_status st = ckp_checkpoint_open_run(&ck, f->dir, CKP_STEP_NEWEST, true, &err);
    if (st != CKP_OK)
        return st;
    const size_t n = ckp_checkpoint_count(ck);
    for (size_t i = 0; st == CKP_OK && i < n; i++) {
        ckp_tensor_info info = {.size = sizeof info};
        st = ckp_checkpoint_tensor(ck, i, &info, &err);
        t[i] = (ckp_target){.index = (uint32_t)i, .dtype = info.dtype, .ndim = info.ndim, .shape = info.shape, .data = mem[i]};
    }
    /* a fall-back for want of memory would be a lie about the newest */
    assert_string_equal(ckp_checkpoint_notes(ck), "");
    memset(mem, 0x5a, sizeof mem);
    if (st == CKP_OK)
        st = ckp_checkpoint_read(ck, t, n, 1, &err);
    for (size_t i = 0; st != CKP_OK && i < sizeof mem; i++)
        assert_int_equal(((uint8_t *)mem)[i], 0x5a);
    if (st == CKP_OK)
        st = ckp_checkpoint_read_range(ck, 0, 3, 20, mem[0], &err);
    ckp_checkpoint_close(ck);
    return st;
}

static void
test_read(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        fixture f = {help_dir(), NULL, (ckp_profile)p, NULL};
        fill(f.dir, f.profile);
        assert_true(failalloc_run(read_all, &f, 50, 3) > 50);
        help_remove(f.dir);
    }
}

/* ---- adopting ---- */

static ckp_status
adopt_and_save(void *user)
{
    const fixture *f = user;
    ckp_run *run = NULL;
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    ckp_status st = open_run(f, &run, &err);
    if (st == CKP_OK)
        st = ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &err);
    if (st == CKP_OK)
        st = ckp_run_adopt(run, ck, &err);
    ckp_checkpoint_close(ck);
    if (st == CKP_OK)
        st = help_save_try(run, f->m, NULL, &err);
    const ckp_status closed = ckp_run_close(run, &err);
    return st == CKP_OK ? closed : st;
}

static void
test_adopt(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        fixture f = {help_dir(), tiny(), (ckp_profile)p, NULL};
        fill(f.dir, f.profile);
        assert_true(failalloc_run(adopt_and_save, &f, 50, 11) > 40);
        must_restore(&f);
        ckp_error err;
        OK_OR_FAIL(ckp_verify(f.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        sim_free(f.m);
        help_remove(f.dir);
    }
}

/* ---- on a base model ---- */

static ckp_status
save_read_adopt(void *user)
{
    ckp_status st = save_twice(user);
    if (st == CKP_OK)
        st = read_all(user);
    return st == CKP_OK ? adopt_and_save(user) : st;
}

static void
test_base_model(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        char *beside = help_dir(), *file = strdup(help_path(beside, "base.ckp"));
        fixture f = {help_dir(), tiny(), (ckp_profile)p, file};
        ckp_error err;
        ckp_state *s = sim_state(f.m);
        OK_OR_FAIL(ckp_file_save(file, s, NULL, NULL, false, &err));
        ckp_state_free(s);
        sim_train(f.m);
        assert_ok(save_twice(&f));
        assert_true(failalloc_run(save_read_adopt, &f, 100, 13) > 100);
        must_restore(&f);
        OK_OR_FAIL(ckp_verify(f.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        sim_free(f.m);
        free(file);
        help_remove(beside);
        help_remove(f.dir);
    }
}

/* ---- files ---- */

static ckp_status
file_and_delta(void *user)
{
    const fixture *f = user;
    ckp_error err;
    ckp_coding coding = CKP_CODING_INIT;
    ckp_checkpoint *base = NULL;
    ckp_state *s = NULL;
    coding.profile = f->profile;
    coding.threads = 1;
    ckp_status st = sim_state_try(f->m, &s, &err);
    if (st == CKP_OK)
        st = ckp_file_save(help_path(f->dir, "a.ckp"), s, &coding, NULL, true, &err);
    if (st == CKP_OK)
        st = ckp_checkpoint_open_file(&base, help_path(f->dir, "a.ckp"), NULL, 0, &err);
    if (st == CKP_OK)
        st = ckp_file_save(help_path(f->dir, "b.ckp"), s, &coding, base, true, &err);
    ckp_checkpoint_close(base);
    ckp_state_free(s);
    return st;
}

static ckp_status
salvage(void *user)
{
    const fixture *f = user;
    ckp_error err;
    const char *base[1] = {help_path(f->dir, "a.ckp")};
    return ckp_salvage(help_path(f->dir, "b.ckp"), base, 1, help_path(f->dir, "out"), true, NULL, NULL, &err);
}

static ckp_status
there_and_back(void *user)
{
    const fixture *f = user;
    ckp_error err;
    ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
    o.coding.threads = 1;
    o.replace = true;
    ckp_status st = ckp_decompress(help_path(f->dir, "a.ckp"), help_path(f->dir, "a.safetensors"), &o, NULL, &err);
    if (st == CKP_OK)
        st = ckp_compress(help_path(f->dir, "a.safetensors"), help_path(f->dir, "c.ckp"), &o, NULL, &err);
    return st;
}

/* A plan, and the state that it is for with its steps. */
static ckp_status
plan_and_save(void *user)
{
    const fixture *f = user;
    ckp_error err;
    ckp_coding coding = CKP_CODING_INIT;
    ckp_plan_options o = CKP_PLAN_OPTIONS_INIT;
    ckp_plan *p = NULL, *q = NULL;
    ckp_state *s = NULL;
    const ckp_tensor_score score = {"w", 3.0};
    coding.profile = f->profile;
    coding.threads = 1;
    o.coding = coding;
    o.scores = &score;
    o.n_scores = 1;
    o.value = 40.0;
    ckp_status st = sim_state_try(f->m, &s, &err);
    if (st == CKP_OK)
        st = ckp_plan_state(&p, s, &o, &err);
    coding.steps = ckp_plan_steps(p, &coding.n_steps);
    if (st == CKP_OK)
        st = ckp_file_save(help_path(f->dir, "p.ckp"), s, &coding, NULL, true, &err);
    o.target = CKP_PLAN_ERROR;
    o.value = 0.1;
    o.n_scores = 0;
    if (st == CKP_OK)
        st = ckp_plan_file(&q, help_path(f->dir, "p.ckp"), &o, &err);
    ckp_plan_free(p);
    ckp_plan_free(q);
    ckp_state_free(s);
    return st;
}

static void
test_plans(void **state)
{
    (void)state;
    fixture f = {help_dir(), tiny(), CKP_PROFILE_RESUME, NULL};
    assert_ok(plan_and_save(&f));
    assert_true(failalloc_run(plan_and_save, &f, 20, 5) > 20);
    sim_free(f.m);
    help_remove(f.dir);
}

static void
test_files(void **state)
{
    (void)state;
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        fixture f = {help_dir(), tiny(), (ckp_profile)p, NULL};
        assert_ok(file_and_delta(&f));
        assert_true(failalloc_run(file_and_delta, &f, 20, 5) > 20);
        assert_true(failalloc_run(salvage, &f, 20, 3) > 20);
        assert_true(failalloc_run(there_and_back, &f, 20, 5) > 20);
        sim_free(f.m);
        help_remove(f.dir);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_save), cmocka_unit_test(test_save_goes_on), cmocka_unit_test(test_read),
                                       cmocka_unit_test(test_adopt), cmocka_unit_test(test_base_model), cmocka_unit_test(test_files), cmocka_unit_test(test_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
