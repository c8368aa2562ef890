/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every file call of a writer's life (open with its sweep, saves, retention, close) fails, is the process's last, or is the
 * last before a power cut with each fate of the unsynced writes. After each the judge checks invariants 1 to 10.
 */
#include <stdio.h>
#include <stdlib.h>
#include "runs.h"

/* Sanitizers make each life some ten times slower. */
#if defined(__SANITIZE_ADDRESS__)  /* gcc; clang says it by __has_feature */
#define SLOWER 5u
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLOWER 5u
#endif
#endif
#ifndef SLOWER
#define SLOWER 1u
#endif

/* Calls of a life are sampled unless CKP_FAIL_EVERY=1. */
static uint64_t
stride(uint64_t sampled)
{
    const char *every = getenv("CKP_FAIL_EVERY");
    return every != NULL && strcmp(every, "1") == 0 ? 1 : sampled * SLOWER;
}

/* A run with a key and two deltas, made without faults; and leftovers of a writer that died in its fourth save. */
static void
prepare(fault_disk *d, trace *t)
{
    ckpi_store *s = NULL;
    char dir[CKPI_DIR_NAME_MAX];
    assert_ok(run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL));
    assert_ok(trace_save(t, s, 1, NULL, dir));
    assert_ok(trace_save(t, s, 2, dir, dir));
    assert_ok(trace_save(t, s, 3, dir, dir));
    fault_arm(d, FAULT_KILL, 9, false);
    assert_int_not_equal(trace_save(t, s, 4, NULL, NULL), CKP_OK);
    assert_int_equal(fault_fired(d), 1);
    fault_restart(d);
    ckpi_store_free(s);
    run_age_lock(d);
}

static void
newest(ckpi_store *s, char dir[CKPI_DIR_NAME_MAX])
{
    ckpi_chain c = CKPI_CHAIN_INIT;
    dir[0] = '\0';
    if (ckpi_store_latest(s, UINT64_MAX, &c, NULL, NULL) == CKP_OK)
        snprintf(dir, CKPI_DIR_NAME_MAX, "%s", c.dir[c.n - 1]);
    ckpi_chain_free(&c);
}

/* What is enumerated. A call that fails once is not the end: the next ones must work. */
static void
live(fault_disk *d, trace *t)
{
    ckpi_store *s = NULL;
    char dir[CKPI_DIR_NAME_MAX];
    for (int tries = 0; tries < 2 && s == NULL; tries++)
        if (run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL) != CKP_OK)
            run_age_lock(d);
    if (s == NULL)
        return;
    newest(s, dir);
    (void)trace_save(t, s, 10, dir[0] != '\0' ? dir : NULL, NULL);
    (void)trace_save(t, s, 11, NULL, NULL);
    const ckp_status beat = ckpi_store_refresh(s, NULL);   /* may fail; what follows must not care */
    (void)beat;
    (void)trace_retain_one(t, s);
    newest(s, dir);
    (void)trace_save(t, s, 12, dir[0] != '\0' ? dir : NULL, NULL);
    ckpi_store_free(s);
}

/* Going back: what was saved after the restored checkpoint stays, and its steps are saved a second time. */
static void
live_again(fault_disk *d, trace *t)
{
    ckpi_store *s = NULL;
    char dir[CKPI_DIR_NAME_MAX];
    for (int tries = 0; tries < 2 && s == NULL; tries++)
        if (run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL) != CKP_OK)
            run_age_lock(d);
    if (s == NULL)
        return;
    (void)snprintf(dir, sizeof dir, "%s", t->kept[0]);
    if (trace_save(t, s, 2, dir, dir) != CKP_OK)
        (void)trace_save(t, s, 2, NULL, dir);
    (void)trace_save(t, s, 3, dir, NULL);
    ckpi_store_free(s);
}

/* What a process does; how many checkpoints it deletes when nothing fails. */
typedef struct life {
    const char *name;
    void (*live)(fault_disk *d, trace *t);
    size_t gone;
} life;

static const life saves = {"open, saves, retention, close", live, 4}, rollback = {"saves again after a rollback", live_again, 0};

static uint64_t
count_calls(const life *l, fault_kind kind)
{
    trace t = {0};
    fault_disk *d = fault_disk_new();
    prepare(d, &t);
    fault_arm(d, kind, 0, false);
    l->live(d, &t);
    const uint64_t n = fault_calls(d);
    assert_true(n > 0);
    assert_int_equal(t.n_maybe, 1);         /* the one of prepare: without faults everything commits */
    assert_int_equal(t.n_gone, l->gone);
    fault_disk_free(d);
    return n;
}

typedef void (*after_fn)(fault_disk *d, uint64_t seed);

static void
one(const life *l, fault_kind kind, uint64_t at, bool lasting, after_fn after, uint64_t seed, const char *name)
{
    char what[160];
    trace t = {0};
    fault_disk *d = fault_disk_new();
    prepare(d, &t);
    fault_arm(d, kind, at, lasting);
    l->live(d, &t);
    assert_true(fault_fired(d) >= 1);
    after(d, seed);
    snprintf(what, sizeof what, "%s, %s at call %llu, seed %llu", l->name, name, (unsigned long long)at, (unsigned long long)seed);
    run_judge(d, &t, what);
    fault_disk_free(d);
}

