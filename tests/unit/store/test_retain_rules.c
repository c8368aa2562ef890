/* SPDX-License-Identifier: Apache-2.0 */
/* Which points the rules of retention name: decided on entries alone, without a disk. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "harness/check.h"
#include "store/store.h"

#define NO_METRIC 1e300

typedef struct save { uint64_t step; int base; uint64_t bytes; double loss; } save;

static ckpi_entries
entries(const save *s, size_t n)
{
    ckpi_entries e = {calloc(n + 1, sizeof *e.v), n};
    for (size_t i = 0; i < n; i++) {
        e.v[i] = (ckpi_entry){.step = s[i].step, .bytes = s[i].bytes, .base = s[i].base < 0 ? SIZE_MAX : (size_t)s[i].base, .m = ckpi_manifest_new()};
        assert_non_null(e.v[i].m);
        if (s[i].loss != NO_METRIC)
            assert_ok(ckpi_manifest_add_metric(e.v[i].m, "loss", s[i].loss, NULL));
    }
    return e;
}

/* One letter a save: P point, B base, '-' goes. */
static void
expect(const save *s, size_t n, ckpi_retention r, const char *want)
{
    ckpi_entries e = entries(s, n);
    char got[33] = "";
    assert_ok(ckpi_retention_mark(&e, &r, NULL));
    for (size_t i = 0; i < n; i++)
        got[i] = "-BP"[e.v[i].keep];
    assert_string_equal(got, want);
    ckpi_entries_free(&e);
}

static void
refuses(const save *s, size_t n, ckpi_retention r, const char *why)
{
    ckpi_entries e = entries(s, n);
    ckp_error err;
    assert_status(ckpi_retention_mark(&e, &r, &err), CKP_ENOTFOUND);
    assert_non_null(strstr(err.text, why));
    ckpi_entries_free(&e);
}

static void
the_first_of_each_stretch_stays(void **state)
{
    (void)state;
    static const save s[] = {{100, -1, 1, NO_METRIC}, {500, -1, 1, NO_METRIC}, {1000, -1, 1, NO_METRIC}, {1500, -1, 1, NO_METRIC},
                             {2600, -1, 1, NO_METRIC}, {2900, -1, 1, NO_METRIC}};
    expect(s, 6, (ckpi_retention){.every = 1000}, "P-P-PP");            /* the newest always */
    expect(s, 6, (ckpi_retention){.every = 1000, .last = 2}, "P-P-PP");
    expect(s, 6, (ckpi_retention){.every = 1}, "PPPPPP");
    expect(s, 6, (ckpi_retention){.every = UINT64_MAX}, "P----P");
    expect(s, 6, (ckpi_retention){.every = 5000, .last = 1}, "P----P");
    /* a step saved again after going back: the newer of the two */
    static const save again[] = {{100, -1, 1, NO_METRIC}, {1000, -1, 1, NO_METRIC}, {1100, -1, 1, NO_METRIC}, {1000, -1, 1, NO_METRIC}, {1200, -1, 1, NO_METRIC}};
    expect(again, 5, (ckpi_retention){.every = 1000}, "P--PP");
}

static void
the_best_stay(void **state)
{
    (void)state;
    static const save s[] = {{1, -1, 1, 3.0}, {2, -1, 1, 1.0}, {3, -1, 1, NAN}, {4, -1, 1, 2.0}, {5, -1, 1, 1.0}, {6, -1, 1, NO_METRIC}, {7, -1, 1, 2.5}};
    expect(s, 7, (ckpi_retention){.best = "loss", .n_best = 1}, "----P-P");              /* of two as good the newer */
    expect(s, 7, (ckpi_retention){.best = "loss", .n_best = 2}, "-P--P-P");
    expect(s, 7, (ckpi_retention){.best = "loss", .n_best = 3}, "-P-PP-P");
    expect(s, 7, (ckpi_retention){.best = "loss", .n_best = 1, .best_is_max = true}, "P-----P");
    refuses(s, 7, (ckpi_retention){.best = "accuracy", .n_best = 1}, "accuracy");         /* which no save has: a wrong name deletes nothing */
    expect(s, 7, (ckpi_retention){.best = "accuracy", .n_best = 1, .last = 7}, "PPPPPPP");
    expect(s, 7, (ckpi_retention){.best = "loss", .n_best = 99, .last = 1}, "PP-PP-P");
    /* a delta that is best needs its bases */
    static const save chain[] = {{1, -1, 1, 3.0}, {2, 0, 1, 2.0}, {3, 1, 1, 1.0}, {4, -1, 1, 5.0}};
    expect(chain, 4, (ckpi_retention){.best = "loss", .n_best = 1}, "BBPP");
}

