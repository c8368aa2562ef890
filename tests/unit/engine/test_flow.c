/* SPDX-License-Identifier: Apache-2.0 */
/* Who does which step of which group: order, slots, and help for a file that is late. */
#include "engine/flow.h"
#include "harness/check.h"
#include <stdatomic.h>
#include <time.h>
#include "base/clock.h"
#include "base/fail.h"

enum { GROUPS = 60, SLOTS = 5, MORE = 20, FEW = 4, ALL = 1000 };

/* A file whose groups are nothing but notes of what was done to them. */
typedef struct work {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool coded[GROUPS];
    size_t slot[GROUPS];         /* 1 and up; 0: none */
    bool used[SLOTS + MORE];
    size_t passed, written, most_at_a_time;
    size_t by_helper, writes_by_helper;
    size_t low_waits_for;        /* a thread that is not the helper holds a group, unless it is the first, until the helper has coded so many */
    bool held_one;               /* before which the helper codes nothing */
    size_t fails_at, fails_with_helper;
    uint64_t held;               /* by each coded group */
    bool given_up;               /* somebody waited for too long */
    ckpi_late late;
    pthread_t helper;            /* the thread that helps, and nothing else */
    ckpi_flow flow;
    ckpi_ctx *ctx;
    ckp_status st;
    ckp_error err;
} work;

static bool
helps(const work *w)
{
    return w->flow.late != NULL && pthread_equal(pthread_self(), w->helper) != 0;
}

static void
wait_for_others(work *w)
{
    const double until = ckpi_seconds() + 20.0;
    while (!w->held_one && ckpi_seconds() < until)
        ckpi_cond_wait_ms(&w->moved, &w->lock, 100);
    w->given_up = w->given_up || !w->held_one;
}

static void
wait_for_helper(work *w, size_t coded)
{
    const double until = ckpi_seconds() + 20.0;
    w->held_one = true;
    pthread_cond_broadcast(&w->moved);
    while (w->by_helper < coded && ckpi_seconds() < until)
        ckpi_cond_wait_ms(&w->moved, &w->lock, 100);
    w->given_up = w->given_up || w->by_helper < coded;
}

static void
take_slot(work *w, const ckpi_flow_step *s)
{
    assert_true(s->slot < SLOTS + MORE);
    assert_false(w->used[s->slot]);
    w->used[s->slot] = true;
    w->slot[s->group] = s->slot + 1;
    w->most_at_a_time = w->most_at_a_time > s->group + 1 - w->written ? w->most_at_a_time : s->group + 1 - w->written;
}

static void
code(work *w, ckpi_flow_step *s)
{
    const bool helper = helps(w);

    if (!w->flow.serial_pass)
        take_slot(w, s);
    assert_int_equal(w->slot[s->group], s->slot + 1);
    if (helper && w->low_waits_for != 0)
        wait_for_others(w);
    else if (s->group != 0 && w->low_waits_for != 0)
        wait_for_helper(w, w->low_waits_for);
    w->by_helper += helper;
    assert_false(w->coded[s->group]);
    w->coded[s->group] = true;
    s->work = 1;
    s->held = w->held;
    pthread_cond_broadcast(&w->moved);
}

static void
write_one(work *w, const ckpi_flow_step *s)
{
    assert_int_equal(s->group, w->written);
    assert_true(w->coded[s->group]);
    assert_int_equal(w->slot[s->group], s->slot + 1);
    w->used[s->slot] = false;
    w->written++;
    w->writes_by_helper += helps(w);
}

static ckp_status
do_step(void *user, ckpi_flow_step *s, ckp_error *err)
{
    work *w = user;

    pthread_mutex_lock(&w->lock);
    const bool fails = s->group >= w->fails_at || (s->part == CKPI_PART_CODE && helps(w) && w->by_helper >= w->fails_with_helper);
    if (s->part == CKPI_PART_PASS) {
        assert_int_equal(s->group, w->passed++);
        take_slot(w, s);
    } else if (s->part == CKPI_PART_CODE) {
        code(w, s);
    } else {
        write_one(w, s);
    }
    pthread_mutex_unlock(&w->lock);
    return fails ? ckpi_fail(err, CKP_EIO, "group %zu", s->group) : CKP_OK;
}

