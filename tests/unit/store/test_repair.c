/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair: what goes out of the way and what does not (invariants 1, 2, 4, 5, 8, 9), and every file call of it failing, being the last of the
 * process, or the last before a power cut: nothing whole is lost, nothing that is set aside loses a byte, and asked again it ends as it would have.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include "base/limits.h"
#include "format/runfile.h"
#include "os/host.h"
#include "life.h"

#define N 5
#define ASIDE "set-aside-"

typedef struct bed {
    fault_disk *d;
    ckpi_id run;
    char dir[N][CKPI_DIR_NAME_MAX];      /* key <- delta <- delta, key <- delta */
} bed;

static const char *
in(const char *dir, const char *file)
{
    static char path[4][256];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, file);
    return p;
}

static const char *
aside(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], ASIDE "%s", name);
    return p;
}

static bed
make(void)
{
    bed b = {.d = fault_disk_new()};
    ckpi_store *s = NULL;
    assert_ok(run_open(&s, fault_mount(b.d), CKPI_STORE_WRITE, NULL));
    for (int i = 0; i < N; i++)
        assert_ok(run_save(s, (uint64_t)i + 1, i == 0 || i == 3 ? NULL : b.dir[i - 1], 2, b.dir[i], NULL));
    b.run = ckpi_store_run_id(s);
    ckpi_store_free(s);
    return b;
}

/* The second shard of the first delta is gone, the last manifest is flipped, and so is run.json. */
static void
damage(const bed *b)
{
    fault_remove(b->d, in(b->dir[1], "shard-00001-of-00002.ckp"));
    fault_flip(b->d, in(b->dir[4], "manifest.json"), 40, 1);
    fault_flip(b->d, "run.json", 30, 1);
}

static ckp_status
repair(fault_disk *d, ckpi_repair_ask ask, ckpi_repaired *done, ckp_error *err)
{
    const ckpi_store_options opt = {.repair = true};
    ckpi_repaired n;
    ckpi_store *s = NULL;
    ckp_status st = ckpi_store_open(&s, fault_mount(d), ask.dry_run ? CKPI_STORE_READ : CKPI_STORE_WRITE, &opt, err);
    if (st == CKP_OK)
        st = ckpi_store_repair(s, &ask, done != NULL ? done : &n, err);
    ckpi_store_free(s);
    return st;
}

static uint64_t
hash_of(fault_disk *d, const char *path)
{
    ckpi_buf raw = CKPI_BUF_INIT;
    ckpi_fs *fs = fault_mount(d);
    const ckp_status st = ckpi_fs_read(fs, path, 1u << 20, &raw, NULL);
    const uint64_t h = st == CKP_OK ? ckpi_hash64(raw.data, raw.len) : 0;
    ckpi_buf_free(&raw);
    ckpi_fs_free(fs);
    return h;
}

static const char *const files[] = {"manifest.json", "shard-00000-of-00002.ckp", "shard-00001-of-00002.ckp"};

typedef struct sums { uint64_t h[N][3], identity; } sums;

static sums
take_sums(const bed *b)
{
    sums s = {.identity = hash_of(b->d, "run.json")};
    for (int i = 0; i < N; i++)
        for (int f = 0; f < 3; f++)
            s.h[i][f] = hash_of(b->d, in(b->dir[i], files[f]));
    return s;
}

/* The ones that stay are whole, the others are where they belong, byte for byte. */
static void
expect_repaired(const bed *b, const sums *was, bool removed, const char *what)
{
    ckpi_store *s = NULL;
    ckpi_entries e = {0};
    char next[CKPI_DIR_NAME_MAX];

    assert_ok(run_open(&s, fault_mount(b->d), CKPI_STORE_READ, NULL));
    assert_true(ckpi_id_eq(ckpi_store_run_id(s), b->run));
    assert_ok(ckpi_store_list(s, &e, NULL));
    if (e.n != 2)
        fail_msg("%s: %zu checkpoints are listed", what, e.n);
    for (size_t i = 0; i < e.n; i++) {
        assert_int_equal(e.v[i].health, CKPI_HEALTH_OK);
        assert_string_equal(e.v[i].dir, b->dir[i == 0 ? 0 : 3]);
        assert_ok(ckpi_store_check(s, e.v[i].dir, 2, NULL, NULL, NULL));
    }
    ckpi_entries_free(&e);
    ckpi_store_free(s);
    for (int i = 1; i < N; i++)
        for (int f = 0; f < 3 && i != 3; f++)
            if (hash_of(b->d, in(aside(b->dir[i]), files[f])) != (removed ? 0 : was->h[i][f]))
                fail_msg("%s: %s/%s is not what it was", what, aside(b->dir[i]), files[f]);
    assert_true(hash_of(b->d, aside("run.json")) == was->identity);
    /* a training goes on, above all that ever was */
    assert_ok(run_open(&s, fault_mount(b->d), CKPI_STORE_WRITE, NULL));
    assert_ok(run_save(s, 9, b->dir[3], 2, next, NULL));
    assert_ok(ckpi_store_list(s, &e, NULL));
    assert_string_equal(e.v[e.n - 1].dir, next);
    assert_true(removed || e.v[e.n - 1].m->sequence > 4);
    ckpi_entries_free(&e);
    ckpi_store_free(s);
}

