/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row and column factors from save to save. For a key they are means over all elements; for a delta they follow v from a sample (an
 * eighth of the rows for the columns, an eighth of the columns for the rows), so that codes stay near zero while v drifts.
 *
 * Factors are multiples of CKPI_FAC_UNIT, and a factor moves only when it is off by more than CKPI_FAC_SLACK: both far below the step of v
 * (512 for matrices), and both save bytes.
 */
#ifndef CKPI_ENGINE_FACTORS_H
#define CKPI_ENGINE_FACTORS_H
#include "engine/params.h"

#define CKPI_FAC_UNIT 32         /* FORMAT: 1/256 octave */
#define CKPI_FAC_SLACK 64

/* Sets all factors of a piece from x (v, or momentum). */
CKP_MUST_USE ckp_status ckpi_factors_set(ckpi_fac *f, const float *x, bool from_m, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* Moves the factors of a piece after v; diff[rows + cols] gets the moves in units. */
CKP_MUST_USE ckp_status ckpi_factors_follow(ckpi_fac *f, const float *v, int8_t *diff, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* Sets lift, so that v^ keeps the mean of v / v^ at 1 over a sample: codes are centred on the mean logarithm, which lies below the mean. */
void ckpi_factors_lift(ckpi_fac *f, const float *v);
/* The decoder's side: adds moves. */
void ckpi_factors_move(int16_t *fac, const int8_t *diff, size_t n);
#endif
