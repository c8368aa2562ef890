/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd over the bytes: for what repeats itself far apart, which no other codec here sees. The payload is one zstd frame.
 * The one codec that allocates: zstd makes its state and frees it again within the call.
 */
#include "codec/lz/lz.h"
#include <zstd.h>
#include <zstd_errors.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/rows.h"

static bool
lz_fits(const ckpi_block *b)
{
    (void)b;
    return true;
}

/* zstd's own: n + n / 256, and up to 64 bytes more below 128 KiB. */
static size_t
lz_bound(const ckpi_block *b)
{
    return ZSTD_compressBound(b->n * b->width);
}

static bool
lacks_memory(size_t code)
{
    return ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation;
}

ckp_status
ckpi_lz_encode(const ckpi_block *b, int level, uint8_t *dst, size_t cap, size_t *len, ckp_error *err)
{
    if (cap < lz_bound(b))
        return ckpi_fail(err, CKP_EINVAL, "lz: room for %zu of %zu bytes", cap, lz_bound(b));
    const size_t got = ZSTD_compress(dst, cap, b->n != 0 ? b->data : "", b->n * b->width, level);
    if (ZSTD_isError(got))
        return ckpi_fail(err, lacks_memory(got) ? CKP_ENOMEM : CKP_EINTERNAL, "lz: %s", ZSTD_getErrorName(got));
    *len = got;
    return CKP_OK;
}

static ckp_status
lz_encode(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    (void)ws;
    (void)cpu;
    return ckpi_lz_encode(b, CKPI_LZ_FAST, dst, cap, len, err);
}

static ckp_status
lz_decode(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    (void)ws;
    (void)cpu;
    const size_t bytes = b->n * b->width;
    /* Both come before zstd is let loose: a frame that claims other sizes costs nothing. */
    if (len < 4 || ckpi_ld32(src) != ZSTD_MAGICNUMBER || ZSTD_getFrameContentSize(src, len) != bytes ||
        ZSTD_findFrameCompressedSize(src, len) != len)
        return ckpi_fail_at(err, CKP_ECORRUPT, 0, "lz: not one zstd frame of %zu bytes", bytes);
    uint8_t none;
    const size_t got = ZSTD_decompress(bytes != 0 ? dst : &none, bytes, src, len);
    if (ZSTD_isError(got) && lacks_memory(got))
        return ckpi_fail(err, CKP_ENOMEM, "lz: %s", ZSTD_getErrorName(got));
    if (ZSTD_isError(got) || got != bytes)
        return ckpi_fail_at(err, CKP_ECORRUPT, 0, "lz: %s", ZSTD_isError(got) ? ZSTD_getErrorName(got) : "the frame is short");
    return CKP_OK;
}

const ckpi_codec ckpi_codec_lz = {
    .id = CKPI_CODEC_LZ, .name = "lz", .fits = lz_fits, .bound = lz_bound, .encode = lz_encode, .decode = lz_decode};
