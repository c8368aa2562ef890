/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "engine/pack2.h"

void
ckpi_pack2(uint8_t *dst, const int8_t *code, size_t n)
{
    const size_t whole = n / 4;

    /* the product gathers the low two bits of the four bytes in its top byte */
    for (size_t i = 0; i < whole; i++)
        dst[i] = (uint8_t)(((ckpi_ld32(code + 4 * i) & 0x03030303U) * 0x40100401U) >> 24);
    if (n % 4 != 0) {
        unsigned last = 0;
        for (size_t k = 0; k < n % 4; k++)
            last |= ((unsigned)code[4 * whole + k] & 3U) << (2 * k);
        dst[whole] = (uint8_t)last;
    }
}

void
ckpi_unpack2(int8_t *code, const uint8_t *src, size_t n)
{
    static const int8_t value[4] = {0, 1, 0, -1};

    for (size_t i = 0; i < n; i++)
        code[i] = value[src[i / 4] >> (2 * (i % 4)) & 3];
}
