/* SPDX-License-Identifier: Apache-2.0 */
/* What coding costs, over many values: sensitivities from second moments, and sums of errors. The same bits from every feature word. */
#ifndef CKPI_QUANT_LOSS_H
#define CKPI_QUANT_LOSS_H
#include <stddef.h>
#include <stdint.h>

/* score[i] = sqrt(v[i]) * |w[i]|, where a v that is not positive counts as 0: how much a change of w by its own size matters to a loss whose
   curvature is v (DynaQuant's |g * w| with the gradients' mean square in place of a gradient). */
void ckpi_loss_scores(float *score, const float *v, const float *w, size_t n, uint32_t cpu);

/* Sums over n values: eight partial sums, of every eighth value each, added in order at the end; so they are the same everywhere. */
typedef struct ckpi_loss_sums { double err2, sum2, max_err; } ckpi_loss_sums;
/* Of finite w and r. Written, not added to. */
void ckpi_loss_of(ckpi_loss_sums *s, const float *w, const float *r, size_t n, uint32_t cpu);
#endif