/* ---- what it does ---------------------------------------------------------------------------------------------------- */

typedef struct seen { unsigned n[4]; char last[CKPI_DIR_NAME_MAX]; } seen;

static void
tell(void *user, const ckpi_entries *all, const ckpi_entry *e, ckpi_repair_fate fate, const char *reason)
{
    seen *s = user;
    (void)all;
    assert_true(reason != NULL && reason[0] != '\0');
    s->n[fate]++;
    snprintf(s->last, sizeof s->last, "%s", e->dir);
}

static void
test_sets_aside(void **state)
{
    (void)state;
    bed b = make();
    ckpi_repaired done;
    ckp_error err;
    seen s = {{0}, ""};
    ckpi_repair_ask ask = {.told = tell, .told_user = &s, .dry_run = true};

    damage(&b);
    const sums was = take_sums(&b);
    const uint64_t before = fault_digest(b.d);
    assert_ok(repair(b.d, ask, &done, &err));
    assert_true(fault_digest(b.d) == before);
    assert_true(done.identity && done.restorable == 2 && done.newest_step == 4 && done.set_aside == 3 && s.n[CKPI_REPAIR_SET_ASIDE] == 3);
    assert_string_equal(s.last, b.dir[4]);       /* the one without a sequence is first in the list */
    s = (seen){{0}, ""};
    ask.dry_run = false;
    assert_ok(repair(b.d, ask, &done, &err));
    assert_int_equal(s.n[CKPI_REPAIR_SET_ASIDE], 3);
    /* nothing more to do */
    const uint64_t after = fault_digest(b.d);
    ask.dry_run = true;
    assert_ok(repair(b.d, ask, &done, &err));
    assert_true(done.set_aside == 0 && done.restorable == 2 && !done.identity);
    assert_true(fault_digest(b.d) == after);
    expect_repaired(&b, &was, false, "set aside");
    fault_disk_free(b.d);
}

/* The same damage once more, copied back by a hand: the name is taken. */
static void
test_again(void **state)
{
    (void)state;
    bed b = make();
    ckpi_fs *fs = fault_mount(b.d);
    char second[128];

    fault_remove(b.d, in(b.dir[2], "shard-00000-of-00002.ckp"));
    assert_ok(repair(b.d, (ckpi_repair_ask){0}, NULL, NULL));
    assert_ok(fs->ops->publish(fs, aside(b.dir[2]), b.dir[2], false, NULL));
    assert_ok(fs->ops->mkdir(fs, aside(b.dir[2]), NULL));
    assert_ok(repair(b.d, (ckpi_repair_ask){0}, NULL, NULL));
    snprintf(second, sizeof second, ASIDE "1-%s", b.dir[2]);
    assert_true(hash_of(b.d, in(second, "manifest.json")) != 0);
    ckpi_fs_free(fs);
    fault_disk_free(b.d);
}

/* Bytes that only their hash tells of: found with `data`, with all that is based on them. */
static void
test_data(void **state)
{
    (void)state;
    bed b = make();
    ckpi_repaired done;
    ckp_error err;

    fault_flip(b.d, in(b.dir[0], "shard-00000-of-00002.ckp"), 100, 4);
    assert_ok(repair(b.d, (ckpi_repair_ask){0}, &done, &err));
    assert_int_equal(done.restorable, N);
    assert_ok(repair(b.d, (ckpi_repair_ask){.data = true}, &done, &err));
    assert_true(done.restorable == 2 && done.set_aside == 3 && done.newest_step == 5);
    fault_disk_free(b.d);
}

/* Each piece of a shard takes longer than half of the lock's life. */
static int
slowly(void *user, uint64_t done, uint64_t total)
{
    fault_disk *d = user;
    ckpi_store *other = NULL;
    (void)total;
    if (done < 3000)
        ckpi_sleep_ms(1100);
    else                         /* by then the claim is older than its expiry, were it not refreshed */
        assert_status(ckpi_store_open(&other, fault_mount(d), CKPI_STORE_WRITE, &(ckpi_store_options){.lock_expiry_s = 2}, NULL), CKP_EBUSY);
    return 0;
}

