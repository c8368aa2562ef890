/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of the mask codec: everything is checked before the first element is placed. */
#include <string.h>

#include "base/bytes.h"
#include "base/cursor.h"
#include "base/fail.h"
#include "codec/mask/mask.h"
#include "codec/mask/mask_kern.h"
#include "codec/mask/mask_wire.h"
#include "codec/rans/rans.h"
#include "codec/rows.h"
#include "codec/stream/plane.h"

enum { WIDEST = 4 };

static ckp_status
get_stream(ckpi_rd *r, uint8_t *dst, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t len = (size_t)ckpi_rd_varint(r, ckpi_rd_left(r));
    const uint8_t *src = ckpi_rd_bytes(r, len);
    if (!ckpi_rd_ok(r))
        return ckpi_rd_error(r, err, "mask stream");
    return ckpi_rans_decode(src, len, dst, n, ws, cpu, err);
}

/* The values' planes, put together again. */
static ckp_status
get_values(ckpi_rd *r, uint8_t *values, size_t count, unsigned width, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (width == 1)
        return get_stream(r, values, count, ws, cpu, err);
    const uint8_t *plane[WIDEST];
    for (unsigned k = 0; k < width; k++) {
        uint8_t *to = ckpi_scratch_get(ws, count);
        if (to == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "mask: no memory for %zu values", count);
        const ckp_status st = get_stream(r, to, count, ws, cpu, err);
        if (st != CKP_OK)
            return st;
        plane[k] = to;
    }
    ckpi_plane_join(values, plane, count, width);
    return CKP_OK;
}

static size_t
count_ones(const uint8_t *p, size_t n)
{
    size_t ones = 0, i = 0;
    for (; n - i >= 8; i += 8)
        ones += (size_t)__builtin_popcountll(ckpi_ld64(p + i));
    for (; i < n; i++)
        ones += (size_t)__builtin_popcount(p[i]);
    return ones;
}

static ckp_status
get_mask(ckpi_rd *r, uint8_t *mask, size_t n, size_t count, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t len = (n + 7) / 8;
    const ckp_status st = get_stream(r, mask, len, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    if (((n & 7) != 0 && mask[len - 1] >> (n & 7) != 0) || count_ones(mask, len) != count)
        return ckpi_fail_at(err, CKP_ECORRUPT, r->pos, "mask: ones and values differ in number");
    return CKP_OK;
}

/* Places of the few non-zero elements as a mask: the sum of the gaps must stay inside n. */
static ckp_status
get_positions(ckpi_rd *r, uint8_t *mask, size_t n, size_t count, ckp_error *err)
{
    size_t next = 0;
    memset(mask, 0, (n + 7) / 8);
    for (size_t i = 0; i < count && ckpi_rd_ok(r); i++) {
        if (next >= n) {
            ckpi_rd_fail(r, "position");
            break;
        }
        const size_t at = next + (size_t)ckpi_rd_varint(r, n - next - 1);
        if (ckpi_rd_ok(r))
            mask[at / 8] = (uint8_t)(mask[at / 8] | 1u << (at & 7));
        next = at + 1;
    }
    return ckpi_rd_ok(r) ? CKP_OK : ckpi_rd_error(r, err, "mask positions");
}

static ckp_status
decode_in(const ckpi_block *b, ckpi_rd *r, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const unsigned form = ckpi_rd_u8(r);
    const size_t count = (size_t)ckpi_rd_varint(r, b->n);
    if (!ckpi_rd_ok(r))
        return ckpi_rd_error(r, err, "mask head");
    if (form > CKPI_MASK_POSITIONS)
        return ckpi_fail_at(err, CKP_ECORRUPT, 0, "mask: unknown form %u", form);
    uint8_t *mask = ckpi_scratch_get(ws, (b->n + 7) / 8);
    uint8_t *values = ckpi_scratch_get(ws, count * b->width + CKPI_MASK_SLACK);
    if (mask == NULL || values == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "mask: no memory for %zu elements", b->n);
    ckp_status st = form == CKPI_MASK_BITS ? get_mask(r, mask, b->n, count, ws, cpu, err) : get_positions(r, mask, b->n, count, err);
    if (st == CKP_OK)
        st = get_values(r, values, count, b->width, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    if (!ckpi_rd_done(r))
        return ckpi_fail_at(err, CKP_ECORRUPT, r->pos, "mask: bytes left over");
    ckpi_mask_pick(cpu)->join[ckpi_mask_log2(b->width)](dst, b->base, b->n, mask, values);
    return CKP_OK;
}

static bool
fits(const ckpi_block *b)
{
    return (b->width == 1 || b->width == 2 || b->width == WIDEST) && b->n <= CKPI_RANS_MAX;
}

static size_t
bound(const ckpi_block *b)
{
    return ckpi_mask_bound(b->n, b->width);
}

static ckp_status
encode(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (!fits(b))
        return ckpi_fail(err, CKP_EINVAL, "mask: elements of %u bytes", b->width);
    const size_t mark = ckpi_scratch_mark(ws);
    ckpi_mask_parts p;
    ckp_status st = ckpi_mask_split(&p, b->data, b->base, b->n, b->width, ws, cpu, err);
    if (st == CKP_OK)
        st = ckpi_mask_write(&p, dst, cap, len, ws, cpu, err);
    ckpi_scratch_release(ws, mark);
    return st;
}

static ckp_status
decode(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (!fits(b))
        return ckpi_fail_at(err, CKP_ECORRUPT, 0, "mask: elements of %u bytes", b->width);
    const size_t mark = ckpi_scratch_mark(ws);
    ckpi_rd r = ckpi_rd_init(src, len, 0);
    const ckp_status st = decode_in(b, &r, dst, ws, cpu, err);
    ckpi_scratch_release(ws, mark);
    return st;
}

const ckpi_codec ckpi_codec_mask = {
    .id = CKPI_CODEC_MASK,
    .name = "mask",
    .takes_base = true,
    .fits = fits,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
