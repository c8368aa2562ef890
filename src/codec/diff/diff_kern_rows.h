/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel tables of each target, by word width: 1, 2, 4, 8 bytes (vectors: 2, 4). Only diff_kern_*.c include this. */
#ifndef CKPI_CODEC_DIFF_KERN_ROWS_H
#define CKPI_CODEC_DIFF_KERN_ROWS_H
#include "base/cpu.h"
#include "codec/diff/diff.h"

extern const ckpi_diff_kern ckpi_diff_kern_ref[4];
#if CKPI_X86
extern const ckpi_diff_kern ckpi_diff_kern_avx2[2];
extern const ckpi_diff_kern ckpi_diff_kern_avx512[2];
#endif
#endif
