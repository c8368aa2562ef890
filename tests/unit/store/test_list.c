/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants 1, 2, 6, 7, 10: what counts as a checkpoint, which is the newest, and how damage is named. */
#include <stdio.h>
#include <stdlib.h>
#include "base/limits.h"
#include "harness/failalloc.h"
#include "runs.h"

typedef struct fixture {
    fault_disk *d;
    ckpi_store *s;
    char key[CKPI_DIR_NAME_MAX], delta[CKPI_DIR_NAME_MAX], last[CKPI_DIR_NAME_MAX];   /* key <- delta; last: a key */
} fixture;

static fixture
make(void)
{
    fixture f = {.d = fault_disk_new()};
    assert_ok(run_open(&f.s, fault_mount(f.d), CKPI_STORE_WRITE, NULL));
    assert_ok(run_save(f.s, 100, NULL, 2, f.key, NULL));
    assert_ok(run_save(f.s, 200, f.key, 2, f.delta, NULL));
    assert_ok(run_save(f.s, 300, NULL, 1, f.last, NULL));
    return f;
}

static void
drop(fixture *f)
{
    ckpi_store_free(f->s);
    fault_disk_free(f->d);
}

static char *
in(const char *dir, const char *file)
{
    static char path[2][256];
    static unsigned turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, file);
    return path[turn];
}

static ckpi_entry *
entry(ckpi_entries *e, const char *dir)
{
    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->v[i].dir, dir) == 0)
            return &e->v[i];
    fail_msg("no entry '%s'", dir);
    return NULL;
}

static void
expect(fixture *f, const char *dir, ckpi_health h, const char *word)
{
    ckpi_entries e = {0};
    assert_ok(ckpi_store_list(f->s, &e, NULL));
    const ckpi_entry *got = entry(&e, dir);
    if (got->health != h)
        fail_msg("%s is %s, not %s: %s", dir, ckpi_health_name(got->health), ckpi_health_name(h), got->reason != NULL ? got->reason : "");
    if (word != NULL && strstr(got->reason, word) == NULL)
        fail_msg("reason '%s' lacks '%s'", got->reason, word);
    ckpi_entries_free(&e);
}

static void
expect_latest(fixture *f, const char *dir)
{
    ckpi_chain c = CKPI_CHAIN_INIT;
    assert_ok(ckpi_store_latest(f->s, UINT64_MAX, &c, NULL, NULL));
    assert_string_equal(c.dir[c.n - 1], dir);
    ckpi_chain_free(&c);
}

static void
test_list(void **state)
{
    (void)state;
    fixture f = make();
    ckpi_entries e = {0};
    assert_ok(ckpi_store_list(f.s, &e, NULL));
    assert_int_equal(e.n, 3);
    for (size_t i = 0; i < e.n; i++) {
        assert_int_equal(e.v[i].health, CKPI_HEALTH_OK);
        assert_int_equal(e.v[i].m->sequence, i + 1);
        assert_int_equal(e.v[i].step, 100 * (i + 1));
        assert_string_equal(e.v[i].m->library, ckp_version());
    }
    assert_int_equal(e.v[1].base, 0);
    assert_int_equal(e.v[2].base, SIZE_MAX);
    assert_string_equal(e.v[1].m->base_dir, f.key);
    ckpi_entries_free(&e);
    assert_ok(ckpi_store_check(f.s, f.delta, 2, NULL, NULL, NULL));
    drop(&f);
}

/* Names that are not exactly ours are never looked into, whatever they hold. */
static void
test_foreign_names(void **state)
{
    (void)state;
    fixture f = make();
    const char *const names[] = {"step-abc", "7 (copy)", ".DS_Store", "step-00000100", "step-100-9f3a61c2", "step-00000100-9F3A61C2",
                                 "step-000000100-9f3a61c2", "step-00000100-9f3a61c2.bak", "step-99999999999999999999-9f3a61c2"};
    ckpi_fs *fs = ckpi_store_fs(f.s);
    for (size_t i = 0; i < CHECK_COUNT(names); i++) {
        assert_ok(fs->ops->mkdir(fs, names[i], NULL));
        fault_write(f.d, in(names[i], "manifest.json"), "{}", 2);
    }
    fault_write(f.d, "step-00000999-00000000", "a file", 6);
    ckpi_store_free(f.s);
    run_age_lock(f.d);
    assert_ok(run_open(&f.s, fault_mount(f.d), CKPI_STORE_WRITE, NULL));
    ckpi_entries e = {0};
    assert_ok(ckpi_store_list(f.s, &e, NULL));
    assert_int_equal(e.n, 3);
    ckpi_entries_free(&e);
    for (size_t i = 0; i < CHECK_COUNT(names); i++)
        assert_true(fault_exists(f.d, in(names[i], "manifest.json")));
    assert_true(fault_exists(f.d, "step-00000999-00000000"));
    drop(&f);
}

