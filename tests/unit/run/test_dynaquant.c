/* SPDX-License-Identifier: Apache-2.0 */
/* DynaQuant through runs and files: options, staging again, sizes, restarts, lack of memory. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ckpress/run_inspect.h>
#include "harness/failalloc.h"
#include "help.h"
#include "model.h"

static ckp_dynaquant
config(unsigned bins, double prune, double protect)
{
    ckp_dynaquant c = CKP_DYNAQUANT_INIT;
    c.bins = bins;
    c.bins_embedding = bins + 4;
    c.prune = prune;
    c.protect = protect;
    return c;
}

static ckp_run *
open_run(const char *dir, const ckp_dynaquant *c)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = CKP_PROFILE_RESUME;
    o.coding.dynaquant = c;
    return model_run(dir, o);
}

/* Weights of all kinds: with moments, with momentum's absence, half precision, an embedding, a convolution. */
static void
mixed(model *m, const char *seed)
{
    model_small(m, seed);
    model_add_adam(m, "blocks.0.attn.weight", CKP_BF16, CKP_F32, (const uint64_t[4]){70, 80});
    model_add_adam(m, "wte.weight", CKP_F32, CKP_F32, (const uint64_t[4]){120, 48});
    model_add_adam(m, "conv", CKP_F16, CKP_F32, (const uint64_t[4]){24, 32, 3, 3});
    model_tensor *w = model_add(m, "alone", CKP_ROLE_WEIGHT, NULL, CKP_F32, (const uint64_t[4]){90, 60});
    for (uint64_t i = 0; i < w->n; i++)
        model_set(w, i, (float)(0.05 * test_normal(&m->rng)));
}

static model_tensor *
named(model *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->t[i].name, name) == 0)
            return &m->t[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Different values of a tensor, up to 1000. */
static size_t
distinct(const model_tensor *t)
{
    float seen[1000];
    size_t n = 0;
    for (uint64_t i = 0; i < t->n && n < CHECK_COUNT(seen); i++) {
        const float x = model_get(t, i);
        size_t k = 0;
        while (k < n && seen[k] != x)
            k++;
        if (k == n)
            seen[n++] = x;
    }
    return n;
}

static double
setting(const char *dir, const char *name)
{
    ckp_checkpoint *ck = NULL;
    ckp_metric x;
    double value = NAN;
    assert_ok(ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, true, NULL));
    for (size_t i = 0; ckp_checkpoint_setting(ck, i, &x); i++)
        if (strcmp(x.name, name) == 0)
            value = x.value;
    ckp_checkpoint_close(ck);
    return value;
}

/* ---- options ------------------------------------------------------------------------------------------------------------- */

static void
options_are_checked(void **state)
{
    const char *dir = model_path(state, "options");
    static const char *const names[2] = {"a", NULL};
    const ckp_sensitivity half = {"a", NULL, 3};
    ckp_dynaquant bad[12];
    for (size_t i = 0; i < CHECK_COUNT(bad); i++)
        bad[i] = config(8, 0.1, 0.01);
    bad[0].size = 8;
    bad[1].bins = 0;
    bad[2].bins = 33;
    bad[3].bins_embedding = 33;
    bad[4].prune = 1.0;
    bad[5].prune = NAN;
    bad[6].protect = -0.1;
    bad[7].prune_by = (ckp_score)2;
    bad[8].n_embeddings = 1;
    bad[9].embeddings = names;
    bad[9].n_embeddings = 2;
    bad[10].n_sensitivity = 1;
    bad[11].sensitivity = &half;
    bad[11].n_sensitivity = 1;
    model m;
    ckp_error err;
    model_small(&m, "options");
    ckp_run *run = open_run(dir, NULL);
    ckp_state *s = model_state(&m);
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
        ckp_run *other = NULL;
        o.coding.profile = CKP_PROFILE_RESUME;
        o.coding.dynaquant = so.dynaquant = &bad[i];
        assert_status(ckp_run_open(&other, model_path(state, "refused"), &o, &err), CKP_EINVAL);
        assert_status(ckp_run_save(run, 1, s, &so, NULL, &err), CKP_EINVAL);
    }
    assert_ok(ckp_run_close(run, NULL));
    /* nothing is lossy in a lossless run */
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    const ckp_dynaquant good = config(8, 0.1, 0.01);
    ckp_run_options lossless = CKP_RUN_OPTIONS_INIT;
    so.dynaquant = &good;
    run = model_run(model_path(state, "lossless"), lossless);
    assert_status(ckp_run_save(run, 1, s, &so, NULL, &err), CKP_EINVAL);
    assert_ok(ckp_run_close(run, NULL));
    ckp_state_free(s);
    model_free(&m);
}

