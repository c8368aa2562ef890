/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fixed.h"
#include "base/float.h"
#include <math.h>

float
ckpi_exp2_fixed(int32_t k512)
{
    /* Floor division: the table covers the fraction in [0, 1). */
    const int32_t index = k512 & 511;
    const int32_t e = (k512 - index) / 512;
    const uint32_t bits = ckpi_f32_bits(ckpi_exp2_512[index]);
    if (e >= 128)
        return INFINITY;
    if (e < -149)
        return 0.0f;
    if (e >= -126)
        return ckpi_f32_from_bits(bits + ((uint32_t)e << 23));
    /* A denormal: round the 24-bit significand to nearest even by hand, whatever the FP environment says. */
    const uint32_t significand = (bits & 0x7fffff) | 0x800000;
    const unsigned shift = (unsigned)(-126 - e);
    const uint32_t half = UINT32_C(1) << (shift - 1);
    return ckpi_f32_from_bits((significand + half - 1 + (significand >> shift & 1)) >> shift);
}

int32_t
ckpi_log2_half(float v)
{
    const uint32_t bits = ckpi_f32_bits(v);
    int32_t e = (int32_t)(bits >> 23 & 0xff) - 127;
    uint64_t x = bits & 0x7fffff;
    if (e == -127) {
        /* Denormal: shift the leading one to where a normal number hides it. v is positive, so x is not 0. */
        e = -126;
        do {
            x <<= 1;
            e--;
        } while (x < 0x800000 && e > -150);
        x &= 0x7fffff;
    }
    const uint64_t y = x + ((x * (0x800000 - x)) >> 23) * 11 / 32;
    return e * 128 + (int32_t)((y + 0x8000) >> 16);
}
