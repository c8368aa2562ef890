/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the registry (registry.c), one from each codec's directory. */
#ifndef CKPI_CODEC_ROWS_H
#define CKPI_CODEC_ROWS_H
#include "codec/codec.h"

extern const ckpi_codec ckpi_codec_raw;
extern const ckpi_codec ckpi_codec_zero;
extern const ckpi_codec ckpi_codec_rans;
extern const ckpi_codec ckpi_codec_planes;
extern const ckpi_codec ckpi_codec_mask;
extern const ckpi_codec ckpi_codec_diff;
extern const ckpi_codec ckpi_codec_lz;
extern const ckpi_codec ckpi_codec_rearranged;
#endif