/* The run's copy of the options outlives the caller's. */
static void
options_are_copied(void **state)
{
    const char *dir = model_path(state, "copied");
    char *name = strdup("b"), *other = strdup("blocks.0.attn.weight");
    const char *list[2] = {name, other};
    ckp_dynaquant c = config(5, 0.1, 0.01);
    model m, got;
    c.embeddings = list;
    c.n_embeddings = 2;
    ckp_run *run = open_run(dir, &c);
    memset(name, '?', strlen(name));
    memset(other, '?', strlen(other));
    free(name);
    free(other);
    memset(&c, 0xA5, sizeof c);
    mixed(&m, "copied");
    model_copy(&got, &m);
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_ok(ckp_run_close(run, NULL));
    model_restore(dir, -1, &got);
    /* listed: 9 levels, zero, and kept ones; not listed although its name says embedding: 5 */
    const size_t protect = (size_t)(0.02 * 70 * 80) + 1;
    assert_in_range(distinct(named(&got, "blocks.0.attn.weight")), 10, 10 + protect);
    assert_true(setting(dir, "dynaquant_bins") == 5 && setting(dir, "dynaquant_bins_embedding") == 9 && setting(dir, "dynaquant_prune") == 0.1);
    assert_true(setting(dir, "dynaquant_protect") == 0.01 && setting(dir, "dynaquant_prune_by_sensitivity") == 0);
    model_free(&m);
    model_free(&got);
}

/* Without kept values a tensor has as many values as levels and zero; by kind. */
static void
levels_by_kind(void **state)
{
    const char *dir = model_path(state, "kinds");
    const ckp_dynaquant c = config(5, 0.1, 0);
    model m, got;
    ckp_run *run = open_run(dir, &c);
    mixed(&m, "kinds");
    model_copy(&got, &m);
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_ok(ckp_run_close(run, NULL));
    model_restore(dir, -1, &got);
    assert_int_equal(distinct(named(&got, "wte.weight")), 10);
    assert_int_equal(distinct(named(&got, "blocks.0.attn.weight")), 6);
    assert_int_equal(distinct(named(&got, "conv")), 6);
    assert_int_equal(distinct(named(&got, "alone")), 6);
    assert_int_equal(distinct(named(&got, "a")), 6);
    assert_true(distinct(named(&got, "b")) > 100);       /* too small: as the profile does */
    model_free(&m);
    model_free(&got);
}

static void
sensitivities_must_fit(void **state)
{
    const char *dir = model_path(state, "sensitivity");
    static float score[90 * 60];
    ckp_sensitivity s[2] = {{"alone", score, 90 * 60}, {"not there", score, 3}};
    ckp_dynaquant c = config(5, 0.5, 0);
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    ckp_error err;
    model m, got;
    c.prune_by = CKP_SCORE_SENSITIVITY;
    c.sensitivity = s;
    c.n_sensitivity = 2;
    so.dynaquant = &c;
    ckp_run *run = open_run(dir, NULL);
    mixed(&m, "sensitivity");
    model_copy(&got, &m);
    for (size_t i = 0; i < CHECK_COUNT(score); i++)
        score[i] = i % 4 ? 1.0F : 1e-6F;
    assert_ok(model_save(run, &m, &so, NULL));
    assert_ok(ckp_run_wait(run, NULL));
    model_restore(dir, -1, &got);
    for (size_t i = 0; i < CHECK_COUNT(score); i++)
        assert_int_equal(model_get(named(&got, "alone"), i) == 0.0F, i % 4 == 0);
    s[0].count--;
    assert_status(model_save(run, &m, &so, &err), CKP_EMISMATCH);
    assert_string_equal(err.tensor, "alone");
    s[0].count++;
    assert_ok(model_save(run, &m, &so, NULL));
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
    model_free(&got);
}

