/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delta-neighbourhood search. First the last configuration with the other metric of pruning, and itself; the better of the two is the
 * centre. Then what lies within `radius` steps of it and is less precise in no axis (precision only rises in a training), the smallest
 * first, until one is good enough. None: the guided search, which knows all these answers.
 */
#include "plan/known.h"

/* The paper changes the metric when quality is markedly better and does not say by how much: here by a tenth of the budget. */
#define MARKED 0.1

static int
other_metric(const ckpi_problem *p)
{
    ckpi_at at = ckpi_grid_at(p->last);
    at.metric = 1 - at.metric;
    const int id = ckpi_grid_id(&at);
    return id != p->last && p->exists[id] ? id : CKPI_NO_CONFIG;
}

static int
centre_of(const ckpi_problem *p, const ckpi_answers *k)
{
    const int other = other_metric(p);
    if (other == CKPI_NO_CONFIG || k->verdict[other] != CKPI_GOOD)
        return p->last;
    return k->verdict[p->last] != CKPI_GOOD || k->loss[other] < k->loss[p->last] - MARKED * p->budget ? other : p->last;
}

static int
steps_between(int a, int b)
{
    const ckpi_at x = ckpi_grid_at(a), y = ckpi_grid_at(b);
    int steps = 0;
    for (int k = 0; k < CKPI_AXES; k++)
        steps += x.axis[k] > y.axis[k] ? x.axis[k] - y.axis[k] : y.axis[k] - x.axis[k];
    return steps;
}

/* Which is tried first. Without sizes: fewer steps, then the axis that costs least a step, which is the last to differ. */
static bool
comes_before(const ckpi_problem *p, int centre, int a, int b)
{
    if (p->sized && p->size[a] != p->size[b])
        return p->size[a] < p->size[b];
    const int x = steps_between(centre, a), y = steps_between(centre, b);
    return x != y ? x < y : a < b;
}

static bool
is_near(const ckpi_problem *p, int centre, int id)
{
    const ckpi_at at = ckpi_grid_at(id), c = ckpi_grid_at(centre);
    bool near = p->exists[id] && (at.metric == c.metric || ckpi_covers(p, id, centre)) && steps_between(centre, id) <= p->radius;
    for (int a = 0; a < CKPI_AXES; a++)
        near = near && at.axis[a] >= c.axis[a];
    return near;
}

/* The first of the neighbourhood, in order, that comes after `before` (CKPI_NO_CONFIG: the very first). */
static int
following(const ckpi_problem *p, int centre, int before)
{
    int first = CKPI_NO_CONFIG;
    for (int id = 0; id < CKPI_GRID; id++)
        if (is_near(p, centre, id) && (before == CKPI_NO_CONFIG || comes_before(p, centre, before, id)) &&
            (first == CKPI_NO_CONFIG || comes_before(p, centre, id, first)))
            first = id;
    return first;
}

int
ckpi_neighbourhood_choice(const ckpi_problem *p, const ckpi_answers *k)
{
    const int centre = centre_of(p, k);
    int id = following(p, centre, CKPI_NO_CONFIG);
    while (id != CKPI_NO_CONFIG && k->verdict[id] != CKPI_GOOD)
        id = following(p, centre, id);
    return id;
}

int
ckpi_neighbourhood_next(const ckpi_problem *p, const ckpi_answers *k, bool *wide)
{
    const int other = other_metric(p);
    *wide = false;
    if (other != CKPI_NO_CONFIG && k->verdict[other] == CKPI_UNKNOWN)
        return other;
    if (p->exists[p->last] && k->verdict[p->last] == CKPI_UNKNOWN)
        return p->last;
    const int centre = centre_of(p, k);
    ckpi_view v;
    ckpi_view_of(&v, p, k);
    for (int id = following(p, centre, CKPI_NO_CONFIG); id != CKPI_NO_CONFIG; id = following(p, centre, id)) {
        if (k->verdict[id] == CKPI_GOOD)
            return CKPI_NO_CONFIG;
        if (v.verdict[id] == CKPI_UNKNOWN)
            return id;
    }
    *wide = true;
    return ckpi_guided_next(p, k);
}
