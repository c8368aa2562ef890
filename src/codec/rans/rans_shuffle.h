/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPI_CODEC_RANS_SHUFFLE_H
#define CKPI_CODEC_RANS_SHUFFLE_H
#include <stdint.h>

/* Byte shuffles of 16 bytes by a mask of eight lanes (rans_shuffle.c). */
extern const uint8_t ckpi_rans_expand8[256][16];
extern const uint8_t ckpi_rans_pack8[256][16];
#endif
