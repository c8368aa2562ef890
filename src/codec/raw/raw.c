/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes themselves: the fall-back that keeps a chunk from growing. */
#include <string.h>
#include "base/fail.h"
#include "codec/rows.h"

static bool
raw_fits(const ckpi_block *b)
{
    (void)b;
    return true;
}

static size_t
raw_bound(const ckpi_block *b)
{
    return b->n * b->width;
}

static ckp_status
raw_encode(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    (void)ws;
    (void)cpu;
    const size_t bytes = b->n * b->width;
    if (cap < bytes)
        return ckpi_fail(err, CKP_EINVAL, "raw: room for %zu of %zu bytes", cap, bytes);
    if (bytes != 0)
        memcpy(dst, b->data, bytes);
    *len = bytes;
    return CKP_OK;
}

static ckp_status
raw_decode(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    (void)ws;
    (void)cpu;
    if (len != b->n * b->width)
        return ckpi_fail_at(err, CKP_ECORRUPT, len, "raw: %zu bytes where %zu elements take %zu", len, b->n, b->n * b->width);
    if (len != 0)
        memcpy(dst, src, len);
    return CKP_OK;
}

const ckpi_codec ckpi_codec_raw = {
    .id = CKPI_CODEC_RAW, .name = "raw", .fits = raw_fits, .bound = raw_bound, .encode = raw_encode, .decode = raw_decode};
