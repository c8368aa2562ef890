/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that begin from a file of weights: what was not trained stays as it is there, and the file is proved at every restore. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/float.h"
#include "model.h"

#define SAVES 7

/* A model in training with names of its own, and the file that it began from: fewer components in its names, one tensor in another dtype,
   one that the model lacks, none for the head. */
static void
begin(model *m, const char *file)
{
    static const char *const names[] = {"net.enc.a", "net.enc.b", "net.h", "net.bias"};
    model base = {.rng = test_rng_new("base model"), .step = 1};
    ckp_error e = {0};

    *m = (model){.rng = test_rng_new("base model"), .step = 1};
    model_add_adam(m, names[0], CKP_F32, CKP_F32, (const uint64_t[4]){48, 96});
    model_add_adam(m, names[1], CKP_F32, CKP_F32, (const uint64_t[4]){64, 80});
    model_add_adam(m, names[2], CKP_F32, CKP_F32, (const uint64_t[4]){64, 65});
    model_add_adam(m, names[3], CKP_F32, CKP_F32, (const uint64_t[4]){40});
    model_add_adam(m, "net.head", CKP_F32, CKP_F32, (const uint64_t[4]){8, 600});
    for (size_t i = 0; i < CHECK_COUNT(names); i++) {
        const model_tensor *w = &m->t[3 * i];
        model_tensor *b = model_add(&base, strchr(names[i], '.') + 1, CKP_ROLE_WEIGHT, NULL, i == 2 ? CKP_BF16 : CKP_F32, w->shape);
        for (uint64_t k = 0; k < w->n; k++) {
            model_set(b, k, model_get(w, k));
            model_set(&m->t[3 * i], k, model_get(b, k));
        }
    }
    (void)model_add(&base, "other", CKP_ROLE_WEIGHT, NULL, CKP_F32, (const uint64_t[4]){3});
    ckp_state *s = model_state(&base);
    assert_ok(ckp_file_save(file, s, NULL, NULL, true, &e));
    ckp_state_free(s);
    model_free(&base);
}

static ckp_run_options
options(ckp_profile p, const char *file)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = p;
    o.key_every = 3;
    o.base_model = file;
    return o;
}

/* Trains rows 0 to 7 of each tensor, by little. */
static void
step(model *m)
{
    m->step++;
    for (size_t i = 0; i < m->n; i += 3)
        for (uint64_t k = 0; k < m->t[i].n && k < 8 * m->t[i].shape[m->t[i].ndim - 1]; k++)
            model_set(&m->t[i], k, model_get(&m->t[i], k) + (float)(1e-4 * test_normal(&m->rng)));
}

static ckp_checkpoint *
restore(const char *dir, const char *file, model *m)
{
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};

    const ckp_status st = ckp_checkpoint_open_run_on(&ck, dir, file, CKP_STEP_NEWEST, true, &e);
    if (st != CKP_OK)
        fail_msg("%s: %s", e.file, e.text);
    if (model_read(ck, m, &e) != CKP_OK)
        fail_msg("%s: %s: %s at %llu", e.file, e.tensor, e.text, (unsigned long long)e.offset);
    return ck;
}

static ckp_checkpoint_info
info(const ckp_checkpoint *ck)
{
    ckp_checkpoint_info i = {.size = sizeof i};
    ckp_checkpoint_get_info(ck, &i);
    return i;
}

/* Every save restored: what was not trained is the file's, bit for bit; the rest is near. Keys, deltas, a restart and a final save. */
static void
what_was_not_trained_stays(void **state)
{
    const char *dir = model_path(state, "run"), *file = model_path(state, "base.ckp");
    ckp_save_options last = CKP_SAVE_OPTIONS_INIT;
    model m, got;
    ckp_error e = {0};

    begin(&m, file);
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, options(CKP_PROFILE_RESUME, file));
    for (int i = 0; i < SAVES; i++) {
        last.final = i == SAVES - 1;
        if (i == 4) {
            ckp_checkpoint *ck = NULL;
            assert_ok(ckp_run_close(run, &e));
            run = model_run(dir, options(CKP_PROFILE_RESUME, file));
            assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &e));
            assert_ok(model_read(ck, &m, &e));
            assert_ok(ckp_run_adopt(run, ck, &e));
            ckp_checkpoint_close(ck);
        }
        step(&m);
        assert_ok(model_save(run, &m, &last, &e));
        ckp_save_stats s = {.size = sizeof s};
        ckp_run_stats(run, &s);
        assert_int_equal(s.is_key, i % 3 == 0);
        ckp_checkpoint *ck = restore(dir, NULL, &got);
        assert_string_equal(ckp_checkpoint_base_model(ck) + strlen(ckp_checkpoint_base_model(ck)) - 8, "base.ckp");
        ckp_checkpoint_close(ck);
        for (size_t t = 0; t < 4; t++) {
            const model_tensor *w = &m.t[3 * t], *r = &got.t[3 * t];
            const uint64_t trained = w->ndim == 1 ? w->n : 8 * w->shape[1];
            const double far = last.final ? 0.0 : 0.02;
            for (uint64_t k = 0; k < w->n; k++) {
                const double d = fabs((double)model_get(w, k) - (double)model_get(r, k));
                assert_true(d <= (k < trained ? far : 0.0));
            }
        }
    }
    assert_ok(ckp_run_close(run, &e));
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &e));
    model_free(&m);
    model_free(&got);
}

