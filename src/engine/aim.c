/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From how many steps on a weight is coded (quant.h, CKPI_ROUND_EARLY), so that a restore loses no progress: the error e = w - w^ of
 * a piece must cancel along the gradient, sum m * e = 0. Which weights are coded earlier than to nearest, those whose error is largest,
 * follows from that. A sample tells it; docs/decisions/0008 has what was measured.
 */
#include <math.h>
#include "base/bytes.h"
#include "base/rng.h"
#include "engine/aim.h"
#include "engine/numbers.h"

/* Runs of neighbours, for the cache's sake; enough of them for some 2,000 elements of each piece. */
enum { NEIGHBOURS = 16, RUNS = 128, BINS = 64 };

typedef struct sums {
    double need;                 /* progress that codes must still carry */
    double bin[BINS];            /* what coding early would carry, by the distance: CKPI_WNEAR_MIN to 0.5 */
} sums;

static double
bin_width(void)
{
    return (0.5 - (double)CKPI_WNEAR_MIN) / BINS;
}

static void
add(sums *s, const ckpi_enc_in *in, const int8_t *vcode, const uint8_t *far, size_t j)
{
    const double q = ckpi_step_at(&in->grid, vcode, j, &in->wstep);
    const double x = ((double)in->w[j] - (double)in->wrec[j]) / q, a = fabs(x);
    /* without momentum what has moved is all that is known of the direction */
    const double pull = in->m != NULL ? -(double)in->m[j] * q : x;
    const double toward = x < 0.0 ? -pull : pull;
    const bool was = (far[j / 8] >> j % 8 & 1) != 0;

    if (!isfinite(pull * x) || a > 127.0)
        return;
    s->need += pull * x;
    if (a >= (was ? (double)CKPI_WSTAY : 0.5))
        s->need -= toward * fmax(1.0, rint(a));
    else if (!was && a >= (double)CKPI_WNEAR_MIN)
        s->bin[CKPI_MIN((size_t)((a - (double)CKPI_WNEAR_MIN) / bin_width()), (size_t)(BINS - 1))] += toward;
}

float
ckpi_aim(const ckpi_enc_in *in, const int8_t *vcode, const uint8_t *far)
{
    const size_t n = in->grid.n, runs = n >= NEIGHBOURS ? CKPI_MIN(n / NEIGHBOURS, (size_t)RUNS) : 1;
    const size_t apart = n / runs, len = CKPI_MIN(n, (size_t)NEIGHBOURS);
    sums s = {0};

    for (size_t i = 0; i < runs; i++) {
        /* anywhere in its share, or rows of one length would show the same columns */
        const size_t first = i * apart + ckpi_mix32((uint32_t)i) % (apart - len + 1);
        for (size_t j = first; j < first + len; j++)
            add(&s, in, vcode, far, j);
    }
    size_t b = BINS;
    while (b > 0 && s.need > 0.0)
        s.need -= s.bin[--b];
    return b == 0 ? CKPI_WNEAR_MIN : (float)((double)CKPI_WNEAR_MIN + (double)b * bin_width());
}