/* Invariant 8: an attempt that no claim of the run proves to be its own stays; an empty one holds nothing and goes. */
static void
test_unproved_attempts(void **state)
{
    (void)state;
    fixture f = make();
    const char *const full = "step-00000400-00000001", *const empty = "step-00000400-00000002";
    ckpi_fs *fs = ckpi_store_fs(f.s);
    assert_ok(fs->ops->mkdir(fs, full, NULL));
    assert_ok(fs->ops->mkdir(fs, empty, NULL));
    fault_write(f.d, in(full, "shard-00000-of-00001.ckp"), "data", 4);
    fault_write(f.d, ".tmp-1-0123456789abcdef-run.json", "of another place", 16);
    ckpi_store_free(f.s);
    assert_ok(run_open(&f.s, fault_mount(f.d), CKPI_STORE_WRITE, NULL));
    assert_true(fault_exists(f.d, in(full, "shard-00000-of-00001.ckp")));
    assert_true(fault_exists(f.d, ".tmp-1-0123456789abcdef-run.json"));
    assert_false(fault_exists(f.d, empty));
    expect(&f, full, CKPI_HEALTH_INCOMPLETE, NULL);
    expect_latest(&f, f.last);

    /* deleted.json that is not this directory's own manifest gives no right to delete. */
    ckpi_buf raw = CKPI_BUF_INIT;
    assert_ok(ckpi_fs_read(ckpi_store_fs(f.s), in(f.last, "manifest.json"), CKPI_MAX_MANIFEST, &raw, NULL));
    fault_write(f.d, in(full, "deleted.json"), raw.data, raw.len);
    ckpi_buf_free(&raw);
    ckpi_store_free(f.s);
    assert_ok(run_open(&f.s, fault_mount(f.d), CKPI_STORE_WRITE, NULL));
    assert_true(fault_exists(f.d, in(full, "shard-00000-of-00001.ckp")));
    expect(&f, full, CKPI_HEALTH_DELETING, NULL);
    drop(&f);
}

