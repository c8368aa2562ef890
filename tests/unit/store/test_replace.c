/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that stand in for others (invariants 2 to 6, 10): order, what may be deleted and what not; and every file call failing, being the
 * last of the process, or the last before a power cut: each step that was committed can be restored at every moment, and asked again it ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include "base/limits.h"
#include "life.h"

#define N 4

typedef struct bed {
    fault_disk *d;
    char dir[N][CKPI_DIR_NAME_MAX];      /* key <- delta <- delta; key */
    char made[N][CKPI_DIR_NAME_MAX];     /* what stands in for them */
} bed;

static bed
make(void)
{
    bed b = {.d = fault_disk_new()};
    ckpi_store *s = NULL;
    assert_ok(run_open(&s, fault_mount(b.d), CKPI_STORE_WRITE, NULL));
    for (int i = 0; i < N; i++)
        assert_ok(run_save(s, (uint64_t)i + 1, i == 0 || i == 3 ? NULL : b.dir[i - 1], 1, b.dir[i], NULL));
    ckpi_store_free(s);
    return b;
}

static const ckpi_entry *
find(const ckpi_entries *e, const char *dir)
{
    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->v[i].dir, dir) == 0)
            return &e->v[i];
    return NULL;
}

/* The same content in another shard (of other bytes), on the base's stand-in. */
static ckp_status
stand_in(ckpi_store *s, const char *dir, const char *base, char made[CKPI_DIR_NAME_MAX], ckp_error *err)
{
    ckpi_entries all = {0};
    ckpi_attempt *a = NULL;
    ckpi_manifest *m = NULL;
    ckpi_writer *w = NULL;
    char name[CKPI_DIR_NAME_MAX] = "";

    ckp_status st = ckpi_store_list(s, &all, err);
    const ckpi_entry *old = st == CKP_OK ? find(&all, dir) : NULL;
    if (st == CKP_OK && (old == NULL || old->m == NULL))
        st = CKP_ENOTFOUND;
    if (st == CKP_OK)
        st = ckpi_manifest_copy(&m, old->m, err);
    if (st == CKP_OK && base != NULL)
        st = ckpi_manifest_set(&m->base_dir, base, err);
    if (st == CKP_OK)
        st = ckpi_store_begin(s, old->step, &a, err);
    if (st == CKP_OK) {
        snprintf(name, sizeof name, "%s", ckpi_attempt_dir(a));
        st = ckpi_store_shard(s, a, 0, 1, &w, err);
    }
    if (st == CKP_OK)
        st = ckpi_writer_put(w, "thinner", 7, err);
    if (st == CKP_OK)
        st = ckpi_writer_finish(w, err);
    if (st == CKP_OK)
        st = ckpi_writer_hash(w, &m->shards[0].hash, err);
    if (st == CKP_OK) {
        m->shards[0].length = 7;
        st = ckpi_store_replace(s, a, m, old->m, err);
        a = NULL;
    }
    if (st == CKP_OK)
        snprintf(made, CKPI_DIR_NAME_MAX, "%s", name);
    ckpi_writer_free(w);
    ckpi_store_abort(s, a);
    ckpi_manifest_free(m);
    ckpi_entries_free(&all);
    return st;
}

