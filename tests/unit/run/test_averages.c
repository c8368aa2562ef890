/* SPDX-License-Identifier: Apache-2.0 */
/* Running averages of weights: coded by steps of their own, exact at the end, and no weight's step depends on them. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "model.h"

static void
add_averages(model *m)
{
    for (size_t i = 0, n = m->n; i < n; i++) {
        char name[64];
        if (m->t[i].role != CKP_ROLE_WEIGHT)
            continue;
        (void)snprintf(name, sizeof name, "average/%.40s", m->t[i].name);
        model_tensor *a = model_add(m, name, CKP_ROLE_AVERAGE, NULL, CKP_F32, m->t[i].shape);
        for (uint64_t k = 0; k < a->n; k++)
            model_set(a, k, model_get(&m->t[i], k));
    }
}

static model_tensor *
of_name(model *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->t[i].name, name) == 0)
            return &m->t[i];
    return NULL;
}

static void
step(model *m)
{
    model_step(m);
    for (size_t i = 0; i < m->n; i++) {
        model_tensor *a = &m->t[i];
        const model_tensor *w = a->role == CKP_ROLE_AVERAGE ? of_name(m, a->name + strlen("average/")) : NULL;
        for (uint64_t k = 0; w != NULL && k < a->n; k++)
            model_set(a, k, 0.9f * model_get(a, k) + 0.1f * model_get(w, k));
    }
}

/* RMS of the difference, in RMS of what it should be. */
static double
error_of(const model_tensor *got, const model_tensor *want)
{
    double d2 = 0.0, w2 = 0.0;

    for (uint64_t k = 0; k < want->n; k++) {
        const double w = (double)model_get(want, k), d = (double)model_get(got, k) - w;
        d2 += d * d;
        w2 += w * w;
    }
    return sqrt(d2 / w2);
}

static ckp_run_options
options(ckp_profile profile, double quality)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = profile;
    o.coding.quality = quality;
    o.key_every = 4;
    return o;
}

static void
they_stay_within_a_fraction_of_their_size(void **state)
{
    /* a step of 0.2 (small: 0.4) RMS; deltas round at random within it, small tensors take a sixteenth of it */
    static const struct { ckp_profile profile; double quality, most; } all[] = {{CKP_PROFILE_RESUME, 1.0, 0.11}, {CKP_PROFILE_RESUME, 0.25, 0.0275},
                                                                                {CKP_PROFILE_SMALL, 1.0, 0.22}, {CKP_PROFILE_WEIGHTS, 1.0, 0.11}};
    for (size_t p = 0; p < sizeof all / sizeof *all; p++) {
        char name[32];
        model m, got;
        (void)snprintf(name, sizeof name, "run-%zu", p);
        const char *dir = model_path(state, name);
        model_small(&m, "averages");
        add_averages(&m);
        model_copy(&got, &m);
        ckp_run *run = model_run(dir, options(all[p].profile, all[p].quality));
        for (int i = 0; i < 7; i++) {
            step(&m);
            assert_ok(model_save(run, &m, NULL, NULL));
            model_restore(dir, CKP_STEP_NEWEST, &got);
            for (size_t k = 0; k < m.n; k++) {
                if (m.t[k].role != CKP_ROLE_AVERAGE)
                    continue;
                const double e = error_of(&got.t[k], &m.t[k]);
                assert_true(e > 0.0 && e < all[p].most / (m.t[k].ndim < 2 || m.t[k].n < 4096 ? 16.0 : 1.0));
            }
        }
        assert_ok(ckp_run_close(run, NULL));
        assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
        model_free(&got);
        model_free(&m);
    }
}

static void
a_final_save_keeps_them_exactly(void **state)
{
    const char *dir = model_path(state, "run");
    ckp_save_options final = CKP_SAVE_OPTIONS_INIT;
    model m, got;

    final.final = true;
    model_small(&m, "averages");
    add_averages(&m);
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, options(CKP_PROFILE_RESUME, 1.0));
    assert_ok(model_save(run, &m, NULL, NULL));
    step(&m);
    assert_ok(model_save(run, &m, &final, NULL));
    model_restore(dir, CKP_STEP_NEWEST, &got);
    for (size_t i = 0; i < m.n; i++)
        if (m.t[i].role == CKP_ROLE_AVERAGE || m.t[i].role == CKP_ROLE_WEIGHT)
            assert_memory_equal(m.t[i].data, got.t[i].data, model_bytes(&m.t[i]));
    assert_ok(ckp_run_close(run, NULL));
    model_free(&got);
    model_free(&m);
}

static void
weights_do_not_feel_them(void **state)
{
    model m, without, a, b;
    char dir[2][1024];

    (void)snprintf(dir[0], sizeof dir[0], "%s", model_path(state, "with"));
    (void)snprintf(dir[1], sizeof dir[1], "%s", model_path(state, "without"));
    model_small(&m, "averages");
    model_copy(&without, &m);
    add_averages(&m);
    for (size_t i = 0; i < m.n; i++)     /* of another size, so that their RMS would show */
        for (uint64_t k = 0; m.t[i].role == CKP_ROLE_AVERAGE && k < m.t[i].n; k++)
            model_set(&m.t[i], k, 100.0f * model_get(&m.t[i], k));
    model_copy(&a, &m);
    model_copy(&b, &without);
    ckp_run *with = model_run(dir[0], options(CKP_PROFILE_RESUME, 1.0)), *alone = model_run(dir[1], options(CKP_PROFILE_RESUME, 1.0));
    assert_ok(model_save(with, &m, NULL, NULL));
    assert_ok(model_save(alone, &without, NULL, NULL));
    model_restore(dir[0], CKP_STEP_NEWEST, &a);
    model_restore(dir[1], CKP_STEP_NEWEST, &b);
    for (size_t i = 0; i < b.n; i++)
        assert_memory_equal(a.t[i].data, b.t[i].data, model_bytes(&b.t[i]));
    assert_ok(ckp_run_close(with, NULL));
    assert_ok(ckp_run_close(alone, NULL));
    model_free(&a);
    model_free(&b);
    model_free(&m);
    model_free(&without);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(they_stay_within_a_fraction_of_their_size, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(a_final_save_keeps_them_exactly, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(weights_do_not_feel_them, model_setup, model_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
