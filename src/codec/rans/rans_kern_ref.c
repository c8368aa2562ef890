/* SPDX-License-Identifier: Apache-2.0 */
/* The contract: what every kernel computes, said as plainly as possible. */
#include "base/bytes.h"
#include "codec/rans/rans_kern.h"

bool
ckpi_rans_dec_ref(const ckpi_rans_dec *d, uint8_t *dst, size_t from, size_t to, uint32_t *x, unsigned lanes, const uint8_t **p,
                  const uint8_t *end)
{
    const unsigned shift = CKPI_RANS_MAX_BITS - d->m->bits;
    const uint8_t *words = *p;
    for (size_t i = from; i < to; i++) {
        uint32_t *lane = &x[i & (lanes - 1)];
        const uint32_t slot = *lane & 0xffffu;
        const uint8_t s = d->slot[slot >> shift];
        dst[i] = s;
        *lane = d->m->freq[s] * (*lane >> 16) + slot - d->m->start[s];
        if (*lane < CKPI_RANS_LOW) {
            if (end - words < 2)
                return false;
            *lane = *lane << 16 | ckpi_ld16(words);
            words += 2;
        }
    }
    *p = words;
    return true;
}

uint8_t *
ckpi_rans_enc_ref(const ckpi_rans_model *m, const uint8_t *src, size_t from, size_t to, uint32_t *x, unsigned lanes, uint8_t *p)
{
    for (size_t i = to; i-- > from;) {
        uint32_t *lane = &x[i & (lanes - 1)];
        const uint32_t f = m->freq[src[i]];
        if (*lane >> 16 >= f) {
            p -= 2;
            ckpi_st16(p, (uint16_t)*lane);
            *lane >>= 16;
        }
        *lane = (*lane / f << 16) + *lane % f + m->start[src[i]];
    }
    return p;
}