/* ---- staged and coded again ------------------------------------------------------------------------------------------------ */

static void
stage(ckp_run *run, ckp_state *s, uint64_t step)
{
    bool staged = false;
    assert_ok(ckp_run_stage(run, step, s, NULL, &staged, NULL));
    assert_true(staged);
}

static uint64_t
staged_bytes(ckp_run *run)
{
    uint64_t n = 0;
    assert_ok(ckp_run_staged_bytes(run, CKP_ROLE_WEIGHT, &n, NULL));
    return n;
}

/* A delta stays one whatever is tried; what is committed is what the last configuration gives; sizes are those that are written. */
static void
again_it_stays_a_delta(void **state)
{
    const char *dir[2] = {model_path(state, "tried"), model_path(state, "direct")};
    const ckp_dynaquant first = config(16, 0, 0.01), coarse = config(4, 0.5, 0), chosen = config(8, 0.2, 0.005);
    model m, got[2];
    ckp_run *run[2] = {open_run(dir[0], &first), open_run(dir[1], &first)};
    mixed(&m, "again");
    for (int i = 0; i < 2; i++) {
        model_copy(&got[i], &m);
        assert_ok(model_save(run[i], &m, NULL, NULL));
        assert_ok(ckp_run_wait(run[i], NULL));
    }
    for (int save = 0; save < 3; save++) {
        model_step(&m);
        ckp_state *s = model_state(&m);
        ckp_save_stats st = {.size = sizeof st};
        stage(run[0], s, m.step);
        const uint64_t before = staged_bytes(run[0]);
        assert_ok(ckp_run_restage_dynaquant(run[0], s, &coarse, NULL));
        assert_true(staged_bytes(run[0]) != before);
        assert_ok(ckp_run_restage_dynaquant(run[0], s, &chosen, NULL));
        assert_false(ckp_run_staged_key(run[0]));
        const uint64_t bytes = staged_bytes(run[0]);
        assert_int_equal(bytes, staged_bytes(run[0]));      /* it changes nothing */
        assert_ok(ckp_run_commit(run[0], NULL, 0, NULL));
        assert_ok(ckp_run_wait(run[0], NULL));
        ckp_run_stats(run[0], &st);
        assert_in_range(st.stored_by_role[CKP_ROLE_WEIGHT] - bytes, 100, 600);     /* heads of frames */
        assert_true(setting(dir[0], "dynaquant_bins") == 8 && setting(dir[0], "dynaquant_prune") == 0.2);
        ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
        so.dynaquant = &chosen;
        assert_ok(ckp_run_save(run[1], m.step, s, &so, NULL, NULL));
        assert_ok(ckp_run_wait(run[1], NULL));
        for (int i = 0; i < 2; i++)
            model_restore(dir[i], -1, &got[i]);
        static const char *const same[] = {"wte.weight", "blocks.0.attn.weight", "conv", "alone", "a", "a/v", "a/m"};   /* b and c: by run id too */
        for (size_t i = 0; i < CHECK_COUNT(same); i++)
            assert_memory_equal(named(&got[0], same[i])->data, named(&got[1], same[i])->data, model_bytes(named(&m, same[i])));
        ckp_state_free(s);
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(ckp_run_close(run[i], NULL));
        assert_ok(ckp_verify(dir[i], NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
        model_free(&got[i]);
    }
    model_free(&m);
}

/* From grids it becomes a key; back to grids too. Wrong calls leave the staged save alone; a failure forgets it. */
static void
again_from_other_ways(void **state)
{
    const char *dir = model_path(state, "ways");
    const ckp_dynaquant c = config(8, 0.2, 0.005);
    ckp_dynaquant bad = c;
    static float score[4];
    const ckp_sensitivity wrong = {"wte.weight", score, 4};
    model m, other, got;
    ckp_error err;
    uint64_t n = 0;
    ckp_run *run = open_run(dir, NULL);
    mixed(&m, "ways");
    model_small(&other, "other");
    model_copy(&got, &m);
    ckp_state *s = model_state(&m), *o = model_state(&other);
    assert_status(ckp_run_restage_dynaquant(run, s, &c, &err), CKP_EINVAL);
    assert_status(ckp_run_staged_bytes(run, CKP_ROLE_WEIGHT, &n, &err), CKP_EINVAL);
    assert_ok(ckp_run_save(run, 1, s, NULL, NULL, NULL));
    stage(run, s, 2);
    assert_false(ckp_run_staged_key(run));
    const uint64_t grids = staged_bytes(run);
    assert_status(ckp_run_restage_dynaquant(run, NULL, &c, &err), CKP_EINVAL);
    assert_status(ckp_run_restage_dynaquant(run, s, NULL, &err), CKP_EINVAL);
    bad.bins = 99;
    assert_status(ckp_run_restage_dynaquant(run, s, &bad, &err), CKP_EINVAL);
    assert_status(ckp_run_staged_bytes(run, CKP_ROLE_V, &n, &err), CKP_EINVAL);
    assert_status(ckp_run_restage_dynaquant(run, o, &c, &err), CKP_EINVAL);      /* another state */
    assert_false(ckp_run_staged_key(run));
    assert_int_equal(staged_bytes(run), grids);
    assert_ok(ckp_run_restage_dynaquant(run, s, &c, NULL));
    assert_true(ckp_run_staged_key(run));
    assert_true(staged_bytes(run) > 1000);
    assert_ok(ckp_run_restage(run, s, 0.5, NULL));
    assert_true(ckp_run_staged_key(run));
    assert_ok(ckp_run_commit(run, NULL, 0, NULL));
    assert_ok(ckp_run_wait(run, NULL));
    model_restore(dir, -1, &got);
    assert_true(isnan(setting(dir, "dynaquant_bins")));
    assert_memory_equal(named(&got, "alone")->data, named(&m, "alone")->data, 90 * 60 * sizeof(float));    /* grids need moments */

    assert_status(ckp_run_restage_dynaquant(run, s, &c, &err), CKP_EINVAL);
    stage(run, s, 3);
    assert_ok(ckp_run_restage_dynaquant(run, s, &c, NULL));
    assert_status(ckp_run_restage_dynaquant(run, o, &c, &err), CKP_EINVAL);
    assert_true(ckp_run_staged_key(run));
    ckp_run_unstage(run);
    stage(run, s, 3);
    bad = c;
    bad.sensitivity = &wrong;
    bad.n_sensitivity = 1;
    assert_status(ckp_run_restage_dynaquant(run, s, &bad, &err), CKP_EMISMATCH);
    assert_status(ckp_run_commit(run, NULL, 0, &err), CKP_EINVAL);
    assert_ok(ckp_run_save(run, 3, s, NULL, NULL, NULL));
    assert_ok(ckp_run_close(run, NULL));
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
    ckp_state_free(s);
    ckp_state_free(o);
    model_free(&m);
    model_free(&other);
    model_free(&got);
}

/* ---- restarts -------------------------------------------------------------------------------------------------------------- */

static void
adopt_newest(ckp_run *run, model *m)
{
    ckp_checkpoint *ck = NULL;
    assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, NULL));
    assert_ok(model_read(ck, m, NULL));
    assert_ok(ckp_run_adopt(run, ck, NULL));
    ckp_checkpoint_close(ck);
}

