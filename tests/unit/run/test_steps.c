/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that weights have by name: what comes back, what they do to a run, and which are refused. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/float.h"
#include "model.h"

static ckp_status
save_with(const char *path, const model *m, ckp_profile p, const ckp_tensor_step *steps, size_t n, double quality, ckp_error *e)
{
    ckp_coding c = CKP_CODING_INIT;
    c.profile = p;
    c.threads = 1;
    c.steps = steps;
    c.n_steps = n;
    c.quality = quality;
    ckp_state *s = model_state(m);
    const ckp_status st = ckp_file_save(path, s, &c, NULL, true, e);
    ckp_state_free(s);
    return st;
}

static void
read_into(const char *path, model *got)
{
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};
    assert_ok(ckp_checkpoint_open_file(&ck, path, NULL, 0, &e));
    if (model_read(ck, got, &e) != CKP_OK)
        fail_msg("%s", e.text);
    ckp_checkpoint_close(ck);
    assert_ok(ckp_verify(path, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &e));
}

static const model_tensor *
tensor_of(const model *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->t[i].name, name) == 0)
            return &m->t[i];
    fail_msg("no %s", name);
    return NULL;
}

static double
max_error(const model *a, const model *b, const char *name)
{
    const model_tensor *x = tensor_of(a, name), *y = tensor_of(b, name);
    double worst = 0;
    for (uint64_t i = 0; i < x->n; i++)
        worst = fmax(worst, fabs((double)model_get(x, i) - (double)model_get(y, i)));
    return worst;
}

/* A weight of values on a grid: k * (float)step in f32, k as far as codes go. */
static void
add_on_grid(model *m, const char *name, ckp_dtype dt, const uint64_t shape[4], double step, int reach)
{
    model_tensor *t = model_add(m, name, CKP_ROLE_WEIGHT, NULL, dt, shape);
    for (uint64_t i = 0; i < t->n; i++)
        model_set(t, i, (float)((int)test_below(&m->rng, 2 * (uint64_t)reach + 1) - reach) * (float)step);
}

/* Large and small ones, of one dtype in one chunk, each with its own grid. */
static void
values_on_the_grid_come_back(void **state)
{
    const char *path = model_path(state, "grid.ckp");
    const ckp_tensor_step steps[] = {{"large", 0.0037}, {"small", 1.0 / 3.0}, {"bias", 1e-9}, {"half", 0.125}, {"brain", 3e5}, {"fine", 0.02}};
    ckp_error e = {0};
    model m = {.rng = test_rng_new("grid")}, got;
    add_on_grid(&m, "large", CKP_F32, (const uint64_t[4]){100, 90}, 0.0037, 127);
    add_on_grid(&m, "small", CKP_F32, (const uint64_t[4]){10, 30}, 1.0 / 3.0, 127);
    add_on_grid(&m, "bias", CKP_F32, (const uint64_t[4]){77}, 1e-9, 127);
    add_on_grid(&m, "fine", CKP_F32, (const uint64_t[4]){70, 90}, 0.02, 3);
    add_on_grid(&m, "half", CKP_F16, (const uint64_t[4]){80, 70}, 0.125, 127);
    add_on_grid(&m, "brain", CKP_BF16, (const uint64_t[4]){90, 60}, 3e5, 127);
    model_copy(&got, &m);
    model_clear(&got);
    if (save_with(path, &m, CKP_PROFILE_WEIGHTS, steps, CHECK_COUNT(steps), 1.0, &e) != CKP_OK)
        fail_msg("%s", e.text);
    read_into(path, &got);
    assert_true(model_equal(&m, &got));
    model_free(&m);
    model_free(&got);
}

