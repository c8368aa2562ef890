/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "plan/known.h"

/* Sizes rise strictly with precision among those that are not beaten: of two comparable ones that do not, one is. */
static void
mark_beaten(ckpi_problem *p)
{
    for (int b = 0; b < CKPI_GRID; b++)
        for (int a = 0; p->exists[b] && !p->beaten[b] && a < CKPI_GRID; a++)
            p->beaten[b] = p->exists[a] && a != b && ckpi_covers(p, a, b) && p->size[a] <= p->size[b];
}

void
ckpi_problem_init(ckpi_problem *p, const ckp_search_options *opt)
{
    p->metrics = opt->no_sensitivity ? 1 : CKPI_METRICS;
    p->sized = opt->sizes != NULL;
    for (int a = 0; a < CKPI_AXES; a++)
        p->length[a] = a == CKPI_EMBEDDING && opt->no_embeddings ? 1 : ckpi_grid_length(a);
    ckpi_at place[CKPI_GRID];
    for (int id = 0; id < CKPI_GRID; id++) {
        const ckpi_at at = place[id] = ckpi_grid_at(id);
        p->exists[id] = ckpi_grid_id(&at) == id && at.metric < p->metrics && at.axis[CKPI_EMBEDDING] < p->length[CKPI_EMBEDDING] &&
                        !(p->sized && opt->sizes[id] == 0);
        p->size[id] = p->sized ? opt->sizes[id] : 0;
    }
    for (int a = 0; a < CKPI_GRID; a++)
        for (int b = 0; b < CKPI_GRID; b++)
            if (ckpi_at_covers(&place[a], &place[b]))
                p->covers[a][b / 64] |= UINT64_C(1) << (b % 64);
    if (p->sized)
        mark_beaten(p);
}

/* Whether good configuration a is preferred to good configuration b. */
static bool
is_smaller(const ckpi_problem *p, const ckpi_answers *k, int a, int b)
{
    const bool told = k->bytes[a] != 0 && k->bytes[b] != 0;
    const uint64_t x = told ? k->bytes[a] : p->size[a], y = told ? k->bytes[b] : p->size[b];
    if (x != y)
        return x < y;
    return k->loss[a] != k->loss[b] ? k->loss[a] < k->loss[b] : a < b;
}

int
ckpi_smallest_good(const ckpi_problem *p, const ckpi_answers *k)
{
    int best = CKPI_NO_CONFIG;
    for (int id = 0; id < CKPI_GRID; id++)
        if (k->verdict[id] == CKPI_GOOD && (best == CKPI_NO_CONFIG || is_smaller(p, k, id, best)))
            best = id;
    return best;
}

/* What the answer for `from` says of the others, and the least that each can weigh. */
static void
imply(ckpi_view *v, uint64_t *at_least, const ckpi_problem *p, const ckpi_answers *k, int from)
{
    for (int id = 0; id < CKPI_GRID; id++) {
        const bool above = ckpi_covers(p, id, from);
        if (k->verdict[id] != CKPI_UNKNOWN)
            v->verdict[id] = k->verdict[id];
        else if (k->verdict[from] == CKPI_GOOD ? above : ckpi_covers(p, from, id))
            v->verdict[id] = v->verdict[id] == CKPI_BAD ? CKPI_BAD : k->verdict[from];   /* contradictions: the cautious side */
        if (above && !p->sized && k->bytes[from] > at_least[id])
            at_least[id] = k->bytes[from];
    }
}

/* What an open one must weigh less than: sizes against sizes, never against bytes that were told. */
static uint64_t
least_good(const ckpi_problem *p, const ckpi_answers *k)
{
    uint64_t least = UINT64_MAX;
    for (int id = 0; id < CKPI_GRID; id++) {
        const uint64_t x = p->sized ? p->size[id] : k->bytes[id];
        if (k->verdict[id] == CKPI_GOOD && x != 0 && x < least)
            least = x;
    }
    return least;
}

void
ckpi_view_of(ckpi_view *v, const ckpi_problem *p, const ckpi_answers *k)
{
    uint64_t at_least[CKPI_GRID];
    memset(v, 0, sizeof *v);
    memcpy(at_least, p->size, sizeof at_least);
    for (int id = 0; id < CKPI_GRID; id++)
        if (k->verdict[id] != CKPI_UNKNOWN)
            imply(v, at_least, p, k, id);
    const uint64_t most = least_good(p, k);
    for (int id = 0; id < CKPI_GRID; id++)
        v->open[id] = p->exists[id] && !p->beaten[id] && v->verdict[id] == CKPI_UNKNOWN && at_least[id] < most;
}