/* After a restart the next save is a delta whose indices stand under the base's: hardly any bytes when nothing moved. */
static void
restarts_go_on(void **state)
{
    const char *dir = model_path(state, "restarts");
    const ckp_dynaquant c = config(8, 0.2, 0.005);
    model m;
    mixed(&m, "restarts");
    uint64_t first = 0;
    for (int start = 0; start < 4; start++) {
        ckp_run *run = open_run(dir, &c);
        ckp_save_stats st = {.size = sizeof st};
        if (start != 0)
            adopt_newest(run, &m);
        assert_ok(model_save(run, &m, NULL, NULL));
        assert_ok(ckp_run_wait(run, NULL));
        ckp_run_stats(run, &st);
        assert_int_equal(st.is_key, start == 0);
        first = start == 0 ? st.stored_by_role[CKP_ROLE_WEIGHT] : first;
        assert_true(start == 0 || st.stored_by_role[CKP_ROLE_WEIGHT] < first / 8);
        assert_ok(ckp_run_close(run, NULL));
    }
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 2, NULL, NULL, NULL));
    model_free(&m);
}

/* A budget that holds no stage: the pass is part of the writing, and every save is a key. */
static void
little_memory(void **state)
{
    const char *dir = model_path(state, "little");
    const ckp_dynaquant c = config(8, 0.2, 0);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    model m, got;
    o.coding.profile = CKP_PROFILE_RESUME;
    o.coding.dynaquant = &c;
    o.coding.memory_budget = 4096;
    ckp_run *run = model_run(dir, o);
    mixed(&m, "little");
    model_copy(&got, &m);
    for (int i = 0; i < 2; i++) {
        model_step(&m);
        assert_ok(model_save(run, &m, NULL, NULL));
        assert_ok(ckp_run_wait(run, NULL));
        model_restore(dir, -1, &got);
        assert_int_equal(distinct(named(&got, "alone")), 9);
        assert_true(setting(dir, "dynaquant_bins") == 8);
    }
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
    model_free(&got);
}