/* The delta in the middle and what is based on it, as a rewrite does: those that stand in already are not made again. */
static ckp_status
rewrite(bed *b, ckp_error *err)
{
    ckpi_store *s = NULL;
    ckpi_entries all = {0};
    size_t n = 0;
    uint64_t bytes = 0;

    ckp_status st = run_open(&s, fault_mount(b->d), CKPI_STORE_WRITE, err);
    if (st == CKP_OK)
        st = ckpi_store_list(s, &all, err);
    for (int i = 1; st == CKP_OK && i <= 2; i++) {
        const ckpi_entry *old = find(&all, b->dir[i]);
        if (old != NULL && old->m == NULL)
            old = NULL;            /* its deletion was cut short */
        const size_t in = old != NULL ? ckpi_stand_in(&all, (size_t)(old - all.v)) : SIZE_MAX;
        b->made[i][0] = '\0';
        for (size_t k = 0; old == NULL && k < all.n; k++)       /* its deletion was done before */
            if (all.v[k].m != NULL && all.v[k].m->replaces != NULL && strcmp(all.v[k].m->replaces, b->dir[i]) == 0)
                snprintf(b->made[i], sizeof b->made[i], "%s", all.v[k].dir);
        if (in != SIZE_MAX)
            snprintf(b->made[i], sizeof b->made[i], "%s", all.v[in].dir);
        if (b->made[i][0] == '\0')
            st = stand_in(s, b->dir[i], i == 2 ? b->made[1] : NULL, b->made[i], err);
    }
    if (st == CKP_OK)
        st = ckpi_store_drop_replaced(s, &n, &bytes, err);
    ckpi_entries_free(&all);
    ckpi_store_free(s);
    return st;
}

/* Every step has a whole checkpoint, in the order of the steps, and the newest is the last one's. */
static void
judge(const bed *b, bool ended, const char *what)
{
    ckpi_store *s = NULL;
    ckpi_entries e = {0};
    ckpi_chain c = CKPI_CHAIN_INIT;
    unsigned steps = 0, whole = 0;

    assert_ok(run_open(&s, fault_mount(b->d), CKPI_STORE_READ, NULL));
    assert_ok(ckpi_store_list(s, &e, NULL));
    for (size_t i = 0; i < e.n; i++) {
        if (e.v[i].health == CKPI_HEALTH_INCOMPLETE || e.v[i].health == CKPI_HEALTH_DELETING)
            continue;
        if (e.v[i].health != CKPI_HEALTH_OK)
            fail_msg("%s: %s: %s", what, e.v[i].dir, e.v[i].reason);
        assert_ok(ckpi_store_check(s, e.v[i].dir, 2, NULL, NULL, NULL));
        assert_true(e.v[i].m->sequence == e.v[i].step);
        steps |= 1u << e.v[i].step;
        whole++;
    }
    if (steps != 30)
        fail_msg("%s: steps %x are there", what, steps);
    if (ended && (whole != N || find(&e, b->dir[1]) != NULL || find(&e, b->dir[2]) != NULL))
        fail_msg("%s: %u checkpoints are there, replaced ones too", what, whole);
    for (uint64_t step = 1; step <= N; step++) {
        assert_ok(ckpi_store_at_step(s, step, &c, NULL));
        if (ended && step == 3)
            assert_string_equal(c.dir[c.n - 1], b->made[2]);
        ckpi_chain_free(&c);
    }
    assert_ok(ckpi_store_latest(s, UINT64_MAX, &c, NULL, NULL));
    assert_string_equal(c.dir[c.n - 1], b->dir[3]);
    ckpi_chain_free(&c);
    ckpi_entries_free(&e);
    ckpi_store_free(s);
}

