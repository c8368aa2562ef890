/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping a run to a number of bits a parameter: what saves have cost says which quality the next ones may have.
 *
 * A key and the deltas up to the next are a period; its mean is what counts. Finer steps in the middle of a chain make every weight's
 * remaining error worth coding, once, at three times the price of a usual delta; coarser steps cost nothing. So the quality becomes finer only
 * with a key, after a period that left room, and coarser as soon as the period would end too dear. It moves by eighths of an octave.
 */
#ifndef CKPI_RUN_RATE_H
#define CKPI_RUN_RATE_H
#include <stdbool.h>

/* Eighths of an octave from the quality that was asked for. */
enum { CKPI_RATE_FINEST = -24, CKPI_RATE_COARSEST = 8 };

typedef struct ckpi_rate {
    double target;               /* bits a parameter, all counted; 0: none */
    double quality;              /* that was asked for */
    int at;                      /* of the next save */
    unsigned saves;              /* of this period so far; 0: its key was not seen */
    double all, weights;         /* bits of them, summed */
    double delta, delta_weights; /* of the newest deltas, mean of two */
    double mean;                 /* of the last whole period, or what the present one will come to; 0: not known */
} ckpi_rate;

void ckpi_rate_start(ckpi_rate *r, double target, double quality);
/* Goes on where another process was, in the middle of a period. */
void ckpi_rate_resume(ckpi_rate *r, double quality);
/* Of the next save. */
double ckpi_rate_quality(const ckpi_rate *r);
/* A save has cost so many bits a parameter: its weights, and all of it. key_every: saves from key to key, at least 2. */
void ckpi_rate_saw(ckpi_rate *r, bool key, double weights, double all, unsigned key_every);
/* Whether even the coarsest quality costs more than the target. */
bool ckpi_rate_out_of_reach(const ckpi_rate *r);
#endif
