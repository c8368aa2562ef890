/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States as bytes. Their logarithms are spread evenly over 16 to 32 bits, so the high half is stored as its length: a nibble e a
 * lane, two lanes a byte, then the low halves, then the e bits below the leading one of each high half. A lane takes 3.5 bytes
 * instead of four.
 */
#include "base/bytes.h"
#include "codec/rans/rans_kern.h"
#include "codec/rans/rans_wire.h"

static unsigned
high_bits(uint32_t x)
{
    return 15u - (unsigned)__builtin_clz(x); /* x >= 2^16 */
}

size_t
ckpi_rans_states_write(const uint32_t *x, unsigned lanes, uint8_t *dst)
{
    uint8_t *nibbles = dst, *low = dst + (lanes + 1) / 2, *out = low + 2 * (size_t)lanes;
    uint32_t acc = 0;
    unsigned n = 0;
    memset(nibbles, 0, (lanes + 1) / 2);
    for (unsigned i = 0; i < lanes; i++) {
        const unsigned e = high_bits(x[i]);
        nibbles[i / 2] = (uint8_t)(nibbles[i / 2] | e << (i & 1) * 4);
        ckpi_st16(low + 2 * i, (uint16_t)x[i]);
        acc |= (x[i] >> 16 & ((1u << e) - 1)) << n;
        for (n += e; n >= 8; n -= 8, acc >>= 8)
            *out++ = (uint8_t)acc;
    }
    if (n != 0)
        *out++ = (uint8_t)acc;
    return (size_t)(out - dst);
}

bool
ckpi_rans_states_read(uint32_t *x, unsigned lanes, const uint8_t *src, size_t len, size_t *used)
{
    const size_t fixed = (lanes + 1) / 2 + 2 * (size_t)lanes;
    const uint8_t *low = src + (lanes + 1) / 2, *in = src + fixed;
    uint32_t acc = 0;
    unsigned n = 0, bits = 0;
    if (len < fixed || (lanes == 1 && src[0] > 15))
        return false;
    for (unsigned i = 0; i < lanes; i++)
        bits += src[i / 2] >> (i & 1) * 4 & 15u;
    *used = fixed + (bits + 7) / 8;
    if (len < *used)
        return false;
    for (unsigned i = 0; i < lanes; i++) {
        const unsigned e = src[i / 2] >> (i & 1) * 4 & 15u;
        for (; n < e; n += 8)
            acc |= (uint32_t)*in++ << n;
        x[i] = (1u << e | (acc & ((1u << e) - 1))) << 16 | ckpi_ld16(low + 2 * i);
        acc >>= e;
        n -= e;
    }
    return acc == 0; /* bits behind the last state */
}
