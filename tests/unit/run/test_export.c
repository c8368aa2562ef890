/* SPDX-License-Identifier: Apache-2.0 */
/* Files for others and from them: which steps paths mean, and the n-th allocation that fails. What the files hold: tests/cli, tests/python. */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <unistd.h>
#include "help.h"
#include "model.h"
#include <ckpress/run_export.h>
#include <ckpress/run_file.h>
#include "harness/failalloc.h"

/* n paths and the steps that they mean, or 0 and a word of the refusal. */
typedef struct names { const char *path[4]; size_t n; uint64_t step[4]; const char *why; } names;

static void
test_steps(void **state)
{
    static const names row[] = {
        {{"out/checkpoint-500/model.safetensors", "out/checkpoint-1000/model.safetensors"}, 2, {500, 1000}, NULL},
        {{"gpt2-30.pt", "gpt2-10.pt", "gpt2-20.pt"}, 3, {30, 10, 20}, NULL},
        {{"a009.pt", "a010.pt"}, 2, {9, 10}, NULL},
        {{"v1/step_7.pt"}, 1, {7}, NULL},
        {{"1", "2"}, 2, {1, 2}, NULL},
        {{"0.pt", "999999999999999999.pt"}, 2, {0, UINT64_C(999999999999999999)}, NULL},
        {{"model.pt"}, 1, {0}, "no number"},
        {{"v1-step7.pt"}, 1, {0}, "several numbers"},
        {{"a.pt", "b.pt"}, 2, {0}, "more than numbers"},
        {{"a1.pt", "a1x.pt"}, 2, {0}, "more than numbers"},
        {{"a1b1", "a2b2"}, 2, {0}, "more than one number"},
        {{"a1b1", "a2b1", "a1b2"}, 3, {0}, "more than one number"},
        {{"a1", "a2", "a2"}, 3, {0}, "same step"},
        {{"a01", "a1"}, 2, {0}, "same numbers"},
        {{"a12345678901234567890", "a12345678901234567891"}, 2, {0}, "more than numbers"},
    };
    (void)state;
    for (size_t i = 0; i < CHECK_COUNT(row); i++) {
        uint64_t step[4] = {0};
        ckp_error e = {0};
        const ckp_status st = ckp_import_steps(row[i].path, row[i].n, step, &e);
        assert_status(st, row[i].why != NULL ? CKP_EINVAL : CKP_OK);
        if (row[i].why != NULL && strstr(e.text, row[i].why) == NULL)
            fail_msg("'%s' lacks '%s'", e.text, row[i].why);
        for (size_t k = 0; row[i].why == NULL && k < row[i].n; k++)
            assert_true(step[k] == row[i].step[k]);
    }
    /* more numbers than anybody has in a name */
    char many[81];
    for (int i = 0; i < 80; i++)
        many[i] = i % 2 == 0 ? '1' : '-';
    many[80] = '\0';
    const char *const two[2] = {many, many};
    uint64_t step[2];
    assert_status(ckp_import_steps(two, 2, step, NULL), CKP_EINVAL);
    assert_status(ckp_import_steps(two, 1, step, NULL), CKP_EINVAL);
    assert_status(ckp_import_steps(NULL, 1, step, NULL), CKP_EINVAL);
}

static char *
make_run(void)
{
    char *dir = help_dir();
    sim *m = sim_new(8);
    const uint64_t mat[2] = {6, 16}, vec[1] = {9};
    (void)sim_add(m, "model/a", CKP_ROLE_WEIGHT, SIM_NONE, CKP_F32, 2, mat);
    (void)sim_add(m, "model/b", CKP_ROLE_WEIGHT, SIM_NONE, CKP_BF16, 1, vec);
    (void)sim_add(m, "other", CKP_ROLE_OTHER, SIM_NONE, CKP_I32, 1, vec);
    sim_train(m);
    ckp_run *run = help_open(dir, CKP_PROFILE_LOSSLESS, 2, 0);
    help_save(run, m, NULL);
    assert_ok(ckp_run_close(run, NULL));
    sim_free(m);
    return dir;
}

typedef struct place { const char *run, *out; ckp_export_kind to; } place;

static ckp_status
export_run(void *user)
{
    const place *p = user;
    ckp_export_options o = CKP_EXPORT_OPTIONS_INIT;
    ckp_exported done = {.size = sizeof done};
    ckp_checkpoint *ck = NULL;

    o.to = p->to;
    o.max_file_bytes = 100;
    o.replace = true;
    o.threads = 1;
    ckp_status st = ckp_checkpoint_open_run(&ck, p->run, CKP_STEP_NEWEST, false, NULL);
    if (st == CKP_OK)
        st = ckp_checkpoint_export_to(ck, p->out, "x", &o, &done, NULL);
    ckp_checkpoint_close(ck);
    return st;
}

static void
test_export_memory(void **state)
{
    (void)state;
    char *run = make_run(), *out = help_dir();
    for (int to = CKP_EXPORT_SAFETENSORS; to <= CKP_EXPORT_HF; to++) {
        place p = {run, out, (ckp_export_kind)to};
        assert_true(failalloc_run(export_run, &p, 20, 3) > 20);
    }
    /* two files and their index; one, one: no temporary is left */
    assert_int_equal(model_count_files(out), 5);
    assert_int_equal(access(help_path(out, "model-00002-of-00002.safetensors"), F_OK), 0);
    assert_int_equal(access(help_path(out, "model.safetensors.index.json"), F_OK), 0);
    help_remove(run);
    help_remove(out);
}

