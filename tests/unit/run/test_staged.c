/* SPDX-License-Identifier: Apache-2.0 */
/* Saves that are held, judged and then committed, staged again or forgotten. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"

static bool
is_moment(ckp_role r)
{
    return r == CKP_ROLE_M || r == CKP_ROLE_V || r == CKP_ROLE_MOMENTUM;
}

/* Weights of a staged save into a model that is full of other bytes. Indexes of a model's state are those of its tensors. */
static ckp_status
staged_weights(ckp_run *run, model *into, ckp_error *err)
{
    ckp_target t[MODEL_MAX];
    size_t n = 0;

    for (size_t i = 0; i < into->n; i++) {
        const model_tensor *x = &into->t[i];
        if (is_moment(x->role))
            continue;
        t[n++] = (ckp_target){.index = (uint32_t)i, .dtype = x->dtype, .ndim = x->ndim, .shape = x->shape, .data = x->data};
    }
    return ckp_run_staged_read(run, t, n, err);
}

static bool
same_weights(const model *a, const model *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (!is_moment(a->t[i].role) && memcmp(a->t[i].data, b->t[i].data, model_bytes(&a->t[i])) != 0)
            return false;
    return true;
}

static double
distance(const model *a, const model *b)
{
    double sum = 0.0;
    for (size_t i = 0; i < a->n; i++)
        for (uint64_t k = 0; a->t[i].role == CKP_ROLE_WEIGHT && k < a->t[i].n; k++)
            sum += pow((double)model_get(&a->t[i], k) - (double)model_get(&b->t[i], k), 2.0);
    return sqrt(sum);
}

static void
stage(ckp_run *run, const model *m, const ckp_save_options *opt)
{
    bool staged = false;
    ckp_state *s = model_state(m);
    assert_ok(ckp_run_stage(run, m->step, s, opt, &staged, NULL));
    assert_true(staged);
    ckp_state_free(s);
}

static void
restage(ckp_run *run, const model *m, double quality)
{
    ckp_state *s = model_state(m);
    assert_ok(ckp_run_restage(run, s, quality, NULL));
    ckp_state_free(s);
}

static ckp_run *
open_run(const char *dir, ckp_profile p)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = p;
    return model_run(dir, o);
}

/* What a staged save shows is what its checkpoint gives back: keys, deltas, final ones, every profile, half precision. */
static void
what_is_read_comes_back(void **state)
{
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_SMALL; p++) {
        const char *dir = model_path(state, ckp_profile_name((ckp_profile)p));
        model m, seen, got;

        model_small(&m, "staged");
        model_add_adam(&m, "half", CKP_BF16, CKP_F32, (uint64_t[4]){40, 130, 0, 0});
        (void)model_add(&m, "sgd", CKP_ROLE_WEIGHT, "", CKP_F32, (uint64_t[4]){70, 80, 0, 0});
        (void)model_add(&m, "sgd/momentum", CKP_ROLE_MOMENTUM, "sgd", CKP_F32, (uint64_t[4]){70, 80, 0, 0});
        model_copy(&seen, &m);
        model_copy(&got, &m);
        ckp_run *run = open_run(dir, (ckp_profile)p);
        for (int i = 0; i < 4; i++) {
            const ckp_save_options final = {sizeof final, true, false, false, NULL, 0, 0.0, NULL, 0};
            model_step(&m);
            model_set(&m.t[0], 7, NAN);
            stage(run, &m, i == 3 ? &final : NULL);
            model_clear(&seen);
            assert_ok(staged_weights(run, &seen, NULL));
            assert_ok(ckp_run_commit(run, NULL, 0, NULL));
            assert_ok(ckp_run_wait(run, NULL));
            model_clear(&got);
            model_restore(dir, -1, &got);
            assert_true(same_weights(&got, &seen));
            assert_true(i != 3 || same_weights(&got, &m));
        }
        assert_ok(ckp_run_close(run, NULL));
        model_free(&m);
        model_free(&seen);
        model_free(&got);
    }
}

static void
staged_again_it_is_finer(void **state)
{
    const char *dir = model_path(state, "finer");
    const ckp_metric metric = {"loss", 1.5};
    const ckp_save_options opt = {sizeof opt, false, false, false, &metric, 1, 0.0, NULL, 0};
    model m, seen, got;
    double before = INFINITY;
    ckp_run *run = open_run(dir, CKP_PROFILE_RESUME);

    model_small(&m, "finer");
    model_copy(&seen, &m);
    model_copy(&got, &m);
    stage(run, &m, &opt);
    for (double q = 1.0; q > 0.1; q /= 4.0) {
        restage(run, &m, q);
        assert_ok(staged_weights(run, &seen, NULL));
        assert_true(distance(&seen, &m) < before / 2.0);
        before = distance(&seen, &m);
    }
    assert_ok(ckp_run_commit(run, &(ckp_metric){"quality", 0.25}, 1, NULL));
    assert_ok(ckp_run_wait(run, NULL));
    model_restore(dir, -1, &got);
    assert_true(same_weights(&got, &seen));

    ckp_checkpoint *ck = NULL;
    ckp_metric x;
    assert_ok(ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, true, NULL));
    assert_true(ckp_checkpoint_metric(ck, 0, &x) && strcmp(x.name, "loss") == 0 && x.value == 1.5);
    assert_true(ckp_checkpoint_metric(ck, 1, &x) && strcmp(x.name, "quality") == 0 && x.value == 0.25);
    assert_false(ckp_checkpoint_metric(ck, 2, &x));
    ckp_checkpoint_close(ck);

    /* a delta that is staged again becomes a key; the next is a delta against it */
    for (int i = 0; i < 2; i++) {
        ckp_save_stats st = {.size = sizeof st};
        model_step(&m);
        stage(run, &m, NULL);
        assert_false(ckp_run_staged_key(run));
        if (i == 0)
            restage(run, &m, 0.5);
        assert_int_equal(ckp_run_staged_key(run), i == 0);
        assert_ok(staged_weights(run, &seen, NULL));
        assert_ok(ckp_run_commit(run, NULL, 0, NULL));
        assert_ok(ckp_run_wait(run, NULL));
        ckp_run_stats(run, &st);
        assert_int_equal(st.is_key, i == 0);
        assert_int_equal(st.raw_bytes, st.raw_by_role[0] + st.raw_by_role[1] + st.raw_by_role[2] + st.raw_by_role[3] + st.raw_by_role[4]
                                           + st.raw_by_role[5] + st.raw_by_role[6]);
        model_restore(dir, -1, &got);
        assert_true(same_weights(&got, &seen));
    }
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
    model_free(&seen);
    model_free(&got);
}