static void
test_reading_keeps_the_lock(void **state)
{
    (void)state;
    bed b = make();
    ckpi_store *s = NULL;
    ckpi_repaired done;
    assert_ok(ckpi_store_open(&s, fault_mount(b.d), CKPI_STORE_WRITE, &(ckpi_store_options){.lock_expiry_s = 2, .repair = true}, NULL));
    assert_ok(ckpi_store_repair(s, &(ckpi_repair_ask){.data = true, .progress = slowly, .user = b.d}, &done, NULL));
    assert_int_equal(done.restorable, N);
    ckpi_store_free(s);
    fault_disk_free(b.d);
}

static void
test_deletes(void **state)
{
    (void)state;
    bed b = make();
    ckpi_repaired done;
    ckp_error err;

    damage(&b);
    const sums was = take_sums(&b);
    assert_ok(repair(b.d, (ckpi_repair_ask){.remove = true}, &done, &err));
    assert_true(done.deleted == 3 && done.set_aside == 0 && done.restorable == 2);
    for (int i = 1; i < N; i++)
        assert_true(i == 3 || !fault_exists(b.d, b.dir[i]));
    expect_repaired(&b, &was, true, "deleted");
    fault_disk_free(b.d);

    /* where nothing restorable is left, nothing is deleted: it may be all that is left of a training */
    b = make();
    fault_remove(b.d, in(b.dir[0], "shard-00000-of-00002.ckp"));
    fault_remove(b.d, in(b.dir[3], "shard-00000-of-00002.ckp"));
    assert_ok(repair(b.d, (ckpi_repair_ask){.remove = true}, &done, &err));
    assert_true(done.deleted == 0 && done.set_aside == N && done.restorable == 0);
    for (int i = 0; i < N; i++)
        assert_true(hash_of(b.d, in(aside(b.dir[i]), "shard-00001-of-00002.ckp")) != 0);
    fault_disk_free(b.d);
}

/* Not ours to judge: another run's, a newer version's and what is based on it. */
static void
test_leaves(void **state)
{
    (void)state;
    bed b = make(), other = make();
    ckpi_repaired done;
    ckp_error err;
    ckpi_buf raw = CKPI_BUF_INIT;
    ckpi_manifest *m = NULL;
    ckpi_fs *fs = fault_mount(b.d), *fs2 = fault_mount(other.d);

    /* a manifest of the other run, in a directory of its own */
    assert_ok(ckpi_fs_read(fs2, in(other.dir[0], "manifest.json"), 1u << 20, &raw, NULL));
    assert_ok(fs->ops->mkdir(fs, other.dir[0], NULL));
    fault_write(b.d, in(other.dir[0], "manifest.json"), raw.data, raw.len);
    ckpi_buf_clear(&raw);
    /* the second key as a newer version would write it */
    assert_ok(ckpi_fs_read(fs, in(b.dir[3], "manifest.json"), 1u << 20, &raw, NULL));
    assert_ok(ckpi_manifest_parse(&m, raw.data, raw.len, NULL));
    char *at = memmem(raw.data, raw.len, "\"ckpress_manifest\": 1", 21);
    assert_non_null(at);
    at[20] = '9';
    /* sealed anew: 32 digits before the tail */
    const size_t tail = 32 + 4;
    char hex[33];
    const size_t body = raw.len - tail - strlen(",\n \"hash\": \"");
    ckpi_id_hex(ckpi_hash128(raw.data, body), hex);
    memcpy((char *)raw.data + raw.len - tail, hex, 32);
    fault_write(b.d, in(b.dir[3], "manifest.json"), raw.data, raw.len);
    assert_ok(repair(b.d, (ckpi_repair_ask){0}, &done, &err));
    assert_true(done.left == 3 && done.set_aside == 0 && done.restorable == 3);
    assert_true(fault_exists(b.d, in(b.dir[4], "manifest.json")) && fault_exists(b.d, in(other.dir[0], "manifest.json")));
    /* two runs, and no run.json to say whose directory it is */
    fault_remove(b.d, "run.json");
    const uint64_t before = fault_digest(b.d);
    assert_status(repair(b.d, (ckpi_repair_ask){0}, &done, &err), CKP_EMISMATCH);
    assert_true(fault_digest(b.d) == before);
    ckpi_manifest_free(m);
    ckpi_buf_free(&raw);
    ckpi_fs_free(fs);
    ckpi_fs_free(fs2);
    fault_disk_free(b.d);
    fault_disk_free(other.d);
}

