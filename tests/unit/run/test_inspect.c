/* SPDX-License-Identifier: Apache-2.0 */
/* Looking back on a run: what each checkpoint says of itself is the same with and without its bases, also where some are damaged. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "harness/failalloc.h"
#include "model.h"

#define SAVES 5

static double
setting(const ckp_checkpoint *ck, const char *name)
{
    ckp_metric m;
    for (size_t i = 0; ckp_checkpoint_setting(ck, i, &m); i++)
        if (strcmp(m.name, name) == 0)
            return m.value;
    return (double)NAN;
}

/* Steps 10, 20 ... of a lossy run: two chains, the last save with a finer quality. */
static void
train(const char *dir, ckp_profile profile)
{
    ckp_run_options opt = CKP_RUN_OPTIONS_INIT;
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    ckp_error e = {0};
    model m;

    model_small(&m, "inspect");
    opt.coding.profile = profile;
    opt.coding.quality = 0.8;
    opt.key_every = 3;
    ckp_run *run = model_run(dir, opt);
    for (int i = 1; i <= SAVES; i++) {
        model_step(&m);
        m.step = (uint64_t)(10 * i);
        so.quality = i == SAVES ? 0.25 : 0.0;
        assert_ok(model_save(run, &m, &so, &e));
    }
    assert_ok(ckp_run_close(run, &e));
    model_free(&m);
}

typedef struct seen {
    const char *dir;
    size_t n, opened;
    ckp_status why[16];
    size_t stop_at;              /* 0: never */
} seen;

static void
same_tensor(const ckp_checkpoint *a, const ckp_checkpoint *b, size_t i)
{
    ckp_tensor_info x = {.size = sizeof x}, y = {.size = sizeof y};
    ckp_tensor_settings s = {.size = sizeof s}, t = {.size = sizeof t};

    assert_ok(ckp_checkpoint_tensor(a, i, &x, NULL));
    assert_ok(ckp_checkpoint_tensor(b, i, &y, NULL));
    assert_string_equal(x.name, y.name);
    assert_true(x.stored_bytes == y.stored_bytes && x.rms_rel_error == y.rms_rel_error && x.max_rel_error == y.max_rel_error);
    assert_ok(ckp_checkpoint_tensor_settings(a, i, &s, NULL));
    assert_ok(ckp_checkpoint_tensor_settings(b, i, &t, NULL));
    assert_true(s.step == t.step && s.step_min == t.step_min && s.magnitude == t.magnitude && s.octaves == t.octaves);
    assert_string_equal(s.quantizer, t.quantizer);
    if (x.role == CKP_ROLE_WEIGHT && x.lossy)
        assert_true(strcmp(s.quantizer, "w") == 0 && s.step_follows && s.step > 0.0 && s.step_min > 0.0 && s.step_max >= s.step_min);
    if (x.role == CKP_ROLE_M && x.lossy)
        assert_true(strcmp(s.quantizer, "m") == 0 && s.magnitude >= 0.0 && isfinite(s.magnitude));
    if (x.role == CKP_ROLE_V && x.lossy)
        assert_true(strcmp(s.quantizer, "v") == 0 && (s.octaves == 2.0 || s.octaves == 0.0 || s.octaves == 0.125));
    if (!x.lossy)
        assert_string_equal(s.quantizer, "none");
}

/* One that is looked at alone against the same one opened with its bases. */
static int
look(void *user, const ckp_list_entry *e, const ckp_checkpoint *ck, const ckp_error *why)
{
    seen *s = user;
    ckp_checkpoint *whole = NULL;
    ckp_checkpoint_info a = {.size = sizeof a}, b = {.size = sizeof b};
    ckp_metric x, y;

    s->why[s->n++] = why != NULL ? why->code : CKP_OK;
    assert_true(ck == NULL || why == NULL);
    if (s->n == s->stop_at)
        return 1;
    if (ck == NULL || strcmp(e->health, "ok") != 0)
        return 0;
    s->opened++;
    assert_ok(ckp_checkpoint_open_run(&whole, s->dir, (int64_t)e->step, false, NULL));
    ckp_checkpoint_get_info(ck, &a);
    ckp_checkpoint_get_info(whole, &b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.step == e->step && a.profile == e->profile && a.chain == e->chain && a.restore_count == e->restore_count);
    size_t i = 0;
    for (; ckp_checkpoint_setting(whole, i, &x); i++) {
        assert_true(ckp_list_entry_setting(e, i, &y) && strcmp(x.name, y.name) == 0 && x.value == y.value);
        assert_true(ckp_checkpoint_setting(ck, i, &y) && x.value == y.value);
    }
    assert_false(ckp_list_entry_setting(e, i, &y));
    assert_int_equal(ckp_checkpoint_count(ck), ckp_checkpoint_count(whole));
    for (i = 0; i < ckp_checkpoint_count(ck); i++)
        same_tensor(ck, whole, i);
    ckp_checkpoint_close(whole);
    return 0;
}

