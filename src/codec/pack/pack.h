/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed-width bit packing: the low `bits` (1 to 7) bits of each byte, element i at bits [i * bits, (i + 1) * bits) of the
 * output, lowest bit first; the last byte is filled with zeros.
 */
#ifndef CKPI_CODEC_PACK_H
#define CKPI_CODEC_PACK_H
#include <stddef.h>
#include <stdint.h>

static inline size_t
ckpi_pack_bytes(size_t n, unsigned bits)
{
    return n / 8 * bits + (n % 8 * bits + 7) / 8;
}

/* Bits above `bits` in src are ignored. dst has room for ckpi_pack_bytes(n, bits). */
void ckpi_pack(uint8_t *dst, const uint8_t *src, size_t n, unsigned bits, uint32_t cpu);
/* Reads exactly ckpi_pack_bytes(n, bits) bytes. */
void ckpi_unpack(uint8_t *dst, const uint8_t *src, size_t n, unsigned bits, uint32_t cpu);
#endif
