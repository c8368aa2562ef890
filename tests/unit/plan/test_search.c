/* SPDX-License-Identifier: Apache-2.0 */
/* The grid as the header lists it, misuse, answers that are no numbers, lack of memory. */
#include "world.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "harness/failalloc.h"
#include "plan/grid.h"

enum { N = CKP_SEARCH_CONFIGS };

static void
test_grid(void **state)
{
    (void)state;
    unsigned distinct = 0;
    ckp_search_config c, back;
    for (size_t i = 0; i < N; i++) {
        assert_true(ckp_search_config_at(i, &c));
        const size_t index = ckp_search_config_index(&c);
        assert_true(index == i || (c.prune == 0 && c.prune_by == 1));
        assert_true(ckp_search_config_at(index, &back));
        assert_true(back.bins == c.bins && back.bins_embedding == c.bins_embedding && back.prune == c.prune && back.protect == c.protect);
        distinct += index == i;
        c.prune += 5e-10;
        assert_int_equal(ckp_search_config_index(&c), index);
    }
    assert_int_equal(distinct, 396);
    assert_false(ckp_search_config_at(N, &c));
    const ckp_search_config strangers[] = {{5, 16, 0.1, 0, 0.005}, {4, 17, 0.1, 0, 0.005}, {4, 16, 0.15, 0, 0.005},
                                           {4, 16, 0.1, 2, 0.005}, {4, 16, 0.1, 0, 0.5},   {4, 16, NAN, 0, 0.005}};
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        assert_int_equal(ckp_search_config_index(&strangers[i]), N);
    assert_int_equal(ckp_search_config_index(NULL), N);
}

/* Antisymmetric and transitive, so "smallest that is good" has a meaning. */
static void
test_order(void **state)
{
    (void)state;
    for (int a = 0; a < N; a++) {
        for (int b = 0; b < N; b++) {
            const ckpi_at x = ckpi_grid_at(a), y = ckpi_grid_at(b);
            if (ckpi_grid_id(&x) != a || ckpi_grid_id(&y) != b || !ckpi_grid_covers(a, b))
                continue;
            assert_true(a == b || !ckpi_grid_covers(b, a));
            for (int c = 0; c < N; c += 7)
                assert_true(!ckpi_grid_covers(b, c) || ckpi_grid_covers(a, c));
        }
    }
}

static void
test_misuse(void **state)
{
    (void)state;
    ckp_search *s = NULL;
    ckp_error err;
    ckp_search_config c[2], stranger = {5, 16, 0, 0, 0.005};
    ckp_search_result r[2] = {{1, 1}, {1, 1}};
    size_t n;
    ckp_search_options ok = CKP_SEARCH_OPTIONS_INIT, bad[12];
    for (size_t i = 0; i < 12; i++)
        bad[i] = ok;
    bad[0].size = 1;
    bad[1].method = (ckp_search_method)2;
    bad[2].loss_live = NAN;
    bad[3].loss_live = INFINITY;
    bad[4].epsilon = -0.1;
    bad[5].epsilon = NAN;
    bad[6].group = 0;
    bad[7].group = CKP_SEARCH_GROUP_MAX + 1;
    bad[8].radius = 0;
    bad[9].radius = 17;
    bad[10].method = CKP_SEARCH_NEIGHBOURHOOD;
    bad[11].method = CKP_SEARCH_NEIGHBOURHOOD;
    bad[11].last = &stranger;
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(ckp_search_new(&s, &bad[i], &err), CKP_EINVAL);
        assert_true(s == NULL && err.code == CKP_EINVAL && err.text[0] != '\0');
    }
    assert_int_equal(ckp_search_new(NULL, &ok, NULL), CKP_EINVAL);
    assert_int_equal(ckp_search_new(&s, NULL, NULL), CKP_EINVAL);
    assert_ok(ckp_search_new(&s, &ok, &err));
    assert_int_equal(ckp_search_tell(s, r, 1, &err), CKP_ESTATE);
    assert_int_equal(ckp_search_ask(s, c, 0, &n, &err), CKP_EINVAL);
    assert_int_equal(ckp_search_ask(NULL, c, 1, &n, &err), CKP_EINVAL);
    assert_ok(ckp_search_ask(s, c, 2, &n, &err));
    assert_int_equal(n, 1);
    assert_int_equal(ckp_search_ask(s, c, 2, &n, &err), CKP_ESTATE);
    assert_int_equal(ckp_search_tell(s, r, 2, &err), CKP_EINVAL);
    assert_int_equal(ckp_search_tell(s, NULL, 1, &err), CKP_EINVAL);
    assert_false(ckp_search_best(s, NULL, NULL));         /* nothing was told */
    assert_ok(ckp_search_tell(s, r, 1, &err));
    ckp_search_free(s);
    ckp_search_free(NULL);
    assert_true(ckp_search_done(NULL) && !ckp_search_best(NULL, NULL, NULL) && ckp_search_evaluations(NULL) == 0);
}

/* Losses that are no numbers are no good, and never the best reached. */
static void
test_no_numbers(void **state)
{
    (void)state;
    static const double losses[] = {NAN, INFINITY, -INFINITY};
    for (unsigned k = 0; k < 4; k++) {
        ckp_search *s = NULL;
        ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
        ckp_search_config best = {0};
        ckp_search_result res = {-7, 7};
        unsigned asked = 0;
        opt.loss_live = 1;
        assert_ok(ckp_search_new(&s, &opt, NULL));
        while (!ckp_search_done(s)) {
            ckp_search_config c;
            size_t n;
            assert_ok(ckp_search_ask(s, &c, 1, &n, NULL));
            const ckp_search_result r = {k < 3 ? losses[k] : asked == 1 ? 9.0 : NAN, 10};
            assert_ok(ckp_search_tell(s, &r, 1, NULL));
            asked++;
        }
        assert_false(ckp_search_best(s, &best, &res));
        assert_true(k < 3 ? best.bins == 0 && res.bytes == 7 : best.bins != 0 && res.loss == 9);
        assert_non_null(strstr(ckp_search_why(s), k < 3 ? "evaluations" : "none is good enough"));
        ckp_search_free(s);
    }
}

/* Nothing can be coded: nothing to ask. */
static void
test_empty(void **state)
{
    (void)state;
    static const uint64_t none[N];
    ckp_search *s = NULL;
    ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
    ckp_search_config last = {8, 16, 0.3, 0, 0.005};
    opt.sizes = none;
    opt.last = &last;
    for (int m = 0; m < 2; m++) {
        opt.method = m == 0 ? CKP_SEARCH_GUIDED : CKP_SEARCH_NEIGHBOURHOOD;
        assert_ok(ckp_search_new(&s, &opt, NULL));
        assert_true(ckp_search_done(s) && !ckp_search_best(s, NULL, NULL));
        ckp_search_free(s);
    }
}

static ckp_status
search_once(void *user)
{
    ckp_search *s = NULL;
    const ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
    (void)user;
    const ckp_status st = ckp_search_new(&s, &opt, NULL);
    ckp_search_free(s);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    failalloc_run(search_once, NULL, 1, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid),       cmocka_unit_test(test_order), cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_no_numbers), cmocka_unit_test(test_empty), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
