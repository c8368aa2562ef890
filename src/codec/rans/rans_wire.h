/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream is its first byte, then by kind: the bytes; or the table; or the table, the states, the words.
 * First byte: kind in bits 0-2, lanes in bits 3-4, bits of a share, 8 + 2 times bits 5-7.
 */
#ifndef CKPI_CODEC_RANS_WIRE_H
#define CKPI_CODEC_RANS_WIRE_H
#include "codec/rans/rans_model.h"

static const unsigned ckpi_rans_lanes[4] = {1, 4, 32, 64};

static inline uint8_t
ckpi_rans_head(ckpi_rans_kind kind, unsigned lanes_code, unsigned bits)
{
    return (uint8_t)((unsigned)kind | lanes_code << 3 | (bits - CKPI_RANS_MIN_BITS) / CKPI_RANS_BITS_STEP << 5);
}

/* Of 64 lanes, at worst: a nibble, a low half and 15 bits each. Three and a half bytes a lane are only the mean. */
enum { CKPI_RANS_STATES_MAX = 64 / 2 + 2 * 64 + 15 * 64 / 8 };

/* States to bytes, at most CKPI_RANS_STATES_MAX; returns how many. */
size_t ckpi_rans_states_write(const uint32_t *x, unsigned lanes, uint8_t *dst);
/* False when src is too short or says what no encoder writes. Every state it gives lies in [2^16, 2^32). */
bool ckpi_rans_states_read(uint32_t *x, unsigned lanes, const uint8_t *src, size_t len, size_t *used);
#endif
