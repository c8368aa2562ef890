/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPI_ENGINE_AIM_H
#define CKPI_ENGINE_AIM_H
#include "quant/quant.h"

/* wnear for a piece with a base: w, wrec, grid and wstep of `in` are set, m where there is momentum. vcode: the base's codes, or NULL
   without v; far: the last save's bits. */
float ckpi_aim(const ckpi_enc_in *in, const int8_t *vcode, const uint8_t *far);
#endif
