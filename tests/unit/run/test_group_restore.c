/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks restore the same checkpoint, whatever each of them sees. Invariant 14. */
#include "groups.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- restores that differ ---- */

static void
test_fall_back_together(void **state)
{
    static training t;
    static ranks r;
    char newest[256] = "", name[700];
    ckp_error err = {0};
    static char other[512];
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    group_make_models(&t, WORLD);
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    model was[RANKS_MAX] = {0};
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            for (unsigned k = 0; k < WORLD; k++)
                model_copy(&was[k], &t.m[k]);
        group_train(&t, WORLD);
        if (i < 2)
            for (unsigned k = 0; k < WORLD; k++)
                model_free(&was[k]);
        ranks_run(&r, group_save_rank);
        group_all_ok(&r);
    }
    ranks_run(&r, group_close_rank);
    assert_ok(ckp_run_list(t.dir, group_last_dir, newest, &err));
    /* Damage inside of one shard: only the rank that reads it sees it. */
    size_t n = 0;
    (void)snprintf(name, sizeof name, "%s/%s/shard-00002-of-00004.ckp", t.dir, newest);
    uint8_t *p = model_load_file(name, &n);
    p[n / 2] ^= 1;
    model_store_file(name, p, n);
    free(p);
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    for (unsigned k = 0; k < WORLD; k++) {
        model_free(&t.m[k]);
        t.m[k] = was[k];
    }
    ranks_run(&r, group_restore_rank);
    group_all_ok(&r);
    for (unsigned k = 0; k < WORLD; k++) {
        assert_string_equal(t.found[k], t.found[0]);
        assert_string_not_equal(t.found[k], newest);
        assert_true(t.equal[k]);
        assert_non_null(strstr(t.notes[k], newest));
        assert_true(k == 2 || strstr(t.notes[k], "rank 2 cannot restore it") != NULL);
    }
    ranks_run(&r, group_save_rank);
    group_all_ok(&r);
    ranks_run(&r, group_close_rank);
    group_all_ok(&r);
    (void)other;
    group_free_models(&t, WORLD);
    ranks_free(&r);
}

/* One of many shards is missing: no reader takes that checkpoint. */
static void
test_missing_shard(void **state)
{
    static training t;
    static ranks r;
    char newest[256] = "", name[700];
    ckp_error err = {0};
    ckp_checkpoint *ck = NULL;
    t = (training){.dir = model_path(state, "run"), .key_every = 8, .step = CKP_STEP_NEWEST};
    ranks_init(&r, WORLD, &t);
    group_make_models(&t, WORLD);
    ranks_run(&r, group_open_rank);
    for (int i = 0; i < 2; i++) {
        group_step(&r);
    }
    ranks_run(&r, group_close_rank);
    assert_ok(ckp_run_list(t.dir, group_last_dir, newest, &err));
    (void)snprintf(name, sizeof name, "%s/%s/shard-00001-of-00004.ckp", t.dir, newest);
    assert_int_equal(remove(name), 0);
    assert_ok(ckp_checkpoint_open_run(&ck, t.dir, CKP_STEP_NEWEST, true, &err));
    assert_non_null(strstr(ckp_checkpoint_notes(ck), "shard-00001-of-00004.ckp"));
    ckp_checkpoint_info info = {.size = sizeof info};
    ckp_checkpoint_get_info(ck, &info);
    assert_string_not_equal(info.name, newest);
    ckp_checkpoint_close(ck);
    assert_true(ckp_verify(t.dir, NULL, 0, CKP_VERIFY_STRUCTURE, 1, NULL, NULL, &err) != CKP_OK);
    ranks_run(&r, group_open_rank);
    group_all_ok(&r);
    ranks_run(&r, group_restore_rank);
    group_all_ok(&r);
    for (unsigned k = 0; k < WORLD; k++)
        assert_string_not_equal(t.found[k], newest);
    ranks_run(&r, group_close_rank);
    group_free_models(&t, WORLD);
    ranks_free(&r);
}

/* ---- parts of tensors ---- */

static const float part[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};

static ckp_status
save_part(ranks *r, unsigned rank)
{
    static const uint64_t whole[1] = {8}, half[1] = {4};
    training *t = r->user;
    ckp_state *s = NULL;
    ckp_tensor x = CKP_TENSOR_INIT;
    ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
    o.wait = true;
    x.dtype = CKP_F32;
    x.ndim = 1;
    x.shape = half;
    x.global_shape = whole;
    x.flat = true;
    x.flat_first = 4 * rank;
    x.data = part[rank];
    ckp_status st = ckp_state_new(&s, &r->err[rank]);
    if (st == CKP_OK)
        st = ckp_state_add_tensor(s, "part", CKP_ROLE_OTHER, NULL, &x, NULL, &r->err[rank]);
    if (st == CKP_OK)
        st = ckp_run_save(t->run[rank], 1, s, &o, NULL, &r->err[rank]);
    ckp_state_free(s);
    return st;
}

static ckp_status
read_part(ranks *r, unsigned rank)
{
    static const uint64_t whole[1] = {8};
    training *t = r->user;
    ckp_checkpoint *ck = NULL;
    float mem[8] = {0};
    const ckp_target to = {.index = 0, .dtype = CKP_F32, .ndim = 1, .shape = whole, .data = mem};
    ckp_status st = ckp_checkpoint_open(&ck, t->run[rank], CKP_STEP_NEWEST, &r->err[rank]);
    if (st == CKP_OK)
        st = ckp_checkpoint_read(ck, &to, 1, 1, &r->err[rank]);
    t->equal[rank] = memcmp(mem, part[rank], sizeof part[rank]) == 0 && mem[4] == 0.0F;
    ckp_checkpoint_close(ck);
    return st;
}

/* A rank of the group gets back the part that it has saved; who opens its shard alone, and promises nothing, does not. */
static void
test_own_part(void **state)
{
    static training t;
    static ranks r;
    char newest[256] = "", name[700];
    ckp_checkpoint *ck = NULL;
    float mem[8];
    ckp_error err = {0};
    const ckp_target to = {.index = 0, .dtype = CKP_F32, .ndim = 1, .shape = (const uint64_t[1]){8}, .data = mem};
    t = (training){.dir = model_path(state, "run"), .key_every = 8};
    ranks_init(&r, 2, &t);
    ranks_run(&r, group_open_rank);
    ranks_run(&r, save_part);
    group_all_ok(&r);
    ranks_run(&r, read_part);
    group_all_ok(&r);
    assert_true(t.equal[0] && t.equal[1]);
    ranks_run(&r, group_close_rank);
    assert_ok(ckp_run_list(t.dir, group_last_dir, newest, &err));
    (void)snprintf(name, sizeof name, "%s/%s/shard-00001-of-00002.ckp", t.dir, newest);
    assert_ok(ckp_checkpoint_open_file(&ck, name, NULL, 0, &err));
    assert_status(ckp_checkpoint_read(ck, &to, 1, 1, &err), CKP_EUNSUPPORTED);
    ckp_checkpoint_close(ck);
    ranks_free(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fall_back_together, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_missing_shard, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_own_part, model_setup, model_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
