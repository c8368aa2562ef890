/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that steps and scales come from: RMS, mean logarithms, bias correction, movement. */
#ifndef CKPI_ENGINE_NUMBERS_H
#define CKPI_ENGINE_NUMBERS_H
#include "engine/stage.h"

/* sqrt(1 - b2^t) / (1 - b1^t), powers by repeated multiplication in double; without constants or v: 1. */
float ckpi_bias_correction(const ckpi_adam *a, bool has_v);
/* q of element j of a piece. */
double ckpi_step_at(const ckpi_grid *g, const int8_t *vcode, size_t j, const ckpi_wstep *s);
/* Steps of one tensor's weights in this pass. */
ckpi_wstep ckpi_pass_wstep(const ckpi_pass *p, size_t g, uint32_t tensor);
/* stage.c: a piece of a live tensor as contiguous fp32. */
CKP_MUST_USE ckp_status ckpi_piece_f32(const ckpi_tensor *t, uint64_t first, size_t n, const float **out, const uint16_t **raw16, ckpi_scratch *ws,
                                       ckp_error *err);
#endif
