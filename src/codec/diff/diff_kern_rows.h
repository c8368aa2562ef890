/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel tables of each target, by word width: 1, 2, 4, 8 bytes. Only diff_kern_*.c include this. */
#ifndef CKPI_CODEC_DIFF_KERN_ROWS_H
#define CKPI_CODEC_DIFF_KERN_ROWS_H
#include "codec/diff/diff.h"

extern const ckpi_diff_kern ckpi_diff_kern_ref[4];
#endif
