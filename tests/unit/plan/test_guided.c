/* SPDX-License-Identifier: Apache-2.0 */
/* Guided exhaustive search: the optimum, against trying all; and no more evaluations than the paper's procedure. */
#include "world.h"
#include <stdio.h>
#include <string.h>
#include "plan/grid.h"

enum { WORLDS = 120 };

/* ---- the paper's procedure ------------------------------------------------------------------------------------------------- */

/*
 * The paper gives no number of evaluations. What follows from its procedure: a cube of sides n has a diagonal of max(n) points, all
 * evaluated; then each box that is left. bound(n) = max(n) + the worst sum over the boxes that a first good point leaves.
 */
typedef struct sides { int n[CKPI_AXES]; } sides;

typedef struct split { sides part[16]; int n; } split;

static int
coordinate(int k, int points, int side)
{
    return points == 1 ? 0 : (2 * k * (side - 1) + points - 1) / (2 * (points - 1));
}

/* One box into those outside the region on one side of p. */
static void
outside(split *out, sides b, const int *p, unsigned mask, bool up)
{
    for (int a = 0; a < CKPI_AXES; a++) {
        if ((mask >> a & 1) == 0)
            continue;
        sides c = b;
        c.n[a] = up ? p[a] : b.n[a] - p[a] - 1;
        b.n[a] -= c.n[a];
        out->part[out->n++] = c;
    }
}

/* What is left of a box when diagonal point k is the first good one: k from 1 to points - 1. */
static split
rest(const sides *b, int points, int k)
{
    split s = {.n = 0};
    int p[CKPI_AXES], q[CKPI_AXES];
    unsigned moved = 0;
    for (int a = 0; a < CKPI_AXES; a++) {
        p[a] = coordinate(k, points, b->n[a]);
        q[a] = coordinate(k - 1, points, b->n[a]);
        moved |= (unsigned)(p[a] != q[a]) << a;
    }
    for (unsigned corner = 0; corner < 1u << CKPI_AXES; corner++) {
        if ((corner & ~moved) != 0)
            continue;
        sides c = *b;
        for (int a = 0; a < CKPI_AXES; a++)
            if (moved >> a & 1)
                c.n[a] = corner >> a & 1 ? b->n[a] - p[a] : p[a];
        if (corner == 0 || corner == moved)
            outside(&s, c, corner == 0 ? q : p, ((1u << CKPI_AXES) - 1) & ~moved, corner != 0);
        else
            s.part[s.n++] = c;
    }
    return s;
}

static int memo[7][7][7][7];

static int
bound(sides b)
{
    int points = 0, most = 0;
    for (int a = 0; a < CKPI_AXES; a++) {
        if (b.n[a] == 0)
            return 0;
        points = b.n[a] > points ? b.n[a] : points;
    }
    int *known = &memo[b.n[0]][b.n[1]][b.n[2]][b.n[3]];
    if (*known != 0)
        return *known;
    for (int k = 1; k < points; k++) {
        const split s = rest(&b, points, k);
        int sum = 0;
        for (int i = 0; i < s.n; i++)
            sum += bound(s.part[i]);
        most = sum > most ? sum : most;
    }
    return *known = points + most;
}

static unsigned
paper_bound(const ckp_search_options *opt)
{
    const sides cube = {{ckpi_grid_length(0), opt->no_embeddings ? 1 : ckpi_grid_length(1), ckpi_grid_length(2), ckpi_grid_length(3)}};
    return (unsigned)bound(cube) * (opt->no_sensitivity ? 1u : 2u);
}

/* The procedure itself in a world: how many configurations it evaluates, each counted once. */
typedef struct cube { int low[CKPI_AXES], high[CKPI_AXES], metric; } cube;

