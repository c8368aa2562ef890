/* SPDX-License-Identifier: Apache-2.0 */
/* Guided exhaustive search: the optimum, against trying all; and no more evaluations than the paper's procedure. */
#include "world.h"
#include <stdio.h>
#include <string.h>
#include "plan/grid.h"

enum { WORLDS = 1500 };

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

/* ---- tests ------------------------------------------------------------------------------------------------------------------ */

typedef struct counts { double sum; unsigned most; } counts;

static void
check_optimum(const world *w, const ckp_search_options *opt, counts *c)
{
    const outcome o = world_search(w, *opt);
    const uint64_t optimum = world_optimum(w, opt);
    assert_int_equal(o.good, optimum != UINT64_MAX);
    if (o.good)
        assert_int_equal(o.result.bytes, optimum);
    assert_true(o.stats.evaluations <= paper_bound(opt));
    assert_int_equal(o.stats.by_method[CKP_SEARCH_NEIGHBOURHOOD], 0);
    c->sum += o.stats.evaluations;
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
            counts c = {0, 0};
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
            fprintf(stderr, "%s, losses of kind %u: %.1f evaluations, at most %u; bound %u\n", names[given], kind, c.sum / WORLDS, c.most, paper_bound(&opt));
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