/* Lossless too: the same bits, in fewer bytes than without. */
static void
lossless_keys_are_smaller(void **state)
{
    const char *dir[] = {model_path(state, "with"), model_path(state, "without")}, *file = model_path(state, "base.ckp");
    uint64_t bytes[2];
    model m, got;
    ckp_error e = {0};

    begin(&m, file);
    model_copy(&got, &m);
    step(&m);
    for (int i = 0; i < 2; i++) {
        ckp_run *run = model_run(dir[i], options(CKP_PROFILE_LOSSLESS, i == 0 ? file : NULL));
        assert_ok(model_save(run, &m, NULL, &e));
        assert_ok(ckp_run_close(run, &e));
        model_clear(&got);
        ckp_checkpoint *ck = restore(dir[i], NULL, &got);
        assert_true(model_equal(&m, &got));
        bytes[i] = info(ck).stored_by_role[CKP_ROLE_WEIGHT];
        assert_true((ckp_checkpoint_base_model(ck) != NULL) == (i == 0));
        ckp_checkpoint_close(ck);
    }
    assert_true(bytes[0] < bytes[1] / 2);
    model_free(&m);
    model_free(&got);
}

/* Gone: an error that names it, for the newest and for a step, and nothing is passed over. Found again in the run's directory, or as given. */
static void
it_is_found_or_named(void **state)
{
    const char *dir = model_path(state, "run"), *file = model_path(state, "base.ckp");
    char *moved = strdup(model_path(state, "moved.ckp")), *beside = strdup(model_path(state, "run/base.ckp"));
    model m, got;
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};

    begin(&m, file);
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, options(CKP_PROFILE_LOSSLESS, file));
    assert_ok(model_save(run, &m, NULL, &e));
    assert_ok(ckp_run_close(run, &e));
    assert_int_equal(rename(file, moved), 0);
    for (int64_t at = CKP_STEP_NEWEST; at <= 1; at += 2) {
        assert_status(ckp_checkpoint_open_run(&ck, dir, at, true, &e), CKP_EBASE);
        assert_non_null(strstr(e.file, "base.ckp"));
        assert_non_null(strstr(e.text, "base model"));
    }
    assert_status(ckp_verify(dir, NULL, 0, CKP_VERIFY_STRUCTURE, 1, NULL, NULL, &e), CKP_EBASE);
    ckp_checkpoint_close(restore(dir, moved, &got));
    assert_true(model_equal(&m, &got));
    assert_int_equal(rename(moved, beside), 0);
    model_clear(&got);
    ckp_checkpoint_close(restore(dir, NULL, &got));
    assert_true(model_equal(&m, &got));
    free(moved);
    free(beside);
    model_free(&m);
    model_free(&got);
}

/* Another file, or the same with one bit changed, is refused before anything is decoded. */
static void
another_is_refused(void **state)
{
    const char *dir = model_path(state, "run"), *file = model_path(state, "base.ckp"), *other = model_path(state, "other.ckp");
    model m, wrong;
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};

    begin(&m, file);
    model_copy(&wrong, &m);
    ckp_run *run = model_run(dir, options(CKP_PROFILE_RESUME, file));
    assert_ok(model_save(run, &m, NULL, &e));
    assert_ok(ckp_run_close(run, &e));
    model_set(&wrong.t[0], 4000, nextafterf(model_get(&wrong.t[0], 4000), 1.0F));
    ckp_state *s = model_state(&wrong);
    assert_ok(ckp_file_save(other, s, NULL, NULL, true, &e));
    ckp_state_free(s);
    /* a file of its name in the run's directory is in nobody's way, and neither is a wrong one that is given, while the right one is where it was */
    model_store_file(model_path(state, "run/base.ckp"), "{}", 2);
    ckp_checkpoint_close(restore(dir, other, &wrong));
    ckp_checkpoint_close(restore(dir, NULL, &wrong));
    assert_int_equal(unlink(file), 0);
    assert_status(ckp_checkpoint_open_run_on(&ck, dir, other, CKP_STEP_NEWEST, true, &e), CKP_EBASE);
    assert_non_null(strstr(e.text, "content id"));
    model_store_file(other, "{}", 2);
    assert_status(ckp_checkpoint_open_run_on(&ck, dir, other, CKP_STEP_NEWEST, true, &e), CKP_EBASE);
    model_free(&m);
    model_free(&wrong);
}

