/* SPDX-License-Identifier: Apache-2.0 */
#include "run/rate.h"
#include "base/fixed.h"

/* In 1/512 octaves: an eighth of an octave of quality, and what it takes off the weights' bits (bits go with a power of quality
   between -1/2, keys counted, and -0.85; this is -3/4, and where it is off the next period mends it). */
enum { EIGHTH = 64, SAVED = 48 };
/* Deltas that must have been seen before a period is judged while it lasts: the first after a key are dear. */
enum { SETTLED = 4 };

/* A period may cost so much more than the target, or so much less, before the quality changes; so much more, if it is not over. */
#define OVER 1.02
#define UNDER 0.94
#define SOON_OVER 1.08

/* 2^(n / 512), the same everywhere. */
static double
power(int n)
{
    return (double)ckpi_exp2_fixed(n);
}

void
ckpi_rate_start(ckpi_rate *r, double target, double quality)
{
    *r = (ckpi_rate){.target = target, .quality = quality};
}

void
ckpi_rate_resume(ckpi_rate *r, double quality)
{
    if (!(r->target > 0.0))
        return;
    r->saves = 0;
    r->at = CKPI_RATE_FINEST;
    while (r->at < CKPI_RATE_COARSEST && r->quality * power(EIGHTH * r->at + EIGHTH / 2) < quality)
        r->at++;
}

double
ckpi_rate_quality(const ckpi_rate *r)
{
    return r->at == 0 ? r->quality : r->quality * power(EIGHTH * r->at);
}

bool
ckpi_rate_out_of_reach(const ckpi_rate *r)
{
    return r->target > 0.0 && r->at == CKPI_RATE_COARSEST && r->mean > SOON_OVER * r->target;
}

/* The finest position from `lowest` on at which rest and weights, which are those at the present one, keep to a budget. */
static int
finest(const ckpi_rate *r, int lowest, double rest, double weights, double budget)
{
    int at = lowest;
    while (at < CKPI_RATE_COARSEST && rest + weights * power(-SAVED * (at - r->at)) > budget)
        at++;
    return at;
}

static void
end_period(ckpi_rate *r)
{
    const double n = r->saves, weights = r->weights / n;
    r->mean = r->all / n;
    if (r->mean > OVER * r->target || r->mean < UNDER * r->target)
        r->at = finest(r, CKPI_RATE_FINEST, r->mean - weights, weights, r->target);
    r->saves = 0;
}

static void
judge_period(ckpi_rate *r, unsigned key_every)
{
    const double left = key_every - r->saves;
    r->mean = (r->all + left * r->delta) / key_every;
    if (r->mean > SOON_OVER * r->target)
        r->at = finest(r, r->at, r->delta - r->delta_weights, r->delta_weights, (r->target * key_every - r->all) / left);
}

void
ckpi_rate_saw(ckpi_rate *r, bool key, double weights, double all, unsigned key_every)
{
    if (!(r->target > 0.0) || (!key && r->saves == 0))
        return;
    if (key)
        r->saves = 0;
    r->all = all + (key ? 0.0 : r->all);
    r->weights = weights + (key ? 0.0 : r->weights);
    r->saves++;
    if (!key) {
        const double part = r->saves == 2 ? 1.0 : 0.5;
        r->delta += part * (all - r->delta);
        r->delta_weights += part * (weights - r->delta_weights);
    }
    if (r->saves == key_every)
        end_period(r);
    else if (r->saves > SETTLED)
        judge_period(r, key_every);
}
