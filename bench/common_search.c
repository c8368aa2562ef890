/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made-up model: what each axis of the grid costs in loss are random numbers that add up (monotone, as the searches assume), and so is
 * what it costs in bytes; the budget is drawn so that any share of the grid is good enough. Every count is a mean over MODELS of them, the
 * same in every run. "paper" is the paper's procedure as it is written: whole diagonals, cube by cube, sizes not used, for either metric.
 */
#define _GNU_SOURCE
#include "common_search.h"
#include <ckpress/plan.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MODELS = 400, SAVES = 40, N = CKP_SEARCH_CONFIGS, AXES = 4, LONGEST = 6 };
static const int length[AXES] = {6, 2, 6, 3};   /* bins, bins of embeddings, pruned, protected: from aggressive to precise */

typedef struct model {
    double loss[N], epsilon;                    /* the live loss is 1 */
    uint64_t bytes[N];
} model;

/* The grid's index, known from its values. */
static size_t
index_of(const int *axis, unsigned metric)
{
    static const unsigned bins[] = {4, 6, 8, 12, 16, 32};
    static const double protect[] = {0.0005, 0.005, 0.01};
    const ckp_search_config c = {bins[axis[0]], axis[1] == 0 ? 16 : 32, 0.5 - 0.1 * axis[2], metric, protect[axis[3]]};
    return ckp_search_config_index(&c);
}

static double
unit(uint64_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return (double)(*rng >> 11) * 0x1p-53;
}

static int
by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void
draw_axis(uint64_t *rng, int n, double *loss, double *bytes)
{
    loss[n - 1] = 0;
    bytes[0] = 0;
    for (int k = n - 1; k-- > 0;)
        loss[k] = loss[k + 1] + unit(rng) * unit(rng);
    for (int k = 1; k < n; k++)
        bytes[k] = bytes[k - 1] + 1 + unit(rng);
}

static void
draw(model *m, uint64_t *rng)
{
    double loss[2][AXES][LONGEST], bytes[AXES][LONGEST], sorted[N];
    for (int a = 0; a < AXES; a++) {
        draw_axis(rng, length[a], loss[1][a], bytes[a]);
        memcpy(loss[0][a], loss[1][a], sizeof loss[0][a]);
    }
    draw_axis(rng, length[2], loss[1][2], bytes[2]);    /* the metrics differ in what pruning costs */
    int x[AXES];
    for (unsigned metric = 0; metric < 2; metric++)
        for (x[0] = 0; x[0] < length[0]; x[0]++)
            for (x[1] = 0; x[1] < length[1]; x[1]++)
                for (x[2] = 0; x[2] < length[2]; x[2]++)
                    for (x[3] = 0; x[3] < length[3]; x[3]++) {
                        double l = 1, b = 10;
                        for (int a = 0; a < AXES; a++) {
                            l += loss[metric][a][x[a]];
                            b += bytes[a][x[a]];
                        }
                        m->loss[index_of(x, metric)] = l;
                        m->bytes[index_of(x, metric)] = (uint64_t)(b * 1e6);
                    }
    for (size_t i = 0; i < N; i++) {                    /* the other metric's names of what prunes nothing */
        ckp_search_config c;
        (void)ckp_search_config_at(i, &c);
        m->loss[i] = m->loss[ckp_search_config_index(&c)];
        m->bytes[i] = m->bytes[ckp_search_config_index(&c)];
    }
    memcpy(sorted, m->loss, sizeof sorted);
    qsort(sorted, N, sizeof *sorted, by_value);
    m->epsilon = sorted[(size_t)(unit(rng) * N)] - 1;
}

static bool
good(const model *m, size_t i)
{
    return m->loss[i] - 1 <= m->epsilon;
}

/* ---- the paper's procedure ------------------------------------------------------------------------------------------------ */

typedef struct cube { int low[AXES], high[AXES]; } cube;

static void paper(const model *m, const cube *b, unsigned metric, bool *done);

/* What is left of b without all that is at least p, and all that is at most q. The axes along which p and q are a step apart cut it in
   two; where all of these are on one side, the others are cut off one by one. */
static void
paper_rest(const model *m, const cube *b, const int *p, const int *q, unsigned metric, bool *done)
{
    for (unsigned corner = 0; corner < 1u << AXES; corner++) {
        cube c = *b;
        bool aggressive = true, precise = true, fits = true;
        for (int a = 0; a < AXES; a++) {
            const bool high = corner >> a & 1;
            fits = fits && (p[a] != q[a] || !high);
            if (p[a] == q[a])
                continue;
            *(high ? &c.low[a] : &c.high[a]) = high ? p[a] : q[a];
            aggressive = aggressive && !high;
            precise = precise && high;
        }
        if (fits && !aggressive && !precise)
            paper(m, &c, metric, done);
        for (int a = 0; fits && (aggressive || precise) && a < AXES; a++) {
            if (p[a] != q[a])
                continue;
            cube part = c;
            *(precise ? &part.high[a] : &part.low[a]) = precise ? p[a] - 1 : p[a] + 1;
            paper(m, &part, metric, done);
            *(precise ? &c.low[a] : &c.high[a]) = p[a];
        }
    }
}