static void
test_arguments(void **state)
{
    (void)state;
    char *run = make_run(), *out = help_dir();
    ckp_checkpoint *ck = NULL;
    ckp_export_options o = CKP_EXPORT_OPTIONS_INIT;
    ckp_exported done = {.size = sizeof done};
    ckp_error e;

    assert_ok(ckp_checkpoint_open_run(&ck, run, CKP_STEP_NEWEST, false, NULL));
    assert_status(ckp_checkpoint_export_to(NULL, out, "x", &o, &done, &e), CKP_EINVAL);
    assert_status(ckp_checkpoint_export_to(ck, NULL, "x", &o, &done, &e), CKP_EINVAL);
    assert_status(ckp_checkpoint_export_to(ck, out, NULL, &o, &done, &e), CKP_EINVAL);
    assert_status(ckp_checkpoint_export_to(ck, out, "a/b", &o, &done, &e), CKP_EINVAL);
    assert_status(ckp_checkpoint_export_to(ck, out, "x", NULL, &done, &e), CKP_EINVAL);
    o.to = CKP_EXPORT_HF;
    assert_ok(ckp_checkpoint_export_to(ck, out, NULL, &o, &done, &e));
    assert_true(done.tensors == 2 && done.files == 1);
    assert_status(ckp_checkpoint_export_to(ck, out, NULL, &o, &done, &e), CKP_EEXIST);
    o.max_file_bytes = 0;
    assert_status(ckp_checkpoint_export_to(ck, out, NULL, &o, &done, &e), CKP_EINVAL);
    ckp_checkpoint_close(ck);
    help_remove(run);
    help_remove(out);
}

/* An older export stays whole where the new one cannot be written. */
static void
test_replaces_nothing_in_vain(void **state)
{
    (void)state;
    char *run = make_run(), *out = help_dir(), *file = strdup(help_path(out, "odd.ckp"));
    const uint64_t two[1] = {2};
    const double data[4] = {1, 2, 3, 4};
    place p = {run, out, CKP_EXPORT_HF};
    ckp_export_options o = CKP_EXPORT_OPTIONS_INIT;
    ckp_exported done = {.size = sizeof done};
    ckp_checkpoint *ck = NULL;
    ckp_state *s = NULL;
    ckp_tensor t = CKP_TENSOR_INIT;
    ckp_error e;

    assert_ok(export_run(&p));
    t.dtype = CKP_C128;
    t.ndim = 1;
    t.shape = two;
    t.data = data;
    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckp_state_add_tensor(s, "complex", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    assert_ok(ckp_file_save(file, s, NULL, NULL, false, &e));
    assert_ok(ckp_checkpoint_open_file(&ck, file, NULL, 0, &e));
    o.to = CKP_EXPORT_HF;
    o.replace = true;
    assert_status(ckp_checkpoint_export_to(ck, out, NULL, &o, &done, &e), CKP_EUNSUPPORTED);
    assert_string_equal(e.tensor, "complex");
    assert_int_equal(access(help_path(out, "model.safetensors.index.json"), F_OK), 0);
    ckp_checkpoint_close(ck);
    /* one file in place of several, which fails as it is written */
    assert_int_equal(mkdir(help_path(out, "model.safetensors"), 0700), 0);
    assert_ok(ckp_checkpoint_open_run(&ck, run, CKP_STEP_NEWEST, false, &e));
    assert_status(ckp_checkpoint_export_to(ck, out, NULL, &o, &done, &e), CKP_EINVAL);
    assert_int_equal(access(help_path(out, "model.safetensors.index.json"), F_OK), 0);
    assert_int_equal(rmdir(help_path(out, "model.safetensors")), 0);
    assert_ok(ckp_checkpoint_export_to(ck, out, NULL, &o, &done, &e));
    assert_int_equal(access(help_path(out, "model.safetensors.index.json"), F_OK), -1);
    ckp_checkpoint_close(ck);
    ckp_state_free(s);
    free(file);
    help_remove(run);
    help_remove(out);
}

/* Each try makes a run of its own name: what a failure left is a run, if it is anything. */
typedef struct series { const char *file, *dir; unsigned tries; } series;

static ckp_status
import_series(void *user)
{
    series *s = user;
    char run[512];
    const char *const file[2] = {s->file, s->file};
    ckp_import_options o = CKP_IMPORT_OPTIONS_INIT;
    ckp_imported done = {.size = sizeof done};

    (void)snprintf(run, sizeof run, "%s/r%u", s->dir, s->tries++);
    o.in_order = true;
    o.coding.threads = 1;
    return ckp_run_import(run, file, 2, &o, &done, NULL);
}

static void
test_import_memory(void **state)
{
    (void)state;
    char *run = make_run(), *out = help_dir();
    place p = {run, out, CKP_EXPORT_PT};
    char file[512];

    assert_ok(export_run(&p));
    (void)snprintf(file, sizeof file, "%s/x.pt", out);
    series s = {file, out, 0};
    assert_true(failalloc_run(import_series, &s, 50, 3) > 50);
    char last[512];
    (void)snprintf(last, sizeof last, "%s/r%u", out, s.tries - 1);
    assert_int_equal(help_count(last), 2);
    assert_ok(ckp_verify(last, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
    help_remove(run);
    help_remove(out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_arguments), cmocka_unit_test(test_export_memory),
                                       cmocka_unit_test(test_replaces_nothing_in_vain),
                                       cmocka_unit_test(test_import_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
