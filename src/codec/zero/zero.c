/* SPDX-License-Identifier: Apache-2.0 */
/* ZERO: every byte is zero or, with a base, equal to the base's. No payload. */
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "codec/rows.h"

static bool
all_zero(const uint8_t *p, size_t n)
{
    /* A range whose first byte is zero and which equals itself one byte on is zero throughout. */
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static bool
fits(const ckpi_block *b)
{
    size_t n;
    if (!ckpi_mul_size(b->n, b->width, &n))
        return false;
    if (b->data == NULL || n == 0) /* asked for decoding */
        return true;
    return b->base != NULL ? memcmp(b->data, b->base, n) == 0 : all_zero(b->data, n);
}

static size_t
bound(const ckpi_block *b)
{
    (void)b;
    return 0;
}

static ckp_status
encode(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    (void)dst;
    (void)cap;
    (void)ws;
    (void)cpu;
    if (!fits(b))
        return ckpi_fail(err, CKP_EINVAL, "zero: the block is not zero");
    *len = 0;
    return CKP_OK;
}

static ckp_status
decode(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    (void)src;
    (void)ws;
    (void)cpu;
    if (len != 0)
        return ckpi_fail_at(err, CKP_ECORRUPT, 0, "zero: a payload where none belongs");
    const size_t n = b->n * b->width;
    if (n != 0 && b->base != NULL)
        memcpy(dst, b->base, n);
    else if (n != 0)
        memset(dst, 0, n);
    return CKP_OK;
}

const ckpi_codec ckpi_codec_zero = {
    .id = CKPI_CODEC_ZERO,
    .name = "zero",
    .takes_base = true,
    .fits = fits,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