static void
forgotten_it_leaves_nothing(void **state)
{
    const char *dir = model_path(state, "forgotten");
    model m, got;
    ckp_save_stats st = {.size = sizeof st};
    ckp_run *run = open_run(dir, CKP_PROFILE_RESUME);

    model_small(&m, "forgotten");
    model_copy(&got, &m);
    assert_ok(model_save(run, &m, NULL, NULL));
    const size_t files = model_count_files(dir);
    model_step(&m);
    stage(run, &m, NULL);
    ckp_run_unstage(run);
    ckp_run_unstage(run);
    assert_int_equal(model_count_files(dir), files);
    assert_status(ckp_run_commit(run, NULL, 0, NULL), CKP_EINVAL);
    assert_ok(model_save(run, &m, NULL, NULL));
    ckp_run_stats(run, &st);
    assert_true(st.is_key);      /* what was staged is no base */
    model_restore(dir, -1, &got);
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
    const size_t saved = model_count_files(dir);
    stage(run, &m, NULL);
    assert_ok(ckp_run_close(run, NULL));
    assert_int_equal(model_count_files(dir), saved);
    model_free(&m);
    model_free(&got);
}

static void
one_thing_at_a_time(void **state)
{
    const char *dir = model_path(state, "one");
    model m, seen;
    ckp_error err;
    bool staged = false;
    ckp_run *run = open_run(dir, CKP_PROFILE_RESUME);

    model_small(&m, "one");
    (void)model_add(&m, "sgd", CKP_ROLE_WEIGHT, "", CKP_F32, (uint64_t[4]){20, 30, 0, 0});
    (void)model_add(&m, "sgd/momentum", CKP_ROLE_MOMENTUM, "sgd", CKP_F32, (uint64_t[4]){20, 30, 0, 0});
    model_copy(&seen, &m);
    ckp_state *s = model_state(&m);
    assert_status(staged_weights(run, &seen, &err), CKP_EINVAL);
    assert_status(ckp_run_restage(run, s, 1.0, &err), CKP_EINVAL);
    stage(run, &m, NULL);
    assert_status(ckp_run_save(run, 5, s, NULL, NULL, &err), CKP_EINVAL);
    assert_status(ckp_run_stage(run, 5, s, NULL, &staged, &err), CKP_EINVAL);
    assert_status(ckp_run_wait(run, &err), CKP_EINVAL);
    assert_status(ckp_run_restage(run, s, 0.0, &err), CKP_EINVAL);
    /* wrong targets are refused, and nothing is written */
    ckp_target t = {.index = 0, .dtype = CKP_F16, .ndim = m.t[0].ndim, .shape = m.t[0].shape, .data = seen.t[0].data};
    assert_status(ckp_run_staged_read(run, &t, 1, &err), CKP_EMISMATCH);
    t.dtype = m.t[0].dtype;
    t.index = 1000;
    assert_status(ckp_run_staged_read(run, &t, 1, &err), CKP_ENOTFOUND);
    for (uint32_t i = 0; i < m.n; i++) {
        t = (ckp_target){.index = i, .dtype = m.t[i].dtype, .ndim = m.t[i].ndim, .shape = m.t[i].shape, .data = seen.t[i].data};
        const bool moment = is_moment(m.t[i].role);
        assert_status(ckp_run_staged_read(run, &t, 1, &err), moment ? CKP_EUNSUPPORTED : CKP_OK);
    }
    /* the refused calls left the staged save alone */
    assert_ok(ckp_run_commit(run, NULL, 0, NULL));
    assert_ok(ckp_run_wait(run, NULL));
    ckp_state_free(s);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
    model_free(&seen);
}

/* A state that does not fit the budget cannot be staged; saved it can be. */
static void
too_large_to_hold(void **state)
{
    const char *dir = model_path(state, "large");
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    model m;
    bool staged = true;

    o.coding.profile = CKP_PROFILE_RESUME;
    o.coding.memory_budget = 4096;
    ckp_run *run = model_run(dir, o);
    model_small(&m, "large");
    ckp_state *s = model_state(&m);
    assert_status(ckp_run_stage(run, 1, s, NULL, &staged, NULL), CKP_ELIMIT);
    assert_false(staged);
    assert_ok(ckp_run_save(run, 1, s, NULL, NULL, NULL));
    ckp_state_free(s);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_read_comes_back, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(staged_again_it_is_finer, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(forgotten_it_leaves_nothing, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(one_thing_at_a_time, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(too_large_to_hold, model_setup, model_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