static void
test_order(void **state)
{
    (void)state;
    bed b = make();
    ckpi_store *s = NULL;
    ckpi_entries e = {0};
    ckp_error err;
    char made[CKPI_DIR_NAME_MAX], again[CKPI_DIR_NAME_MAX], next[CKPI_DIR_NAME_MAX];
    size_t n = 0;
    uint64_t bytes = 0;

    assert_ok(run_open(&s, fault_mount(b.d), CKPI_STORE_WRITE, NULL));
    /* one whose delta has no stand-in stays, beside its own */
    assert_ok(stand_in(s, b.dir[1], NULL, made, &err));
    assert_ok(ckpi_store_drop_replaced(s, &n, &bytes, &err));
    assert_int_equal(n, 0);
    ckpi_store_free(s);
    judge(&b, false, "one stands in");
    /* one for the one that stands in: of the same line, by a later writer */
    assert_ok(run_open(&s, fault_mount(b.d), CKPI_STORE_WRITE, NULL));
    assert_ok(stand_in(s, made, NULL, again, &err));
    assert_ok(ckpi_store_list(s, &e, NULL));
    assert_string_equal(find(&e, again)->m->replaces, b.dir[1]);
    assert_string_equal(e.v[ckpi_stand_in(&e, (size_t)(find(&e, b.dir[1]) - e.v))].dir, again);
    assert_string_equal(e.v[ckpi_stand_in(&e, (size_t)(find(&e, made) - e.v))].dir, again);
    assert_true(ckpi_stand_in(&e, (size_t)(find(&e, again) - e.v)) == SIZE_MAX);
    ckpi_entries_free(&e);
    assert_ok(ckpi_store_drop_replaced(s, &n, &bytes, &err));
    assert_true(n == 1 && !fault_exists(b.d, made) && fault_exists(b.d, b.dir[1]));
    /* a damaged one stands in for nothing */
    ckpi_store_free(s);
    char shard[CKPI_DIR_NAME_MAX + 32];
    snprintf(shard, sizeof shard, "%s/shard-00000-of-00001.ckp", again);
    fault_truncate(b.d, shard, 3);
    assert_ok(run_open(&s, fault_mount(b.d), CKPI_STORE_WRITE, NULL));
    assert_ok(ckpi_store_list(s, &e, NULL));
    assert_true(ckpi_stand_in(&e, (size_t)(find(&e, b.dir[1]) - e.v)) == SIZE_MAX);
    ckpi_entries_free(&e);
    /* and beside damage nothing goes: what is based on what is not known */
    assert_status(ckpi_store_drop_replaced(s, &n, &bytes, &err), CKP_ECORRUPT);
    /* the next save comes after all of them */
    assert_ok(run_save(s, 5, b.dir[3], 1, next, NULL));
    assert_ok(ckpi_store_list(s, &e, NULL));
    assert_true(find(&e, next)->m->sequence == N + 1);
    ckpi_entries_free(&e);
    ckpi_store_free(s);
    fault_disk_free(b.d);
}

static bool
one(fault_kind kind, uint64_t at, bool lasting, after_fn after, uint64_t seed, const char *name)
{
    char what[128];
    bed b = make();
    ckp_error err;

    snprintf(what, sizeof what, "%s at call %llu, seed %llu", name, (unsigned long long)at, (unsigned long long)seed);
    fault_arm(b.d, kind, at, lasting);
    (void)rewrite(&b, NULL);
    const bool fired = fault_fired(b.d) > 0;
    after(b.d, seed);
    judge(&b, false, what);
    run_age_lock(b.d);
    if (rewrite(&b, &err) != CKP_OK)
        fail_msg("%s: a second time fails: %s", what, err.text);
    judge(&b, true, what);
    fault_disk_free(b.d);
    return fired;
}

static void
test_crashes(void **state)
{
    static const struct { fault_kind kind; bool lasting; after_fn after; uint64_t seeds; const char *name; } row[] = {
        {FAULT_KILL, false, life_restart, 1, "killed"},      {FAULT_EIO, false, life_heal, 1, "EIO once"},
        {FAULT_EIO, true, life_heal, 1, "EIO from then on"}, {FAULT_ENOSPC, false, life_heal, 1, "ENOSPC"},
        {FAULT_SHORT, false, life_heal, 1, "short write"},   {FAULT_POWER, false, life_cut_all, 1, "power, all kept"},
        {FAULT_POWER, false, life_cut_none, 1, "power, none kept"}, {FAULT_POWER, false, life_cut_torn, 2, "power, torn"},
        {FAULT_POWER, false, life_cut_reordered, 3, "power, reordered"}};
    unsigned long points = 0;

    (void)state;
    for (size_t r = 0; r < CHECK_COUNT(row); r++) {
        bool fired = true;
        for (uint64_t at = 1; fired; at += life_stride(1)) {
            fired = false;
            for (uint64_t seed = 1; seed <= row[r].seeds; seed++) {
                fired = one(row[r].kind, at, row[r].lasting, row[r].after, seed * 1000003 + at, row[r].name) || fired;
                points++;
            }
        }
    }
    print_message("%lu crashes of a rewrite\n", points);
    assert_true(points > 500 / life_stride(1));
    run_points("thin and rebase (stand-ins)", "any", points);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_crashes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
