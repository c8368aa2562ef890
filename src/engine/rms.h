/* SPDX-License-Identifier: Apache-2.0 */
/* How large weights are: by tensor, and of the model. */
#ifndef CKPI_ENGINE_RMS_H
#define CKPI_ENGINE_RMS_H
#include "engine/pred.h"

/* Statistics of piece k of group g. */
typedef const ckpi_wstats *(*ckpi_rms_get)(const void *user, size_t g, size_t k);

/* Whether a group's weights count in the model's RMS: coarse ones, but for averages, which have their master's size. */
bool ckpi_rms_counts(const ckpi_group *g);
/* Sums over all pieces: sets rms, most and rms_all. sq_exp is what the statistics were taken with. */
void ckpi_rms_sum_up(ckpi_pred *d, ckpi_rms_get get, const void *user);
#endif
