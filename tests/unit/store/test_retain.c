/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants 4 and 5: what retention keeps, and what a cut deletion or a foreign file does to it. */
#include <stdio.h>
#include <stdlib.h>
#include "runs.h"

/* A run of saves by a string: 'k' a key, 'd' a delta on the save before, '0' to '9' a delta on that save. */
typedef struct fixture {
    fault_disk *d;
    ckpi_store *s;
    char dir[32][CKPI_DIR_NAME_MAX];
    size_t n;
} fixture;

static fixture
make(const char *plan)
{
    fixture f = {.d = fault_disk_new()};
    assert_ok(run_open(&f.s, fault_mount(f.d), CKPI_STORE_WRITE, NULL));
    for (; *plan != '\0'; plan++, f.n++) {
        const char *base = *plan == 'k' ? NULL : *plan == 'd' ? f.dir[f.n - 1] : f.dir[*plan - '0'];
        assert_ok(run_save(f.s, f.n, base, 1, f.dir[f.n], NULL));
    }
    return f;
}

static void
drop(fixture *f)
{
    ckpi_store_free(f->s);
    fault_disk_free(f->d);
}

/* One letter a save: P point, B base, '-' gone. */
static void
expect_marks(const char *plan, uint32_t keep_last, int named, const char *want)
{
    fixture f = make(plan);
    ckpi_entries e = {0};
    ckpi_retained done;
    const char *keep[] = {named >= 0 ? f.dir[named] : ""};
    const ckpi_retention rules = {.last = keep_last, .dir = keep, .n_dir = named >= 0};
    char got[33] = "";
    assert_ok(ckpi_store_list(f.s, &e, NULL));
    assert_ok(ckpi_retention_mark(&e, &rules, NULL));
    for (size_t i = 0; i < e.n; i++)
        got[i] = "-BP"[e.v[i].keep];
    assert_string_equal(got, want);
    ckpi_entries_free(&e);

    assert_ok(ckpi_store_retain(f.s, &rules, &done, NULL));
    assert_ok(ckpi_store_list(f.s, &e, NULL));
    assert_int_equal(e.n, done.points + done.bases);
    assert_int_equal(f.n - e.n, done.deleted);
    assert_true(done.deleted == 0 || done.freed_bytes > 0);
    for (size_t i = 0, k = 0; i < f.n; i++) {
        assert_int_equal(fault_exists(f.d, f.dir[i]), want[i] != '-');
        if (want[i] != '-')
            assert_string_equal(e.v[k++].dir, f.dir[i]);
    }
    for (size_t i = 0; i < e.n; i++)
        assert_ok(ckpi_store_check(f.s, e.v[i].dir, 2, NULL, NULL, NULL));
    ckpi_entries_free(&e);
    drop(&f);
}

static void
test_marks(void **state)
{
    (void)state;
    expect_marks("kkkkk", 0, -1, "PPPPP");
    expect_marks("kkkkk", 1, -1, "----P");
    expect_marks("kkkkk", 2, -1, "---PP");
    expect_marks("kkkkk", 99, -1, "PPPPP");
    expect_marks("k", 1, -1, "P");
    expect_marks("", 3, -1, "");
    expect_marks("kdddd", 1, -1, "BBBBP");
    expect_marks("kdddd", 2, -1, "BBBPP");
    expect_marks("kddkd", 2, -1, "---PP");
    expect_marks("kddkd", 3, -1, "BBPPP");
    expect_marks("kddkd", 1, -1, "---BP");
    expect_marks("k0000", 2, -1, "B--PP");
    expect_marks("kdkk1", 1, -1, "BB--P");
    expect_marks("kddkkk", 1, 1, "BP---P");
    expect_marks("kddkkk", 1, 5, "-----P");
    expect_marks("kkkkkk", 1, 0, "P----P");
}

static void
test_named_must_exist(void **state)
{
    (void)state;
    fixture f = make("kkk");
    const char *keep[] = {"step-00000009-00000000"};
    assert_status(ckpi_store_retain(f.s, &(ckpi_retention){.last = 1, .dir = keep, .n_dir = 1}, NULL, NULL), CKP_ENOTFOUND);
    for (size_t i = 0; i < f.n; i++)
        assert_true(fault_exists(f.d, f.dir[i]));
    drop(&f);
}

