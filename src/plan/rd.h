/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rate-distortion planning: a step for every weight, with one Lagrange multiplier over all of them (Shoham and Gersho 1988).
 *
 *   measure   rate and distortion at CKPI_RD_POINTS steps an octave apart, on a sample of each weight: quantized by the engine, coded by
 *             the codec that would write them
 *   choose    for a multiplier: of each weight the step that minimises cost + multiplier * bits, between the points by interpolation
 *   solve     the multiplier by bisection, then all steps by a common factor, until a budget is just met
 *
 * An error e costs h e^2 / 2. h is what the caller scored, else (with second moments) the root of v^ = v / (1 - b2^t), else
 * 1 / (RMS of the tensor * RMS of all): halfway between one step for the model and steps in proportion to each tensor's size. Small tensors with
 * neither count 4^fine_shift times: as in the profiles, their steps are finer by 2^fine_shift at the same multiplier.
 *
 * v^ estimates the diagonal of the Fisher information, and the loss that is expected is v^ e^2 / 2. But steps that minimise that sum lose more
 * than steps that follow v^'s fourth root, which is what its root as h comes to: of a few batches' squares only so much is curvature
 * (docs/decisions/0010).
 *
 * All decisions are exactly rounded double arithmetic in a fixed order: the same plan on every machine and for any number of threads.
 */
#ifndef CKPI_PLAN_RD_H
#define CKPI_PLAN_RD_H
#include "engine/encode.h"

#define CKPI_RD_POINTS 8
/* Point j is the step anchor * 2^(j - CKPI_RD_ZERO). */
#define CKPI_RD_ZERO 5
/* Positions between the points are whole 1/512 octaves. */
#define CKPI_RD_OCTAVE 512
#define CKPI_RD_LOWEST (-CKPI_RD_ZERO * CKPI_RD_OCTAVE)
#define CKPI_RD_HIGHEST ((CKPI_RD_POINTS - 1 - CKPI_RD_ZERO) * CKPI_RD_OCTAVE)

/* What is known of weights that are planned together: one large tensor, or the small ones of a chunk. */
typedef struct ckpi_rdplan_unit {
    uint32_t *tensor;            /* owned */
    size_t n_tensors;
    uint64_t n;                  /* elements of all */
    bool fine;                   /* small tensors */
    bool fixed;                  /* its step was given: stays at 0 */
    double bits[CKPI_RD_POINTS]; /* an element */
    double err2[CKPI_RD_POINTS]; /* an element's squared error over its tensor's mean square, mean */
    double cost[CKPI_RD_POINTS]; /* h e^2 / 2 of an element, mean: what is minimised */
    double loss[CKPI_RD_POINTS]; /* the same, with second moments v^ e^2 / 2: what is expected */
    int at;                      /* chosen, CKPI_RD_LOWEST to CKPI_RD_HIGHEST */
} ckpi_rdplan_unit;

typedef struct ckpi_rdplan {
    ckpi_rdplan_unit *unit;
    size_t n_units;
    double *anchor;              /* by tensor: step at 0; 0: not planned */
    size_t n_tensors;
} ckpi_rdplan;

/*
 * Units and their curves. pass: over the whole state, prepared (ckpi_pass_prepare, ckpi_pass_steps), a key. score (by tensor, may be NULL):
 * h, 0 for none. Looks CKPI_RD_POINTS times at 1/400 of each large weight, at least 8192 and at most about 65536 elements, and at 8192 of the small ones of a chunk.
 */
CKP_MUST_USE ckp_status ckpi_rdplan_measure(ckpi_rdplan **out, ckpi_ctx *ctx, const ckpi_pass *pass, const double *score, ckp_error *err);
void ckpi_rdplan_free(ckpi_rdplan *rd);

/* What a choice amounts to, over all units. */
typedef struct ckpi_rdplan_sum { double bits, err2, cost, loss, n; } ckpi_rdplan_sum;
ckpi_rdplan_sum ckpi_rdplan_total(const ckpi_rdplan *rd);
/* An element's figures of one unit at a position (interpolated). */
ckpi_rdplan_sum ckpi_rdplan_at(const ckpi_rdplan_unit *u, int at);

/* The budget: exactly one is set, the others are 0. */
typedef struct ckpi_rdplan_budget {
    double bits;                 /* in all, of the planned weights */
    double err;                  /* root of the mean of err2 over the planned weights */
    double loss;                 /* in all */
} ckpi_rdplan_budget;
/*
 * Chooses every unit's position. False when the budget cannot be met (then the nearest: finest or coarsest steps).
 * *multiplier: cost that a bit is worth.
 */
CKP_MUST_USE ckp_status ckpi_rdplan_solve(ckpi_rdplan *rd, const ckpi_rdplan_budget *budget, bool *met, double *multiplier, ckp_error *err);
/* Step of a planned tensor at its unit's position. */
double ckpi_rdplan_step(const ckpi_rdplan *rd, const ckpi_rdplan_unit *u, uint32_t tensor);
#endif
