/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbourhood search: which configurations it looks at, against the rule written down once more; falling back; the metric. */
#include "world.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan/grid.h"

enum { WORLDS = 200, N = CKP_SEARCH_CONFIGS };

static int
steps(int a, int b)
{
    const ckpi_at x = ckpi_grid_at(a), y = ckpi_grid_at(b);
    int n = 0;
    for (int k = 0; k < CKPI_AXES; k++)
        n += abs(x.axis[k] - y.axis[k]);
    return n;
}

static bool
no_less_precise(int a, int b)
{
    const ckpi_at x = ckpi_grid_at(a), y = ckpi_grid_at(b);
    bool yes = true;
    for (int k = 0; k < CKPI_AXES; k++)
        yes = yes && x.axis[k] >= y.axis[k];
    return yes;
}

/* Least size of a good one of the centre's metric within `radius`; UINT64_MAX without one. */
static uint64_t
near_optimum(const world *w, int centre, unsigned radius)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < N; i++) {
        const ckpi_at at = ckpi_grid_at(i), c = ckpi_grid_at(centre), same = {{at.axis[0], at.axis[1], at.axis[2], at.axis[3]}, c.metric};
        if (ckpi_grid_id(&same) == i && world_good(w, (size_t)i) && no_less_precise(i, centre) && steps(i, centre) <= (int)radius &&
            w->bytes[i] < least)
            least = w->bytes[i];
    }
    return least;
}

static int
other_metric(int id)
{
    ckpi_at at = ckpi_grid_at(id);
    at.metric = 1 - at.metric;
    return ckpi_grid_id(&at);
}

static int
centre_of(const world *w, int last)
{
    const int other = other_metric(last);
    if (other == last || !world_good(w, (size_t)other))
        return last;
    return !world_good(w, (size_t)last) || w->loss[other] < w->loss[last] - 0.1 * w->epsilon ? other : last;
}

static void
test_choice(void **state)
{
    (void)state;
    static const unsigned groups[] = {2, 8};
    test_rng r = test_rng_new("neighbourhood choice");
    unsigned fell_back = 0, near = 0, stayed = 0;
    for (unsigned i = 0; i < WORLDS; i++) {
        world w;
        ckp_search_config last;
        ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
        world_draw(&w, &r, i % WORLD_KINDS);
        assert_true(ckp_search_config_at(test_below(&r, N), &last));
        opt.method = CKP_SEARCH_NEIGHBOURHOOD;
        opt.last = &last;
        opt.radius = 1 + i % 3;
        opt.sizes = w.bytes;
        const int id = (int)ckp_search_config_index(&last), centre = centre_of(&w, id);
        const uint64_t optimum = near_optimum(&w, centre, opt.radius);
        const outcome o = world_search(&w, opt);
        assert_int_equal(o.stats.fell_back, optimum == UINT64_MAX);
        if (optimum != UINT64_MAX) {
            assert_true(o.good && o.result.bytes == optimum && o.stats.by_method[CKP_SEARCH_GUIDED] == 0);
            if (world_good(&w, (size_t)id))
                assert_true(o.stats.evaluations <= 2 && (int)o.index == centre);
        } else {
            assert_int_equal(o.good, world_optimum(&w, &opt) != UINT64_MAX);
            assert_true(!o.good || o.result.bytes == world_optimum(&w, &opt));
        }
        stayed += world_good(&w, (size_t)id);
        near += optimum != UINT64_MAX && !world_good(&w, (size_t)id);
        fell_back += o.stats.fell_back;
        for (unsigned g = 0; g < 2; g++) {
            opt.group = groups[g];
            const outcome many = world_search(&w, opt);
            assert_true(many.index == o.index && many.good == o.good && many.stats.fell_back == o.stats.fell_back);
            assert_true(many.stats.rounds <= o.stats.rounds && many.stats.decided_by == o.stats.decided_by);
        }
    }
    assert_true(stayed > 0 && near > 0 && fell_back > 0);   /* or the test shows nothing */
}

