/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pack2.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/bytes.h"

enum { ELSEWHERE = 2, FIRST_OTHERS = 1024 };

bool
ckpi_pack2_alloc(ckpi_pack2 *p, size_t cap)
{
    p->n = p->n_other = 0;
    if (p->two != NULL)
        return true;
    p->cap = (cap + 3) & ~(size_t)3;
    p->two = ckpi_aligned_alloc(CKPI_PACK2_BYTES(p->cap));
    return p->two != NULL;
}

void
ckpi_pack2_free(ckpi_pack2 *p)
{
    ckpi_aligned_free(p->two);
    free(p->other);
    *p = (ckpi_pack2){0};
}

uint64_t
ckpi_pack2_held(const ckpi_pack2 *p)
{
    return CKPI_PACK2_BYTES(p->cap) + p->cap_other;
}

static bool
add_other(ckpi_pack2 *p, int8_t code)
{
    if (p->n_other == p->cap_other) {
        const size_t cap = CKPI_MAX(2 * p->cap_other, FIRST_OTHERS);
        int8_t *more = ckpi_realloc(p->other, cap, 1);
        if (more == NULL)
            return false;
        p->other = more;
        p->cap_other = cap;
    }
    p->other[p->n_other++] = code;
    return true;
}

/* The low two bits of four bytes side by side: the product gathers them in its top byte. */
static uint8_t
gather(uint32_t four)
{
    return (uint8_t)(((four & 0x03030303U) * 0x01041040U) >> 24);
}

/* Up to four codes, some of which may be others. */
static bool
add_rare(ckpi_pack2 *p, uint8_t *to, const int8_t *code, size_t n)
{
    unsigned two = 0;
    for (size_t k = 0; k < n; k++) {
        const bool small = code[k] >= -1 && code[k] <= 1;
        two |= (small ? (unsigned)code[k] & 3U : ELSEWHERE) << (2 * k);
        if (!small && !add_other(p, code[k]))
            return false;
    }
    *to = (uint8_t)two;
    return true;
}

/* Whether all of four bytes are -1, 0 or 1: but for the lowest bit, each is all ones or all zeros. */
static bool
are_small(uint32_t four)
{
    const uint32_t high = four & 0xfefefefeU;
    return high == (four >> 7 & 0x01010101U) * 0xfeU && (four & (four >> 7 & 0x01010101U)) == (four >> 7 & 0x01010101U);
}

bool
ckpi_pack2_add(ckpi_pack2 *p, const int8_t *code, size_t n)
{
    uint8_t *to = p->two + p->n / 4;
    size_t i = 0;

    for (; i + 4 <= n; i += 4, to++) {
        const uint32_t four = ckpi_ld32(code + i);
        if (are_small(four))
            *to = gather(four);
        else if (!add_rare(p, to, code + i, 4))
            return false;
    }
    if (i < n && !add_rare(p, to, code + i, n - i))
        return false;
    p->n = (p->n + n + 3) & ~(size_t)3;
    return true;
}

void
ckpi_pack2_take(const ckpi_pack2 *p, ckpi_unpack2 *from, int8_t *code, size_t n)
{
    const uint8_t *two = p->two + from->at / 4;
    const size_t whole = n & ~(size_t)3;

    for (size_t i = 0; i < n; i += 4, two++) {
        const uint32_t b = *two;
        const uint32_t c = (b | b << 6 | b << 12 | b << 18) & 0x03030303U;
        if (i < whole && (b & ~(b << 1) & 0xaaU) == 0) {
            ckpi_st32(code + i, c | ((c >> 1) & 0x01010101U) * 0xfcU);      /* 3 becomes -1 */
            continue;
        }
        for (size_t k = 0; k < 4 && i + k < n; k++) {
            const unsigned x = b >> (2 * k) & 3U;
            code[i + k] = x == ELSEWHERE ? p->other[from->other++] : (int8_t)(x == 3 ? -1 : (int)x);
        }
    }
    from->at = (from->at + n + 3) & ~(size_t)3;
}
