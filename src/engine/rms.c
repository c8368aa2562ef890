/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/rms.h"
#include <math.h>

/* The sum of squares of the tensor that begins with piece k of group g; its pieces are in consecutive groups. *n: how many. */
static double
squares_of(const ckpi_pred *d, ckpi_rms_get get, const void *user, size_t g, size_t k, uint64_t *n)
{
    const uint32_t t = d->layout->g[g].piece[k].tensor;
    int64_t sum = 0;

    *n = 0;
    for (size_t h = g; h < d->layout->n && d->layout->g[h].lossy; h++) {
        const ckpi_group *o = &d->layout->g[h];
        for (size_t j = h == g ? k : 0; j < o->n_pieces; j++)
            if (o->piece[j].tensor == t) {
                sum += get(user, h, j)->sum_sq;
                *n += get(user, h, j)->n_finite;
            }
        if (o->n_pieces != 1)
            break;               /* a tensor over several groups has groups of its own */
    }
    return ldexp((double)sum, -d->sq_exp[t]);
}

bool
ckpi_rms_counts(const ckpi_group *g)
{
    return g->lossy && !g->fine && g->role != CKP_ROLE_AVERAGE;
}

/*
 * As no larger than which a large tensor counts, for what the others' steps are shares of: 64 times what three quarters of them are below, in whole
 * octaves; HUGE_VAL where none is larger. One element of 1e10 would take all other weights of the model with it (docs/decisions/0031).
 */
static double
most_that_counts(const ckpi_pred *d)
{
    enum { LOWEST = -160, OCTAVES = 320, FEW = 4, ABOVE = 6 };
    size_t count[OCTAVES] = {0}, n = 0, below = 0;
    int largest = 0;

    for (size_t g = 0; g < d->layout->n; g++) {
        const ckpi_group *grp = &d->layout->g[g];
        for (size_t k = 0; ckpi_rms_counts(grp) && k < grp->n_pieces; k++) {
            const float rms = d->rms[grp->piece[k].tensor];
            int e = 0;
            if (grp->piece[k].first != 0 || !(rms > 0.0F) || !isfinite(rms))
                continue;
            (void)frexp((double)rms, &e);
            count[e - LOWEST]++;
            largest = e - LOWEST > largest ? e - LOWEST : largest;
            n++;
        }
    }
    if (n < FEW)
        return HUGE_VAL;
    for (int e = 0; e < OCTAVES; e++) {
        below += count[e];
        if (4 * below >= 3 * n)
            return largest > e + ABOVE ? ldexp(1.0, e + LOWEST + ABOVE) : HUGE_VAL;
    }
    return HUGE_VAL;
}

/* Sets each tensor's RMS. Sum of squares and number of all that count, none of them for more than `most` lets it. */
static double
squares_of_all(ckpi_pred *d, ckpi_rms_get get, const void *user, double most, double *n_all)
{
    double all = 0.0;

    *n_all = 0.0;
    for (size_t g = 0; g < d->layout->n; g++) {
        const ckpi_group *grp = &d->layout->g[g];
        for (size_t k = 0; grp->lossy && k < grp->n_pieces; k++) {
            uint64_t n = 0;
            if (grp->piece[k].first != 0)
                continue;
            const double sq = squares_of(d, get, user, g, k, &n);
            d->rms[grp->piece[k].tensor] = n != 0 ? (float)sqrt(sq / (double)n) : 0.0F;
            if (ckpi_rms_counts(grp)) {
                all += isfinite(most) ? fmin(sq, most * most * (double)n) : sq;
                *n_all += (double)n;
            }
        }
    }
    return all;
}

void
ckpi_rms_sum_up(ckpi_pred *d, ckpi_rms_get get, const void *user)
{
    double n_all = 0.0, all = squares_of_all(d, get, user, HUGE_VAL, &n_all);

    d->most = most_that_counts(d);
    if (isfinite(d->most))
        all = squares_of_all(d, get, user, d->most, &n_all);
    if (n_all > 0.0)
        d->rms_all = sqrt(all / n_all);
    else if (d->rms_all == 0.0)
        d->rms_all = 1.0;
}
