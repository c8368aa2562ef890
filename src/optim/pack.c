/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/pack.h"
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define EACH_BYTE(x) ((uint64_t)(x) * UINT64_C(0x0101010101010101))

bool
ckpi_o_pack_known(unsigned bits)
{
    return bits >= 2 && bits <= 8 && bits != 7;
}

size_t
ckpi_o_pack_bytes(size_t n, unsigned bits)
{
    return bits == 8 ? n : (n + 7) / 8 * bits;
}

INLINE uint64_t
load(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Eight codes a word; shifts stay within a byte once masked, so the order of bytes does not matter. */
INLINE void
plane_in(uint8_t *restrict out, const uint8_t *restrict code, unsigned w, unsigned at)
{
    const uint64_t mask = EACH_BYTE((1u << w) - 1u);
    for (unsigned j = 0; j < w; j++) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 8 / w; k++)
            word |= (load(code + 8 * j + 8 * w * k) >> at & mask) << (w * k);
        memcpy(out + 8 * j, &word, sizeof word);
    }
}

INLINE void
plane_out(uint8_t *restrict code, const uint8_t *restrict in, unsigned w, unsigned at)
{
    const uint64_t mask = EACH_BYTE((1u << w) - 1u);
    for (unsigned j = 0; j < w; j++) {
        const uint64_t word = load(in + 8 * j);
        for (unsigned k = 0; k < 8 / w; k++) {
            uint8_t *to = code + 8 * j + 8 * w * k;
            uint64_t c = (word >> (w * k) & mask) << at;
            if (at != 0)
                c |= load(to);
            memcpy(to, &c, sizeof c);
        }
    }
}

/* The last group of a row, g codes. */
static void
plane_in_rest(uint8_t *out, const uint8_t *code, unsigned g, unsigned w, unsigned at)
{
    const unsigned s = g * w / 8, mask = (1u << w) - 1u;
    for (unsigned j = 0; j < s; j++) {
        unsigned byte = 0;
        for (unsigned k = 0; k < 8 / w; k++)
            byte |= ((unsigned)code[j + s * k] >> at & mask) << (w * k);
        out[j] = (uint8_t)byte;
    }
}

static void
plane_out_rest(uint8_t *code, const uint8_t *in, unsigned g, unsigned w, unsigned at)
{
    const unsigned s = g * w / 8, mask = (1u << w) - 1u;
    for (unsigned j = 0; j < s; j++)
        for (unsigned k = 0; k < 8 / w; k++) {
            const unsigned c = ((unsigned)in[j] >> (w * k) & mask) << at;
            code[j + s * k] = (uint8_t)(at == 0 ? c : code[j + s * k] | c);
        }
}

INLINE void
row_in(uint8_t *packed, const uint8_t *code, size_t n, unsigned bits)
{
    uint8_t last[CKPI_O_GROUP] = {0};
    for (; n >= CKPI_O_GROUP; n -= CKPI_O_GROUP, code += CKPI_O_GROUP)
        for (unsigned w = 4, at = 0; w > 0; w /= 2)
            if (bits & w) {
                plane_in(packed, code, w, at);
                packed += 8 * w;
                at += w;
            }
    if (n > 0)
        memcpy(last, code, n);
    for (unsigned w = 4, at = 0, g = (unsigned)(n + 7) / 8 * 8; w > 0 && g > 0; w /= 2)
        if (bits & w) {
            plane_in_rest(packed, last, g, w, at);
            packed += g * w / 8;
            at += w;
        }
}

INLINE void
row_out(uint8_t *code, const uint8_t *packed, size_t n, unsigned bits)
{
    for (; n >= CKPI_O_GROUP; n -= CKPI_O_GROUP, code += CKPI_O_GROUP)
        for (unsigned w = 4, at = 0; w > 0; w /= 2)
            if (bits & w) {
                plane_out(code, packed, w, at);
                packed += 8 * w;
                at += w;
            }
    for (unsigned w = 4, at = 0, g = (unsigned)(n + 7) / 8 * 8; w > 0 && g > 0; w /= 2)
        if (bits & w) {
            plane_out_rest(code, packed, g, w, at);
            packed += g * w / 8;
            at += w;
        }
}

void
ckpi_o_pack(uint8_t *packed, const uint8_t *code, size_t n, unsigned bits)
{
    switch (bits) {
    case 2: row_in(packed, code, n, 2); break;
    case 3: row_in(packed, code, n, 3); break;
    case 4: row_in(packed, code, n, 4); break;
    case 5: row_in(packed, code, n, 5); break;
    case 6: row_in(packed, code, n, 6); break;
    default: memcpy(packed, code, n); break;
    }
}

void
ckpi_o_unpack(uint8_t *code, const uint8_t *packed, size_t n, unsigned bits)
{
    switch (bits) {
    case 2: row_out(code, packed, n, 2); break;
    case 3: row_out(code, packed, n, 3); break;
    case 4: row_out(code, packed, n, 4); break;
    case 5: row_out(code, packed, n, 5); break;
    case 6: row_out(code, packed, n, 6); break;
    default: memcpy(code, packed, n); break;
    }
}

void
ckpi_o_unpack_signed(int8_t *code, const uint8_t *packed, size_t n, unsigned bits)
{
    uint8_t *c = (uint8_t *)code;
    const uint8_t top = (uint8_t)(1u << (bits - 1));
    ckpi_o_unpack(c, packed, n, bits);
    for (size_t i = 0; bits != 8 && i < n; i++)
        c[i] = (uint8_t)((c[i] ^ top) - top);
}
