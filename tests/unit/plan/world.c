/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/grid.h"

enum { N = CKP_SEARCH_CONFIGS };

/* ---- losses ------------------------------------------------------------------------------------------------------------- */

/* Falling numbers along an axis, the last 0. */
static void
draw_axis(test_rng *r, double *x, int n)
{
    x[n - 1] = 0;
    for (int k = n - 1; k-- > 0;)
        x[k] = x[k + 1] + (test_below(r, 5) == 0 ? 0 : test_unit(r) * test_unit(r));
}

/* What each axis costs, put together as a sum or as a maximum. */
static void
draw_by_axes(world *w, test_rng *r, bool sum)
{
    double x[CKPI_METRICS][CKPI_AXES][8];
    for (int a = 0; a < CKPI_AXES; a++) {
        draw_axis(r, x[0][a], ckpi_grid_length(a));
        memcpy(x[1][a], x[0][a], sizeof x[0][a]);
    }
    draw_axis(r, x[1][CKPI_PRUNE], ckpi_grid_length(CKPI_PRUNE));
    for (int i = 0; i < N; i++) {
        const ckpi_at at = ckpi_grid_at(i);
        double loss = 0;
        for (int a = 0; a < CKPI_AXES; a++) {
            const double cost = x[at.metric][a][at.axis[a]];
            loss = sum ? loss + cost : fmax(loss, cost);
        }
        w->loss[i] = 1 + loss;
    }
}

/* Any monotone function: random costs, each at least those of all that cover it. Few levels make plateaus. */
static void
draw_any(world *w, test_rng *r, unsigned levels)
{
    double own[N];
    for (int i = 0; i < N; i++) {
        const ckpi_at at = ckpi_grid_at(i);
        int steps = 0;
        for (int a = 0; a < CKPI_AXES; a++)
            steps += ckpi_grid_length(a) - 1 - at.axis[a];
        own[i] = floor((double)levels * pow(test_unit(r), 4) * steps) / levels;
    }
    for (int i = 0; i < N; i++) {
        w->loss[i] = 1;
        for (int j = 0; j < N; j++)
            if (ckpi_grid_covers(j, i))
                w->loss[i] = fmax(w->loss[i], 1 + own[j]);
    }
}

static int
by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Any share of good ones, and sometimes none. */
static void
draw_epsilon(world *w, test_rng *r)
{
    double sorted[N];
    memcpy(sorted, w->loss, sizeof sorted);
    qsort(sorted, N, sizeof *sorted, by_value);
    w->epsilon = sorted[test_below(r, N)] - 1;
    if (test_below(r, 20) == 0) {
        for (int i = 0; i < N; i++)
            w->loss[i] += 1;
        w->epsilon = 0.5;
    }
}

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

/* The other metric's name for a configuration that prunes nothing has its size. */
static void
share_names(world *w)
{
    for (int i = 0; i < N; i++) {
        const ckpi_at at = ckpi_grid_at(i);
        w->bytes[i] = w->bytes[ckpi_grid_id(&at)];
        w->loss[i] = w->loss[ckpi_grid_id(&at)];
    }
}

static void
draw_rising_sizes(world *w, test_rng *r)
{
    double x[CKPI_METRICS][CKPI_AXES][8];
    const bool even = test_below(r, 2) == 0;           /* as large a step on every axis, or not */
    for (int a = 0; a < CKPI_AXES; a++)
        for (int m = 0; m < CKPI_METRICS; m++)
            for (int k = ckpi_grid_length(a) - 1, last = k; k >= 0; k--)
                x[m][a][k] = k == last ? (m == 0 ? 0 : x[0][a][k]) : x[m][a][k + 1] - (even ? 1 : 0.01) - test_unit(r) * (even ? 0.01 : 3);
    for (int a = 0; a < CKPI_AXES; a++)
        if (a != CKPI_PRUNE)
            memcpy(x[1][a], x[0][a], sizeof x[0][a]);
    for (int i = 0; i < N; i++) {
        const ckpi_at at = ckpi_grid_at(i);
        double size = 100;
        for (int a = 0; a < CKPI_AXES; a++)
            size += x[at.metric][a][at.axis[a]];
        w->bytes[i] = (uint64_t)(size * 1e6);
    }
}

