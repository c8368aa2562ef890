/* SPDX-License-Identifier: Apache-2.0 */
/* What an open checkpoint says and gives: metrics, roles, verification of it alone, export to another kind of file. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "model.h"
#include "os/host.h"

static void
node(ckp_state *s, ckp_tree_type type, uint64_t count, const char *text, uint32_t tensor)
{
    const ckp_tree_node n = {.type = type, .count = count, .data = text, .len = text != NULL ? strlen(text) : 0, .tensor = tensor};
    assert_ok(ckp_state_tree_put(s, &n, NULL));
}

/* {"model": {"w": t0}, "optimizer": {"state": {"w": {"exp_avg": t1, "exp_avg_sq": t2}}, "param_groups": [{"params": ["w"]}]}}, no roles */
static ckp_state *
plain_state(const float *data)
{
    static const char *const name[3] = {"w", "optimizer/m", "optimizer/v"};
    const uint64_t shape[2] = {4, 5};
    ckp_tensor t = CKP_TENSOR_INIT;
    ckp_state *s = NULL;

    assert_ok(ckp_state_new(&s, NULL));
    t.dtype = CKP_F32;
    t.ndim = 2;
    t.shape = shape;
    for (size_t i = 0; i < 3; i++) {
        t.data = data + 20 * i;
        assert_ok(ckp_state_add_tensor(s, name[i], CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    }
    node(s, CKP_TREE_DICT, 2, NULL, 0);
    node(s, CKP_TREE_STR, 0, "model", 0);
    node(s, CKP_TREE_DICT, 1, NULL, 0);
    node(s, CKP_TREE_STR, 0, "w", 0);
    node(s, CKP_TREE_TENSOR, 0, NULL, 0);
    node(s, CKP_TREE_STR, 0, "optimizer", 0);
    node(s, CKP_TREE_DICT, 2, NULL, 0);
    node(s, CKP_TREE_STR, 0, "state", 0);
    node(s, CKP_TREE_DICT, 1, NULL, 0);
    node(s, CKP_TREE_STR, 0, "w", 0);
    node(s, CKP_TREE_DICT, 2, NULL, 0);
    node(s, CKP_TREE_STR, 0, "exp_avg", 0);
    node(s, CKP_TREE_TENSOR, 0, NULL, 1);
    node(s, CKP_TREE_STR, 0, "exp_avg_sq", 0);
    node(s, CKP_TREE_TENSOR, 0, NULL, 2);
    node(s, CKP_TREE_STR, 0, "param_groups", 0);
    node(s, CKP_TREE_LIST, 1, NULL, 0);
    node(s, CKP_TREE_DICT, 1, NULL, 0);
    node(s, CKP_TREE_STR, 0, "params", 0);
    node(s, CKP_TREE_LIST, 1, NULL, 0);
    node(s, CKP_TREE_STR, 0, "w", 0);
    return s;
}

/* Roles that a file does not store are found; those that it stores are left as they are. */
static void
roles_are_found(void **state)
{
    const char *path = model_path(state, "plain.ckp"), *other = model_path(state, "other.ckp");
    float data[60] = {0};
    ckp_checkpoint *ck = NULL;
    ckp_role role[32];
    bool matched = false;
    model m;

    for (int i = 0; i < 60; i++)
        data[i] = (float)i + 0.5f;
    ckp_state *s = plain_state(data);
    assert_ok(ckp_file_save(path, s, NULL, NULL, false, NULL));
    ckp_state_free(s);
    assert_ok(ckp_checkpoint_open_file(&ck, path, NULL, 0, NULL));
    assert_status(ckp_checkpoint_roles(ck, role, 2, &matched, NULL), CKP_EINVAL);
    assert_ok(ckp_checkpoint_roles(ck, role, 3, &matched, NULL));
    assert_true(matched && role[0] == CKP_ROLE_WEIGHT && role[1] == CKP_ROLE_M && role[2] == CKP_ROLE_V);
    ckp_checkpoint_close(ck);

    model_small(&m, "roles");
    s = model_state(&m);
    assert_ok(ckp_file_save(other, s, NULL, NULL, false, NULL));
    ckp_state_free(s);
    assert_ok(ckp_checkpoint_open_file(&ck, other, NULL, 0, NULL));
    assert_ok(ckp_checkpoint_roles(ck, role, ckp_checkpoint_count(ck), &matched, NULL));
    assert_false(matched);
    for (size_t i = 0; i < m.n; i++)
        assert_int_equal(role[ckp_checkpoint_find(ck, m.t[i].name)], m.t[i].role);
    ckp_metric metric;
    assert_false(ckp_checkpoint_metric(ck, 0, &metric));
    ckp_checkpoint_close(ck);
    model_free(&m);
}

/* A step of a run: its metrics, a check of it alone, and its tensors as a file. */
static void
one_step_of_a_run(void **state)
{
    const char *dir = model_path(state, "run");
    const ckp_metric metrics[2] = {{"loss", 0.1}, {"accuracy", 1e-300}};
    ckp_run_options opt = CKP_RUN_OPTIONS_INIT;
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    ckp_convert_result r = {.size = sizeof r};
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};
    ckp_metric got = {0};
    model m;

    model_small(&m, "step");
    ckp_run *run = model_run(dir, opt);
    so.metrics = metrics;
    so.n_metrics = 2;
    m.step = 7;
    assert_ok(model_save(run, &m, &so, &e));
    assert_ok(ckp_run_close(run, &e));

    assert_ok(ckp_checkpoint_open_run(&ck, dir, 7, false, &e));
    assert_true(ckp_checkpoint_metric(ck, 0, &got) && strcmp(got.name, "loss") == 0 && got.value == 0.1);
    assert_true(ckp_checkpoint_metric(ck, 1, &got) && strcmp(got.name, "accuracy") == 0 && got.value == 1e-300);
    assert_false(ckp_checkpoint_metric(ck, 2, &got));
    for (int level = CKP_VERIFY_STRUCTURE; level <= CKP_VERIFY_DECODE; level++)
        assert_ok(ckp_checkpoint_verify(ck, (ckp_verify_level)level, 1, NULL, NULL, &e));
    assert_status(ckp_checkpoint_verify(ck, (ckp_verify_level)9, 1, NULL, NULL, &e), CKP_EINVAL);
    assert_ok(ckp_checkpoint_export(ck, model_path(state, "step.safetensors"), NULL, &r, &e));
    assert_string_equal(r.kind, "safetensors");
    assert_int_equal(r.tensors, m.n);
    assert_int_equal(r.values_lost, 1);      /* the step, which is the model's whole tree */
    assert_string_equal(r.values_named, "the root");
    ckp_checkpoint_close(ck);
    model_free(&m);
}

/* A temporary of a process that is gone goes with the next output; others stay. */
static void
litter_is_swept(void **state)
{
    const char *path = model_path(state, "m.ckp"), *odd = model_path(state, ".tmp-1-x");
    ckp_error e = {0};
    model m;

    model_small(&m, "sweep");
    model_store_file(odd, "x", 1);
    const pid_t child = fork();
    if (child == 0) {            /* its name for a temporary, and gone it is */
        char tmp[CKPI_TMP_MAX];
        if (chdir(*state) != 0 || ckpi_tmp_name(tmp, "old.ckp", NULL) != CKP_OK)
            _exit(1);
        model_store_file(tmp, "x", 1);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(model_count_files(*state), 2);
    ckp_state *s = model_state(&m);
    assert_ok(ckp_file_save(path, s, NULL, NULL, false, &e));
    ckp_state_free(s);
    assert_int_equal(model_count_files(*state), 2);      /* m.ckp and the odd one */
    model_free(&m);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {T(roles_are_found), T(one_step_of_a_run), T(litter_is_swept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
