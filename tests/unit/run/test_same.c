/* SPDX-License-Identifier: Apache-2.0 */
/* The same bytes whatever the number of threads and the instruction set. Levels are masked by CKPRESS_CPU in children: it is read once a process. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "model.h"

static ckp_optimizer_states states;   /* of the runs that are made */

/* Several chunks, odd sizes, all kinds of coding. */
static void
large(model *m)
{
    *m = (model){.rng = test_rng_new("same"), .step = 1};
    model_add_adam(m, "a", CKP_F32, CKP_F32, (const uint64_t[4]){1100, 1000});
    model_add_adam(m, "b", CKP_BF16, CKP_F32, (const uint64_t[4]){129, 257});
    model_add_adam(m, "c", CKP_F16, CKP_BF16, (const uint64_t[4]){333});
    model_add_adam(m, "d", CKP_F32, CKP_F32, (const uint64_t[4]){5, 7, 3, 3});
    model_add(m, "e", CKP_ROLE_OTHER, NULL, CKP_I64, (const uint64_t[4]){1000});
}

/* In a child with that level: goes on with a copy of the run for three saves. The model moves the same way in each. */
static void
go_on(const char *level, const char *dir, ckp_profile p, unsigned threads, model *m)
{
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        ckp_checkpoint *ck = NULL;
        ckp_run *run = NULL;
        (void)setenv("CKPRESS_CPU", level, 1);
        o.coding.profile = p;
        o.coding.optimizer_states = states;
        o.coding.threads = threads;
        bool ok = ckp_run_open(&run, dir, &o, NULL) == CKP_OK && ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, NULL) == CKP_OK;
        ok = ok && model_read(ck, m, NULL) == CKP_OK && ckp_run_adopt(run, ck, NULL) == CKP_OK;
        ckp_checkpoint_close(ck);
        for (int i = 0; ok && i < 3; i++) {
            model_step(m);
            ok = model_save(run, m, NULL, NULL) == CKP_OK;
        }
        ok = ckp_run_close(run, NULL) == CKP_OK && ok;
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void
same_files(const char *a, const char *b)
{
    for (uint64_t step = 1; step <= 4; step++) {
        size_t n[2];
        uint8_t *x = model_load_file(model_shard(a, step), &n[0]), *y = model_load_file(model_shard(b, step), &n[1]);
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(x, y, n[0]);
        free(x);
        free(y);
    }
}

/* The first save happens in a child too, so that this process has not asked for its CPU before it forks. */
static void
first_save(const char *dir, ckp_profile p, model *m)
{
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        o.coding.profile = p;
        o.coding.optimizer_states = states;
        ckp_run *run = model_run(dir, o);
        bool ok = model_save(run, m, NULL, NULL) == CKP_OK;
        ok = ckp_run_close(run, NULL) == CKP_OK && ok;
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void
check_profile(void **state, ckp_profile p)
{
    static const struct { const char *level; unsigned threads; } ways[] = {{"scalar", 1}, {"avx2", 1}, {"avx512", 2}, {"", 5}, {"", 1}};
    char name[64], first[64];
    model m;

    large(&m);
    (void)snprintf(name, sizeof name, "%s/run-%d", (const char *)*state, (int)p);
    (void)snprintf(first, sizeof first, "%s/run-%d-0", (const char *)*state, (int)p);
    first_save(name, p, &m);
    for (size_t i = 0; i < CHECK_COUNT(ways); i++) {
        char copy[64];
        (void)snprintf(copy, sizeof copy, "%s/run-%d-%zu", (const char *)*state, (int)p, i);
        model_copy_tree(name, copy);
        go_on(ways[i].level, copy, p, ways[i].threads, &m);
        if (i != 0)
            same_files(first, copy);
    }
    model_free(&m);
}

static void
lossless_runs_are_the_same(void **state)
{
    check_profile(state, CKP_PROFILE_LOSSLESS);
}

static void
clusters_are_the_same(void **state)
{
    states = CKP_STATES_CLUSTER;
    check_profile(state, CKP_PROFILE_LOSSLESS);
    states = CKP_STATES_PROFILE;
}

static void
resume_runs_are_the_same(void **state)
{
    check_profile(state, CKP_PROFILE_RESUME);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {T(lossless_runs_are_the_same), T(clusters_are_the_same), T(resume_runs_are_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
