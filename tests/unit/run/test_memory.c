/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that runs out: every allocation of saving and restoring may fail; and a budget too small for staging. */
#include <stdio.h>
#include <stdlib.h>
#include "harness/failalloc.h"
#include "model.h"

typedef struct job { const char *dir; ckp_profile profile; model *m, *live; } job;

/* Opens, saves twice, closes. */
static ckp_status
save_two(void *user)
{
    const job *j = user;
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    ckp_run *run = NULL;
    ckp_error e = {0};

    o.coding.profile = j->profile;
    o.coding.threads = 2;
    model_remove_tree(j->dir);
    ckp_status st = ckp_run_open(&run, j->dir, &o, &e);
    for (int i = 0; st == CKP_OK && i < 2; i++)
        st = model_save(run, j->m, NULL, &e);
    if (st != CKP_OK && st != CKP_ENOMEM)
        print_error("%s\n", e.text);
    const ckp_status closed = ckp_run_close(run, NULL);
    return st != CKP_OK ? st : closed;
}

static ckp_status
restore(void *user)
{
    const job *j = user;
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};

    model_clear(j->live);
    ckp_status st = ckp_checkpoint_open_run(&ck, j->dir, CKP_STEP_NEWEST, true, &e);
    if (st == CKP_OK)
        st = model_read(ck, j->live, &e);
    if (st != CKP_OK)            /* short of memory is no damage: no fall-back, and nothing written */
        for (size_t i = 0; i < j->live->n; i++)
            for (size_t k = 0; k < model_bytes(&j->live->t[i]); k++)
                assert_int_equal(((const uint8_t *)j->live->t[i].data)[k], 0xA5);
    ckp_checkpoint_close(ck);
    return st;
}

/* A life after it, in a fresh directory each time: what failed attempts leave behind is swept by later lives, and would add up here. */
static ckp_status
two_lives(void *user)
{
    const job *j = user;
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    ckp_checkpoint *ck = NULL;
    ckp_run *run = NULL;
    ckp_error e = {0};

    o.coding.profile = j->profile;
    o.coding.threads = 1;
    o.keep_last = 1;
    ckp_status st = save_two(user);
    if (st == CKP_OK)
        st = ckp_run_open(&run, j->dir, &o, &e);
    if (st == CKP_OK)
        st = ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &e);
    if (st == CKP_OK)
        st = ckp_run_adopt(run, ck, &e);
    ckp_checkpoint_close(ck);
    if (st == CKP_OK)
        st = model_save(run, j->m, NULL, &e);
    if (st != CKP_OK && st != CKP_ENOMEM)
        print_error("%s\n", e.text);
    const ckp_status closed = ckp_run_close(run, NULL);
    return st != CKP_OK ? st : closed;
}

static ckp_status
file_there_and_back(void *user)
{
    const job *j = user;
    char path[512], other[512], salvaged[512];
    ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
    ckp_coding c = CKP_CODING_INIT;
    ckp_error e = {0};

    (void)snprintf(path, sizeof path, "%s.ckp", j->dir);
    (void)snprintf(other, sizeof other, "%s.safetensors", j->dir);
    (void)snprintf(salvaged, sizeof salvaged, "%s.salvaged", j->dir);
    c.profile = j->profile;
    c.threads = o.coding.threads = 1;
    o.replace = true;
    ckp_state *s = model_state(j->m);
    ckp_status st = s != NULL ? ckp_file_save(path, s, &c, NULL, true, &e) : CKP_ENOMEM;
    ckp_state_free(s);
    if (st == CKP_OK)
        st = ckp_decompress(path, other, &o, NULL, &e);
    if (st == CKP_OK)
        st = ckp_compress(other, path, &o, NULL, &e);
    if (st == CKP_OK)
        st = ckp_verify(path, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &e);
    if (st == CKP_OK)
        st = ckp_salvage(path, NULL, 0, salvaged, true, NULL, NULL, &e);
    if (st != CKP_OK && st != CKP_ENOMEM)
        print_error("%s\n", e.text);
    return st;
}

static void
sweep(void **state, ckp_profile p)
{
    char dir[256];
    model m, live;
    job j = {dir, p, &m, &live};

    (void)snprintf(dir, sizeof dir, "%s/run", (const char *)*state);
    model_small(&m, "memory");
    model_copy(&live, &m);
    assert_ok(save_two(&j));
    assert_true(failalloc_run(restore, &j, 8, 3) >= 8);
    assert_true(failalloc_run(two_lives, &j, 8, 11) >= 8);
    assert_true(failalloc_run(file_there_and_back, &j, 8, 7) >= 8);
    /* whatever happened, what is there is whole */
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
    assert_ok(restore(&j));
    model_free(&live);
    model_free(&m);
}

static void
lossless(void **state)
{
    sweep(state, CKP_PROFILE_LOSSLESS);
}

static void
resume(void **state)
{
    sweep(state, CKP_PROFILE_RESUME);
}

/* Stages that do not fit: the pass becomes part of the encoding, on the caller's thread. The checkpoint is as good. */
static void
a_small_budget(void **state)
{
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        const char *dir = model_path(state, ckp_profile_name(p));
        ckp_save_stats s = {.size = sizeof s};
        model m, got;

        model_small(&m, "budget");
        model_copy(&got, &m);
        o.coding.profile = p;
        o.coding.memory_budget = 1;
        ckp_run *run = model_run(dir, o);
        for (int i = 0; i < 3; i++) {
            ckp_error e = {0};
            const ckp_status st = model_save(run, &m, NULL, &e);
            if (st != CKP_OK)
                print_error("%s\n", e.text);
            assert_ok(st);
            model_restore(dir, CKP_STEP_NEWEST, &got);
            if (p == CKP_PROFILE_LOSSLESS)
                assert_true(model_equal(&got, &m));
            model_step(&m);
        }
        ckp_run_stats(run, &s);
        assert_true(s.committed && s.sequence == 3);
        assert_ok(ckp_run_close(run, NULL));
        assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
        model_free(&got);
        model_free(&m);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {T(lossless), T(resume), T(a_small_budget)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
