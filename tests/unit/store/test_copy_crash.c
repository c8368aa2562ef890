/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every file call of a copy fails, is the process's last, or is the last before a power cut, on either side. What is there afterwards is a run
 * of whole checkpoints of the source (invariants 1 to 10); asked again, the copy ends as an undisturbed one does; or a training goes on
 * from what is there.
 */
#include <stdio.h>
#include <stdlib.h>
#include "copies.h"

typedef void (*after_fn)(fault_disk *d, uint64_t seed);

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

/* The disk of the copy has some of it already: its begin, and what a copy left that was killed. */
static void
prepare(fault_disk *from, fault_disk *to)
{
    const uint64_t first = 2;
    const ckpi_copy_ask ask = {.step = &first, .n_steps = 1};
    assert_ok(copies_run(from, to, &ask, NULL, NULL));
    fault_arm(to, FAULT_KILL, 40, false);
    assert_int_not_equal(copies_run(from, to, NULL, NULL, NULL), CKP_OK);
    fault_restart(to);
    run_age_lock(to);
}

/* Names and contents but for claims and copied.json, which tell of what happened. */
static void
same_run(fault_disk *to, const trace *t, const char *what)
{
    if (copies_judge(to, t, what) != t->n_kept)
        fail_msg("%s: not all of it was copied", what);
}

/* A training takes what there is and goes on; then the source, which has more, must not be mixed in. */
static void
go_on(fault_disk *from, fault_disk *to, const trace *t, size_t n, const char *what)
{
    trace had = {0};
    for (size_t i = 0; i < t->n_kept; i++)
        snprintf(had.maybe[had.n_maybe++], CKPI_DIR_NAME_MAX, "%s", t->kept[i]);
    run_judge(to, &had, what);
    if (n > 0) {
        const ckp_status st = copies_run(from, to, NULL, NULL, NULL);
        if (st != (n == t->n_kept ? CKP_OK : CKP_EMISMATCH))
            fail_msg("%s: after %zu checkpoints and a training's the copy says %s", what, n, ckp_status_name(st));
    }
}

/* True while the fault fired. */
static bool
one(fault_kind kind, uint64_t at, bool lasting, after_fn after, uint64_t seed, bool train, const char *name)
{
    char what[128];
    trace t = {0};
    fault_disk *from = fault_disk_new(), *to = fault_disk_new();
    copies_source(from, &t);
    prepare(from, to);
    const uint64_t before = fault_digest(from);
    snprintf(what, sizeof what, "%s at call %llu, seed %llu%s", name, (unsigned long long)at, (unsigned long long)seed, train ? ", then a training" : "");
    fault_arm(to, kind, at, lasting);
    const ckp_status st = copies_run(from, to, NULL, NULL, NULL);
    const bool fired = fault_fired(to) > 0;
    if (!fired && st != CKP_OK)
        fail_msg("%s: %s without a fault", what, ckp_status_name(st));
    after(to, seed);
    const size_t n = copies_judge(to, &t, what);
    assert_true(n >= 2);                 /* prepare's */
    if (st == CKP_OK && kind != FAULT_POWER && n != t.n_kept)
        fail_msg("%s: said to be whole, and is not", what);
    run_age_lock(to);
    if (train) {
        go_on(from, to, &t, n, what);
    } else {
        assert_ok(copies_run(from, to, NULL, NULL, NULL));
        same_run(to, &t, what);
        run_judge(to, &t, what);
    }
    if (fault_digest(from) != before)
        fail_msg("%s: the source was changed", what);
    fault_disk_free(to);
    fault_disk_free(from);
    return fired;
}

/* Sanitizers make each copy some ten times slower. */
static uint64_t
stride(void)
{
    const char *every = getenv("CKP_FAIL_EVERY");
#if defined(__SANITIZE_ADDRESS__)
    const uint64_t sampled = 9;
#else
    const uint64_t sampled = 2;
#endif
    return every != NULL && strcmp(every, "1") == 0 ? 1 : sampled;
}

