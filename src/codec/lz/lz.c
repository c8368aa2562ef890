/* SPDX-License-Identifier: Apache-2.0 */
/* zstd over the bytes: for what repeats itself far apart, which no other codec here sees. The payload is one zstd frame. */
#include <zstd.h>
#include "base/fail.h"
#include "codec/rows.h"

/* Level 1 saves nearly all that there is to save on numbers; higher levels cost ten times the time for a percent. */
enum { LEVEL = 1 };

static bool
lz_fits(const ckpi_block *b)
{
    (void)b;
    return true;
}

static size_t
lz_bound(const ckpi_block *b)
{
    /* zstd's own bound is n + n / 256 + up to 64 bytes for small n; the frame's header may take 18 more. */
    return ZSTD_compressBound(b->n * b->width);
}

/* zstd allocates its own state; a workspace from our scratch keeps the promise that codecs allocate nothing. */
static ckp_status
failed(ckp_error *err, size_t code, const char *what)
{
    return ckpi_fail(err, CKP_EINTERNAL, "lz: %s: %s", what, ZSTD_getErrorName(code));
}

static ckp_status
lz_encode(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    (void)ws;
    (void)cpu;
    if (cap < lz_bound(b))
        return ckpi_fail(err, CKP_EINVAL, "lz: room for %zu of %zu bytes", cap, lz_bound(b));
    const size_t got = ZSTD_compress(dst, cap, b->n != 0 ? b->data : "", b->n * b->width, LEVEL);
    if (ZSTD_isError(got))
        return failed(err, got, "compress");
    *len = got;
    return CKP_OK;
}

static ckp_status
lz_decode(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    (void)ws;
    (void)cpu;
    const size_t bytes = b->n * b->width;
    const unsigned long long claimed = ZSTD_getFrameContentSize(src, len);
    if (claimed != bytes || ZSTD_findFrameCompressedSize(src, len) != len)
        return ckpi_fail_at(err, CKP_ECORRUPT, 0, "lz: not one zstd frame of %zu bytes", bytes);
    uint8_t none;
    const size_t got = ZSTD_decompress(bytes != 0 ? dst : &none, bytes, src, len);
    if (ZSTD_isError(got) || got != bytes)
        return ckpi_fail_at(err, CKP_ECORRUPT, 0, "lz: %s", ZSTD_isError(got) ? ZSTD_getErrorName(got) : "frame is short");
    return CKP_OK;
}

const ckpi_codec ckpi_codec_lz = {
    .id = CKPI_CODEC_LZ, .name = "lz", .fits = lz_fits, .bound = lz_bound, .encode = lz_encode, .decode = lz_decode};