static void
paper_cube(const world *w, cube b, bool *evaluated)
{
    int points = 0, good = -1;
    for (int a = 0; a < CKPI_AXES; a++) {
        if (b.high[a] < b.low[a])
            return;
        points = b.high[a] - b.low[a] + 1 > points ? b.high[a] - b.low[a] + 1 : points;
    }
    ckpi_at at[8];
    for (int k = points; k-- > 0;) {
        at[k].metric = b.metric;
        for (int a = 0; a < CKPI_AXES; a++)
            at[k].axis[a] = b.low[a] + coordinate(k, points, b.high[a] - b.low[a] + 1);
        const int id = ckpi_grid_id(&at[k]);
        evaluated[id] = true;
        good = world_good(w, (size_t)id) ? k : good;
    }
    if (good <= 0)
        return;
    const int *p = at[good].axis, *q = at[good - 1].axis;
    for (unsigned corner = 0; corner < 1u << CKPI_AXES; corner++) {
        cube c = b;
        bool some_low = false, some_high = false, fits = true;
        for (int a = 0; a < CKPI_AXES; a++) {          /* an axis without a step between p and q belongs to the side that keeps more */
            const bool high = corner >> a & 1;
            fits = fits && (p[a] != q[a] || !high);
            if (p[a] == q[a])
                continue;
            some_low = some_low || !high;
            some_high = some_high || high;
            *(high ? &c.low[a] : &c.high[a]) = high ? p[a] : p[a] - 1;
        }
        if (fits && some_low && some_high)
            paper_cube(w, c, evaluated);
        for (int a = 0; fits && !(some_low && some_high) && a < CKPI_AXES; a++) {
            if (p[a] != q[a])
                continue;
            cube part = c;
            *(some_high ? &part.high[a] : &part.low[a]) = some_high ? p[a] - 1 : p[a] + 1;
            paper_cube(w, part, evaluated);
            *(some_high ? &c.low[a] : &c.high[a]) = p[a];
        }
    }
}

static unsigned
paper_evaluations(const world *w, const ckp_search_options *opt)
{
    bool evaluated[CKP_SEARCH_CONFIGS] = {false};
    unsigned n = 0;
    for (int metric = 0; metric < (opt->no_sensitivity ? 1 : CKPI_METRICS); metric++) {
        cube b = {.metric = metric};
        for (int a = 0; a < CKPI_AXES; a++)
            b.high[a] = a == CKPI_EMBEDDING && opt->no_embeddings ? 0 : ckpi_grid_length(a) - 1;
        paper_cube(w, b, evaluated);
    }
    for (int i = 0; i < CKP_SEARCH_CONFIGS; i++)
        n += evaluated[i];
    return n;
}

/* ---- tests ------------------------------------------------------------------------------------------------------------------ */

typedef struct counts { double sum, paper; unsigned most, more; } counts;

static void
check_optimum(const world *w, const ckp_search_options *opt, counts *c)
{
    const outcome o = world_search(w, *opt);
    const uint64_t optimum = world_optimum(w, opt);
    const unsigned paper = paper_evaluations(w, opt);
    assert_int_equal(o.good, optimum != UINT64_MAX);
    if (o.good)
        assert_int_equal(o.result.bytes, optimum);
    assert_true(o.stats.evaluations <= paper_bound(opt) && paper <= paper_bound(opt));
    assert_int_equal(o.stats.by_method[CKP_SEARCH_NEIGHBOURHOOD], 0);
    assert_int_equal(o.stats.decided_by, o.stats.evaluations);
    assert_int_equal(o.stats.rounds, o.stats.evaluations);
    c->sum += o.stats.evaluations;
    c->paper += paper;
    c->more += o.stats.evaluations > paper;
    c->most = o.stats.evaluations > c->most ? o.stats.evaluations : c->most;
}

