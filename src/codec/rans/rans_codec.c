/* SPDX-License-Identifier: Apache-2.0 */
/* RANS as a row of the registry: the block's bytes as one stream, whatever their width. */
#include "base/checked.h"
#include "base/fail.h"
#include "codec/rans/rans.h"
#include "codec/rows.h"

static bool
fits(const ckpi_block *b)
{
    size_t bytes;
    return ckpi_mul_size(b->n, b->width, &bytes) && bytes <= CKPI_RANS_MAX;
}

static size_t
bound(const ckpi_block *b)
{
    return ckpi_rans_bound(b->n * b->width);
}

static ckp_status
encode(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    return ckpi_rans_encode(b->data, b->n * b->width, NULL, dst, cap, len, ws, cpu, err);
}

static ckp_status
decode(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (!fits(b))
        return ckpi_fail(err, CKP_ECORRUPT, "rans: more bytes than a stream can hold");
    return ckpi_rans_decode(src, len, dst, b->n * b->width, ws, cpu, err);
}

const ckpi_codec ckpi_codec_rans = {
    .id = CKPI_CODEC_RANS,
    .name = "rans",
    .fits = fits,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