/* Losses of a training whose weights need more precision as it goes on: what a search a save costs, all fall-backs counted. */
static void
test_training(void **state)
{
    (void)state;
    enum { SAVES = 40 };
    test_rng r = test_rng_new("neighbourhood training");
    unsigned evaluations = 0, guided = 0, fell_back = 0;
    for (unsigned run = 0; run < 20; run++) {
        world w;
        ckp_search_config last = {0};
        world_draw(&w, &r, run % 2);
        double most = 0;
        for (int i = 0; i < N; i++)
            most = fmax(most, w.loss[i] - 1);
        for (unsigned save = 0; save < SAVES; save++) {
            ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT, all = CKP_SEARCH_OPTIONS_INIT;
            w.epsilon = most * (0.6 - 0.5 * save / SAVES);
            opt.method = save == 0 ? CKP_SEARCH_GUIDED : CKP_SEARCH_NEIGHBOURHOOD;
            opt.last = &last;
            opt.sizes = all.sizes = w.bytes;
            const outcome o = world_search(&w, opt);
            if (!o.good)
                break;
            assert_true(ckp_search_config_at(o.index, &last));
            evaluations += o.stats.evaluations;
            fell_back += o.stats.fell_back;
            guided += world_search(&w, all).stats.evaluations;
        }
    }
    (void)fprintf(stderr, "neighbourhood: %.2f evaluations a save, %.2f fall-backs a training; guided at each save: %.2f\n",
                  evaluations / (20.0 * SAVES), fell_back / 20.0, guided / (20.0 * SAVES));
    assert_true(3 * evaluations < guided);
}

/* A group holds what comes next if nothing is good: with room for all, one round is enough. */
static void
test_one_round(void **state)
{
    (void)state;
    world w;
    ckp_search_config last = {8, 16, 0.3, 1, 0.005};
    ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
    opt.method = CKP_SEARCH_NEIGHBOURHOOD;
    opt.last = &last;
    opt.group = 8;
    for (int i = 0; i < N; i++) {
        const ckpi_at at = ckpi_grid_at(i);
        w.loss[i] = at.axis[CKPI_PRUNE] > 2 ? 1 : 2;      /* less pruning, and nothing else, makes it good */
        w.bytes[i] = 1000 + (uint64_t)i;
    }
    w.epsilon = 0.5;
    w.ragged = false;
    const outcome o = world_search(&w, opt);
    ckp_search_config found;
    assert_true(o.good && ckp_search_config_at(o.index, &found));
    assert_true(found.bins == 8 && found.bins_embedding == 16 && fabs(found.prune - 0.2) < 1e-9 && found.prune_by == 1);
    assert_int_equal(o.stats.rounds, 1);
    assert_int_equal(o.stats.decided_by, 4);              /* the other metric, the last, more protected, less pruned */
}

static void
test_metric(void **state)
{
    (void)state;
    const struct { double last, other; unsigned chosen; } cases[] = {
        {1.04, 1.02, 1}, {1.04, 1.039, 0}, {1.04, 1.06, 0}, {1.04, NAN, 0}, {1.06, 1.049, 1}, {NAN, 1.03, 1},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        ckp_search_config last = {8, 16, 0.3, 0, 0.005}, best;
        ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
        ckp_search *s = NULL;
        opt.method = CKP_SEARCH_NEIGHBOURHOOD;
        opt.last = &last;
        opt.loss_live = 1;
        assert_ok(ckp_search_new(&s, &opt, NULL));
        for (unsigned turn = 0; turn < 2; turn++) {
            ckp_search_config c;
            size_t n;
            assert_ok(ckp_search_ask(s, &c, 1, &n, NULL));
            assert_int_equal(c.prune_by, turn == 0);      /* the other metric comes first */
            const ckp_search_result res = {turn == 0 ? cases[k].other : cases[k].last, 100};
            assert_ok(ckp_search_tell(s, &res, 1, NULL));
        }
        assert_true(ckp_search_done(s));
        assert_true(ckp_search_best(s, &best, NULL));
        assert_int_equal(best.prune_by, cases[k].chosen);
        ckp_search_free(s);
    }
}

/* A last choice from a model with embeddings, or from when there were scores. */
static void
test_last_from_elsewhere(void **state)
{
    (void)state;
    ckp_search_config last = {8, 32, 0.3, 1, 0.005}, c;
    ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
    ckp_search *s = NULL;
    size_t n;
    opt.method = CKP_SEARCH_NEIGHBOURHOOD;
    opt.last = &last;
    opt.loss_live = -1;                                   /* losses below zero are losses too */
    opt.no_sensitivity = opt.no_embeddings = true;
    assert_ok(ckp_search_new(&s, &opt, NULL));
    assert_ok(ckp_search_ask(s, &c, 1, &n, NULL));
    assert_true(c.bins == 8 && c.bins_embedding == 16 && c.prune_by == 0);
    const ckp_search_result res = {-0.96, 100};
    assert_ok(ckp_search_tell(s, &res, 1, NULL));
    assert_true(ckp_search_done(s) && ckp_search_best(s, NULL, NULL));
    ckp_search_free(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice), cmocka_unit_test(test_training), cmocka_unit_test(test_one_round),
        cmocka_unit_test(test_metric), cmocka_unit_test(test_last_from_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