void
world_draw_sizes(world *w, test_rng *r)
{
    for (int i = 0; i < N; i++)
        w->bytes[i] = 1 + test_below(r, 300);
    share_names(w);
}

void
world_draw(world *w, test_rng *r, unsigned kind)
{
    w->ragged = false;
    if (kind < 2)
        draw_by_axes(w, r, kind == 0);
    else
        draw_any(w, r, kind == 2 ? 1000 : 3);
    draw_rising_sizes(w, r);
    share_names(w);
    draw_epsilon(w, r);
}

/* ---- searching ---------------------------------------------------------------------------------------------------------- */

static bool
exists(const ckp_search_options *opt, int i)
{
    const ckpi_at at = ckpi_grid_at(i);
    return ckpi_grid_id(&at) == i && !(opt->no_sensitivity && at.metric == 1) && !(opt->no_embeddings && at.axis[CKPI_EMBEDDING] > 0) &&
           !(opt->sizes != NULL && opt->sizes[i] == 0);
}

uint64_t
world_optimum(const world *w, const ckp_search_options *opt)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < N; i++)
        if (exists(opt, i) && world_good(w, (size_t)i) && w->bytes[i] < least)
            least = w->bytes[i];
    return least;
}

/* None that is not there, none twice, none that an earlier answer decides: but of a group, answers that are ahead decide nothing yet. */
static void
check_question(const world *w, const ckp_search_options *opt, const bool *asked, int i)
{
    assert_true(exists(opt, i));
    assert_false(asked[i]);
    if (opt->method != CKP_SEARCH_GUIDED || opt->group > 1 || w->ragged)
        return;
    for (int j = 0; j < N; j++) {
        if (!asked[j])
            continue;
        assert_false(world_good(w, (size_t)j) ? ckpi_grid_covers(i, j) : ckpi_grid_covers(j, i));
    }
}

outcome
world_search(const world *w, ckp_search_options opt)
{
    ckp_search *s = NULL;
    outcome o = {.stats.size = sizeof o.stats};
    bool asked[N] = {false};
    opt.loss_live = 1;
    opt.epsilon = w->epsilon;
    assert_ok(ckp_search_new(&s, &opt, NULL));
    while (!ckp_search_done(s)) {
        ckp_search_config c[CKP_SEARCH_GROUP_MAX];
        ckp_search_result r[CKP_SEARCH_GROUP_MAX];
        size_t n = 0, index[CKP_SEARCH_GROUP_MAX];
        assert_ok(ckp_search_ask(s, c, CKP_SEARCH_GROUP_MAX, &n, NULL));
        assert_in_range(n, 1, opt.group);
        for (size_t i = 0; i < n; i++) {
            index[i] = ckp_search_config_index(&c[i]);
            r[i] = (ckp_search_result){w->loss[index[i]], w->bytes[index[i]]};
            if (i == 0)
                check_question(w, &opt, asked, (int)index[i]);
            for (size_t j = 0; j < i; j++)
                assert_true(index[i] != index[j]);
        }
        for (size_t i = 0; i < n; i++) {
            assert_false(asked[index[i]]);
            asked[index[i]] = true;
        }
        assert_ok(ckp_search_tell(s, r, n, NULL));
    }
    ckp_search_config best = {0};
    o.good = ckp_search_best(s, &best, &o.result);
    o.index = ckp_search_config_index(&best);
    if (o.index < N) {
        assert_true(asked[o.index] && o.result.loss == w->loss[o.index] && o.result.bytes == w->bytes[o.index]);
        assert_int_equal(o.good, world_good(w, o.index));
    }
    ckp_search_get_stats(s, &o.stats);
    assert_int_equal(o.stats.evaluations, ckp_search_evaluations(s));
    assert_int_equal(o.stats.evaluations, o.stats.by_method[0] + o.stats.by_method[1]);
    assert_true(ckp_search_why(s)[0] != '\0');
    ckp_search_free(s);
    return o;
}
