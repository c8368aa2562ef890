/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the payload of a MASK chunk, with and without a base, and as a quantizer's codes. The first three bytes give the
 * number of elements, and their width with whether there is a base.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "codec/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(int ok)
{
    if (!ok)
        abort();
}

static void
decode_on_all(const ckpi_block *b, const uint8_t *src, size_t len, ckpi_scratch *ws)
{
    const size_t bytes = b->n * b->width;
    uint8_t *first = malloc(bytes + 1), *other = malloc(bytes + 1);
    require(first != NULL && other != NULL);
    const ckp_status st = ckpi_codec_mask.decode(b, src, len, first, ws, 0, NULL);
    require(st == CKP_OK || st == CKP_ECORRUPT || st == CKP_ETRUNCATED);
    const uint32_t words[2] = {ckpi_cpu() & (CKPI_CPU_AVX2 | CKPI_CPU_NEON), ckpi_cpu()};
    for (int i = 0; i < 2; i++) {
        require(ckpi_codec_mask.decode(b, src, len, other, ws, words[i], NULL) == st);
        require(st != CKP_OK || memcmp(first, other, bytes) == 0);
    }
    free(first);
    free(other);
}

static void
codes_round_trip(const uint8_t *data, size_t n, ckpi_scratch *ws)
{
    const size_t cap = n + n / 64 + 64;
    uint8_t *enc = malloc(cap), *dst = malloc(n + 1), id = 0;
    size_t len = 0;
    require(enc != NULL && dst != NULL);
    require(ckpi_codec_codes((const int8_t *)data, n, enc, cap, &len, &id, ws, ckpi_cpu(), NULL) == CKP_OK);
    const ckpi_block b = {.n = n, .width = 1, .dtype = CKP_I8};
    require(ckpi_codec_decode(id, &b, enc, len, dst, ws, 0, NULL) == CKP_OK && memcmp(dst, data, n) == 0);
    free(enc);
    free(dst);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    ckpi_scratch *ws = ckpi_scratch_new();
    const unsigned width = 1u << (data[2] % 3);
    const size_t n = (size_t)data[0] << 8 | data[1];
    uint8_t *base = calloc(n + 1, width);
    require(ws != NULL && base != NULL);
    memset(base, 0x5A, n * width);
    const ckpi_block b = {.base = data[2] >= 128 ? base : NULL, .n = n, .width = width, .dtype = CKP_I8};
    decode_on_all(&b, data + 3, size - 3, ws);
    codes_round_trip(data, size, ws);
    free(base);
    ckpi_scratch_free(ws);
    return 0;
}
