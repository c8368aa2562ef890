/* SPDX-License-Identifier: Apache-2.0 */
/* First byte of a stream: kind in bits 0-2, lanes in bits 3-4, bits of a share, 8 + 2 times bits 5-7. */
#ifndef CKPI_CODEC_RANS_WIRE_H
#define CKPI_CODEC_RANS_WIRE_H
#include "codec/rans/rans_model.h"

static const unsigned ckpi_rans_lanes[4] = {1, 4, 32, 64};

static inline uint8_t
ckpi_rans_head(ckpi_rans_kind kind, unsigned lanes_code, unsigned bits)
{
    return (uint8_t)((unsigned)kind | lanes_code << 3 | (bits - CKPI_RANS_MIN_BITS) / CKPI_RANS_BITS_STEP << 5);
}
#endif
