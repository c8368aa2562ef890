/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/grid.h"

static const unsigned bins[] = {4, 6, 8, 12, 16, 32}, bins_embedding[] = {16, 32};
static const double prune[] = {0.5, 0.4, 0.3, 0.2, 0.1, 0.0}, protect[] = {0.0005, 0.005, 0.01};
static const int length[CKPI_AXES] = {6, 2, 6, 3};
static const int no_prune = 5;   /* on its axis */

int
ckpi_grid_length(int axis)
{
    return length[axis];
}

ckpi_at
ckpi_grid_at(int id)
{
    ckpi_at at;
    for (int a = CKPI_AXES; a-- > 0; id /= length[a])
        at.axis[a] = id % length[a];
    at.metric = id;
    return at;
}

int
ckpi_grid_id(const ckpi_at *at)
{
    int id = at->axis[CKPI_PRUNE] == no_prune ? 0 : at->metric;
    for (int a = 0; a < CKPI_AXES; a++)
        id = id * length[a] + at->axis[a];
    return id;
}

bool
ckpi_at_covers(const ckpi_at *a, const ckpi_at *b)
{
    if (a->metric != b->metric && a->axis[CKPI_PRUNE] != no_prune)
        return false;
    for (int k = 0; k < CKPI_AXES; k++)
        if (a->axis[k] < b->axis[k])
            return false;
    return true;
}

bool
ckpi_grid_covers(int a, int b)
{
    const ckpi_at x = ckpi_grid_at(a), y = ckpi_grid_at(b);
    return ckpi_at_covers(&x, &y);
}

bool
ckp_search_config_at(size_t index, ckp_search_config *out)
{
    if (index >= CKPI_GRID || out == NULL)
        return false;
    const ckpi_at at = ckpi_grid_at((int)index);
    out->bins = bins[at.axis[CKPI_BINS]];
    out->bins_embedding = bins_embedding[at.axis[CKPI_EMBEDDING]];
    out->prune = prune[at.axis[CKPI_PRUNE]];
    out->protect = protect[at.axis[CKPI_PROTECT]];
    out->prune_by = (unsigned)at.metric;
    return true;
}

/* ---- from values to places ---------------------------------------------------------------------------------------------- */

static int
find_whole(const unsigned *values, int n, unsigned x)
{
    int k = 0;
    while (k < n && values[k] != x)
        k++;
    return k;
}

/* Shares come from JSON and from Python: their last digits are not ours. */
static int
find_share(const double *values, int n, double x)
{
    int k = 0;
    while (k < n && !(x - values[k] <= 1e-9 && values[k] - x <= 1e-9))
        k++;
    return k;
}

size_t
ckp_search_config_index(const ckp_search_config *c)
{
    if (c == NULL || c->prune_by >= CKPI_METRICS)
        return CKPI_GRID;
    const ckpi_at at = {{find_whole(bins, length[0], c->bins), find_whole(bins_embedding, length[1], c->bins_embedding),
                         find_share(prune, length[2], c->prune), find_share(protect, length[3], c->protect)}, (int)c->prune_by};
    for (int a = 0; a < CKPI_AXES; a++)
        if (at.axis[a] == length[a])
            return CKPI_GRID;
    return (size_t)ckpi_grid_id(&at);
}