/* Invariant 8: where manifests were lost, what a claim proves to be its own may be all that is left, and stays. */
static void
test_lost_manifests(void **state)
{
    (void)state;
    for (int lost = 1; lost <= 3; lost++) {
        fixture f = make();
        const char *const dirs[] = {f.last, f.delta, f.key};
        for (int i = 0; i < lost; i++)
            fault_remove(f.d, in(dirs[i], "manifest.json"));
        for (int opened = 0; opened < 3; opened++) {
            ckpi_store_free(f.s);
            assert_ok(run_open(&f.s, fault_mount(f.d), CKPI_STORE_WRITE, NULL));
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(fault_exists(f.d, dirs[i]), lost > 1 || i > 0);    /* one: an attempt like any other */
        drop(&f);
    }
}

static void
test_damage_is_named(void **state)
{
    (void)state;
    fixture f = make();
    fault_flip(f.d, in(f.last, "manifest.json"), 40, 1);
    expect(&f, f.last, CKPI_HEALTH_BAD_MANIFEST, "hash");
    expect_latest(&f, f.delta);
    fault_truncate(f.d, in(f.delta, "shard-00001-of-00002.ckp"), 5);
    expect(&f, f.delta, CKPI_HEALTH_WRONG_LENGTH, "has 5 bytes");
    expect_latest(&f, f.key);
    fault_remove(f.d, in(f.key, "shard-00000-of-00002.ckp"));
    expect(&f, f.key, CKPI_HEALTH_MISSING_SHARD, "shard-00000");
    ckpi_chain c = CKPI_CHAIN_INIT;
    ckpi_buf why = CKPI_BUF_INIT;
    assert_status(ckpi_store_latest(f.s, UINT64_MAX, &c, &why, NULL), CKP_ENOTFOUND);
    ckpi_buf_u8(&why, 0);
    assert_non_null(strstr((char *)why.data, "wrong length"));
    assert_non_null(strstr((char *)why.data, "bad manifest"));
    assert_non_null(strstr((char *)why.data, "missing shard"));
    ckpi_buf_free(&why);
    drop(&f);
}

static void
test_base_damage(void **state)
{
    (void)state;
    fixture f = make();
    ckp_error err;
    ckpi_chain c = CKPI_CHAIN_INIT;
    fault_remove(f.d, in(f.key, "manifest.json"));
    expect(&f, f.key, CKPI_HEALTH_INCOMPLETE, NULL);
    expect(&f, f.delta, CKPI_HEALTH_BAD_BASE, f.key);
    assert_status(ckpi_store_chain(f.s, f.delta, &c, &err), CKP_ECORRUPT);
    assert_status(ckpi_store_at_step(f.s, 200, &c, &err), CKP_ENOTFOUND);
    assert_non_null(strstr(err.text, "bad base"));
    assert_status(ckpi_store_at_step(f.s, 201, &c, &err), CKP_ENOTFOUND);
    assert_status(ckpi_store_chain(f.s, "step-00000001-00000000", &c, &err), CKP_ENOTFOUND);
    drop(&f);
}

/* Level 1 does not read shards; level 2 sees every flipped bit. */
static void
test_check_levels(void **state)
{
    (void)state;
    fixture f = make();
    ckp_error err;
    fault_flip(f.d, in(f.delta, "shard-00001-of-00002.ckp"), 17, 0x80);
    assert_ok(ckpi_store_check(f.s, f.delta, 1, NULL, NULL, NULL));
    assert_status(ckpi_store_check(f.s, f.delta, 2, NULL, NULL, &err), CKP_ECORRUPT);
    assert_non_null(strstr(err.file, "shard-00001-of-00002.ckp"));
    assert_ok(ckpi_store_check(f.s, f.key, 2, NULL, NULL, NULL));
    assert_status(ckpi_store_check(f.s, f.key, 3, NULL, NULL, NULL), CKP_EINVAL);
    drop(&f);
}

static int
stop(void *user, uint64_t done, uint64_t total)
{
    (void)total;
    return ++*(int *)user == 1 && done > 0;
}

static void
test_cancel(void **state)
{
    (void)state;
    fixture f = make();
    int calls = 0;
    assert_status(ckpi_store_check(f.s, f.key, 2, stop, &calls, NULL), CKP_ECANCELLED);
    assert_int_equal(calls, 1);
    drop(&f);
}

static void
move(fixture *f, const char *from, const char *to)
{
    const char *const files[] = {"manifest.json", "shard-00000-of-00001.ckp"};
    ckpi_fs *fs = ckpi_store_fs(f->s);
    assert_ok(fs->ops->mkdir(fs, to, NULL));
    for (size_t i = 0; i < 2; i++)
        assert_ok(fs->ops->publish(fs, in(from, files[i]), in(to, files[i]), false, NULL));
}

static void
test_renamed_and_foreign(void **state)
{
    (void)state;
    fixture f = make();
    const char *to = "step-00000301-00000001";
    move(&f, f.last, to);
    expect(&f, to, CKPI_HEALTH_BAD_MANIFEST, "belongs to");
    expect_latest(&f, f.delta);

    fixture other = make();
    ckpi_buf raw = CKPI_BUF_INIT;
    assert_ok(ckpi_fs_read(ckpi_store_fs(other.s), in(other.last, "manifest.json"), CKPI_MAX_MANIFEST, &raw, NULL));
    assert_ok(ckpi_store_fs(f.s)->ops->mkdir(ckpi_store_fs(f.s), other.last, NULL));
    fault_write(f.d, in(other.last, "manifest.json"), raw.data, raw.len);
    expect(&f, other.last, CKPI_HEALTH_FOREIGN, "another run");
    expect_latest(&f, f.delta);
    ckpi_buf_free(&raw);
    drop(&other);
    drop(&f);
}

/* Invariant 6: sequence decides, not step; going back to an older step is a save like any other. */
static void
test_sequence_rules(void **state)
{
    (void)state;
    fixture f = make();
    char dir[CKPI_DIR_NAME_MAX], again[CKPI_DIR_NAME_MAX];
    assert_ok(run_save(f.s, 50, NULL, 1, dir, NULL));
    expect_latest(&f, dir);
    assert_ok(run_save(f.s, 50, NULL, 1, again, NULL));
    assert_string_not_equal(dir, again);
    expect_latest(&f, again);
    ckpi_chain c = CKPI_CHAIN_INIT;
    assert_ok(ckpi_store_at_step(f.s, 50, &c, NULL));
    assert_string_equal(c.dir[0], again);
    ckpi_chain_free(&c);
    assert_ok(ckpi_store_latest(f.s, 3, &c, NULL, NULL));
    assert_int_equal(c.n, 2);
    assert_string_equal(c.dir[0], f.key);
    assert_string_equal(c.dir[1], f.delta);
    ckpi_chain_free(&c);
    assert_ok(run_save(f.s, INT64_MAX, NULL, 1, dir, NULL));
    assert_memory_equal(dir, "step-9223372036854775807-", 25);
    expect_latest(&f, dir);
    assert_status(run_save(f.s, (uint64_t)INT64_MAX + 1, NULL, 1, dir, NULL), CKP_EINVAL);
    drop(&f);
}

static void
tweak_key(ckpi_manifest *m) { m->chain = 1; }
static void
tweak_length(ckpi_manifest *m) { m->shards[0].length++; }
static void
tweak_name(ckpi_manifest *m) { m->shards[0].file[0] = '/'; }
static void
tweak_ghost(ckpi_manifest *m) { m->shards[0].file[10] = '7'; }
static void
tweak_profile(ckpi_manifest *m) { m->profile[0] = '\0'; }

/* A manifest that lies is refused before anything is published, and leaves nothing behind. */
static void
test_commit_refuses(void **state)
{
    (void)state;
    void (*const tweaks[])(ckpi_manifest *m) = {tweak_key, tweak_length, tweak_name, tweak_ghost, tweak_profile};
    for (size_t i = 0; i < CHECK_COUNT(tweaks); i++) {
        fixture f = make();
        ckpi_attempt *a = NULL;
        ckpi_writer *w = NULL;
        ckpi_manifest *m = ckpi_manifest_new();
        char dir[CKPI_DIR_NAME_MAX];
        assert_ok(ckpi_store_begin(f.s, 400, &a, NULL));
        snprintf(dir, sizeof dir, "%s", ckpi_attempt_dir(a));
        assert_ok(ckpi_store_shard(f.s, a, 0, 1, &w, NULL));
        assert_ok(ckpi_writer_finish(w, NULL));
        ckpi_writer_free(w);
        assert_ok(ckpi_manifest_add_shard(m, "shard-00000-of-00001.ckp", 0, (ckpi_id){1, 1}, (ckpi_id){1, 1}, NULL));
        assert_ok(ckpi_manifest_set(&m->profile, "lossless", NULL));
        m->content = (ckpi_id){1, 1};
        tweaks[i](m);
        const ckp_status st = ckpi_store_commit(f.s, a, m, NULL);
        assert_true(st == CKP_EINVAL || st == CKP_EPATH);
        assert_false(fault_exists(f.d, dir));
        ckpi_manifest_free(m);
        expect_latest(&f, f.last);
        drop(&f);
    }
}

/* Invariant 10. */
static void
test_commit_wants_its_base(void **state)
{
    (void)state;
    fixture f = make();
    char second[CKPI_DIR_NAME_MAX];
    assert_ok(run_save(f.s, 400, f.delta, 1, second, NULL));
    ckpi_attempt *a = NULL;
    for (int what = 0; what < 4; what++) {
        ckpi_manifest *m = ckpi_manifest_new();
        ckpi_writer *w = NULL;
        ckpi_chain c = CKPI_CHAIN_INIT;
        if (what == 3)
            fault_remove(f.d, in(f.key, "shard-00001-of-00002.ckp"));       /* deep down, not the base itself */
        else
            assert_ok(ckpi_store_chain(f.s, second, &c, NULL));
        assert_ok(ckpi_store_begin(f.s, 500, &a, NULL));
        assert_ok(ckpi_store_shard(f.s, a, 0, 1, &w, NULL));
        assert_ok(ckpi_writer_finish(w, NULL));
        ckpi_writer_free(w);
        assert_ok(ckpi_manifest_add_shard(m, "shard-00000-of-00001.ckp", 0, (ckpi_id){1, 1}, (ckpi_id){1, 1}, NULL));
        assert_ok(ckpi_manifest_set(&m->profile, "lossless", NULL));
        m->content = (ckpi_id){1, 1};
        m->kind = CKPI_CKPT_DELTA;
        m->chain = what == 0 ? 7 : 3;
        m->base = what == 1 ? (ckpi_id){5, 5} : what == 3 ? ckpi_hash128(&(uint64_t){400}, 8) : c.m[c.n - 1]->content;
        assert_ok(ckpi_manifest_set(&m->base_dir, what == 2 ? "step-00000400-00000000" : second, NULL));
        assert_status(ckpi_store_commit(f.s, a, m, NULL), CKP_EBASE);
        ckpi_manifest_free(m);
        ckpi_chain_free(&c);
    }
    drop(&f);
}

static void
test_run_identity(void **state)
{
    (void)state;
    ckp_error err;
    ckpi_store *s = NULL;
    fault_disk *d = fault_disk_new();
    assert_status(run_open(&s, fault_mount(d), CKPI_STORE_READ, &err), CKP_ENOTFOUND);
    assert_int_equal(fault_digest(d), 1);                /* a reader made nothing */
    fault_disk_free(d);

    fixture f = make();
    const ckpi_id id = ckpi_store_run_id(f.s);
    ckpi_store_free(f.s);
    assert_ok(run_open(&f.s, fault_mount(f.d), CKPI_STORE_READ, NULL));
    assert_true(ckpi_id_eq(id, ckpi_store_run_id(f.s)));
    assert_status(run_save(f.s, 1, NULL, 1, NULL, NULL), CKP_EINVAL);
    fault_flip(f.d, "run.json", 30, 4);
    assert_status(run_open(&s, fault_mount(f.d), CKPI_STORE_READ, &err), CKP_ECORRUPT);
    assert_status(run_open(&s, fault_mount(f.d), CKPI_STORE_WRITE, &err), CKP_ECORRUPT);
    fault_remove(f.d, "run.json");
    assert_status(run_open(&s, fault_mount(f.d), CKPI_STORE_WRITE, &err), CKP_ECORRUPT);
    assert_non_null(strstr(err.text, "missing while checkpoints are there"));
    drop(&f);
}

static ckp_status
life(ckpi_store *s)
{
    ckpi_chain c = CKPI_CHAIN_INIT;
    char dir[CKPI_DIR_NAME_MAX];
    ckp_status st = run_save(s, 1, NULL, 1, dir, NULL);
    if (st == CKP_OK)
        st = run_save(s, 2, dir, 2, NULL, NULL);
    if (st == CKP_OK)
        st = run_save(s, 3, NULL, 1, NULL, NULL);
    if (st == CKP_OK)
        st = ckpi_store_retain(s, &LAST_ONE, NULL, NULL);
    if (st == CKP_OK)
        st = ckpi_store_latest(s, UINT64_MAX, &c, NULL, NULL);
    if (st == CKP_OK)
        st = ckpi_store_check(s, c.dir[c.n - 1], 2, NULL, NULL, NULL);
    ckpi_chain_free(&c);
    return st;
}

static ckp_status
one_life(void *user)
{
    char dir[RUN_TMP_MAX];
    ckpi_fs *fs = NULL;
    ckpi_store *s = NULL;
    (void)user;
    run_tmp(dir);
    ckp_status st = ckpi_fs_posix(&fs, dir, true, NULL);
    if (st == CKP_OK)
        st = run_open(&s, fs, CKPI_STORE_WRITE, NULL);
    if (st == CKP_OK)
        st = life(s);
    ckpi_store_free(s);
    run_rm(dir);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    failalloc_run(one_life, NULL, 50, 3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_foreign_names),
        cmocka_unit_test(test_unproved_attempts),
        cmocka_unit_test(test_lost_manifests),
        cmocka_unit_test(test_damage_is_named),
        cmocka_unit_test(test_base_damage),
        cmocka_unit_test(test_check_levels),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_renamed_and_foreign),
        cmocka_unit_test(test_sequence_rules),
        cmocka_unit_test(test_commit_refuses),
        cmocka_unit_test(test_commit_wants_its_base),
        cmocka_unit_test(test_run_identity),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