/* Beside damage nothing is deleted; what was merely cut short is no damage. */
static void
test_refuses_beside_damage(void **state)
{
    (void)state;
    char path[256];
    ckp_error err;
    const char *const files[] = {"manifest.json", "shard-00000-of-00001.ckp"};
    for (int i = 0; i < 2; i++) {
        fixture f = make("kdkk");
        snprintf(path, sizeof path, "%s/%s", f.dir[1], files[i]);
        fault_truncate(f.d, path, 3);
        assert_status(ckpi_store_retain(f.s, &LAST_ONE, NULL, &err), CKP_ECORRUPT);
        assert_non_null(strstr(err.text, f.dir[1]));
        for (size_t k = 0; k < f.n; k++)
            assert_true(fault_exists(f.d, f.dir[k]));
        fault_remove(f.d, path);
        if (i == 0)
            assert_ok(ckpi_store_retain(f.s, &LAST_ONE, NULL, &err));
        drop(&f);
    }
}

/* Somebody's notes in a checkpoint's directory stay; the checkpoint goes all the same. */
static void
test_foreign_file_inside(void **state)
{
    (void)state;
    char path[256];
    ckpi_retained done;
    fixture f = make("kkk");
    snprintf(path, sizeof path, "%s/notes.txt", f.dir[0]);
    fault_write(f.d, path, "mine", 4);
    assert_ok(ckpi_store_retain(f.s, &LAST_ONE, &done, NULL));
    assert_int_equal(done.deleted, 2);
    assert_true(fault_exists(f.d, path));
    assert_false(fault_exists(f.d, f.dir[1]));
    drop(&f);
}

/* A rename made of link and unlink, cut between: both names are there. A temporary likewise. */
static void
test_both_names(void **state)
{
    (void)state;
    char a[256], b[256];
    ckpi_buf raw = CKPI_BUF_INIT;
    fixture f = make("kk");
    snprintf(a, sizeof a, "%s/manifest.json", f.dir[0]);
    snprintf(b, sizeof b, "%s/deleted.json", f.dir[0]);
    assert_ok(ckpi_fs_read(ckpi_store_fs(f.s), a, 1 << 20, &raw, NULL));
    fault_write(f.d, b, raw.data, raw.len);
    snprintf(b, sizeof b, "%s/.tmp-1-0123456789abcdef-manifest.json", f.dir[0]);
    fault_write(f.d, b, raw.data, raw.len);
    ckpi_buf_free(&raw);
    assert_ok(ckpi_store_check(f.s, f.dir[0], 2, NULL, NULL, NULL));       /* still committed */
    assert_ok(ckpi_store_retain(f.s, &LAST_ONE, NULL, NULL));
    assert_false(fault_exists(f.d, f.dir[0]));
    drop(&f);
}

/* A full disk does not stop a deletion. */
static void
test_full_disk(void **state)
{
    (void)state;
    fixture f = make("kdkk");
    fault_arm(f.d, FAULT_ENOSPC, 1, true);
    assert_ok(ckpi_store_retain(f.s, &LAST_ONE, NULL, NULL));
    assert_int_equal(fault_fired(f.d), 0);
    assert_false(fault_exists(f.d, f.dir[0]));
    drop(&f);
}

static void
test_reader_may_not(void **state)
{
    (void)state;
    fixture f = make("kk");
    ckpi_store *r = NULL;
    assert_ok(run_open(&r, fault_mount(f.d), CKPI_STORE_READ, NULL));
    assert_status(ckpi_store_retain(r, &LAST_ONE, NULL, NULL), CKP_EINVAL);
    ckpi_store_free(r);
    drop(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_named_must_exist),
        cmocka_unit_test(test_refuses_beside_damage),
        cmocka_unit_test(test_foreign_file_inside),
        cmocka_unit_test(test_both_names),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_reader_may_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
