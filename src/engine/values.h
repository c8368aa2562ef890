/* SPDX-License-Identifier: Apache-2.0 */
/* From codes to the bytes that a restore gives: used by the decoder, and by the encoder to record what the decoder must get. */
#ifndef CKPI_ENGINE_VALUES_H
#define CKPI_ENGINE_VALUES_H
#include "engine/pred.h"
#include "quant/low.h"

/* One chunk's worth of codes with what scales them. */
typedef struct ckpi_values {
    const ckpi_piece *piece;     /* element counts */
    size_t n_pieces;
    size_t n;
    ckp_dtype dtype;             /* of the output */
    const ckpi_recon *rec;       /* vcode, factors; wrec for weights */
    bool has_v;
    const int8_t *mcode;         /* moments */
    const float *mg;
    const ckpi_low *low;         /* by piece, or NULL: along no directions */
    const ckpi_escapes *esc;     /* chunk indices, bits in dtype */
    uint32_t cpu;
} ckpi_values;

/* n elements of dtype to dst. */
CKP_MUST_USE ckp_status ckpi_values_v(const ckpi_values *c, void *dst, ckpi_scratch *ws, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_values_m(const ckpi_values *c, void *dst, ckpi_scratch *ws, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_values_w(const ckpi_values *c, void *dst, ckpi_scratch *ws, ckp_error *err);
/* fp32 to dtype and back; exact for values that came from dtype, NaNs of any kind among them. */
void ckpi_floats_to(ckp_dtype dt, void *dst, const float *src, size_t n);
void ckpi_floats_from(ckp_dtype dt, float *dst, const void *src, size_t n);
/* n elements of a master in fp32 to a copy of it, bf16 or f16 (docs/format.md, "Copies"): nearest even; a NaN keeps sign and upper payload and becomes quiet. */
void ckpi_round_copy(ckp_dtype dt, void *dst, const void *src, size_t n);
/* Puts escapes in the dtype's own bits into an output. */
void ckpi_patch(void *dst, size_t width, const ckpi_escapes *e);
#endif
