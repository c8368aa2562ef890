/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guided exhaustive search. A cube's diagonal, from its most aggressive corner to its most precise one, is bisected. Let p be its first
 * good point and q the one before: all that covers p is good but larger, all that q covers is no good. What remains of the cube is cut
 * into boxes, and each is a cube again. The two metrics of pruning are two cubes that share the face where nothing is pruned.
 *
 * The paper evaluates the whole diagonal and knows no sizes; here answers from anywhere in the grid settle points of a diagonal, and so
 * do sizes, so no point is evaluated that monotonicity decides.
 */
#include "plan/known.h"

typedef struct box {
    int low[CKPI_AXES], high[CKPI_AXES];   /* both belong to it */
    int metric;
} box;

typedef struct diagonal {
    ckpi_at at[8];                         /* at most the longest axis of points */
    int id[8], n;
} diagonal;


static int visit(const ckpi_view *v, const box *b);

static diagonal
diagonal_of(const box *b)
{
    diagonal d = {.n = 1};
    for (int a = 0; a < CKPI_AXES; a++)
        if (b->high[a] - b->low[a] + 1 > d.n)
            d.n = b->high[a] - b->low[a] + 1;
    for (int k = 0; k < d.n; k++) {
        d.at[k].metric = b->metric;
        for (int a = 0; a < CKPI_AXES; a++) {
            const int side = b->high[a] - b->low[a];
            d.at[k].axis[a] = b->low[a] + (d.n == 1 ? 0 : (2 * k * side + d.n - 1) / (2 * (d.n - 1)));
        }
        d.id[k] = ckpi_grid_id(&d.at[k]);
    }
    return d;
}

/* The one in the middle of the diagonal's open points; they are neighbours but for points that sizes rule out. */
static int
middle_open(const ckpi_view *v, const diagonal *d)
{
    int open[8], n = 0;
    for (int k = 0; k < d->n; k++)
        if (v->open[d->id[k]])
            open[n++] = d->id[k];
    return n == 0 ? CKPI_NO_CONFIG : open[n / 2];
}

static bool
has_open(const ckpi_view *v, const box *b)
{
    ckpi_at at = {.metric = b->metric};
    for (at.axis[0] = b->low[0]; at.axis[0] <= b->high[0]; at.axis[0]++)
        for (at.axis[1] = b->low[1]; at.axis[1] <= b->high[1]; at.axis[1]++)
            for (at.axis[2] = b->low[2]; at.axis[2] <= b->high[2]; at.axis[2]++)
                for (at.axis[3] = b->low[3]; at.axis[3] <= b->high[3]; at.axis[3]++)
                    if (v->open[ckpi_grid_id(&at)])
                        return true;
    return false;
}

/* The part of b below (or from) `cut` along axis a; without content it has no open points. */
static box
below(const box *b, int a, int cut)
{
    box c = *b;
    c.high[a] = cut - 1 < b->high[a] ? cut - 1 : b->high[a];
    return c;
}

static box
from(const box *b, int a, int cut)
{
    box c = *b;
    c.low[a] = cut > b->low[a] ? cut : b->low[a];
    return c;
}

/* Boxes of b that hold everything outside "at least p in each axis in `mask`" (up), or outside "at most p" (down), each once. */
static int
visit_outside(const ckpi_view *v, box b, const ckpi_at *p, unsigned mask, bool up)
{
    int found = CKPI_NO_CONFIG;
    for (int a = 0; found == CKPI_NO_CONFIG && a < CKPI_AXES; a++) {
        if ((mask >> a & 1) == 0)
            continue;
        const int cut = up ? p->axis[a] : p->axis[a] + 1;
        const box low = below(&b, a, cut), high = from(&b, a, cut);
        found = visit(v, up ? &low : &high);
        b = up ? high : low;
    }
    return found;
}

/* b without what covers p and what q covers. p is one step from q along the axes in which they differ. */
static int
visit_rest(const ckpi_view *v, const box *b, const ckpi_at *p, const ckpi_at *q)
{
    unsigned moved = 0, all = (1u << CKPI_AXES) - 1;
    for (int a = 0; a < CKPI_AXES; a++)
        moved |= (unsigned)(p->axis[a] != q->axis[a]) << a;
    for (unsigned corner = 0; corner <= all; corner++) {     /* bit a: the precise side of axis a */
        if ((corner & ~moved) != 0)
            continue;
        box c = *b;
        for (int a = 0; a < CKPI_AXES; a++)
            if (moved >> a & 1)
                c = corner >> a & 1 ? from(&c, a, p->axis[a]) : below(&c, a, p->axis[a]);
        int found;
        if (corner == 0)
            found = visit_outside(v, c, q, all & ~moved, false);
        else if (corner == moved)
            found = visit_outside(v, c, p, all & ~moved, true);
        else
            found = visit(v, &c);
        if (found != CKPI_NO_CONFIG)
            return found;
    }
    return CKPI_NO_CONFIG;
}

/* Where sizes have taken the diagonal's points out and nothing is known of them. */
static int
visit_halves(const ckpi_view *v, const box *b)
{
    int longest = 0;
    for (int a = 1; a < CKPI_AXES; a++)
        if (b->high[a] - b->low[a] > b->high[longest] - b->low[longest])
            longest = a;
    const int cut = (b->low[longest] + b->high[longest]) / 2 + 1;
    const box low = below(b, longest, cut), high = from(b, longest, cut);
    const int found = visit(v, &low);
    return found != CKPI_NO_CONFIG ? found : visit(v, &high);
}

/* The next question inside b, or CKPI_NO_CONFIG. Ends: each box it goes into is smaller. */
static int
visit(const ckpi_view *v, const box *b)
{
    if (!has_open(v, b))
        return CKPI_NO_CONFIG;
    const diagonal d = diagonal_of(b);
    const int found = middle_open(v, &d);
    if (found != CKPI_NO_CONFIG)
        return found;
    int p = 0;                             /* the first that is not bad */
    while (p < d.n && v->verdict[d.id[p]] == CKPI_BAD)
        p++;
    return p > 0 && p < d.n ? visit_rest(v, b, &d.at[p], &d.at[p - 1]) : visit_halves(v, b);
}

int
ckpi_guided_next(const ckpi_problem *p, const ckpi_answers *k)
{
    ckpi_view v;
    ckpi_view_of(&v, p, k);
    int found = CKPI_NO_CONFIG;
    for (int metric = 0; found == CKPI_NO_CONFIG && metric < p->metrics; metric++) {
        box b = {.metric = metric};
        for (int a = 0; a < CKPI_AXES; a++)
            b.high[a] = ckpi_grid_length(a) - 1;
        found = visit(&v, &b);
    }
    return found;
}
