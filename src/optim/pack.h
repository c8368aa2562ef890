/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of codes, packed: what lies in memory between two steps.
 *
 * A width is the sum of planes of 4, 2 and 1 bits, low bits first (5 = 4 + 1, 6 = 4 + 2, 3 = 2 + 1; 8 bits are the codes themselves).
 * A row is cut into groups of 64 codes, the last one of 8 to 64 (padded with zeros to a multiple of 8). A plane of w bits of a
 * group of G codes takes s = G * w / 8 bytes, and byte j of it holds the codes j, j + s, j + 2s ... from its low bits up, so that
 * a plane is loads, shifts and masks of whole words. Planes of a group lie one after the other.
 */
#ifndef CKPI_OPTIM_PACK_H
#define CKPI_OPTIM_PACK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPI_O_GROUP 64u

/* 2, 3, 4, 5, 6 or 8. */
bool ckpi_o_pack_known(unsigned bits);
/* Bytes of a row of n codes; n at most 2^32. */
size_t ckpi_o_pack_bytes(size_t n, unsigned bits);
/* Of each code the low `bits` bits. */
void ckpi_o_pack(uint8_t *packed, const uint8_t *code, size_t n, unsigned bits);
/* Writes up to 7 codes beyond n. */
void ckpi_o_unpack(uint8_t *code, const uint8_t *packed, size_t n, unsigned bits);
/* The same, and then two's complement of `bits` bits to int8. */
void ckpi_o_unpack_signed(int8_t *code, const uint8_t *packed, size_t n, unsigned bits);
#endif