static void
alone_is_as_with_bases(void **state)
{
    const char *dir = model_path(state, "run");
    seen s = {.dir = dir};
    ckp_error e = {0};

    train(dir, CKP_PROFILE_RESUME);
    assert_ok(ckp_run_inspect(dir, look, &s, &e));
    assert_true(s.n == SAVES && s.opened == SAVES);
    s = (seen){.dir = dir, .stop_at = 2};
    assert_status(ckp_run_inspect(dir, look, &s, &e), CKP_ECANCELLED);
    assert_int_equal(s.n, 2);
    assert_status(ckp_run_inspect(NULL, look, &s, &e), CKP_EINVAL);
    assert_status(ckp_run_inspect(dir, NULL, &s, &e), CKP_EINVAL);
    assert_status(ckp_run_inspect(model_path(state, "none"), look, &s, &e), CKP_ENOTFOUND);
}

/* What is recorded is what was asked for. */
static void
settings_are_recorded(void **state)
{
    const char *dir = model_path(state, "run"), *exact = model_path(state, "lossless");
    ckp_checkpoint *ck = NULL;
    ckp_checkpoint_info i = {.size = sizeof i};
    ckp_tensor_settings t = {.size = sizeof t};
    ckp_metric m;

    train(dir, CKP_PROFILE_RESUME);
    assert_ok(ckp_checkpoint_open_run(&ck, dir, 20, false, NULL));
    assert_true(setting(ck, "quality") == 0.8 && setting(ck, "m_share") == 0.035 && setting(ck, "v_octaves") == 2.0);
    assert_true(setting(ck, "step") > 0.0 && setting(ck, "step") <= 0.8 * 1.6 * 1.01 && setting(ck, "rms") > 0.0 && setting(ck, "movement") > 0.0);
    ckp_checkpoint_get_info(ck, &i);
    assert_true(i.rms_error_by_role[CKP_ROLE_WEIGHT] > 0.0 && i.max_error_by_role[CKP_ROLE_WEIGHT] >= i.rms_error_by_role[CKP_ROLE_WEIGHT]);
    assert_true(i.rms_error_by_role[CKP_ROLE_OTHER] == 0.0);
    assert_status(ckp_checkpoint_tensor_settings(ck, 999, &t, NULL), CKP_ENOTFOUND);
    assert_status(ckp_checkpoint_tensor_settings(ck, 0, NULL, NULL), CKP_EINVAL);
    t.size = 1;
    assert_status(ckp_checkpoint_tensor_settings(ck, 0, &t, NULL), CKP_EINVAL);
    ckp_checkpoint_close(ck);
    assert_ok(ckp_checkpoint_open_run(&ck, dir, 10 * SAVES, false, NULL));
    assert_true(setting(ck, "quality") == 0.25);
    ckp_checkpoint_close(ck);

    train(exact, CKP_PROFILE_LOSSLESS);
    assert_ok(ckp_checkpoint_open_run(&ck, exact, CKP_STEP_NEWEST, false, NULL));
    assert_false(ckp_checkpoint_setting(ck, 0, &m));
    ckp_checkpoint_close(ck);
}

static void
a_final_save_has_no_step(void **state)
{
    const char *dir = model_path(state, "run");
    ckp_run_options opt = CKP_RUN_OPTIONS_INIT;
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};
    model m;

    model_small(&m, "final");
    opt.coding.profile = CKP_PROFILE_SMALL;
    ckp_run *run = model_run(dir, opt);
    m.step = 1;
    so.final = true;
    assert_ok(model_save(run, &m, &so, &e));
    assert_ok(ckp_run_close(run, &e));
    assert_ok(ckp_checkpoint_open_run(&ck, dir, 1, false, NULL));
    assert_true(setting(ck, "step") == 0.0 && setting(ck, "m_share") == 0.012);
    ckp_checkpoint_close(ck);
    model_free(&m);
}

