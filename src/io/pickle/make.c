/* SPDX-License-Identifier: Apache-2.0 */
/* Making values, and what they may cost. */
#include <string.h>
#include "base/bytes.h"
#include "io/pickle/pickle.h"

/* The largest cost of a byte: an empty list is one opcode and a 32-byte value. Beyond it something is wrong. */
#define ARENA_BASE ((size_t)64 << 20)
#define ARENA_PER_BYTE 40

void *
ckpi_pickle_get(ckpi_pickle *p, size_t n, size_t size)
{
    if (p->arena->held > ARENA_BASE && (p->arena->held - ARENA_BASE) / ARENA_PER_BYTE > p->len)
        return NULL;
    return ckpi_io_arena_get(p->arena, n, size);
}

ckp_status
ckpi_pickle_no_memory(ckpi_pickle *p)
{
    if (p->arena->held > ARENA_BASE && (p->arena->held - ARENA_BASE) / ARENA_PER_BYTE > p->len)
        return ckpi_pickle_bad(p, CKP_ELIMIT, "%zu bytes of pickle make more than %zu bytes of values", p->len, p->arena->held);
    return ckpi_pickle_bad(p, CKP_ENOMEM, "out of memory");
}

ckpi_pv *
ckpi_pickle_new(ckpi_pickle *p, ckpi_pv_kind kind)
{
    ckpi_pv *v = ckpi_pickle_get(p, 1, sizeof *v);
    if (v == NULL)
        return NULL;
    memset(v, 0, sizeof *v);
    v->kind = (uint8_t)kind;
    v->at = (uint32_t)p->pos;
    return v;
}

ckpi_pv *
ckpi_pickle_text(ckpi_pickle *p, ckpi_pv_kind kind, const void *data, size_t n)
{
    ckpi_pv *v = ckpi_pickle_new(p, kind);
    if (v != NULL) {
        v->u.s.p = data;
        v->u.s.n = n;
    }
    return v;
}

ckpi_pv *
ckpi_pickle_const(ckpi_pickle *p, ckpi_pv_kind kind)
{
    return &p->small[kind];
}

ckpi_pv *
ckpi_pickle_int(ckpi_pickle *p, int64_t i)
{
    if (i >= 0 && i < CKPI_PICKLE_SMALL)
        return &p->small[3 + i];
    ckpi_pv *v = ckpi_pickle_new(p, PV_INT);
    if (v != NULL)
        v->u.i = i;
    return v;
}

bool
ckpi_pickle_add(ckpi_pickle *p, ckpi_pv *c, ckpi_pv *const *items, size_t n)
{
    if (n > UINT32_MAX / 2 - c->u.c.n)
        return false;
    const uint32_t want = c->u.c.n + (uint32_t)n;
    if (want > c->u.c.cap) {
        const uint32_t cap = c->u.c.cap == 0 ? want : CKPI_MAX(want, c->u.c.cap * 2);
        ckpi_pv **v = ckpi_pickle_get(p, cap, sizeof *v);
        if (v == NULL)
            return false;
        if (c->u.c.n != 0)
            memcpy(v, c->u.c.v, c->u.c.n * sizeof *v);
        c->u.c.v = v;
        c->u.c.cap = cap;
    }
    if (n != 0)
        memcpy(c->u.c.v + c->u.c.n, items, n * sizeof *items);
    c->u.c.n = want;
    return true;
}

ckpi_pv *
ckpi_pickle_tuple(ckpi_pickle *p, ckpi_pv *const *items, size_t n)
{
    ckpi_pv *v = ckpi_pickle_new(p, PV_TUPLE);
    return v != NULL && ckpi_pickle_add(p, v, items, n) ? v : NULL;
}

ckpi_pv *
ckpi_pickle_named(ckpi_pickle *p, const char *name, ckpi_pv *inner)
{
    ckpi_pv *v = inner != NULL ? ckpi_pickle_new(p, PV_NAMED) : NULL;
    if (v != NULL) {
        v->u.named.name = name;
        v->u.named.v = inner;
    }
    return v;
}
