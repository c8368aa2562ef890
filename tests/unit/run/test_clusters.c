/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer states in clusters beside lossless weights: runs, what they tell, and damage. */
#include <ckpress/run_file.h>
#include <ckpress/run_inspect.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "model.h"

static void
make(model *m)
{
    *m = (model){.rng = test_rng_new("clusters"), .step = 1};
    model_add_adam(m, "w", CKP_F32, CKP_F32, (const uint64_t[4]){70, 96});
    model_add_adam(m, "large", CKP_BF16, CKP_F32, (const uint64_t[4]){300, 200});
    model_add_adam(m, "small", CKP_F32, CKP_F32, (const uint64_t[4]){40});
    model_add_adam(m, "half", CKP_F32, CKP_BF16, (const uint64_t[4]){70, 96});
}

static bool
in_clusters(const model_tensor *t)
{
    return (t->role == CKP_ROLE_M || t->role == CKP_ROLE_V) && t->dtype == CKP_F32 && t->n >= 4096;
}

typedef struct errors { double err2, rel; uint64_t n, n_rel; } errors;

static void
compare(const model *a, const model *b, errors by_role[CKP_ROLE_COUNT_])
{
    (void)memset(by_role, 0, CKP_ROLE_COUNT_ * sizeof *by_role);
    for (size_t k = 0; k < a->n; k++) {
        const model_tensor *x = &a->t[k], *y = &b->t[k];
        errors *e = &by_role[x->role];
        if (!in_clusters(x)) {
            assert_memory_equal(x->data, y->data, model_bytes(x));
            continue;
        }
        for (uint64_t i = 0; i < x->n; i++) {
            const double p = (double)model_get(x, i), d = fabs(p - (double)model_get(y, i));
            e->err2 += d * d;
            e->n++;
            e->rel += p != 0.0 ? d / fabs(p) : 0.0;
            e->n_rel += p != 0.0;
        }
    }
}

static void
assert_near(double a, double b)
{
    if (!(fabs(a / b - 1.0) < 1e-6))
        fail_msg("%g is not %g", a, b);
}

/* A key and deltas, the run closed and gone on with: weights and small tensors exactly, what was lost as told. */
static void
runs(void **state)
{
    for (int s = CKP_STATES_CLUSTER; s <= CKP_STATES_CODEBOOK; s++) {
        char dir[256];
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        ckp_checkpoint *ck = NULL;
        errors e[CKP_ROLE_COUNT_];
        model m, got;
        (void)snprintf(dir, sizeof dir, "%s/run-%d", (const char *)*state, s);
        make(&m);
        o.coding.optimizer_states = (ckp_optimizer_states)s;
        ckp_run *run = model_run(dir, o);
        model_copy(&got, &m);
        for (int i = 0; i < 4; i++) {
            ckp_save_stats st = {.size = sizeof st};
            ckp_checkpoint_info info = {.size = sizeof info};
            if (i == 2) {                    /* the process ends; another goes on */
                assert_ok(ckp_run_close(run, NULL));
                run = model_run(dir, o);
                assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, NULL));
                assert_ok(ckp_run_adopt(run, ck, NULL));
                ckp_checkpoint_close(ck);
            }
            model_step(&m);
            assert_ok(model_save(run, &m, NULL, NULL));
            ckp_run_stats(run, &st);
            assert_int_equal(st.is_key, i == 0);
            model_clear(&got);
            model_restore(dir, CKP_STEP_NEWEST, &got);
            compare(&m, &got, e);
            for (int r = CKP_ROLE_M; r <= CKP_ROLE_V; r++) {
                assert_near(st.mse_by_role[r], e[r].err2 / (double)e[r].n);
                assert_near(st.mre_by_role[r], e[r].rel / (double)e[r].n_rel);
            }
            assert_true(st.mse_by_role[CKP_ROLE_WEIGHT] == 0.0);
            assert_true(s == CKP_STATES_CODEBOOK || (st.mre_by_role[CKP_ROLE_M] < 1e-3 && st.mre_by_role[CKP_ROLE_V] < 1e-3));
            assert_ok(ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, true, NULL));
            ckp_checkpoint_get_info(ck, &info);
            assert_true(info.lossy && info.profile == CKP_PROFILE_LOSSLESS);
            ckp_tensor_settings set = {.size = sizeof set};
            assert_ok(ckp_checkpoint_tensor_settings(ck, ckp_checkpoint_find(ck, "large/v"), &set, NULL));
            assert_string_equal(set.quantizer, s == CKP_STATES_CLUSTER ? "cluster" : "codebook");
            assert_true(set.levels > 0 && set.levels <= 256 && set.mse > 0.0 && set.mre > 0.0);
            ckp_metric told = {0};
            assert_true(ckp_checkpoint_setting(ck, 0, &told));
            assert_string_equal(told.name, "optimizer_states_bits");
            assert_true(told.value == (s == CKP_STATES_CLUSTER ? 16.0 : 8.0));
            ckp_checkpoint_close(ck);
        }
        assert_ok(ckp_run_close(run, NULL));
        assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 2, NULL, NULL, NULL));
        model_free(&m);
        model_free(&got);
    }
}

