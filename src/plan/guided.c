/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guided exhaustive search. A cube has a diagonal, from its most aggressive corner to its most precise one. Let p be the first good point
 * on it and q the one before: all that covers p is good but larger, all that q covers is no good. What remains of the cube is cut into
 * boxes, and each is a cube again. The two metrics of pruning are two cubes that share the face where nothing is pruned.
 *
 * The paper evaluates whole diagonals, one cube after the other, and knows no sizes. Here answers from anywhere in the grid settle points
 * of a diagonal, and so do sizes, so no point is evaluated that monotonicity decides; and of the points that are open on the diagonals of
 * all boxes there are, the one is asked for whose answer settles most, whatever it is.
 *
 * The paper gives no number of evaluations. Its procedure has W(sides) = longest side + the worst sum of W over the boxes that a first good
 * point leaves: 150 for a cube of 6 x 2 x 6 x 3 (74 without embeddings), twice that for both metrics. tests/unit/plan/test_guided.c derives
 * it and holds this search to it.
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


typedef struct walk {
    const ckpi_problem *problem;
    ckpi_view view;
    int found;                             /* the question so far, or CKPI_NO_CONFIG */
    int worth;                             /* of it */
} walk;

static void visit(walk *w, const box *b);

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

/* What both answers settle: of a good one all that is no smaller, of a bad one all that it covers. The product favours an even cut. */
static int
worth_of(const walk *w, int id)
{
    const ckpi_problem *p = w->problem;
    int good = 0, bad = 0;
    for (int i = 0; i < CKPI_GRID; i++) {
        if (!w->view.open[i])
            continue;
        good += p->sized ? p->size[i] >= p->size[id] : ckpi_covers(p, i, id);
        bad += ckpi_covers(p, id, i);
    }
    return good * bad;
}

/* Takes the diagonal's best open point if it is the best so far. False: it has none. */
static bool
consider(walk *w, const diagonal *d)
{
    bool any = false;
    for (int k = 0; k < d->n; k++) {
        if (!w->view.open[d->id[k]])
            continue;
        any = true;
        const int worth = worth_of(w, d->id[k]);
        if (worth > w->worth) {
            w->worth = worth;
            w->found = d->id[k];
        }
    }
    return any;
}

static bool
has_open(const walk *w, const box *b)
{
    ckpi_at at = {.metric = b->metric};
    for (at.axis[0] = b->low[0]; at.axis[0] <= b->high[0]; at.axis[0]++)
        for (at.axis[1] = b->low[1]; at.axis[1] <= b->high[1]; at.axis[1]++)
            for (at.axis[2] = b->low[2]; at.axis[2] <= b->high[2]; at.axis[2]++)
                for (at.axis[3] = b->low[3]; at.axis[3] <= b->high[3]; at.axis[3]++)
                    if (w->view.open[ckpi_grid_id(&at)])
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
static void
visit_outside(walk *w, box b, const ckpi_at *p, unsigned mask, bool up)
{
    for (int a = 0; a < CKPI_AXES; a++) {
        if ((mask >> a & 1) == 0)
            continue;
        const int cut = up ? p->axis[a] : p->axis[a] + 1;
        const box low = below(&b, a, cut), high = from(&b, a, cut);
        visit(w, up ? &low : &high);
        b = up ? high : low;
    }
}

/* b without what covers p and what q covers. p is one step from q along the axes in which they differ. */
static void
visit_rest(walk *w, const box *b, const ckpi_at *p, const ckpi_at *q)
{
    const unsigned all = (1u << CKPI_AXES) - 1;
    unsigned moved = 0;
    for (int a = 0; a < CKPI_AXES; a++)
        moved |= (unsigned)(p->axis[a] != q->axis[a]) << a;
    for (unsigned corner = 0; corner <= all; corner++) {     /* bit a: the precise side of axis a */
        if ((corner & ~moved) != 0)
            continue;
        box c = *b;
        for (int a = 0; a < CKPI_AXES; a++)
            if (moved >> a & 1)
                c = corner >> a & 1 ? from(&c, a, p->axis[a]) : below(&c, a, p->axis[a]);
        if (corner == 0)
            visit_outside(w, c, q, all & ~moved, false);
        else if (corner == moved)
            visit_outside(w, c, p, all & ~moved, true);
        else
            visit(w, &c);
    }
}

/* Whether nothing that covers a point of a diagonal without open ones is open: it is good, or already too large. Not so where it only is
   not there, or is beaten by one that covers it. */
static bool
settled_above(const walk *w, int id)
{
    return w->view.verdict[id] == CKPI_GOOD || (w->problem->exists[id] && !w->problem->beaten[id]);
}

/* Where sizes have taken the diagonal's points out and nothing is known of them. */
static void
visit_halves(walk *w, const box *b)
{
    int longest = 0;
    for (int a = 1; a < CKPI_AXES; a++)
        if (b->high[a] - b->low[a] > b->high[longest] - b->low[longest])
            longest = a;
    const int cut = (b->low[longest] + b->high[longest]) / 2 + 1;
    const box low = below(b, longest, cut), high = from(b, longest, cut);
    visit(w, &low);
    visit(w, &high);
}

/* Ends: each box it goes into is smaller. Finds a question where b has one: a box of one point is its own diagonal. */
static void
visit(walk *w, const box *b)
{
    if (!has_open(w, b))
        return;
    const diagonal d = diagonal_of(b);
    if (consider(w, &d))
        return;
    int p = 0;                             /* the first that is not bad */
    while (p < d.n && w->view.verdict[d.id[p]] == CKPI_BAD)
        p++;
    if (p > 0 && p < d.n && settled_above(w, d.id[p]))
        visit_rest(w, b, &d.at[p], &d.at[p - 1]);
    else
        visit_halves(w, b);
}

int
ckpi_guided_next(const ckpi_problem *p, const ckpi_answers *k)
{
    walk w = {.problem = p, .found = CKPI_NO_CONFIG};
    ckpi_view_of(&w.view, p, k);
    for (int metric = 0; metric < p->metrics; metric++) {
        box b = {.metric = metric};
        for (int a = 0; a < CKPI_AXES; a++)
            b.high[a] = p->length[a] - 1;
        visit(&w, &b);
    }
    return w.found;
}
