/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/stream/stream.h"
#include <string.h>
#include "base/fail.h"
#include "codec/rans/rans.h"

/* Wire values. */
enum { KIND_STORED = 0, KIND_REPEATED = 1, KIND_RANS = 2 };

/* rANS must save at least 1/GAIN of the bytes: decoding stored bytes is free. */
enum { GAIN = 256 };

/* Below this rANS cannot pay for its table and states. */
enum { SHORTEST = 16 };

ckpi_buf
ckpi_stream_out(uint8_t *dst, size_t cap)
{
    return (ckpi_buf){.data = dst, .cap = cap, .max = cap};
}

uint8_t *
ckpi_stream_put_raw(ckpi_buf *out, size_t n)
{
    ckpi_buf_u8(out, KIND_STORED);
    return ckpi_buf_extend(out, n);
}

static bool
is_repeated(const uint8_t *src, size_t n)
{
    return n >= 2 && src[0] == src[n - 1] && memcmp(src, src + 1, n - 1) == 0;
}

/* About one byte a symbol in the table, and the states. */
static uint64_t
rans_cost(const uint32_t hist[256], uint64_t n)
{
    uint64_t symbols = 0;
    for (unsigned i = 0; i < 256; i++)
        symbols += hist[i] != 0;
    return ckpi_rans_entropy_bytes(hist) + symbols + (n >= 4096 ? 70 : 12);
}

uint64_t
ckpi_stream_cost(const uint32_t hist[256], uint64_t n)
{
    for (unsigned i = 0; i < 256; i++) {
        if (hist[i] == n)
            return 2;
    }
    const uint64_t cost = rans_cost(hist, n);
    return CKPI_STREAM_OVERHEAD + (cost < n ? cost : n);
}

static ckp_status
put_rans(ckpi_buf *out, const uint8_t *src, size_t n, const uint32_t *hist, ckpi_scratch *ws, uint32_t cpu, bool *pays, ckp_error *err)
{
    const size_t cap = ckpi_rans_bound(n), mark = ckpi_scratch_mark(ws);
    uint8_t *tmp = ckpi_scratch_get(ws, cap);
    size_t len = 0;
    if (tmp == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "stream: no memory for %zu bytes", cap);
    const ckp_status st = ckpi_rans_encode(src, n, hist, tmp, cap, &len, ws, cpu, err);
    *pays = st == CKP_OK && len + 8 < n;
    if (*pays) {
        ckpi_buf_u8(out, KIND_RANS);
        ckpi_buf_str(out, tmp, len);
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

static ckp_status
put_stored(ckpi_buf *out, const uint8_t *src, size_t n, ckp_error *err)
{
    uint8_t *place = ckpi_stream_put_raw(out, n);
    if (place != NULL && n != 0)
        memcpy(place, src, n);
    return ckpi_buf_status(out, err, "stream");
}

static ckp_status
put_repeated(ckpi_buf *out, uint8_t value, ckp_error *err)
{
    ckpi_buf_u8(out, KIND_REPEATED);
    ckpi_buf_u8(out, value);
    return ckpi_buf_status(out, err, "stream");
}

ckp_status
ckpi_stream_put_counted(ckpi_buf *out, const uint8_t *src, size_t n, const uint32_t hist[256], ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (n >= 2 && hist[src[0]] == n)
        return put_repeated(out, src[0], err);
    if (n >= SHORTEST && rans_cost(hist, n) < n - n / GAIN) {
        bool pays = false;
        const ckp_status st = put_rans(out, src, n, hist, ws, cpu, &pays, err);
        if (st != CKP_OK)
            return st;
        if (pays)
            return ckpi_buf_status(out, err, "stream");
    }
    return put_stored(out, src, n, err);
}

ckp_status
ckpi_stream_put(ckpi_buf *out, const uint8_t *src, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (is_repeated(src, n))
        return put_repeated(out, src[0], err);
    if (n < SHORTEST || n > CKPI_RANS_MAX)
        return put_stored(out, src, n, err);
    uint32_t hist[256];
    ckpi_rans_hist(src, n, hist);
    return ckpi_stream_put_counted(out, src, n, hist, ws, cpu, err);
}

/* *bytes: where to decode to; NULL asks for scratch memory, or for the payload itself. */
static ckp_status
get(ckpi_rd *in, const uint8_t **bytes, uint8_t *dst, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const uint8_t kind = ckpi_rd_u8(in);
    if (ckpi_rd_ok(in) && kind > KIND_RANS)
        ckpi_rd_fail(in, "a known kind of stream");
    if (!ckpi_rd_ok(in))
        return ckpi_rd_error(in, err, "stream");
    if (kind == KIND_STORED && (dst == NULL || n == 0)) {
        *bytes = ckpi_rd_bytes(in, n);
        return ckpi_rd_ok(in) ? CKP_OK : ckpi_rd_error(in, err, "stored stream");
    }
    if (dst == NULL)
        dst = ckpi_scratch_get(ws, n);
    if (dst == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "stream: no memory for %zu bytes", n);
    *bytes = dst;

    if (kind == KIND_RANS) {
        size_t len = 0;
        const uint8_t *coded = ckpi_rd_str(in, ckpi_rd_left(in), &len);
        if (!ckpi_rd_ok(in))
            return ckpi_rd_error(in, err, "rANS stream");
        return ckpi_rans_decode(coded, len, dst, n, ws, cpu, err);
    }
    if (kind == KIND_REPEATED) {
        memset(dst, ckpi_rd_u8(in), n);
    } else {
        const uint8_t *stored = ckpi_rd_bytes(in, n);
        if (stored != NULL)
            memcpy(dst, stored, n);
    }
    return ckpi_rd_ok(in) ? CKP_OK : ckpi_rd_error(in, err, "stream");
}

ckp_status
ckpi_stream_get(ckpi_rd *in, const uint8_t **bytes, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    return get(in, bytes, NULL, n, ws, cpu, err);
}

ckp_status
ckpi_stream_get_to(ckpi_rd *in, uint8_t *dst, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const uint8_t *bytes = NULL;
    return get(in, &bytes, dst, n, ws, cpu, err);
}
