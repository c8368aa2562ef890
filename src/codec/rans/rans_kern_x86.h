/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of x86 (rans_pick.c says which model suits which), and a table that two of them share. */
#ifndef CKPI_CODEC_RANS_KERN_X86_H
#define CKPI_CODEC_RANS_KERN_X86_H
#include "codec/rans/rans_kern.h"

/* small: up to 16 (AVX2) or 64 symbols; medium: up to 64; class: CLASSES and BITS; wide: shares in multiples of 16; any */
ckpi_rans_dec_fn ckpi_rans_dec_small_avx2, ckpi_rans_dec_medium_avx2, ckpi_rans_dec_class_avx2, ckpi_rans_dec_wide_avx2,
    ckpi_rans_dec_any_avx2;
ckpi_rans_dec_fn ckpi_rans_dec_small_vbmi2, ckpi_rans_dec_class_vbmi2, ckpi_rans_dec_wide_vbmi2, ckpi_rans_dec_any_vbmi2;

/* any alphabet */
ckpi_rans_enc_fn ckpi_rans_enc_avx2;
/* small: up to 64 symbols; class: as above; wide: any */
ckpi_rans_enc_fn ckpi_rans_enc_small_vbmi2, ckpi_rans_enc_class_vbmi2, ckpi_rans_enc_wide_vbmi2;

/* Table of the wide decoders. By a slot's upper 12 bits: f / 16 in bits 20-31, start / 16 in bits 8-19, the symbol in bits 0-7. */
void ckpi_rans_wide_table(const ckpi_rans_model *m, uint32_t tab[4096]);
#endif
