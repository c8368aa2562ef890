/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Few symbols that are not zero, as runs: how many zeros lie before each, then their values. A run's length is its leading three
 * bits and its number of bits, in one byte (a table of some thirty entries instead of hundreds), and the bits below as they are.
 */
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/rearranged/rearranged.h"
#include "codec/stream/stream.h"

typedef struct bits {
    uint64_t word;
    unsigned n;
} bits;

/* Number of bits below the three leading ones of a length's symbol. */
static unsigned
low_bits(uint8_t t)
{
    return t < 8 ? 0 : (t >> 2) - 1u;
}

static uint8_t
symbol_of(uint32_t gap, unsigned *low)
{
    *low = 0;
    if (gap < 8)
        return (uint8_t)gap;
    *low = 29u - (unsigned)__builtin_clz(gap);
    return (uint8_t)((*low + 1) << 2 | (gap >> *low & 3));
}

static uint8_t *
put_bits(bits *b, uint8_t *to, uint32_t value, unsigned n)
{
    b->word |= (uint64_t)(value & ((UINT64_C(1) << n) - 1)) << b->n;
    for (b->n += n; b->n >= 8; b->n -= 8, b->word >>= 8)
        *to++ = (uint8_t)b->word;
    return to;
}

/* The high bit of each of the next eight bytes that is not zero. */
static uint64_t
set_bytes(const uint8_t *p, size_t left)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7fu;
    uint64_t w = 0;
    if (left >= 8)
        w = ckpi_ld64(p);
    else
        for (size_t k = 0; k < left; k++)
            w |= (uint64_t)p[k] << 8 * k;
    return (((w & low) + low) | w) & ~low;
}

/* Lengths to gap[], values to value[], low bits to low; returns the bytes of those. */
static size_t
collect(const uint8_t *sym, size_t n, uint8_t *gap, uint8_t *value, uint8_t *low)
{
    bits b = {0};
    uint8_t *end = low;
    size_t found = 0, next = 0;
    for (size_t i = 0; i < n; i += 8) {
        for (uint64_t set = set_bytes(sym + i, n - i); set != 0; set &= set - 1) {
            const size_t at = i + (size_t)__builtin_ctzll(set) / 8;
            unsigned more;
            gap[found] = symbol_of((uint32_t)(at - next), &more);
            end = put_bits(&b, end, (uint32_t)(at - next), more);
            value[found++] = sym[at];
            next = at + 1;
        }
    }
    if (b.n != 0)
        *end++ = (uint8_t)b.word;
    return (size_t)(end - low);
}

ckp_status
ckpi_runs_put(ckpi_buf *out, const uint8_t *sym, size_t n, size_t count, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    uint8_t *gap = ckpi_scratch_get(ws, count), *value = ckpi_scratch_get(ws, count), *low = ckpi_scratch_get(ws, 4 * count + 1);
    if (gap == NULL || value == NULL || low == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "rearranged: no memory for %zu runs", count);
    const size_t low_len = collect(sym, n, gap, value, low);
    ckpi_buf_varint(out, count);
    ckp_status st = ckpi_stream_put(out, gap, count, ws, cpu, err);
    if (st == CKP_OK)
        st = ckpi_stream_put(out, value, count, ws, cpu, err);
    if (st == CKP_OK) {
        ckpi_buf_put(out, low, low_len);
        st = ckpi_buf_status(out, err, "runs");
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

/* The next n bits; the caller has proved that they are there. */
static uint32_t
take_bits(bits *b, const uint8_t **from, unsigned n)
{
    for (; b->n < n; b->n += 8)
        b->word |= (uint64_t)*(*from)++ << b->n;
    const uint32_t v = (uint32_t)(b->word & ((UINT64_C(1) << n) - 1));
    b->word >>= n;
    b->n -= n;
    return v;
}

/* All low bits must be there, and nothing behind them. */
static bool
low_bits_fit(const uint8_t *gap, size_t count, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (gap[i] > 127)
            return false;
        sum += low_bits(gap[i]);
    }
    return (sum + 7) / 8 == bytes;
}

/* False when a place is not inside n or the last bits are not zero. */
static bool
place(uint8_t *sym, size_t n, const uint8_t *gap, const uint8_t *value, size_t count, const uint8_t *low)
{
    bits b = {0};
    uint64_t at = 0;
    memset(sym, 0, n);
    for (size_t i = 0; i < count; i++, at++) {
        const unsigned more = low_bits(gap[i]);
        at += gap[i] < 8 ? gap[i] : (uint64_t)(4 | (gap[i] & 3)) << more | take_bits(&b, &low, more);
        if (at >= n)
            return false;
        sym[at] = value[i];
    }
    return b.word == 0;
}

ckp_status
ckpi_runs_get(ckpi_rd *in, uint8_t *sym, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    const size_t count = (size_t)ckpi_rd_varint(in, n);
    const uint8_t *gap = NULL, *value = NULL;
    ckp_status st = ckpi_rd_ok(in) ? CKP_OK : ckpi_rd_error(in, err, "runs");
    if (st == CKP_OK)
        st = ckpi_stream_get(in, &gap, count, ws, cpu, err);
    if (st == CKP_OK)
        st = ckpi_stream_get(in, &value, count, ws, cpu, err);
    if (st == CKP_OK) {
        const size_t left = ckpi_rd_left(in), at = in->pos;
        const uint8_t *low = ckpi_rd_bytes(in, left);
        if (!low_bits_fit(gap, count, left) || !place(sym, n, gap, value, count, low))
            st = ckpi_fail_at(err, CKP_ECORRUPT, at, "rearranged: runs that do not fit their part");
    }
    ckpi_scratch_release(ws, mark);
    return st;
}
