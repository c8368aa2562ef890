/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thresholds of three-valued moments: which share of a piece's u = m / sqrt(v^) is kept. A share, and no size: how far u reaches depends on the
 * optimizer's constants and on the gradients' tails, and what is kept stands for all of it (docs/decisions/0009).
 */
#ifndef CKPI_ENGINE_THRESHOLD_H
#define CKPI_ENGINE_THRESHOLD_H
#include "quant/quant.h"

/* What a sample of a piece says. */
typedef struct ckpi_reach { float threshold, largest; } ckpi_reach;   /* of |u|; threshold above 0, largest 0: all are zero */
/* From the live moments: m with v, or m alone under the grid's factors. share of the elements lies above the threshold, or all that are not zero. */
CKP_MUST_USE ckp_status ckpi_threshold_sample(ckpi_reach *out, const ckpi_enc_in *in, double share, ckpi_scratch *ws, ckp_error *err);
/* For the next save, from the share that a threshold has kept. */
float ckpi_threshold_follow(float threshold, uint64_t kept, uint64_t n, double share);
/* Elements that are not zero, of n packed ones. */
uint64_t ckpi_threshold_kept(const uint8_t *packed, size_t n);
/* mg, but a kept value stands for no more than so many thresholds: a distribution that has changed must not become a blow. kc: as in ckpi_enc_in. */
float ckpi_threshold_bound(float mg, float threshold, float kc);
#endif
