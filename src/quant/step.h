/* SPDX-License-Identifier: Apache-2.0 */
/* Weight steps and the power-of-two units that sums of squares are counted in. */
#ifndef CKPI_QUANT_STEP_H
#define CKPI_QUANT_STEP_H
#include "quant/quant.h"

bool ckpi_q_wstep_ok(const ckpi_wstep *s);
/* A power of two u with |err| * u <= 2^12 whenever |err| <= qhi. */
float ckpi_q_err_unit(float qhi);
/* 2^(sq_exp / 2), sq_exp clamped to +-252. */
float ckpi_q_sq_unit(int sq_exp);
#endif
