/* SPDX-License-Identifier: Apache-2.0 */
/* From curves to steps: one multiplier for all units, found by bisection. */
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/fixed.h"
#include "plan/rd.h"

/* A multiplier is chosen among positions 1/16 octave apart; the common factor afterwards is as fine as positions are. */
enum { GRAIN = CKPI_RD_OCTAVE / 16, CHOICES = (CKPI_RD_HIGHEST - CKPI_RD_LOWEST) / GRAIN + 1, BISECTIONS = 64 };

/* ---- between the points ------------------------------------------------------------------------------------------------ */

/* Cubic through y[1] and y[2] with the slopes that their neighbours give, x from 0 to 1; never beyond the two. */
static double
cubic(const double y[4], double x)
{
    const double m1 = 0.5 * (y[2] - y[0]), m2 = 0.5 * (y[3] - y[1]), x2 = x * x, x3 = x2 * x;
    const double r = (2.0 * x3 - 3.0 * x2 + 1.0) * y[1] + (x3 - 2.0 * x2 + x) * m1 + (3.0 * x2 - 2.0 * x3) * y[2] + (x3 - x2) * m2;
    return fmin(fmax(r, fmin(y[1], y[2])), fmax(y[1], y[2]));
}

static double
between(const double *y, int p, double x)
{
    const int last = CKPI_RD_POINTS - 1;
    const double y1 = y[p], y2 = y[CKPI_MIN(p + 1, last)];
    const double four[4] = {p > 0 ? y[p - 1] : 2.0 * y1 - y2, y1, y2, p + 2 <= last ? y[p + 2] : 2.0 * y2 - y1};
    return cubic(four, x);
}

/* Errors grow about as the square of the step: what is interpolated is their quotient, which hardly changes. */
static double
between_squares(const double *y, int p, double x, double octave_part)
{
    const double a = y[p], b = y[CKPI_MIN(p + 1, CKPI_RD_POINTS - 1)];
    return fmin((a + x * (0.25 * b - a)) * octave_part * octave_part, b);
}

ckpi_rdplan_sum
ckpi_rdplan_at(const ckpi_rdplan_unit *u, int at)
{
    const int from = at - CKPI_RD_LOWEST, p = from / CKPI_RD_OCTAVE, rest = from % CKPI_RD_OCTAVE;
    const double x = (double)rest / CKPI_RD_OCTAVE, part = (double)ckpi_exp2_fixed(rest);

    return (ckpi_rdplan_sum){.bits = between(u->bits, p, x), .err2 = between_squares(u->err2, p, x, part),
                         .cost = between_squares(u->cost, p, x, part), .loss = between_squares(u->loss, p, x, part), .n = (double)u->n};
}

static int
shifted(const ckpi_rdplan_unit *u, int shift)
{
    return u->fixed ? 0 : CKPI_MAX(CKPI_RD_LOWEST, CKPI_MIN(u->at + shift, CKPI_RD_HIGHEST));
}

static ckpi_rdplan_sum
total_at(const ckpi_rdplan *rd, int shift)
{
    ckpi_rdplan_sum s = {0};
    for (size_t i = 0; i < rd->n_units; i++) {
        const ckpi_rdplan_sum a = ckpi_rdplan_at(&rd->unit[i], shifted(&rd->unit[i], shift));
        s.bits += a.bits * a.n;
        s.err2 += a.err2 * a.n;
        s.cost += a.cost * a.n;
        s.loss += a.loss * a.n;
        s.n += a.n;
    }
    return s;
}

ckpi_rdplan_sum
ckpi_rdplan_total(const ckpi_rdplan *rd)
{
    return total_at(rd, 0);
}

double
ckpi_rdplan_step(const ckpi_rdplan *rd, const ckpi_rdplan_unit *u, uint32_t tensor)
{
    const int octave = (u->at - CKPI_RD_LOWEST) / CKPI_RD_OCTAVE - CKPI_RD_ZERO, rest = (u->at - CKPI_RD_LOWEST) % CKPI_RD_OCTAVE;
    /* as the coder will use it, so that what is written down is what is meant */
    return u->fixed ? rd->anchor[tensor] : (double)(float)ldexp(rd->anchor[tensor] * (double)ckpi_exp2_fixed(rest), octave);
}

/* ---- for a multiplier -------------------------------------------------------------------------------------------------- */