static void
test_optimum(void **state)
{
    (void)state;
    static const char *const names[] = {"sizes given", "sizes told"};
    test_rng r = test_rng_new("guided optimum");
    for (unsigned given = 0; given < 2; given++) {
        for (unsigned kind = 0; kind < WORLD_KINDS; kind++) {
            counts c = {0};
            ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
            for (unsigned i = 0; i < WORLDS; i++) {
                world w;
                world_draw(&w, &r, kind);
                opt.sizes = given == 0 ? w.bytes : NULL;
                opt.no_sensitivity = i % 4 == 1;
                opt.no_embeddings = i % 8 > 4;
                check_optimum(&w, &opt, &c);
            }
            opt.no_embeddings = opt.no_sensitivity = false;
            (void)fprintf(stderr, "%s, losses of kind %u: %.1f evaluations (the paper's procedure %.1f), at most %u (bound %u)\n", names[given],
                          kind, c.sum / WORLDS, c.paper / WORLDS, c.most, paper_bound(&opt));
            assert_true(c.sum < c.paper);
        }
    }
}

/* Sizes of a coder need not rise with precision: they are taken as they are, and some configurations cannot be coded at all. */
static void
test_any_sizes(void **state)
{
    (void)state;
    test_rng r = test_rng_new("guided any sizes");
    for (unsigned i = 0; i < WORLDS; i++) {
        world w;
        counts c = {0};
        ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
        world_draw(&w, &r, i % WORLD_KINDS);
        world_draw_sizes(&w, &r);
        for (unsigned k = 0; k < 40; k++)
            w.bytes[test_below(&r, CKP_SEARCH_CONFIGS)] *= i % 2;
        opt.sizes = w.bytes;
        check_optimum(&w, &opt, &c);
    }
}

static void
test_nothing_is_good(void **state)
{
    (void)state;
    test_rng r = test_rng_new("guided nothing is good");
    for (unsigned i = 0; i < WORLDS; i++) {
        world w;
        double least = 1e9;
        world_draw(&w, &r, i % WORLD_KINDS);
        for (size_t k = 0; k < CKP_SEARCH_CONFIGS; k++) {
            w.loss[k] += 1;
            least = w.loss[k] < least ? w.loss[k] : least;
        }
        w.epsilon = 0.5;
        ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
        opt.sizes = i % 2 ? w.bytes : NULL;
        const outcome o = world_search(&w, opt);
        assert_false(o.good);
        assert_true(o.result.loss == least);         /* the most precise one is reached: nothing is better */
        assert_true(o.stats.evaluations <= 12);
    }
}

/* What is evaluated beyond the next question changes the number of rounds, never the choice; also where quality is not monotone. */
static void
test_groups(void **state)
{
    (void)state;
    static const unsigned groups[] = {2, 3, 8, CKP_SEARCH_GROUP_MAX};
    double rounds[5] = {0}, evaluations[5] = {0};
    test_rng r = test_rng_new("guided groups");
    for (unsigned i = 0; i < WORLDS / 4; i++) {
        world w;
        ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
        world_draw(&w, &r, i % WORLD_KINDS);
        w.ragged = i % 3 == 2;
        for (size_t k = 0; w.ragged && k < CKP_SEARCH_CONFIGS; k++)
            w.loss[k] *= 1 + 0.2 * test_unit(&r);
        opt.sizes = i % 2 ? w.bytes : NULL;
        const outcome one = world_search(&w, opt);
        rounds[0] += one.stats.rounds;
        evaluations[0] += one.stats.evaluations;
        for (unsigned g = 0; g < 4; g++) {
            opt.group = groups[g];
            const outcome o = world_search(&w, opt);
            assert_int_equal(o.index, one.index);
            assert_int_equal(o.good, one.good);
            assert_int_equal(o.stats.decided_by, one.stats.decided_by);
            assert_true(o.stats.rounds <= one.stats.rounds && o.stats.evaluations >= one.stats.evaluations);
            rounds[g + 1] += o.stats.rounds;
            evaluations[g + 1] += o.stats.evaluations;
        }
    }
    for (unsigned g = 0; g < 5; g++)
        (void)fprintf(stderr, "groups of %u: %.1f rounds, %.1f evaluations\n", g == 0 ? 1 : groups[g - 1], 4 * rounds[g] / WORLDS,
                      4 * evaluations[g] / WORLDS);
    assert_true(2 * rounds[3] < rounds[0]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimum),
        cmocka_unit_test(test_any_sizes),
        cmocka_unit_test(test_nothing_is_good),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
