/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel tables of each target, by word width: 2, 4, 8 bytes. Only float_kern_*.c include this. */
#ifndef CKPI_CODEC_FLOAT_KERN_ROWS_H
#define CKPI_CODEC_FLOAT_KERN_ROWS_H
#include "codec/planes/float_kern.h"

extern const ckpi_float_kern ckpi_float_kern_ref[3];
#endif
