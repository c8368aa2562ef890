/* SPDX-License-Identifier: Apache-2.0 */
/* Growing a list of escapes, for the encoder's binding. */
#ifndef CKPI_QUANT_ESCAPE_H
#define CKPI_QUANT_ESCAPE_H
#include "quant/quant.h"

/* Append the elements at[0..n) of a run whose values are x and whose first element has index `first` in the piece. */
CKP_MUST_USE ckp_status ckpi_q_escapes_add(ckpi_escapes *e, size_t first, const uint16_t *at, size_t n, const float *x, ckp_error *err);
#endif
