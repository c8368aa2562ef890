/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks restore the same checkpoint, whatever each of them sees. Invariant 14. */
#include "groups.h"
#include <stdio.h>
#include <stdlib.h>

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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fall_back_together, model_setup, model_teardown),
        cmocka_unit_test_setup_teardown(test_missing_shard, model_setup, model_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
