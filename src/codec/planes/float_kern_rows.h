/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel tables of each target, by word width: 2, 4, 8 bytes (vectors: 2, 4). Only float_kern_*.c include this. */
#ifndef CKPI_CODEC_FLOAT_KERN_ROWS_H
#define CKPI_CODEC_FLOAT_KERN_ROWS_H
#include <string.h>
#include "base/cpu.h"
#include "codec/planes/float_kern.h"

extern const ckpi_float_kern ckpi_float_kern_ref[3];
#if CKPI_X86
extern const ckpi_float_kern ckpi_float_kern_avx2[2];
extern const ckpi_float_kern ckpi_float_kern_avx512[2];
#endif
#endif
