/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "engine/pack2.h"

void
ckpi_pack2(uint8_t *dst, const int8_t *code, size_t n)
{
    const size_t whole = n / 4;

    /* the product gathers the low two bits of the four bytes in its top byte */
    for (size_t i = 0; i < whole; i++)
        dst[i] = (uint8_t)(((ckpi_ld32(code + 4 * i) & 0x03030303U) * 0x01041040U) >> 24);
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
    const size_t whole = n / 4;

    for (size_t i = 0; i < whole; i++) {
        const uint32_t b = src[i];
        const uint32_t c = (b | b << 6 | b << 12 | b << 18) & 0x03030303U;
        ckpi_st32(code + 4 * i, c | ((c >> 1) & 0x01010101U) * 0xfcU);      /* 3 becomes -1 */
    }
    for (size_t k = 4 * whole; k < n; k++) {
        const int c = src[whole] >> (2 * (k % 4)) & 3;
        code[k] = (int8_t)(c == 3 ? -1 : c);
    }
}
