/* SPDX-License-Identifier: Apache-2.0 */
#include "state/utf8.h"
#include <stdint.h>

/* Bytes of the sequence that starts at p (n > 0 left), or 0 if it is not one. */
static size_t
sequence(const uint8_t *p, size_t n, bool surrogates)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};   /* below: there is a shorter form */
    const size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if (len <= 1 || len > n)
        return len <= 1 ? len : 0;
    uint32_t c = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < least[len] || c > 0x10ffff || (!surrogates && c >= 0xd800 && c < 0xe000))
        return 0;
    return len;
}

bool
ckpi_utf8_ok(const void *p, size_t n, bool surrogates)
{
    const uint8_t *s = p;
    for (size_t i = 0; i < n;) {
        const size_t len = sequence(s + i, n - i, surrogates);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}