/* A missing key takes the table of its deltas along, a torn shard only itself; what is whole is still looked at. */
static void
damage_is_told(void **state)
{
    const char *dir = model_path(state, "run");
    seen s = {.dir = dir};
    size_t n = 0;

    train(dir, CKP_PROFILE_RESUME);
    uint8_t *shard = model_load_file(model_shard(dir, 50), &n);
    model_store_file(model_shard(dir, 50), shard, n / 2);
    free(shard);
    assert_int_equal(unlink(model_shard(dir, 10)), 0);
    assert_ok(ckp_run_inspect(dir, look, &s, NULL));
    assert_true(s.n == SAVES && s.opened == 1);          /* 40: the second key */
    assert_true(s.why[0] == CKP_ENOTFOUND && s.why[1] == CKP_ENOTFOUND && s.why[2] == CKP_ENOTFOUND);
    assert_true(s.why[3] == CKP_OK && s.why[4] == CKP_ETRUNCATED);
}

/* A parameter that is read alone is checked: damage of a body is an error with tensor and place, not a number. */
static void
settings_of_a_damaged_chunk(void **state)
{
    const char *dir = model_path(state, "run");
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};
    size_t n = 0, bad = 0;

    train(dir, CKP_PROFILE_RESUME);
    const char *path = model_shard(dir, 10);
    uint8_t *shard = model_load_file(path, &n);
    for (size_t at = n / 4; at < n / 2; at += 7)
        shard[at] ^= 1;
    model_store_file(path, shard, n);
    free(shard);
    if (ckp_checkpoint_open_run(&ck, dir, 10, false, &e) == CKP_OK)
        for (size_t i = 0; i < ckp_checkpoint_count(ck); i++) {
            ckp_tensor_settings t = {.size = sizeof t};
            const ckp_status st = ckp_checkpoint_tensor_settings(ck, i, &t, &e);
            assert_true(st == CKP_OK || (st == CKP_ECORRUPT && e.tensor[0] != '\0' && e.file[0] != '\0' && e.offset != CKP_NO_OFFSET));
            bad += st != CKP_OK;
        }
    assert_true(ck != NULL && bad != 0);
    ckp_checkpoint_close(ck);
}

/* The profile of a single file is in its header. */
static void
files_know_their_profile(void **state)
{
    model m;

    model_small(&m, "file");
    for (int p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_WEIGHTS; p++) {
        ckp_coding c = CKP_CODING_INIT;
        ckp_checkpoint *ck = NULL;
        ckp_checkpoint_info i = {.size = sizeof i};
        ckp_state *s = model_state(&m);
        c.profile = (ckp_profile)p;
        assert_ok(ckp_file_save(model_path(state, "f.ckp"), s, &c, NULL, true, NULL));
        ckp_state_free(s);
        assert_ok(ckp_checkpoint_open_file(&ck, model_path(state, "f.ckp"), NULL, 0, NULL));
        ckp_checkpoint_get_info(ck, &i);
        assert_int_equal(i.profile, p);
        ckp_checkpoint_close(ck);
    }
    model_free(&m);
}

static int
count(void *user, const ckp_list_entry *e, const ckp_checkpoint *ck, const ckp_error *why)
{
    ckp_tensor_settings t = {.size = sizeof t};
    (void)e;
    (void)why;
    *(size_t *)user += ck != NULL && ckp_checkpoint_tensor_settings(ck, 0, &t, NULL) == CKP_OK;
    return 0;
}

static ckp_status
count_all(void *dir)
{
    size_t opened = 0;
    const ckp_status st = ckp_run_inspect(dir, count, &opened, NULL);
    return st == CKP_OK && opened == 0 ? CKP_ECORRUPT : st;
}

/* Each allocation fails once: told, nothing leaks, nothing crashes. */
static void
no_memory(void **state)
{
    char dir[512];

    (void)snprintf(dir, sizeof dir, "%s", model_path(state, "run"));
    train(dir, CKP_PROFILE_RESUME);
    assert_true(failalloc_run(count_all, dir, 50, 3) > 50);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {T(alone_is_as_with_bases), T(settings_are_recorded), T(a_final_save_has_no_step), T(damage_is_told),
                                       T(settings_of_a_damaged_chunk), T(files_know_their_profile), T(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