/* 16 and 8 bits a value before lossless coding, which never adds: tables and heads are all there is beside it. */
static void
sizes(void **state)
{
    for (int s = CKP_STATES_CLUSTER; s <= CKP_STATES_CODEBOOK; s++) {
        char dir[256];
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        ckp_save_stats st = {.size = sizeof st};
        model m;
        (void)snprintf(dir, sizeof dir, "%s/run-%d", (const char *)*state, s);
        m = (model){.rng = test_rng_new("sizes"), .step = 1};
        model_add_adam(&m, "w", CKP_F32, CKP_F32, (const uint64_t[4]){700, 500});
        o.coding.optimizer_states = (ckp_optimizer_states)s;
        ckp_run *run = model_run(dir, o);
        assert_ok(model_save(run, &m, NULL, NULL));
        ckp_run_stats(run, &st);
        for (int r = CKP_ROLE_M; r <= CKP_ROLE_V; r++)
            assert_true(st.stored_by_role[r] <= st.raw_by_role[r] / (s == CKP_STATES_CLUSTER ? 2 : 4) + 256 * 8 + 256);
        assert_ok(ckp_run_close(run, NULL));
        model_free(&m);
    }
}

/* A run that changes how its optimizer states are kept makes a key, either way. */
static void
changes_make_keys(void **state)
{
    char dir[256];
    model m, got;
    errors e[CKP_ROLE_COUNT_];

    (void)snprintf(dir, sizeof dir, "%s/run", (const char *)*state);
    make(&m);
    model_copy(&got, &m);
    for (int i = 0; i < 4; i++) {
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        ckp_checkpoint *ck = NULL;
        ckp_save_stats st = {.size = sizeof st};
        o.coding.optimizer_states = i % 2 == 0 ? CKP_STATES_CLUSTER : CKP_STATES_PROFILE;
        ckp_run *run = model_run(dir, o);
        if (i != 0) {
            assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, NULL));
            assert_ok(ckp_run_adopt(run, ck, NULL));
            ckp_checkpoint_close(ck);
        }
        model_step(&m);
        assert_ok(model_save(run, &m, NULL, NULL));
        ckp_run_stats(run, &st);
        assert_true(st.is_key);
        assert_ok(ckp_run_close(run, NULL));
        model_restore(dir, CKP_STEP_NEWEST, &got);
        compare(&m, &got, e);
        assert_true((e[CKP_ROLE_M].err2 > 0.0) == (i % 2 == 0));
    }
    model_free(&m);
    model_free(&got);
}

/* Every 41st bit flipped, and every 67th length: an error, and not a byte of a target changes. */
static void
damage(void **state)
{
    char path[256];
    ckp_coding c = CKP_CODING_INIT;
    model m, got;
    size_t n = 0;

    (void)snprintf(path, sizeof path, "%s/file.ckp", (const char *)*state);
    m = (model){.rng = test_rng_new("damage"), .step = 1};
    model_add_adam(&m, "w", CKP_F32, CKP_F32, (const uint64_t[4]){64, 64});
    ckp_state *s = model_state(&m);
    c.optimizer_states = CKP_STATES_CLUSTER;
    c.threads = 1;
    assert_ok(ckp_file_save(path, s, &c, NULL, false, NULL));
    ckp_state_free(s);
    uint8_t *good = model_load_file(path, &n);
    uint8_t *bad = malloc(n);
    assert_non_null(bad);
    model_copy(&got, &m);
    for (size_t k = 0; k < 8 * n / 41 + n / 67; k++) {
        const bool cut = k >= 8 * n / 41;
        const size_t at = cut ? (k - 8 * n / 41) * 67 : k * 41;
        ckp_checkpoint *ck = NULL;
        (void)memcpy(bad, good, n);
        if (!cut)
            bad[at / 8] ^= (uint8_t)(1U << at % 8);
        model_store_file(path, bad, cut ? at : n);
        model_clear(&got);
        ckp_status st = ckp_checkpoint_open_file(&ck, path, NULL, 0, NULL);
        if (st == CKP_OK)
            st = model_read(ck, &got, NULL);
        ckp_checkpoint_close(ck);
        assert_true(st != CKP_OK);
        for (size_t i = 0; i < got.n; i++)
            for (size_t j = 0; j < model_bytes(&got.t[i]); j += 97)
                assert_int_equal(((const uint8_t *)got.t[i].data)[j], 0xA5);
    }
    free(good);
    free(bad);
    model_free(&m);
    model_free(&got);
}

static void
only_beside_lossless_weights(void **state)
{
    ckp_coding c = CKP_CODING_INIT;
    ckp_error e;
    model m;

    make(&m);
    ckp_state *s = model_state(&m);
    c.optimizer_states = CKP_STATES_CLUSTER;
    c.profile = CKP_PROFILE_RESUME;
    assert_int_equal(ckp_file_save(model_path(state, "no.ckp"), s, &c, NULL, false, &e), CKP_EINVAL);
    c.profile = CKP_PROFILE_LOSSLESS;
    c.optimizer_states = (ckp_optimizer_states)3;
    assert_int_equal(ckp_file_save(model_path(state, "no.ckp"), s, &c, NULL, false, &e), CKP_EINVAL);
    ckp_state_free(s);
    model_free(&m);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {T(runs), T(sizes), T(changes_make_keys), T(damage), T(only_beside_lossless_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
