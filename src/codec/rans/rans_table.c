/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frequency tables as bits, least significant first. A share is its bit length, coded as the difference to the length before it,
 * then the bits below its leading one. Neighbours in a quantizer's alphabet differ by a bit or so, so that most lengths take
 * one to three bits. A length of zero is followed by the number of further zeros.
 */
#include "codec/rans/rans_model.h"

#include <string.h>

typedef struct bits_out {
    uint8_t *p;
    uint32_t acc;
    unsigned n;
    size_t len;
} bits_out;

typedef struct bits_in {
    const uint8_t *p;
    size_t len;
    size_t pos; /* in bits */
    bool bad;   /* sticky: further reads give zeros */
} bits_in;

static void
put(bits_out *o, uint32_t v, unsigned n)
{
    o->acc |= v << o->n;
    for (o->n += n; o->n >= 8; o->n -= 8, o->acc >>= 8)
        o->p[o->len++] = (uint8_t)o->acc;
}

static size_t
put_end(bits_out *o)
{
    if (o->n != 0)
        o->p[o->len++] = (uint8_t)o->acc;
    return o->len;
}

static unsigned
get1(bits_in *in)
{
    if (in->bad || in->pos >= in->len * 8) {
        in->bad = true;
        return 0;
    }
    const unsigned v = in->p[in->pos >> 3] >> (in->pos & 7) & 1u;
    in->pos++;
    return v;
}

static uint32_t
get(bits_in *in, unsigned n)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < n; i++)
        v |= (uint32_t)get1(in) << i;
    return v;
}

/* The bits up to the next byte border must be zero, so that no two tables mean the same. */
static bool
get_end(bits_in *in, size_t *used)
{
    while (!in->bad && (in->pos & 7) != 0)
        if (get1(in) != 0)
            in->bad = true;
    *used = in->pos >> 3;
    return !in->bad;
}

static unsigned
length(uint32_t v)
{
    return v == 0 ? 0 : 32u - (unsigned)__builtin_clz(v);
}

/* v >= 0 as v zeros and a one. */
static void
put_unary(bits_out *o, unsigned v)
{
    for (; v >= 8; v -= 8)
        put(o, 0, 8);
    put(o, 1u << v, v + 1);
}

static unsigned
get_unary(bits_in *in, unsigned max)
{
    unsigned v = 0;
    while (!in->bad && get1(in) == 0)
        if (++v > max)
            in->bad = true;
    return in->bad ? 0 : v;
}

/* v >= 1: length in unary, then the bits below the leading one. */
static void
put_gamma(bits_out *o, uint32_t v)
{
    const unsigned n = length(v) - 1;
    put_unary(o, n);
    put(o, v & ((1u << n) - 1), n);
}

static uint32_t
get_gamma(bits_in *in)
{
    const unsigned n = get_unary(in, 8);
    return 1u << n | get(in, n);
}

/* Differences 0, +1, -1, +2, ... as 0, 1, 2, 3, ... in unary. */
static void
put_length(bits_out *o, unsigned *prev, unsigned len)
{
    const int d = (int)len - (int)*prev;
    put_unary(o, d > 0 ? 2u * (unsigned)d - 1 : 2u * (unsigned)-d);
    *prev = len;
}

static unsigned
get_length(bits_in *in, unsigned *prev, unsigned max)
{
    const unsigned z = get_unary(in, 2 * CKPI_RANS_MAX_BITS);
    const int len = (z & 1) != 0 ? (int)*prev + (int)((z + 1) / 2) : (int)*prev - (int)(z / 2);
    if (len < 0 || len > (int)max) {
        in->bad = true;
        return 0;
    }
    *prev = (unsigned)len;
    return (unsigned)len;
}

/* Shares of count symbols; the caller's f(i) order. */
static void
put_shares(bits_out *o, const uint16_t *f, unsigned count, unsigned bits)
{
    unsigned prev = bits > 2 ? bits - 2 : bits;
    for (unsigned i = 0; i < count; i++) {
        const unsigned n = length(f[i]);
        put_length(o, &prev, n);
        if (n > 1)
            put(o, f[i] & ((1u << (n - 1)) - 1), n - 1);
        if (n != 0)
            continue;
        unsigned run = 1;
        while (i + run < count && f[i + run] == 0)
            run++;
        put_gamma(o, run);
        i += run - 1;
    }
}