static void
test_refuses(void **state)
{
    (void)state;
    bed b = make();
    ckpi_store *s = NULL;
    ckp_error err;
    fault_disk *empty = fault_disk_new();

    assert_ok(run_open(&s, fault_mount(b.d), CKPI_STORE_WRITE, NULL));
    fault_remove(b.d, in(b.dir[2], "shard-00000-of-00002.ckp"));
    assert_status(repair(b.d, (ckpi_repair_ask){0}, NULL, &err), CKP_EBUSY);
    assert_true(fault_exists(b.d, in(b.dir[2], "manifest.json")));
    ckpi_store_free(s);
    /* a directory that never was a run does not become one */
    const uint64_t before = fault_digest(empty);
    assert_status(repair(empty, (ckpi_repair_ask){0}, NULL, &err), CKP_ENOTFOUND);
    assert_true(fault_digest(empty) == before);
    fault_disk_free(empty);
    fault_disk_free(b.d);
}

/* ---- crashes --------------------------------------------------------------------------------------------------------- */

/* Readers beside a repair that was cut short: the whole ones are there, or the run says that it has no identity. */
static void
judge_between(const bed *b, const char *what)
{
    ckpi_store *s = NULL;
    ckpi_entries e = {0};
    const ckp_status st = run_open(&s, fault_mount(b->d), CKPI_STORE_READ, NULL);
    if (st == CKP_ENOTFOUND || st == CKP_ECORRUPT)
        return;
    assert_ok(st);
    assert_ok(ckpi_store_list(s, &e, NULL));
    unsigned whole = 0;
    for (size_t i = 0; i < e.n; i++)
        whole += e.v[i].health == CKPI_HEALTH_OK;
    if (whole != 2)
        fail_msg("%s: %u whole checkpoints", what, whole);
    ckpi_entries_free(&e);
    ckpi_store_free(s);
}

static bool
one(fault_kind kind, uint64_t at, bool lasting, bool removing, after_fn after, uint64_t seed, const char *name)
{
    char what[128];
    bed b = make();
    const ckpi_repair_ask ask = {.remove = removing};
    ckp_error err;

    snprintf(what, sizeof what, "%s at call %llu, seed %llu%s", name, (unsigned long long)at, (unsigned long long)seed, removing ? ", deleting" : "");
    damage(&b);
    const sums was = take_sums(&b);
    fault_arm(b.d, kind, at, lasting);
    (void)repair(b.d, ask, NULL, NULL);
    const bool fired = fault_fired(b.d) > 0;
    after(b.d, seed);
    judge_between(&b, what);
    run_age_lock(b.d);
    if (repair(b.d, ask, NULL, &err) != CKP_OK)
        fail_msg("%s: a second repair fails: %s", what, err.text);
    expect_repaired(&b, &was, removing, what);
    fault_disk_free(b.d);
    return fired;
}

static void
test_crashes(void **state)
{
    static const struct { fault_kind kind; bool lasting; after_fn after; uint64_t seeds; const char *name; } row[] = {
        {FAULT_KILL, false, life_restart, 1, "killed"},          {FAULT_EIO, false, life_heal, 1, "EIO once"},
        {FAULT_EIO, true, life_heal, 1, "EIO from then on"},     {FAULT_ENOSPC, false, life_heal, 1, "ENOSPC"},
        {FAULT_ENOSPC, true, life_heal, 1, "disk full"},         {FAULT_POWER, false, life_cut_all, 1, "power, all kept"},
        {FAULT_POWER, false, life_cut_none, 1, "power, none kept"}, {FAULT_POWER, false, life_cut_torn, 2, "power, torn"},
        {FAULT_POWER, false, life_cut_reordered, 3, "power, reordered"}};
    unsigned long points = 0;

    (void)state;
    for (size_t r = 0; r < CHECK_COUNT(row); r++)
        for (int removing = 0; removing < 2; removing++) {
            bool fired = true;
            for (uint64_t at = 1; fired; at += life_stride(1)) {
                fired = false;
                for (uint64_t seed = 1; seed <= row[r].seeds; seed++) {
                    fired = one(row[r].kind, at, row[r].lasting, removing != 0, row[r].after, seed * 1000003 + at, row[r].name) || fired;
                    points++;
                }
            }
        }
    print_message("%lu crashes of a repair\n", points);
    assert_true(points > 500 / life_stride(1));
    run_points("repair of a run", "any", points);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_aside), cmocka_unit_test(test_again),   cmocka_unit_test(test_data),   cmocka_unit_test(test_deletes),
        cmocka_unit_test(test_leaves),     cmocka_unit_test(test_refuses), cmocka_unit_test(test_crashes), cmocka_unit_test(test_reading_keeps_the_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
