/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/bytes.h"
#include "codec/rans/rans.h"

/* Four tables, so that runs of one value do not wait for the store before them. */
void
ckpi_rans_hist(const uint8_t *src, size_t n, uint32_t hist[256])
{
    uint32_t part[4][256];
    size_t i = 0;
    memset(part, 0, sizeof part);
    for (; n - i >= 8; i += 8) {
        const uint64_t v = ckpi_ld64(src + i);
        for (unsigned k = 0; k < 8; k++)
            part[k & 3][(uint8_t)(v >> 8 * k)]++;
    }
    for (; i < n; i++)
        part[0][src[i]]++;
    for (unsigned s = 0; s < 256; s++)
        hist[s] = part[0][s] + part[1][s] + part[2][s] + part[3][s];
}