static void
get_shares(bits_in *in, uint16_t *f, unsigned count, unsigned bits)
{
    unsigned prev = bits > 2 ? bits - 2 : bits;
    for (unsigned i = 0; i < count && !in->bad; i++) {
        const unsigned n = get_length(in, &prev, bits);
        if (n != 0) {
            f[i] = (uint16_t)(1u << (n - 1) | get(in, n - 1));
            continue;
        }
        const uint32_t run = get_gamma(in);
        if (run > count - i) {
            in->bad = true;
            return;
        }
        memset(f + i, 0, run * sizeof f[0]);
        i += run - 1;
    }
}

static size_t
write_span(const ckpi_rans_model *m, uint8_t *dst)
{
    uint16_t f[256];
    bits_out o = {.p = dst};
    put(&o, m->first, 8);
    put(&o, m->span - 1, 8);
    for (unsigned i = 0; i < m->span; i++)
        f[i] = (uint16_t)(m->freq[(m->first + i) & 255] >> (CKPI_RANS_MAX_BITS - m->bits));
    put_shares(&o, f, m->span - 1, m->bits); /* the last one is what is left */
    return put_end(&o);
}

static bool
read_span(ckpi_rans_model *m, bits_in *in)
{
    uint16_t f[256];
    m->first = (uint8_t)get(in, 8);
    m->span = get(in, 8) + 1;
    if (m->span < 2)
        return false;
    get_shares(in, f, m->span - 1, m->bits);
    if (in->bad)
        return false;
    uint32_t sum = 0;
    for (unsigned i = 0; i + 1 < m->span; i++)
        sum += f[i];
    /* Below 2^bits: the last share is positive, as is the first, so no share reaches 2^bits. */
    if (f[0] == 0 || sum >= 1u << m->bits)
        return false;
    f[m->span - 1] = (uint16_t)((1u << m->bits) - sum);
    memset(m->freq, 0, sizeof m->freq);
    for (unsigned i = 0; i < m->span; i++)
        m->freq[(m->first + i) & 255] = f[i];
    ckpi_rans_model_range(m);
    return true;
}

static size_t
write_classes(const ckpi_rans_model *m, uint8_t *dst)
{
    uint16_t f[8];
    bits_out o = {.p = dst};
    put(&o, m->top_class - 1, 3);
    for (unsigned k = 1; k <= m->top_class; k++)
        f[k - 1] = (uint16_t)(m->freq[ckpi_rans_pop_order[ckpi_rans_pop_first[k]]] >> (CKPI_RANS_MAX_BITS - m->bits));
    put_shares(&o, f, m->top_class, m->bits);
    return put_end(&o);
}

static bool
read_classes(ckpi_rans_model *m, bits_in *in)
{
    uint16_t share[9] = {0};
    m->top_class = get(in, 3) + 1;
    get_shares(in, share + 1, m->top_class, m->bits);
    return !in->bad && share[m->top_class] != 0 && ckpi_rans_model_classes(m, share);
}

static bool
read_bits(ckpi_rans_model *m, bits_in *in)
{
    m->p13 = get(in, 13);
    m->top_class = get(in, 3) + 1;
    return !in->bad && ckpi_rans_model_binomial(m);
}

size_t
ckpi_rans_model_write(const ckpi_rans_model *m, uint8_t *dst)
{
    if (m->kind == CKPI_RANS_SPAN)
        return write_span(m, dst);
    if (m->kind == CKPI_RANS_CLASSES)
        return write_classes(m, dst);
    bits_out o = {.p = dst};
    if (m->kind == CKPI_RANS_BITS) {
        put(&o, m->p13, 13);
        put(&o, m->top_class - 1, 3);
    } else {
        put(&o, m->first, 8);
    }
    return put_end(&o);
}

bool
ckpi_rans_model_read(ckpi_rans_model *m, const uint8_t *src, size_t len, size_t *used)
{
    bits_in in = {.p = src, .len = len < CKPI_RANS_TABLE_MAX ? len : CKPI_RANS_TABLE_MAX};
    bool ok = false;
    if (m->kind == CKPI_RANS_SPAN)
        ok = read_span(m, &in);
    else if (m->kind == CKPI_RANS_CLASSES)
        ok = read_classes(m, &in);
    else if (m->kind == CKPI_RANS_BITS)
        ok = read_bits(m, &in);
    else if (m->kind == CKPI_RANS_ONE) {
        m->first = (uint8_t)get(&in, 8);
        ok = true;
    }
    return ok && get_end(&in, used);
}
