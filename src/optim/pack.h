/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of codes, packed: what lies in memory between two steps.
 *
 * A width is the sum of planes of 4, 2 and 1 bits, low bits first (5 = 4 + 1, 6 = 4 + 2, 3 = 2 + 1; 8 bits are the codes themselves).
 * A row is cut into groups of 64 codes, the last one of 8 to 64 (padded with zeros to a multiple of 8). A plane of w bits of a
 * group of G codes takes s = G * w / 8 bytes. Of 4 and 2 bits, byte j holds the codes j, j + s, j + 2s ... from its low bits up, so that
 * a plane is loads, shifts and masks of whole vectors; of 1 bit, bit k of byte j is code 8j + k, as comparisons of bytes give and take it.
 * Planes of a group lie one after the other.
 */
#ifndef CKPI_OPTIM_PACK_H
#define CKPI_OPTIM_PACK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "optim/fn.h"

#define CKPI_O_GROUP 64u

/* 2, 3, 4, 5, 6 or 8. */
bool ckpi_o_pack_known(unsigned bits);
/* Bytes of a row of n codes; n at most 2^32. */
size_t ckpi_o_pack_bytes(size_t n, unsigned bits);

typedef struct ckpi_o_packer {
    void (*pack)(uint8_t *packed, const uint8_t *code, size_t n, unsigned bits);            /* of each code the low `bits` bits */
    void (*unpack)(uint8_t *code, const uint8_t *packed, size_t n, unsigned bits);          /* writes up to 7 codes beyond n */
    void (*unpack_signed)(int8_t *code, const uint8_t *packed, size_t n, unsigned bits);    /* the same, and two's complement to int8 */
} ckpi_o_packer;
/* Best that the CPU word allows; never NULL. All give the same bytes. */
const ckpi_o_packer *ckpi_o_pack_pick(uint32_t cpu);

/* Where code i of a plane of w bits of a group of g codes is: byte and shift. */
CKPI_O_FN unsigned
ckpi_o_place(unsigned i, unsigned g, unsigned w, unsigned *shift)
{
    const unsigned s = g * w / 8;
    *shift = w == 1 ? i % 8 : i / s * w;
    return w == 1 ? i / 8 : i % s;
}
#endif