/* Single files, and a delta of one against another. */
static void
files(void **state)
{
    const char *path[2] = {model_path(state, "a.ckp"), model_path(state, "b.ckp")};
    const ckp_dynaquant c = config(6, 0.1, 0.01);
    ckp_coding coding = CKP_CODING_INIT;
    ckp_checkpoint *ck[2] = {NULL, NULL};
    ckp_tensor_info info = {.size = sizeof info};
    model m;
    coding.profile = CKP_PROFILE_WEIGHTS;
    coding.dynaquant = &c;
    mixed(&m, "files");
    for (int i = 0; i < 2; i++) {
        ckp_state *s = model_state(&m);
        assert_ok(ckp_file_save(path[i], s, &coding, i == 0 ? NULL : ck[0], false, NULL));
        assert_ok(ckp_checkpoint_open_file(&ck[i], path[i], (const char *const[]){path[0]}, (size_t)i, NULL));
        assert_ok(ckp_checkpoint_tensor(ck[i], ckp_checkpoint_find(ck[i], "wte.weight"), &info, NULL));
        assert_true(strncmp(info.codec, "quant-index+", 12) == 0 && info.lossy && info.max_rel_error > 0);
        ckp_tensor_settings how = {.size = sizeof how};
        assert_ok(ckp_checkpoint_tensor_settings(ck[i], ckp_checkpoint_find(ck[i], "wte.weight"), &how, NULL));
        assert_string_equal(how.quantizer, "index");
        assert_int_equal(how.levels, i == 0 ? 10 : 0);      /* the delta's is its base's */
        assert_true(i == 0 ? info.bits_per_element > 2 : info.bits_per_element < 0.5);
        float range[50], whole[120 * 48];
        assert_ok(ckp_checkpoint_read_range(ck[i], ckp_checkpoint_find(ck[i], "wte.weight"), 100, 50, range, NULL));
        assert_ok(ckp_checkpoint_read_range(ck[i], ckp_checkpoint_find(ck[i], "wte.weight"), 0, CHECK_COUNT(whole), whole, NULL));
        assert_memory_equal(range, whole + 100, sizeof range);
        ckp_state_free(s);
    }
    ckp_checkpoint_close(ck[1]);
    ckp_checkpoint_close(ck[0]);
    model_free(&m);
}

