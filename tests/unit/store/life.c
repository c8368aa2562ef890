/* SPDX-License-Identifier: Apache-2.0 */
#include "life.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

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

uint64_t
life_stride(uint64_t sampled)
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

/* A save that was reported as failed may be there all the same when its upload arrives late, and be the newest: then retention rightly does what the
   trace does not expect. */
static bool
retains(fault_kind kind)
{
    return kind != FAULT_LATE;
}

/* What is enumerated. A call that fails once is not the end: the next ones must work. */
static void
live(fault_disk *d, fault_kind kind, trace *t)
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
    if (retains(kind))
        (void)trace_retain_one(t, s);
    newest(s, dir);
    (void)trace_save(t, s, 12, dir[0] != '\0' ? dir : NULL, NULL);
    ckpi_store_free(s);
}

/* Going back: what was saved after the restored checkpoint stays, and its steps are saved a second time. */
static void
live_again(fault_disk *d, fault_kind kind, trace *t)
{
    (void)kind;
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
    void (*live)(fault_disk *d, fault_kind kind, trace *t);
    size_t gone;
} life;

static const life lives[] = {{"open, saves, retention, close", live, 4}, {"saves again after a rollback", live_again, 0}};

static uint64_t
count_calls(const life *l, disk_fn make, fault_kind kind)
{
    trace t = {0};
    fault_disk *d = make();
    prepare(d, &t);
    fault_arm(d, kind, 0, false);
    l->live(d, kind, &t);
    const uint64_t n = fault_calls(d);
    assert_true(n > 0);
    assert_int_equal(t.n_maybe, 1);         /* the one of prepare: without faults everything commits */
    assert_int_equal(t.n_gone, retains(kind) ? l->gone : 0);
    fault_disk_free(d);
    return n;
}

static void
one(const life *l, disk_fn make, fault_kind kind, uint64_t at, bool lasting, after_fn after, uint64_t seed, const char *name)
{
    char what[160];
    trace t = {0};
    fault_disk *d = make();
    prepare(d, &t);
    fault_arm(d, kind, at, lasting);
    l->live(d, kind, &t);
    assert_true(fault_fired(d) >= 1);
    after(d, seed);
    snprintf(what, sizeof what, "%s, %s at call %llu, seed %llu", l->name, name, (unsigned long long)at, (unsigned long long)seed);
    run_judge(d, &t, what);
    fault_disk_free(d);
}

static void
all_of(const life *l, disk_fn make, fault_kind kind, uint64_t every, bool lasting, after_fn after, uint64_t seeds, const char *name)
{
    const uint64_t n = count_calls(l, make, kind);
    uint64_t points = 0;
    for (uint64_t at = 1; at <= n; at += life_stride(every))
        for (uint64_t seed = 1; seed <= seeds; seed++, points++)
            one(l, make, kind, at, lasting, after, seed * 1000003 + at, name);
    run_points(l->name, name, points);
}

void
life_all(disk_fn make, fault_kind kind, uint64_t every, bool lasting, after_fn after, uint64_t seeds, const char *name)
{
    for (size_t i = 0; i < CHECK_COUNT(lives); i++)
        all_of(&lives[i], make, kind, every, lasting, after, seeds, name);
}

void
life_heal(fault_disk *d, uint64_t seed)
{
    (void)seed;
    fault_arm(d, FAULT_NONE, 0, false);
}

void
life_restart(fault_disk *d, uint64_t seed)
{
    (void)seed;
    fault_restart(d);
}

void life_cut_all(fault_disk *d, uint64_t seed) { fault_reboot(d, FATE_ALL, seed); }
void life_cut_none(fault_disk *d, uint64_t seed) { fault_reboot(d, FATE_NONE, seed); }
void life_cut_torn(fault_disk *d, uint64_t seed) { fault_reboot(d, FATE_TORN, seed); }
void life_cut_reordered(fault_disk *d, uint64_t seed) { fault_reboot(d, FATE_REORDERED, seed); }

void
life_first_open(disk_fn make, fault_kind kind, after_fn after)
{
    uint64_t at = 1;
    for (;; at++) {
        trace t = {0};
        ckpi_store *s = NULL;
        fault_disk *d = make();
        fault_arm(d, kind, at, false);
        (void)run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL);
        if (s != NULL)
            (void)trace_save(&t, s, 0, NULL, NULL);
        ckpi_store_free(s);
        const bool fired = fault_fired(d) > 0;
        after(d, at);
        run_judge(d, &t, "first open");
        fault_disk_free(d);
        if (!fired)
            break;
    }
    run_points("first open and save of a run", "any", at - 1);
}

/* Long enough to be followed, not long enough for nothing more to come. */
#define EXPIRED_S 300

static ckpi_store *
open_after_the_dead(fault_disk *d)
{
    ckpi_store *s = NULL;
    /* again: the dead one's claim may have arrived meanwhile */
    for (int tries = 0; tries < 3 && s == NULL; tries++) {
        run_age_lock_by(d, EXPIRED_S);
        (void)run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL);
    }
    assert_non_null(s);
    return s;
}

static void
next_writer(fault_disk *d, trace *t)
{
    char dir[CKPI_DIR_NAME_MAX];
    ckpi_store *s = open_after_the_dead(d);
    newest(s, dir);
    assert_ok(trace_save(t, s, 20, dir[0] != '\0' ? dir : NULL, NULL));
    assert_ok(trace_save(t, s, 21, NULL, NULL));
    ckpi_store_free(s);
}

/* More than its calls. */
#define NEXT_LIFE 220u

/* Whether it was at a put of the life. */
static bool
orphan(unsigned late_by, uint64_t at, const char *what)
{
    trace t = {0};
    fault_disk *d = fault_objects_new();
    prepare(d, &t);
    fault_late_by(d, late_by);
    fault_arm(d, FAULT_ORPHAN, at, false);
    live(d, FAULT_ORPHAN, &t);
    const bool fired = fault_fired(d) > 0;
    if (fired) {
        fault_restart(d);
        fault_arm(d, FAULT_NONE, 0, false);
        next_writer(d, &t);
        assert_in_range(fault_calls(d), 60, NEXT_LIFE);
        fault_arrive(d);
        ckpi_store_free(open_after_the_dead(d));
        run_judge(d, &t, what);
    }
    fault_disk_free(d);
    return fired;
}

static void
orphans(unsigned late_by)
{
    uint64_t at = 1;
    char what[96];
    do
        snprintf(what, sizeof what, "put %llu of the dead arrives %u calls late", (unsigned long long)at, late_by);
    while (orphan(late_by, at++, what));
    assert_true(at > 10);
}

void
life_orphans(void)
{
    for (unsigned late_by = 0; late_by < NEXT_LIFE; late_by += (unsigned)life_stride(2))
        orphans(late_by);
    orphans(UINT_MAX);
}