typedef struct price { double bits, cost; } price;     /* of a whole unit */

static void
choose(ckpi_rdplan *rd, const price *c, double multiplier)
{
    for (size_t i = 0; i < rd->n_units; i++) {
        const price *row = &c[i * CHOICES];
        size_t best = 0;
        for (size_t k = 1; k < CHOICES; k++)
            if (row[k].cost + multiplier * row[k].bits < row[best].cost + multiplier * row[best].bits)
                best = k;
        rd->unit[i].at = rd->unit[i].fixed ? 0 : CKPI_RD_LOWEST + (int)best * GRAIN;
    }
}

/* Whether a choice keeps the budget. For bits, more loss is what makes it fit; for the others, less. */
static bool
fits(const ckpi_rdplan_budget *b, const ckpi_rdplan_sum *s)
{
    if (b->bits > 0.0)
        return s->bits <= b->bits;
    return b->err > 0.0 ? s->err2 <= b->err * b->err * s->n : s->loss <= b->loss;
}

/* Multipliers between which every choice lies, from the curves' own slopes. */
static void
limits(const ckpi_rdplan *rd, const price *c, double *lo, double *hi)
{
    *lo = 0x1p1000;
    *hi = 0x1p-1000;
    for (size_t i = 0; i < rd->n_units; i++)
        for (size_t k = 1; k < CHOICES; k++) {
            const price *a = &c[i * CHOICES + k - 1], *b = a + 1;
            const double dl = b->cost - a->cost, db = a->bits - b->bits;
            if (!(dl > 0.0) || !(db > 0.0))
                continue;
            *lo = fmin(*lo, dl / db);
            *hi = fmax(*hi, dl / db);
        }
    *lo = fmax(*lo * 0.5, 0x1p-1000);
    *hi = fmin(*hi * 2.0, 0x1p1000);
}

static double
bisect(ckpi_rdplan *rd, const price *c, const ckpi_rdplan_budget *b)
{
    const bool coarser_fits = b->bits > 0.0;
    double lo = 0.0, hi = 0.0;

    limits(rd, c, &lo, &hi);
    if (lo > hi)
        lo = hi = 1.0;           /* nothing to choose: all curves are flat */
    for (int i = 0; i < BISECTIONS; i++) {
        const double mid = sqrt(lo) * sqrt(hi);
        choose(rd, c, mid);
        const ckpi_rdplan_sum s = ckpi_rdplan_total(rd);
        if (fits(b, &s) == coarser_fits)
            hi = mid;            /* for bits: it fits, try finer; for errors: it does not, so finer it must be */
        else
            lo = mid;
    }
    const double best = coarser_fits ? hi : lo;
    choose(rd, c, best);
    return best;
}

/* A common factor on all steps, as coarse as errors allow or as fine as bits do. */
static void
adjust(ckpi_rdplan *rd, const ckpi_rdplan_budget *b)
{
    const bool coarser_fits = b->bits > 0.0;
    int best = 0;

    for (int s = 1; s <= 4 * GRAIN; s++) {
        const ckpi_rdplan_sum t = total_at(rd, coarser_fits ? -s : s);
        if (!fits(b, &t))
            break;
        best = coarser_fits ? -s : s;
    }
    for (size_t i = 0; i < rd->n_units; i++)
        rd->unit[i].at = shifted(&rd->unit[i], best);
}

ckp_status
ckpi_rdplan_solve(ckpi_rdplan *rd, const ckpi_rdplan_budget *budget, bool *met, double *multiplier, ckp_error *err)
{
    price *c = ckpi_malloc(rd->n_units * CHOICES + 1, sizeof *c);

    if (c == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to plan %zu weights", rd->n_units);
    for (size_t i = 0; i < rd->n_units; i++)
        for (size_t k = 0; k < CHOICES; k++) {
            const ckpi_rdplan_sum s = ckpi_rdplan_at(&rd->unit[i], CKPI_RD_LOWEST + (int)k * GRAIN);
            c[i * CHOICES + k] = (price){s.bits * s.n, s.cost * s.n};
        }
    *multiplier = bisect(rd, c, budget);
    adjust(rd, budget);
    const ckpi_rdplan_sum s = ckpi_rdplan_total(rd);
    *met = fits(budget, &s);
    free(c);
    return CKP_OK;
}