/* ---- lack of memory -------------------------------------------------------------------------------------------------------- */

typedef struct fixture { char *dir; sim *m; bool grids; } fixture;      /* grids: what is staged first */

static sim *
tiny(void)
{
    static const uint64_t mat[2] = {64, 64}, vec[1] = {9};
    sim *m = sim_new(4);
    (void)sim_add_weight(m, "w", CKP_F32, CKP_F32, CKP_F32, 2, mat);
    (void)sim_add_weight(m, "h", CKP_BF16, CKP_F32, 0, 1, vec);
    (void)sim_add(m, "e", CKP_ROLE_WEIGHT, SIM_NONE, CKP_F32, 2, mat);      /* lossy by DynaQuant alone: another layout */
    sim_train(m);
    sim_put(m, 0, 5, NAN);
    return m;
}

/* Open, save twice, stage, code again, commit, restore and adopt, save: all with one allocation that fails. */
static ckp_status
live(void *user)
{
    const fixture *f = user;
    static const char *const embeddings[] = {"e"};
    ckp_dynaquant c = config(4, 0.2, 0.05), other = config(6, 0.1, 0.02);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    ckp_run *run = NULL;
    ckp_checkpoint *ck = NULL;
    ckp_state *s = NULL;
    ckp_error err;
    uint64_t bytes;
    bool staged = false;
    c.embeddings = embeddings;
    c.n_embeddings = 1;
    c.prune_by = CKP_SCORE_SENSITIVITY;
    o.coding.profile = CKP_PROFILE_RESUME;
    o.coding.dynaquant = f->grids ? NULL : &c;
    o.coding.threads = 1;
    o.keep_last = 1;
    help_remove(strdup(help_path(f->dir, "lock")));
    ckp_status st = ckp_run_open(&run, f->dir, &o, &err);
    if (st == CKP_OK)
        st = help_save_try(run, f->m, NULL, &err);
    if (st == CKP_OK)
        st = sim_state_try(f->m, &s, &err);
    if (st == CKP_OK)
        st = ckp_run_stage(run, 5, s, NULL, &staged, &err);
    if (st == CKP_OK)
        st = ckp_run_restage_dynaquant(run, s, &other, &err);
    if (st == CKP_OK)
        st = ckp_run_staged_bytes(run, CKP_ROLE_WEIGHT, &bytes, &err);
    if (st == CKP_OK)
        st = ckp_run_commit(run, NULL, 0, &err);
    if (st == CKP_OK)
        st = ckp_run_wait(run, &err);
    if (st == CKP_OK)
        st = ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &err);
    if (st == CKP_OK)
        st = ckp_run_adopt(run, ck, &err);
    ckp_checkpoint_close(ck);
    if (st == CKP_OK)
        st = help_save_try(run, f->m, NULL, &err);
    ckp_state_free(s);
    const ckp_status closed = ckp_run_close(run, &err);
    return st == CKP_OK ? closed : st;
}

static void
no_memory(void **state)
{
    (void)state;
    for (int grids = 0; grids < 2; grids++) {
        fixture f = {help_dir(), tiny(), grids == 1};
        ckp_error err;
        assert_ok(live(&f));
        assert_true(failalloc_run(live, &f, 100, 5) > 100);
        OK_OR_FAIL(ckp_verify(f.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        sim_free(f.m);
        help_remove(f.dir);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(options_are_checked),    T(options_are_copied),    T(levels_by_kind), T(sensitivities_must_fit), T(again_it_stays_a_delta),
        T(again_from_other_ways), T(restarts_go_on),        T(little_memory),  T(files),                  cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