/* Metrics that are not finite: the training has gone wrong, and the last state before that stays whatever the rules say. */
static void
the_newest_finite_one_stays(void **state)
{
    (void)state;
    static const save s[] = {{1, -1, 1, 3.0}, {2, -1, 1, 2.0}, {3, -1, 1, NAN}, {4, -1, 1, INFINITY}, {5, -1, 1, NAN}};
    expect(s, 5, (ckpi_retention){.last = 1}, "-P--P");
    expect(s, 5, (ckpi_retention){.last = 2, .max_bytes = 1}, "-P--P");
    /* and so does the newest, where no rule asks for the last: the training has just committed it, and goes on from it */
    expect(s, 5, (ckpi_retention){.every = 1000}, "PP--P");
    expect(s, 5, (ckpi_retention){.best = "loss", .n_best = 1}, "-P--P");
    static const save chain[] = {{1, -1, 1, 2.0}, {2, 0, 1, NAN}, {3, 1, 1, NAN}};
    expect(chain, 3, (ckpi_retention){.every = 1000}, "PBP");
    static const save none[] = {{1, -1, 1, NAN}, {2, -1, 1, NAN}};
    expect(none, 2, (ckpi_retention){.last = 1}, "-P");
}

static void
what_fits_stays(void **state)
{
    (void)state;
    static const save s[] = {{1, -1, 100, NO_METRIC}, {2, 0, 10, NO_METRIC}, {3, 1, 10, NO_METRIC}, {4, -1, 100, NO_METRIC}, {5, 3, 10, NO_METRIC}};
    expect(s, 5, (ckpi_retention){.max_bytes = 230}, "PPPPP");
    expect(s, 5, (ckpi_retention){.max_bytes = 229}, "---PP");           /* no byte is won before the last that needs the key goes */
    expect(s, 5, (ckpi_retention){.max_bytes = 109}, "---BP");           /* a base of what stays is no byte less */
    expect(s, 5, (ckpi_retention){.max_bytes = 1}, "---BP");
    expect(s, 5, (ckpi_retention){.max_bytes = UINT64_MAX, .last = 2}, "---PP");
    expect(s, 5, (ckpi_retention){.max_bytes = 120, .last = 4}, "---PP");
    expect(s, 5, (ckpi_retention){0}, "PPPPP");
}

/* Of two saves of one step the second stands in for the first. */
static void
check_stand_ins(const save *s, size_t n, const ckpi_retention *r, const char *want)
{
    ckpi_entries e = entries(s, n);
    char got[33] = "";
    for (size_t i = 0; i < e.n; i++) {
        const bool second = i > 0 && s[i].step == s[i - 1].step;
        (void)snprintf(e.v[i].dir, sizeof e.v[i].dir, "step-%zu", i);
        e.v[i].m->sequence = s[i].step;
        e.v[i].m->epoch = 1 + second;
        if (second)
            assert_ok(ckpi_manifest_set(&e.v[i].m->replaces, e.v[i - 1].dir, NULL));
    }
    assert_ok(ckpi_retention_mark(&e, r, NULL));
    for (size_t i = 0; i < e.n; i++)
        got[i] = "-BP"[e.v[i].keep];
    assert_string_equal(got, want);
    ckpi_entries_free(&e);
}

/* A thin that was cut short: 7 and 8 have stand-ins, 9 is still based on the old 8. A checkpoint and its stand-in are one point. */
static void
stand_ins_are_no_second_points(void **state)
{
    (void)state;
    static const struct { ckpi_retention r; const char *want; } alone[] = {{{.last = 1}, "-BP"}, {{.last = 2}, "PBP"}};
    static const save two[] = {{6, -1, 1, 3.0}, {7, -1, 1, 1.0}, {7, -1, 1, 1.0}};
    static const save s[] = {{6, -1, 1, 3.0}, {7, -1, 1, 1.0}, {7, -1, 1, 1.0}, {8, 1, 1, 2.0}, {8, 2, 1, 2.0}, {9, 3, 1, 4.0}, {10, 5, 1, 5.0}};
    static const struct { ckpi_retention r; const char *want; } row[] = {
        {{.last = 5}, "PBPBPPP"}, {{.last = 4}, "-BPBPPP"}, {{.last = 2}, "-B-B-PP"}, {{.every = 1}, "PBPBPPP"},
        {{.best = "loss", .n_best = 2}, "-BPBPBP"}, {{0}, "PPPPPPP"}, {{.max_bytes = 6}, "-BPBPPP"}};
    for (size_t k = 0; k < CHECK_COUNT(row); k++)
        check_stand_ins(s, CHECK_COUNT(s), &row[k].r, row[k].want);
    /* nothing but its stand-in needs an original, which may have rotted */
    for (size_t k = 0; k < CHECK_COUNT(alone); k++)
        check_stand_ins(two, CHECK_COUNT(two), &alone[k].r, alone[k].want);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_each_stretch_stays),
        cmocka_unit_test(the_best_stay),
        cmocka_unit_test(the_newest_finite_one_stays),
        cmocka_unit_test(what_fits_stays),
        cmocka_unit_test(stand_ins_are_no_second_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