/* Overwritten while training goes on, or gone: the next save is a key of its own, with a warning, and can be restored. */
static void
one_that_changes_is_used_no_more(void **state)
{
    static const char *const what[] = {"written over", "gone", "touched"};
    for (int how = 0; how < 3; how++) {
        const char *dir = model_path(state, what[how]), *file = model_path(state, "base.ckp");
        model m, got;
        size_t len = 0;
        ckp_error e = {0};
        ckp_save_stats s = {.size = sizeof s};

        begin(&m, file);
        model_copy(&got, &m);
        ckp_run *run = model_run(dir, options(CKP_PROFILE_LOSSLESS, file));
        for (int i = 0; i < 5; i++) {
            uint8_t *bytes = i == 2 ? model_load_file(file, &len) : NULL;
            step(&m);
            if (i == 2 && how == 1)
                assert_int_equal(unlink(file), 0);
            if (i == 2 && how == 0) {
                model base = {.rng = test_rng_new("another"), .step = 1};
                model_add_adam(&base, "enc.a", CKP_F32, CKP_F32, (const uint64_t[4]){48, 96});
                ckp_state *st = model_state(&base);
                assert_ok(ckp_file_save(file, st, NULL, NULL, true, &e));
                ckp_state_free(st);
                model_free(&base);
            }
            if (i == 2 && how == 2)
                model_store_file(file, bytes, len);
            free(bytes);
            assert_ok(model_save(run, &m, NULL, &e));
            ckp_run_stats(run, &s);
            if (i == 2)
                assert_true(s.is_key);
            assert_true((strstr(s.warning, "base model") != NULL) == (i >= 2 && how != 2));
            if (i < 2 || how == 2)
                continue;
            ckp_checkpoint *ck = restore(dir, NULL, &got);
            assert_true(model_equal(&m, &got));
            assert_null(ckp_checkpoint_base_model(ck));
            ckp_checkpoint_close(ck);
        }
        assert_ok(ckp_run_close(run, &e));
        model_free(&m);
        model_free(&got);
    }
}

/* A run that goes on without naming its base model keeps it; a listing counts the chain without it. */
static void
a_run_goes_on_with_it(void **state)
{
    const char *dir = model_path(state, "run"), *file = model_path(state, "base.ckp");
    model m, got;
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};

    begin(&m, file);
    model_copy(&got, &m);
    ckp_run *run = model_run(dir, options(CKP_PROFILE_RESUME, file));
    step(&m);
    assert_ok(model_save(run, &m, NULL, &e));
    assert_ok(ckp_run_close(run, &e));
    run = model_run(dir, options(CKP_PROFILE_RESUME, NULL));
    assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &e));
    assert_ok(model_read(ck, &m, &e));
    assert_ok(ckp_run_adopt(run, ck, &e));
    ckp_checkpoint_close(ck);
    for (int i = 1; i < 5; i++) {
        step(&m);
        assert_ok(model_save(run, &m, NULL, &e));
        ck = restore(dir, NULL, &got);
        assert_non_null(ckp_checkpoint_base_model(ck));
        assert_int_equal(info(ck).chain, i % 3);
        assert_true(info(ck).is_delta == (i % 3 != 0));
        assert_true((info(ck).base_id[0] != '\0') == (i % 3 != 0));
        ckp_checkpoint_close(ck);
    }
    assert_ok(ckp_run_close(run, &e));
    model_free(&m);
    model_free(&got);
}