static void
all(fault_kind kind, bool lasting, after_fn after, uint64_t seeds, const char *name)
{
    uint64_t n = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        for (uint64_t at = 1; one(kind, at, lasting, after, seed * 1000003 + at, false, name); at += stride()) {
            (void)one(kind, at, lasting, after, seed * 1000003 + at, true, name);
            n++;
        }
    assert_true(n > 0);                  /* and each fired */
    run_points("copy of a run", name, 2 * n);
}

static void
test_kill(void **state)
{
    (void)state;
    all(FAULT_KILL, false, restart, 1, "killed");
}

static void
test_errors(void **state)
{
    (void)state;
    all(FAULT_EIO, false, heal, 1, "EIO once");
    all(FAULT_EIO, true, heal, 1, "EIO from then on");
    all(FAULT_ENOSPC, false, heal, 1, "ENOSPC once");
    all(FAULT_ENOSPC, true, heal, 1, "disk full from then on");
    all(FAULT_SHORT, false, heal, 1, "short write");
}

static void
test_power(void **state)
{
    (void)state;
    all(FAULT_POWER, false, cut_all, 1, "power, all kept");
    all(FAULT_POWER, false, cut_none, 1, "power, nothing unsynced kept");
    all(FAULT_POWER, false, cut_torn, 2, "power, torn");
    all(FAULT_POWER, false, cut_reordered, 2, "power, reordered");
}

/* EIO, and then the power goes. */
static void
test_error_then_power(void **state)
{
    (void)state;
    all(FAULT_EIO, false, cut_none, 1, "EIO, then power, nothing unsynced kept");
    all(FAULT_EIO, false, cut_reordered, 1, "EIO, then power, reordered");
}

/* The source's disk fails, once or for good. */
static void
test_source(void **state)
{
    (void)state;
    for (int lasting = 0; lasting <= 1; lasting++) {
        for (uint64_t at = 1;; at++) {
            trace t = {0};
            fault_disk *from = fault_disk_new(), *to = fault_disk_new();
            copies_source(from, &t);
            const uint64_t before = fault_digest(from);
            fault_arm(from, FAULT_EIO, at, lasting != 0);
            const ckp_status st = copies_run(from, to, NULL, NULL, NULL);
            const bool fired = fault_fired(from) > 0;
            heal(from, 0);
            const size_t n = copies_judge(to, &t, "the source fails");
            if (st == CKP_OK && n != t.n_kept)
                fail_msg("call %llu of the source fails, and the copy says that it is whole", (unsigned long long)at);
            assert_ok(copies_run(from, to, NULL, NULL, NULL));
            same_run(to, &t, "the source failed");
            run_judge(to, &t, "the source failed");
            assert_true(fault_digest(from) == before);
            fault_disk_free(to);
            fault_disk_free(from);
            if (!fired)
                break;
            assert_true(at < 1000);
        }
    }
}

/* The first copy of all, into nothing. */
static void
test_first(void **state)
{
    (void)state;
    const after_fn fates[] = {restart, cut_all, cut_none, cut_torn, cut_reordered};
    for (size_t f = 0; f < CHECK_COUNT(fates); f++) {
        for (uint64_t at = 1;; at++) {
            char what[64];
            trace t = {0};
            fault_disk *from = fault_disk_new(), *to = fault_disk_new();
            copies_source(from, &t);
            fault_arm(to, f == 0 ? FAULT_KILL : FAULT_POWER, at, false);
            (void)!copies_run(from, to, NULL, NULL, NULL);
            const bool fired = fault_fired(to) > 0;
            fates[f](to, at);
            snprintf(what, sizeof what, "first copy, fate %zu at %llu", f, (unsigned long long)at);
            (void)copies_judge(to, &t, what);
            run_age_lock(to);
            assert_ok(copies_run(from, to, NULL, NULL, NULL));
            same_run(to, &t, what);
            run_judge(to, &t, what);
            fault_disk_free(to);
            fault_disk_free(from);
            if (!fired)
                break;
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_power),
        cmocka_unit_test(test_error_then_power),
        cmocka_unit_test(test_source),
        cmocka_unit_test(test_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