static void
paper(const model *m, const cube *b, unsigned metric, bool *done)
{
    int points = 0, first = -1, at[LONGEST][AXES];
    for (int a = 0; a < AXES; a++) {
        if (b->high[a] < b->low[a])
            return;
        points = b->high[a] - b->low[a] + 1 > points ? b->high[a] - b->low[a] + 1 : points;
    }
    for (int k = points; k-- > 0;) {
        for (int a = 0; a < AXES; a++)
            at[k][a] = b->low[a] + (points == 1 ? 0 : (2 * k * (b->high[a] - b->low[a]) + points - 1) / (2 * (points - 1)));
        const size_t i = index_of(at[k], metric);
        done[i] = true;
        first = good(m, i) ? k : first;
    }
    if (first > 0)
        paper_rest(m, b, at[first], at[first - 1], metric, done);
}

static unsigned
paper_evaluations(const model *m)
{
    bool done[N] = {false};
    unsigned n = 0;
    cube all = {{0}, {0}};
    for (int a = 0; a < AXES; a++)
        all.high[a] = length[a] - 1;
    for (unsigned metric = 0; metric < 2; metric++)
        paper(m, &all, metric, done);
    for (size_t i = 0; i < N; i++)
        n += done[i];
    return n;
}

/* ---- ours ------------------------------------------------------------------------------------------------------------------- */

/* false: it failed. */
static bool
search(const model *m, ckp_search_options opt, ckp_search_config *best, uint64_t *bytes, ckp_search_stats *stats)
{
    ckp_search *s = NULL;
    ckp_search_config c[CKP_SEARCH_GROUP_MAX];
    ckp_search_result r[CKP_SEARCH_GROUP_MAX], found = {0, 0};
    size_t n = 0;
    opt.loss_live = 1;
    opt.epsilon = m->epsilon;
    bool ok = ckp_search_new(&s, &opt, NULL) == CKP_OK;
    while (ok && !ckp_search_done(s)) {
        ok = ckp_search_ask(s, c, CKP_SEARCH_GROUP_MAX, &n, NULL) == CKP_OK;
        for (size_t i = 0; i < n; i++)
            r[i] = (ckp_search_result){m->loss[ckp_search_config_index(&c[i])], m->bytes[ckp_search_config_index(&c[i])]};
        ok = ok && ckp_search_tell(s, r, n, NULL) == CKP_OK;
    }
    stats->size = sizeof *stats;
    ckp_search_get_stats(s, stats);
    *bytes = ok && ckp_search_best(s, best, &found) ? found.bytes : UINT64_MAX;
    ckp_search_free(s);
    return ok;
}

static uint64_t
least(const model *m)
{
    uint64_t x = UINT64_MAX;
    for (size_t i = 0; i < N; i++)
        x = good(m, i) && m->bytes[i] < x ? m->bytes[i] : x;
    return x;
}

static bool
guided(void)
{
    static const struct way { const char *name; bool sized; unsigned group; } ways[] = {
        {"guided", true, 1}, {"guided_sizes_told", false, 1}, {"guided_8", true, 8}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        uint64_t rng = 88172645463325252u;
        double evaluations = 0, rounds = 0, procedure = 0;
        unsigned most = 0;
        const clock_t start = clock();
        for (unsigned k = 0; k < MODELS; k++) {
            model m;
            ckp_search_config best;
            ckp_search_stats st = {.size = sizeof st};
            ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
            uint64_t bytes;
            draw(&m, &rng);
            opt.sizes = ways[w].sized ? m.bytes : NULL;
            opt.group = ways[w].group;
            if (!search(&m, opt, &best, &bytes, &st) || bytes != least(&m))
                return false;
            evaluations += st.evaluations;
            rounds += st.rounds;
            most = st.evaluations > most ? st.evaluations : most;
            procedure += w == 0 ? paper_evaluations(&m) : 0;
        }
        printf("search_%s_evaluations %.2f\nsearch_%s_rounds %.2f\nsearch_%s_most %u\n", ways[w].name, evaluations / MODELS, ways[w].name,
               rounds / MODELS, ways[w].name, most);
        if (w == 0)
            printf("search_paper_evaluations %.2f\n", procedure / MODELS);
        else if (w == 1)
            printf("search_s %.6f\n", (double)(clock() - start) / CLOCKS_PER_SEC / MODELS);
    }
    return true;
}

/* Trainings of SAVES saves in which the same losses matter more and more: the budget falls to a fifth. */
static bool
neighbourhood(void)
{
    uint64_t rng = 88172645463325252u;
    double evaluations = 0;
    unsigned fallen = 0, saves = 0;
    for (unsigned k = 0; k < MODELS / 10; k++) {
        model m;
        ckp_search_config last = {0};
        draw(&m, &rng);
        const double from = m.epsilon;
        for (unsigned save = 0; save < SAVES; save++) {
            ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
            ckp_search_stats st = {.size = sizeof st};
            uint64_t bytes;
            m.epsilon = from * (1 - 0.8 * save / SAVES);
            opt.method = save == 0 ? CKP_SEARCH_GUIDED : CKP_SEARCH_NEIGHBOURHOOD;
            opt.last = &last;
            opt.sizes = m.bytes;
            if (!search(&m, opt, &last, &bytes, &st) || bytes == UINT64_MAX)
                return false;
            saves += save > 0;
            evaluations += save > 0 ? st.evaluations : 0;
            fallen += st.fell_back;
        }
    }
    printf("search_neighbourhood_evaluations %.2f\nsearch_neighbourhood_fallbacks_a_run %.2f\n", evaluations / saves, 10.0 * fallen / MODELS);
    return true;
}

bool
ckpb_search(void)
{
    printf("search_all_evaluations 396\n");
    return guided() && neighbourhood();
}
