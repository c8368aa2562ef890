/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pack2.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "quant/quant.h"

enum { FIRST_OTHERS = 1024, TRY_AGAIN = 2 };

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

/* Up to four codes, some of which may be others. */
static bool
add_rare(ckpi_pack2 *p, uint8_t *to, const int8_t *code, size_t n)
{
    unsigned two = 0;
    for (size_t k = 0; k < n; k++) {
        const bool small = code[k] >= -1 && code[k] <= 1;
        two |= (small ? (unsigned)code[k] & 3U : CKPI_PACK2_ELSEWHERE) << (2 * k);
        if (!small && !add_other(p, code[k]))
            return false;
    }
    *to = (uint8_t)two;
    return true;
}

bool
ckpi_pack2_add(ckpi_pack2 *p, const int8_t *code, size_t n, uint32_t cpu)
{
    uint8_t *two = p->two + p->n / 4;
    /* after a group with others the next is likely to have some: a few go the slow way before vectors try again */
    for (size_t i = ckpi_quant_pack2(code, n, two, cpu), slow = 0; i < n; i += 4, slow++) {
        if (slow > 0 && slow % TRY_AGAIN == 0)
            i += ckpi_quant_pack2(code + i, n - i, two + i / 4, cpu);
        if (i < n && !add_rare(p, two + i / 4, code + i, CKPI_MIN(n - i, (size_t)4)))
            return false;
    }
    p->n = (p->n + n + 3) & ~(size_t)3;
    return true;
}

static void
take_rare(const ckpi_pack2 *p, ckpi_unpack2 *from, unsigned two, int8_t *code, size_t n)
{
    for (size_t k = 0; k < n; k++, two >>= 2)
        code[k] = (two & 3) == CKPI_PACK2_ELSEWHERE ? p->other[from->other++] : (int8_t)((two & 3) == 3 ? -1 : (int)(two & 3));
}

void
ckpi_pack2_take(const ckpi_pack2 *p, ckpi_unpack2 *from, int8_t *code, size_t n, uint32_t cpu)
{
    const uint8_t *two = p->two + from->at / 4;
    for (size_t i = ckpi_quant_unpack2(two, n, code, cpu), slow = 0; i < n; i += 4, slow++) {
        if (slow > 0 && slow % TRY_AGAIN == 0)
            i += ckpi_quant_unpack2(two + i / 4, n - i, code + i, cpu);
        if (i < n)
            take_rare(p, from, two[i / 4], code + i, CKPI_MIN(n - i, (size_t)4));
    }
    from->at = (from->at + n + 3) & ~(size_t)3;
}