/* What the base model lacks is coded as without one; weights to pass on are nearer to the truth than the base is. */
static void
errors_are_no_larger_for_it(void **state)
{
    char *file = strdup(model_path(state, "base.ckp"));
    for (int p = CKP_PROFILE_RESUME; p <= CKP_PROFILE_WEIGHTS; p++) {
        model m, got, base;
        ckp_error e = {0};
        double head[2] = {0}, off = 0.0, moved = 0.0;

        begin(&m, file);
        model_copy(&base, &m);
        model_copy(&got, &m);
        step(&m);
        for (int i = 0; i < 2; i++) {
            char name[48], *dir;
            (void)snprintf(name, sizeof name, "run-%d-%d", p, i);
            dir = strdup(model_path(state, name));
            ckp_run *run = model_run(dir, options((ckp_profile)p, i == 0 ? file : NULL));
            assert_ok(model_save(run, &m, NULL, &e));
            assert_ok(ckp_run_close(run, &e));
            ckp_checkpoint_close(restore(dir, NULL, &got));
            free(dir);
            for (uint64_t k = 0; k < m.t[12].n; k++)
                head[i] += pow((double)model_get(&m.t[12], k) - (double)model_get(&got.t[12], k), 2.0);
            for (uint64_t k = 0; i == 0 && k < m.t[0].n; k++) {
                off += pow((double)model_get(&m.t[0], k) - (double)model_get(&got.t[0], k), 2.0);
                moved += pow((double)model_get(&m.t[0], k) - (double)model_get(&base.t[0], k), 2.0);
            }
        }
        assert_true(head[0] <= 1.3 * head[1]);
        assert_true(p != CKP_PROFILE_WEIGHTS || off < 0.5 * moved);
        model_free(&m);
        model_free(&base);
        model_free(&got);
    }
    free(file);
}

/* Signalling NaNs of 16 bits, live and in the base model: every checkpoint can be read, and exact weights have their bits. */
static void
signalling_nans_keep_their_bits(void **state)
{
    static const struct { ckp_dtype dtype; uint16_t nan; } all[] = {{CKP_BF16, 0x7f81}, {CKP_BF16, 0xff81}, {CKP_F16, 0x7c01}, {CKP_F16, 0xfdff}};
    for (size_t i = 0; i < CHECK_COUNT(all); i++)
        for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_WEIGHTS; p++)
            for (int base = 0; base < 2; base++) {
                char name[64], *file = strdup(model_path(state, "base.ckp")), *dir;
                (void)snprintf(name, sizeof name, "run-%zu-%d-%d", i, p, base);
                dir = strdup(model_path(state, name));
                model m = {.rng = test_rng_new("signalling"), .step = 1}, got;
                ckp_error e = {0};
                model_add_adam(&m, "w", all[i].dtype, CKP_F32, (const uint64_t[4]){64, 66});
                model_copy(&got, &m);
                (void)memcpy((uint8_t *)m.t[0].data + 200, &all[i].nan, 2);
                ckp_state *s = model_state(&m);
                assert_ok(ckp_file_save(file, s, NULL, NULL, true, &e));
                ckp_state_free(s);
                if (base == 1)               /* only there */
                    (void)memset((uint8_t *)m.t[0].data + 200, 0, 2);
                ckp_run *run = model_run(dir, options((ckp_profile)p, base == 1 ? file : NULL));
                for (int save = 0; save < 5; save++) {
                    const ckp_save_options exact = {.size = sizeof exact, .final = save == 1 || save == 3 || save == 4};
                    assert_ok(model_save(run, &m, &exact, &e));
                    ckp_checkpoint_close(restore(dir, NULL, &got));
                    if (exact.final || base == 0)
                        assert_memory_equal((uint8_t *)m.t[0].data + 200, (uint8_t *)got.t[0].data + 200, 2);
                    if (exact.final)
                        assert_memory_equal(m.t[0].data, got.t[0].data, model_bytes(&m.t[0]));
                    m.step++;
                }
                assert_ok(ckp_run_close(run, &e));
                assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &e));
                model_free(&m);
                model_free(&got);
                free(file);
                free(dir);
            }
}

static void
one_that_does_not_fit_is_refused(void **state)
{
    const char *dir = model_path(state, "run"), *file = model_path(state, "base.ckp");
    ckp_run_options o = options(CKP_PROFILE_RESUME, file);
    ckp_run *run = NULL;
    model m, none;
    ckp_error e = {0};

    begin(&m, file);
    none = (model){.rng = test_rng_new("fits nothing"), .step = 1};
    model_add_adam(&none, "net.enc.a", CKP_F32, CKP_F32, (const uint64_t[4]){48, 97});
    run = model_run(dir, o);
    assert_status(model_save(run, &none, NULL, &e), CKP_EBASE);
    assert_non_null(strstr(e.file, "base.ckp"));
    assert_ok(model_save(run, &m, NULL, &e));      /* the run goes on */
    assert_ok(ckp_run_close(run, &e));
    o.base_model = model_path(state, "no.ckp");
    assert_status(ckp_run_open(&run, dir, &o, &e), CKP_ENOTFOUND);
    model_free(&m);
    model_free(&none);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_not_trained_stays, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(lossless_keys_are_smaller, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(it_is_found_or_named, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(another_is_refused, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(one_that_changes_is_used_no_more, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(a_run_goes_on_with_it, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(errors_are_no_larger_for_it, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(signalling_nans_keep_their_bits, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(one_that_does_not_fit_is_refused, model_setup, model_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