/* Off the grid the error is half a step at most, of that tensor's step and no other's; a tensor without a name keeps the profile's. */
static void
each_step_bounds_its_own_error(void **state)
{
    const char *a = model_path(state, "a.ckp"), *b = model_path(state, "b.ckp");
    const ckp_tensor_step steps[] = {{"x", 0.01}, {"y", 0.0005}};
    ckp_error e = {0};
    model m = {.rng = test_rng_new("bounds")}, got, plain;
    for (int k = 0; k < 3; k++) {
        model_tensor *t = model_add(&m, k == 0 ? "x" : k == 1 ? "y" : "z", CKP_ROLE_WEIGHT, NULL, CKP_F32, (const uint64_t[4]){90, 80});
        for (uint64_t i = 0; i < t->n; i++)
            model_set(t, i, (float)(0.01 * test_normal(&m.rng)));
    }
    model_copy(&got, &m);
    model_copy(&plain, &m);
    assert_ok(save_with(a, &m, CKP_PROFILE_WEIGHTS, steps, 2, 1.0, &e));
    read_into(a, &got);
    assert_ok(save_with(b, &m, CKP_PROFILE_WEIGHTS, NULL, 0, 1.0, &e));
    read_into(b, &plain);
    assert_true(max_error(&m, &got, "x") <= 0.005 * 1.0001 && max_error(&m, &got, "x") > 0.0045);
    assert_true(max_error(&m, &got, "y") <= 0.00025 * 1.0001 && max_error(&m, &got, "y") > 0.0002);
    assert_memory_equal(tensor_of(&plain, "z")->data, tensor_of(&got, "z")->data, 4 * 90 * 80);
    /* quality scales them */
    assert_ok(save_with(a, &m, CKP_PROFILE_WEIGHTS, steps, 2, 0.5, &e));
    read_into(a, &got);
    assert_true(max_error(&m, &got, "x") <= 0.0025 * 1.0001 && max_error(&m, &got, "x") > 0.002);
    model_free(&m);
    model_free(&got);
    model_free(&plain);
}

/* With second moments elements' steps lie around it: from a quarter to three halves. A step of 0 keeps weight and moments exact. */
static void
moments_shape_the_steps(void **state)
{
    const char *path = model_path(state, "v.ckp");
    const ckp_tensor_step steps[] = {{"a", 0.004}, {"b", 0.02}, {"c", 0}};
    ckp_error e = {0};
    model m, got;
    model_small(&m, "shape");
    model_copy(&got, &m);
    assert_ok(save_with(path, &m, CKP_PROFILE_RESUME, steps, 3, 1.0, &e));
    read_into(path, &got);
    const double a = max_error(&m, &got, "a"), b = max_error(&m, &got, "b");
    assert_true(a <= 0.003 * 1.0001 && a > 0.0005);
    assert_true(b <= 0.015 * 1.0001 && b > 0.0025);
    static const char *const exact[] = {"c", "c/m", "c/v"};
    for (size_t i = 0; i < 3; i++)
        assert_true(max_error(&m, &got, exact[i]) == 0.0);
    assert_true(max_error(&m, &got, "a/m") > 0.0);
    model_free(&m);
    model_free(&got);
}

/* Keys, deltas and a session that goes on from a restore: what is read is within the steps, and every hash holds. */
static void
runs_keep_their_steps(void **state)
{
    const char *dir = model_path(state, "run");
    /* the caller's copy is gone after open */
    ckp_tensor_step *steps = malloc(2 * sizeof *steps);
    char *name = strdup("a");
    assert_true(steps != NULL && name != NULL);
    steps[0] = (ckp_tensor_step){name, 0.004};
    steps[1] = (ckp_tensor_step){"b", 0.03};
    ckp_run_options opt = CKP_RUN_OPTIONS_INIT;
    opt.coding.profile = CKP_PROFILE_RESUME;
    opt.coding.steps = steps;
    opt.coding.n_steps = 2;
    ckp_run *run = model_run(dir, opt);
    (void)memset(name, 'z', 1);
    free(name);
    (void)memset(steps, 0, 2 * sizeof *steps);
    free(steps);
    ckp_save_options wait = CKP_SAVE_OPTIONS_INIT;
    ckp_error e = {0};
    model m, got;
    wait.wait = true;
    model_small(&m, "run");
    model_copy(&got, &m);
    for (int i = 0; i < 4; i++) {
        if (i == 2) {
            ckp_checkpoint *ck = NULL;
            assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &e));
            assert_ok(ckp_run_adopt(run, ck, &e));
            ckp_checkpoint_close(ck);
        }
        assert_ok(model_save(run, &m, &wait, &e));
        model_restore(dir, CKP_STEP_NEWEST, &got);
        /* random phases: a step's whole length, the key's is half of it */
        assert_true(max_error(&m, &got, "a") <= (i == 0 ? 0.0015 : 0.006) * 1.0001);
        assert_true(max_error(&m, &got, "b") <= (i == 0 ? 0.01125 : 0.045) * 1.0001);
        assert_true(max_error(&m, &got, "b") > (i == 0 ? 0.002 : 0.004));
        model_step(&m);
    }
    assert_ok(ckp_run_close(run, &e));
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &e));
    model_free(&m);
    model_free(&got);
}

