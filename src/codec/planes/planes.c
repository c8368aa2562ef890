/* SPDX-License-Identifier: Apache-2.0 */
/* The codec: floats are split by value (float_*.c), everything else, and floats that gain nothing so, into byte planes. */
#include "base/fail.h"
#include "codec/planes/float.h"
#include "codec/planes/float_wire.h"
#include "codec/rows.h"
#include "codec/stream/plane.h"
#include "codec/stream/stream.h"

enum { WIDEST = 32 };

static bool
planes_fits(const ckpi_block *b)
{
    return b->width >= 1 && b->width <= WIDEST;
}

/* Byte planes: the form, and each plane as a stream. */
static size_t
planes_bound(const ckpi_block *b)
{
    return 1 + b->width * (b->n + CKPI_STREAM_OVERHEAD);
}

static ckp_status
bytes_encode(ckpi_buf *out, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    uint8_t *plane = ckpi_scratch_get(ws, b->n);
    if (plane == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for a plane of %zu bytes", b->n);
    const uint8_t *src = b->data;
    ckpi_buf_u8(out, CKPI_PLANES_BYTES);
    for (unsigned k = 0; k < b->width; k++) {
        ckpi_plane_take(plane, src, b->n, b->width, k);
        const ckp_status st = ckpi_stream_put(out, plane, b->n, ws, cpu, err);
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

static ckp_status
bytes_decode(ckpi_rd *in, const ckpi_block *b, uint8_t *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const uint8_t *plane[WIDEST];

    for (unsigned k = 0; k < b->width; k++) {
        const ckp_status st = ckpi_stream_get(in, &plane[k], b->n, ws, cpu, err);
        if (st != CKP_OK)
            return st;
    }
    ckpi_plane_join(dst, plane, b->n, b->width);
    if (!ckpi_rd_done(in)) {
        ckpi_rd_fail(in, "the end of the payload");
        return ckpi_rd_error(in, err, "byte planes");
    }
    return CKP_OK;
}

static ckp_status
planes_encode(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (cap < planes_bound(b))
        return ckpi_fail(err, CKP_EINVAL, "planes: room for %zu of %zu bytes", cap, planes_bound(b));
    const size_t mark = ckpi_scratch_mark(ws);
    ckpi_float_type type;
    ckp_status st = CKP_ELIMIT;
    ckpi_buf out = ckpi_stream_out(dst, planes_bound(b));
    /* Words that are no real floats may escape so often that the buffer's end is met: byte planes always fit. */
    if (b->n != 0 && ckpi_float_type_of(b, &type))
        st = ckpi_float_encode(&out, b, ws, cpu, err);
    if (st == CKP_ELIMIT) {
        ckpi_scratch_release(ws, mark);
        out = ckpi_stream_out(dst, planes_bound(b));
        st = bytes_encode(&out, b, ws, cpu, err);
    }
    ckpi_scratch_release(ws, mark);
    *len = out.len;
    return st;
}

static ckp_status
planes_decode(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    ckpi_rd in = ckpi_rd_init(src, len, 0);
    ckpi_float_type type;
    ckp_status st;
    const uint8_t form = ckpi_rd_u8(&in);
    if (form == CKPI_PLANES_FLOAT && b->n != 0 && ckpi_float_type_of(b, &type)) {
        st = ckpi_float_decode(&in, b, dst, ws, cpu, err);
    } else {
        if (form != CKPI_PLANES_BYTES)
            ckpi_rd_fail(&in, "a known form of planes");
        st = ckpi_rd_ok(&in) ? bytes_decode(&in, b, dst, ws, cpu, err) : ckpi_rd_error(&in, err, "planes");
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

const ckpi_codec ckpi_codec_planes = {
    .id = CKPI_CODEC_PLANES, .name = "planes", .fits = planes_fits, .bound = planes_bound, .encode = planes_encode, .decode = planes_decode};