static void
setup(work *w, unsigned threads)
{
    *w = (work){.fails_at = ALL, .fails_with_helper = ALL, .helper = pthread_self()};
    pthread_mutex_init(&w->lock, NULL);
    assert_int_equal(ckpi_cond_init(&w->moved), 0);
    ckpi_late_init(&w->late);
    w->late.at_least = w->late.from = w->late.ends_by = 0.0;      /* always late */
    assert_ok(ckpi_ctx_new(&w->ctx, threads, false, NULL));
    w->flow = (ckpi_flow){.groups = GROUPS, .slots = SLOTS, .more_slots = MORE, .work = GROUPS, .step = do_step, .user = w};
}

static void
teardown(work *w)
{
    ckpi_ctx_free(w->ctx);
    ckpi_late_destroy(&w->late);
    pthread_cond_destroy(&w->moved);
    pthread_mutex_destroy(&w->lock);
    assert_false(w->given_up);
}

static void
run_low(void *user)
{
    work *w = user;
    w->st = ckpi_flow_run(w->ctx, &w->flow, &w->err);
    ckpi_late_over(&w->late);
}

static void
help(void *user)
{
    ckpi_late_help(&((work *)user)->late);
}

static void
all_groups_in_order(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++)
        for (int serial = 0; serial < 2; serial++) {
            work w;
            setup(&w, threads);
            w.flow.serial_pass = serial != 0;
            assert_ok(ckpi_flow_run(w.ctx, &w.flow, NULL));
            assert_int_equal(w.written, GROUPS);
            assert_int_equal(w.passed, serial ? GROUPS : 0);
            assert_true(w.most_at_a_time <= SLOTS);
            teardown(&w);
        }
}

/* Threads that do not run hold a group each: the helper codes what they cannot, as far as there are slots, and writes. */
static void
a_helper_codes_what_others_do_not(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++) {
        work w;
        setup(&w, threads);
        w.flow.late = &w.late;
        w.low_waits_for = SLOTS + MORE - threads;
        ckpi_run_low(run_low, help, &w);
        assert_ok(w.st);
        assert_int_equal(w.written, GROUPS);
        assert_true(w.by_helper >= w.low_waits_for);
        assert_true(w.writes_by_helper != 0);
        assert_true(w.most_at_a_time > SLOTS && w.most_at_a_time <= SLOTS + MORE);
        assert_true(w.late.cpu > 0.0);
        teardown(&w);
    }
}

/* One group over it: what is being coded is not known before. */
static void
what_waits_for_its_write_is_bounded(void **state)
{
    (void)state;
    work w;
    setup(&w, 2);
    w.flow.late = &w.late;
    w.held = 1000;
    w.late.room = 7500;
    w.low_waits_for = SLOTS + 2;
    ckpi_run_low(run_low, help, &w);
    assert_ok(w.st);
    assert_true(w.most_at_a_time > SLOTS && w.most_at_a_time <= 8 + 3);
    teardown(&w);
}

static void
nobody_helps_a_file_that_is_not_late(void **state)
{
    (void)state;
    const ckpi_late never[] = {{.at_least = 1e9}, {.at_least = 30.0, .from = 1e9}, {.at_least = 30.0, .ends_by = 1e9}};
    for (size_t i = 0; i < CHECK_COUNT(never); i++) {
        work w;
        setup(&w, 2);
        w.flow.late = &w.late;
        w.late.at_least = never[i].at_least;
        w.late.from = never[i].from;
        w.late.ends_by = never[i].ends_by;
        ckpi_run_low(run_low, help, &w);
        assert_ok(w.st);
        assert_int_equal(w.written, GROUPS);
        assert_int_equal(w.by_helper + w.writes_by_helper, 0);
        assert_null(w.late.ws);
        teardown(&w);
    }
}

static void
failures_of_helpers_and_others_are_told(void **state)
{
    (void)state;
    for (int by_helper = 0; by_helper < 2; by_helper++) {
        work w;
        setup(&w, 3);
        w.flow.late = &w.late;
        w.low_waits_for = 3;
        w.fails_with_helper = by_helper ? FEW : ALL;
        w.fails_at = by_helper ? ALL : GROUPS / 2;
        ckpi_run_low(run_low, help, &w);
        assert_int_equal(w.st, CKP_EIO);
        assert_memory_equal(w.err.text, "group ", 6);
        if (!by_helper)
            assert_string_equal(w.err.text, "group 30");
        assert_true(w.written < GROUPS);
        teardown(&w);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_groups_in_order),
        cmocka_unit_test(a_helper_codes_what_others_do_not),
        cmocka_unit_test(what_waits_for_its_write_is_bounded),
        cmocka_unit_test(nobody_helps_a_file_that_is_not_late),
        cmocka_unit_test(failures_of_helpers_and_others_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