static void
all_of(const life *l, fault_kind kind, uint64_t every, bool lasting, after_fn after, uint64_t seeds, const char *name)
{
    const uint64_t n = count_calls(l, kind);
    uint64_t points = 0;
    for (uint64_t at = 1; at <= n; at += stride(every))
        for (uint64_t seed = 1; seed <= seeds; seed++, points++)
            one(l, kind, at, lasting, after, seed * 1000003 + at, name);
    run_points(l->name, name, points);
}

static void
all(fault_kind kind, uint64_t every, bool lasting, after_fn after, uint64_t seeds, const char *name)
{
    all_of(&saves, kind, every, lasting, after, seeds, name);
    all_of(&rollback, kind, every, lasting, after, seeds, name);
}

static void
heal(fault_disk *d, uint64_t seed)
{
    (void)seed;
    fault_arm(d, FAULT_NONE, 0, false);
}

static void
restart(fault_disk *d, uint64_t seed)
{
    (void)seed;
    fault_restart(d);
}

static void cut_all(fault_disk *d, uint64_t seed) { fault_reboot(d, FATE_ALL, seed); }
static void cut_none(fault_disk *d, uint64_t seed) { fault_reboot(d, FATE_NONE, seed); }
static void cut_torn(fault_disk *d, uint64_t seed) { fault_reboot(d, FATE_TORN, seed); }
static void cut_reordered(fault_disk *d, uint64_t seed) { fault_reboot(d, FATE_REORDERED, seed); }

static void
test_kill(void **state)
{
    (void)state;
    all(FAULT_KILL, 1, false, restart, 1, "killed");
}

static void
test_eio(void **state)
{
    (void)state;
    all(FAULT_EIO, 1, false, heal, 1, "EIO once");
    all(FAULT_EIO, 5, true, heal, 1, "EIO from then on");
}

/* An error, and then the power goes at the end of the same life: what was reported as failed must not be half there. */
static void
test_eio_then_power(void **state)
{
    (void)state;
    all(FAULT_EIO, 3, false, cut_none, 1, "EIO, then power, nothing unsynced kept");
    all(FAULT_EIO, 3, false, cut_reordered, 2, "EIO, then power, reordered");
}

static void
test_enospc(void **state)
{
    (void)state;
    all(FAULT_ENOSPC, 1, false, heal, 1, "ENOSPC once");
    all(FAULT_ENOSPC, 2, true, heal, 1, "disk full from then on");
    all(FAULT_SHORT, 1, false, heal, 1, "short write");
}

static void
test_power_all(void **state)
{
    (void)state;
    all(FAULT_POWER, 2, false, cut_all, 1, "power, all kept");
}

static void
test_power_none(void **state)
{
    (void)state;
    all(FAULT_POWER, 1, false, cut_none, 1, "power, nothing unsynced kept");
}

static void
test_power_torn(void **state)
{
    (void)state;
    all(FAULT_POWER, 1, false, cut_torn, 2, "power, torn");
}

static void
test_power_reordered(void **state)
{
    (void)state;
    all(FAULT_POWER, 1, false, cut_reordered, 3, "power, reordered");
}

/* The very first opening of a run, before it has an identity. */
static void
test_first_open(void **state)
{
    (void)state;
    const after_fn fates[] = {restart, cut_all, cut_none, cut_torn, cut_reordered};
    for (size_t f = 0; f < CHECK_COUNT(fates); f++) {
        uint64_t at = 1;
        for (;; at++) {
            trace t = {0};
            ckpi_store *s = NULL;
            fault_disk *d = fault_disk_new();
            fault_arm(d, f == 0 ? FAULT_KILL : FAULT_POWER, at, false);
            (void)run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL);
            if (s != NULL)
                (void)trace_save(&t, s, 0, NULL, NULL);
            ckpi_store_free(s);
            const bool fired = fault_fired(d) > 0;
            fates[f](d, at);
            run_judge(d, &t, "first open");
            fault_disk_free(d);
            if (!fired)
                break;
        }
        run_points("first open and save of a run", f == 0 ? "killed" : "power", at - 1);
    }
}

/* The words: ENOSPC at every write of save n, then saves n+1 and n+2 commit. */
static void
test_enospc_then_two_saves(void **state)
{
    (void)state;
    for (uint64_t at = 1;; at++) {
        trace t = {0};
        ckpi_store *s = NULL;
        fault_disk *d = fault_disk_new();
        char dir[CKPI_DIR_NAME_MAX];
        assert_ok(run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL));
        assert_ok(trace_save(&t, s, 1, NULL, dir));
        fault_arm(d, FAULT_ENOSPC, at, true);
        const ckp_status st = trace_save(&t, s, 2, dir, NULL);
        const bool fired = fault_fired(d) > 0;
        assert_status(st, fired ? CKP_ENOSPC : CKP_OK);
        fault_arm(d, FAULT_NONE, 0, false);
        assert_ok(trace_save(&t, s, 3, dir, dir));
        assert_ok(trace_save(&t, s, 4, dir, dir));
        ckpi_store_free(s);
        run_judge(d, &t, "ENOSPC in save 2");
        fault_disk_free(d);
        if (!fired)
            break;
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_eio),
        cmocka_unit_test(test_eio_then_power),
        cmocka_unit_test(test_enospc),
        cmocka_unit_test(test_power_all),
        cmocka_unit_test(test_power_none),
        cmocka_unit_test(test_power_torn),
        cmocka_unit_test(test_power_reordered),
        cmocka_unit_test(test_first_open),
        cmocka_unit_test(test_enospc_then_two_saves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
