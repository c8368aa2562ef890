/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/half.h"
#include <stdbool.h>
#include "base/float.h"
#include "optim/kern.h"

CKPI_NO_CONTRACT

void
ckpi_half_up(float *to, const uint16_t *from, size_t n, ckp_dtype dtype)
{
    if (dtype == CKP_BF16)
        ckpi_bf16_to_f32_n(to, from, n);
    else
        ckpi_f16_to_f32_n(to, from, n);
}

/* Infinities and NaN have nothing to round: adding to their bits would change what they are. */
void
ckpi_half_down(uint16_t *to, const float *from, size_t n, ckp_dtype dtype, uint32_t z)
{
    if (dtype == CKP_F16) {
        ckpi_f32_to_f16_n(to, from, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = ckpi_f32_bits(from[i]), x = ckpi_o_random(z + (uint32_t)i * CKPI_O_WALK) >> 16;
        const uint32_t finite = (bits & 0x7f800000u) != 0x7f800000u;
        to[i] = (uint16_t)((bits + (finite ? x : 0)) >> 16 | (!finite && (bits & 0x007fffffu) != 0 ? 0x40u : 0));
    }
}

enum { INF = 0x7f80 };                   /* of bf16, without its sign */

void
ckpi_split_up(float *to, const uint16_t *from, const void *rest, unsigned rest_bits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t r = rest_bits == 8 ? ((const int8_t *)rest)[i] * 256 : ((const int16_t *)rest)[i];
        const uint32_t size = from[i] & 0x7fffu;
        const bool alone = size >= INF || (size == 0 && r < 0);      /* from was changed since: no such pair is ever written */
        to[i] = ckpi_f32_from_bits(((uint32_t)from[i] << 16) + (alone ? 0 : (uint32_t)r));
    }
}

/* Bits of x that are kept: 24 of them rounded without bias, or all. */
static uint32_t
kept(uint32_t bits, unsigned rest_bits, uint32_t z)
{
    const uint32_t size = bits & 0x7fffffffu, sign = bits & 0x80000000u;
    if (rest_bits == 16)
        return bits;
    const uint32_t rounded = (size + (ckpi_o_random(z) >> 24)) & ~0xffu;
    return sign | (rounded < 0x7f800000u ? rounded : 0x7f7fff00u);
}

void
ckpi_split_down(uint16_t *to, void *rest, unsigned rest_bits, const float *from, size_t n, uint32_t z)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = ckpi_f32_bits(from[i]);
        uint32_t high = bits >> 16;
        int32_t r = 0;
        if ((high & INF) == INF)
            high |= (bits & 0x007fffffu) != 0 ? 0x40u : 0;
        else {
            const uint32_t all = kept(bits, rest_bits, z + (uint32_t)i * CKPI_O_WALK);
            high = (all + 0x8000u) >> 16;
            high -= (high & 0x7fffu) == INF;
            r = (int32_t)(all - (high << 16));
            r = r > 0x7fff ? (rest_bits == 8 ? 0x7f00 : 0x7fff) : r;
        }
        to[i] = (uint16_t)high;
        if (rest_bits == 8)
            ((int8_t *)rest)[i] = (int8_t)(r / 256);
        else
            ((int16_t *)rest)[i] = (int16_t)r;
    }
}
