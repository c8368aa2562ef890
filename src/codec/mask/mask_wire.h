/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPI_CODEC_MASK_WIRE_H
#define CKPI_CODEC_MASK_WIRE_H

/* First byte of a payload. */
enum { CKPI_MASK_BITS = 0, CKPI_MASK_POSITIONS = 1 };

static inline unsigned
ckpi_mask_log2(unsigned width)
{
    return width == 4 ? 2 : width - 1;
}
#endif
