/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First moments between the pass and their chunk. The pass leaves u = m / sqrt(v^) in even steps, a byte each; where three values are
 * wanted, they and the directions beside them are found when the chunk is made (quant/low.h, docs/decisions/0014), off the live memory.
 */
#ifndef CKPI_ENGINE_MOMENTS_H
#define CKPI_ENGINE_MOMENTS_H
#include "engine/pred.h"
#include "quant/low.h"

/* What a sample of a piece says of |u|. Both 0: all are zero. */
typedef struct ckpi_reach { float step, largest; } ckpi_reach;   /* step: for the pass, so that codes of u are about 12 where its energy is */
/* From the live moments: m with v, or m alone under the grid's factors. */
void ckpi_moments_sample(ckpi_reach *out, const ckpi_enc_in *in);

/* A group's first moments as its chunk has them. All memory is in ws, or the stage's. */
typedef struct ckpi_moments {
    const int8_t *code;          /* n */
    float *mg;                   /* by piece */
    ckpi_low *low;               /* by piece; NULL: no piece has directions */
} ckpi_moments;

/* staged: n codes of u; step: what a step is worth (ckpi_quant_mg), by piece; share: how many are kept, by piece, or NULL: staged codes as they are. */
CKP_MUST_USE ckp_status ckpi_moments_code(ckpi_moments *out, const ckpi_group *g, const ckpi_factors *fac, const int8_t *staged, const float *step,
                                          const float *share, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
#endif