static void
refused(void **state, const model *m, ckp_profile p, ckp_tensor_step step, const char *tensor)
{
    ckp_error e = {0};
    const char *path = model_path(state, "refused.ckp");
    assert_status(save_with(path, m, p, &step, 1, 1.0, &e), CKP_EINVAL);
    assert_string_equal(e.tensor, tensor);
    FILE *f = fopen(path, "rb");
    assert_null(f);
}

static void
wrong_steps_are_refused(void **state)
{
    const ckp_tensor_step two[] = {{"a", 0.1}, {"tied", 0.2}};
    ckp_error e = {0};
    model m;
    model_small(&m, "wrong");
    model_tensor *alias = &m.t[m.n];
    *alias = *tensor_of(&m, "a");
    (void)snprintf(alias->name, sizeof alias->name, "tied");
    alias->alias = true;
    m.n++;
    refused(state, &m, CKP_PROFILE_RESUME, (ckp_tensor_step){"nobody", 0.1}, "nobody");
    refused(state, &m, CKP_PROFILE_RESUME, (ckp_tensor_step){"nobody", 0.0}, "nobody");
    refused(state, &m, CKP_PROFILE_RESUME, (ckp_tensor_step){"a/m", 0.1}, "a/m");
    refused(state, &m, CKP_PROFILE_RESUME, (ckp_tensor_step){"count", 0.1}, "count");
    refused(state, &m, CKP_PROFILE_RESUME, (ckp_tensor_step){"a", -0.1}, "a");
    refused(state, &m, CKP_PROFILE_RESUME, (ckp_tensor_step){"a", NAN}, "a");
    refused(state, &m, CKP_PROFILE_RESUME, (ckp_tensor_step){"a", INFINITY}, "a");
    refused(state, &m, CKP_PROFILE_RESUME, (ckp_tensor_step){"a", 1e-31}, "a");
    refused(state, &m, CKP_PROFILE_RESUME, (ckp_tensor_step){NULL, 0.1}, "");
    refused(state, &m, CKP_PROFILE_LOSSLESS, (ckp_tensor_step){"a", 0.1}, "");
    assert_status(save_with(model_path(state, "two"), &m, CKP_PROFILE_RESUME, two, 2, 1.0, &e), CKP_EINVAL);
    assert_string_equal(e.tensor, "tied");
    assert_status(save_with(model_path(state, "null"), &m, CKP_PROFILE_RESUME, NULL, 2, 1.0, &e), CKP_EINVAL);
    /* one memory, one step, by either name */
    const char *path = model_path(state, "tied.ckp");
    const ckp_tensor_step same[] = {{"a", 0.1}, {"tied", 0.1}};
    assert_ok(save_with(path, &m, CKP_PROFILE_RESUME, same, 2, 1.0, &e));
    assert_ok(save_with(path, &m, CKP_PROFILE_RESUME, same + 1, 1, 1.0, &e));
    model_free(&m);
}

/* Steps at the ends of their range: nothing that codes cannot carry is lost or crashes. */
static void
extreme_steps(void **state)
{
    const double ends[] = {CKP_STEP_MIN, 1e-20, 1e20, CKP_STEP_MAX};
    const char *path = model_path(state, "extreme.ckp");
    ckp_error e = {0};
    for (size_t i = 0; i < CHECK_COUNT(ends); i++)
        for (int q = 0; q < 2; q++) {
            const ckp_tensor_step steps[] = {{"a", ends[i]}, {"c", ends[i]}};
            model m, got;
            model_small(&m, "extreme");
            model_copy(&got, &m);
            assert_ok(save_with(path, &m, CKP_PROFILE_RESUME, steps, 2, q == 0 ? 0.01 : 100.0, &e));
            read_into(path, &got);
            if (ends[i] < 1)
                assert_true(max_error(&m, &got, "a") <= ends[i] * 150 && max_error(&m, &got, "c") <= ends[i] * 150);
            for (uint64_t k = 0; k < 40; k++)
                assert_true(isfinite(model_get(tensor_of(&got, "c"), k)));
            model_free(&m);
            model_free(&got);
        }
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(values_on_the_grid_come_back), T(each_step_bounds_its_own_error), T(moments_shape_the_steps), T(runs_keep_their_steps),
        T(wrong_steps_are_refused), T(extreme_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
