/* SPDX-License-Identifier: Apache-2.0 */
/* Encoder of the mask codec. Layout: README.md. */
#include <string.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "codec/mask/mask.h"
#include "codec/mask/mask_kern.h"
#include "codec/mask/mask_wire.h"
#include "codec/rans/rans.h"
#include "codec/stream/plane.h"

enum { LENGTH_MAX = 5 }; /* varint of a stream's length, which is at most CKPI_RANS_MAX + 1 */

size_t
ckpi_mask_bound(size_t n, unsigned width)
{
    return n * width + n * width / 64 + 64; /* the contract of codec.h; split() sees to it */
}

/* A mask that costs more than the zeros it saves: what it takes is known within its table and states, or by its length. */
static bool
mask_is_dear(const ckpi_mask_parts *p)
{
    const uint64_t coded = ckpi_rans_entropy_bytes(p->mask_hist) + 512, stored = (p->n + 7) / 8 + 1;
    return CKPI_MIN(coded, stored) > (uint64_t)(p->n - p->count) * p->width + 24;
}

/* Call every element a value, zero or not. */
static void
keep_all(ckpi_mask_parts *p, const uint8_t *data, const uint8_t *base)
{
    const size_t mask_len = (p->n + 7) / 8, bytes = p->n * p->width;
    memset(p->mask, 0xff, mask_len);
    if ((p->n & 7) != 0)
        p->mask[mask_len - 1] = (uint8_t)((1u << (p->n & 7)) - 1);
    for (size_t i = 0; i < bytes; i++)
        p->values[i] = (uint8_t)(base != NULL ? data[i] ^ base[i] : data[i]);
    p->count = p->n;
}

static void
count_parts(ckpi_mask_parts *p)
{
    ckpi_rans_hist(p->mask, (p->n + 7) / 8, p->mask_hist);
    if (p->width == 1)
        ckpi_rans_hist(p->values, p->count, p->value_hist);
}

ckp_status
ckpi_mask_split(ckpi_mask_parts *p, const void *data, const void *base, size_t n, unsigned width, ckpi_scratch *ws, uint32_t cpu,
                ckp_error *err)
{
    const size_t mask_len = (n + 7) / 8;
    p->n = n;
    p->width = width;
    p->mask = ckpi_scratch_get(ws, mask_len);
    p->values = ckpi_scratch_get(ws, n * width + CKPI_MASK_SLACK);
    if (p->mask == NULL || p->values == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "mask: no memory for %zu elements", n);
    p->count = ckpi_mask_pick(cpu)->split[ckpi_mask_log2(width)](data, base, n, p->mask, p->values);
    count_parts(p);
    if (mask_is_dear(p)) {
        keep_all(p, data, base);
        count_parts(p);
    }
    return CKP_OK;
}

static size_t
put_varint(uint8_t *dst, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        dst[n++] = (uint8_t)(v | 0x80);
    dst[n++] = (uint8_t)v;
    return n;
}

/* Distances between non-zero elements, each as a varint. */
static size_t
put_positions(const ckpi_mask_parts *p, uint8_t *dst)
{
    size_t len = 0, next = 0;
    for (size_t i = 0; i < (p->n + 7) / 8; i++)
        for (unsigned m = p->mask[i]; m != 0; m &= m - 1) {
            const size_t at = 8 * i + (size_t)__builtin_ctz(m);
            len += put_varint(dst + len, at - next);
            next = at + 1;
        }
    return len;
}

/* A stream behind its length: at most five bytes, closed up when the length is known. */
static ckp_status
put_stream(const uint8_t *src, size_t n, const uint32_t *hist, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu,
           ckp_error *err)
{
    size_t stream;
    const ckp_status st = ckpi_rans_encode(src, n, hist, dst + LENGTH_MAX, cap - LENGTH_MAX, &stream, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    const size_t head = put_varint(dst, stream);
    memmove(dst + head, dst + LENGTH_MAX, stream);
    *len += head + stream;
    return CKP_OK;
}

/* Byte k of each value, k = 0 .. width - 1, a stream each: high bytes of a difference are mostly alike. */
static ckp_status
put_values(const ckpi_mask_parts *p, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t before = *len;
    if (p->width == 1)
        return put_stream(p->values, p->count, p->value_hist, dst, cap, len, ws, cpu, err);
    uint8_t *plane = ckpi_scratch_get(ws, p->count);
    if (plane == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "mask: no memory for %zu values", p->count);
    for (unsigned k = 0; k < p->width; k++) {
        ckpi_plane_take(plane, p->values, p->count, p->width, k);
        const size_t at = *len - before;
        const ckp_status st = put_stream(plane, p->count, NULL, dst + at, cap - at, len, ws, cpu, err);
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

ckp_status
ckpi_mask_write(const ckpi_mask_parts *p, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (cap < ckpi_mask_bound(p->n, p->width))
        return ckpi_fail(err, CKP_EINVAL, "mask: room for %zu bytes only", cap);
    /* Three bytes for a place far from the last one, about as much as the mask would spend on it, and it decodes at once. */
    const bool few = p->count <= (p->n >> 16) + 4;
    const size_t mark = ckpi_scratch_mark(ws);
    ckp_status st = CKP_OK;
    size_t at = 0;
    dst[at++] = few ? CKPI_MASK_POSITIONS : CKPI_MASK_BITS;
    at += put_varint(dst + at, p->count);
    if (few)
        at += put_positions(p, dst + at);
    else
        st = put_stream(p->mask, (p->n + 7) / 8, p->mask_hist, dst + at, cap - at, &at, ws, cpu, err);
    if (st == CKP_OK)
        st = put_values(p, dst + at, cap - at, &at, ws, cpu, err);
    ckpi_scratch_release(ws, mark);
    *len = at;
    return st;
}
