/* SPDX-License-Identifier: Apache-2.0 */
/* Which share of first moments is kept: more of those that are worth more, the profile's share on average, also after a restart. */
#include <math.h>
#include <string.h>
#include "model.h"

enum { ROWS = 96, COLS = 256 };
#define SHARE 0.035              /* of resume */

/* Weights "a" and "b"; b's gradients are `times` as large as a's. */
static void
make(model *m, double times)
{
    /* the same numbers always: a threshold comes from 2048 elements, and of a share of 0.75 % those hold 15, give or take 4 */
    *m = (model){.rng = {7}, .step = 1000};
    model_add_adam(m, "a", CKP_F32, CKP_F32, (const uint64_t[4]){ROWS, COLS});
    model_add_adam(m, "b", CKP_F32, CKP_F32, (const uint64_t[4]){ROWS, COLS});
    for (size_t t = 0; t < m->n; t++) {
        const double size = strcmp(m->t[t].owner, "b") == 0 ? times : 1.0;
        for (uint64_t i = 0; i < m->t[t].n; i++) {
            if (m->t[t].role == CKP_ROLE_M)
                model_set(&m->t[t], i, (float)(1e-3 * 0.2 * size * test_normal(&m->rng)));
            if (m->t[t].role == CKP_ROLE_V)
                model_set(&m->t[t], i, (float)(1e-6 * size * size * exp(0.2 * test_normal(&m->rng))));
        }
    }
}

/* The share of a restored tensor that is not zero. */
static double
kept(const model *m, const char *name)
{
    for (size_t t = 0; t < m->n; t++) {
        uint64_t n = 0;
        if (strcmp(m->t[t].name, name) != 0)
            continue;
        for (uint64_t i = 0; i < m->t[t].n; i++)
            n += model_get(&m->t[t], i) != 0.0f;
        return (double)n / (double)m->t[t].n;
    }
    return (double)NAN;
}

static ckp_run_options
options(void)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = CKP_PROFILE_RESUME;
    return o;
}

static void
shares_follow_worth(void **state)
{
    const char *dir = model_path(state, "run");
    model m, got;

    make(&m, 16.0);              /* worth goes with the root of the gradients' size: 4 to 1, around a mean of 2.5 */
    model_copy(&got, &m);
    for (int life = 0; life < 2; life++) {
        ckp_run *run = model_run(dir, options());
        if (life == 1) {
            ckp_checkpoint *ck = NULL;
            assert_ok(ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, true, NULL));
            assert_ok(ckp_run_adopt(run, ck, NULL));
            ckp_checkpoint_close(ck);
        }
        for (int i = 0; i < 3; i++) {
            m.step++;
            assert_ok(model_save(run, &m, NULL, NULL));
            model_restore(dir, CKP_STEP_NEWEST, &got);
            const double a = kept(&got, "a/m"), b = kept(&got, "b/m");
            assert_true(fabs(a / (SHARE / 2.5) - 1.0) < 0.35);
            assert_true(fabs(b / (SHARE * 4 / 2.5) - 1.0) < 0.35);
        }
        assert_ok(ckp_run_close(run, NULL));
    }
    model_free(&got);
    model_free(&m);
}

/* However far apart pieces are, none goes without and none takes all. */
static void
shares_have_bounds(void **state)
{
    const char *dir = model_path(state, "run");
    model m, got;

    make(&m, 1e8);
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, options());
    assert_ok(model_save(run, &m, NULL, NULL));
    model_restore(dir, CKP_STEP_NEWEST, &got);
    assert_true(fabs(kept(&got, "a/m") / (SHARE / 4.0) - 1.0) < 0.5);
    assert_true(fabs(kept(&got, "b/m") / (SHARE * 2.0) - 1.0) < 0.35);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&got);
    model_free(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shares_follow_worth, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(shares_have_bounds, model_setup, model_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
