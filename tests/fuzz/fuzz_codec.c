/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the payload of every codec: no crash, and every instruction set agrees on status and bytes. The first bytes say which
 * codec, dtype, length and whether there is a base; the rest is the payload, and once more the data of a round trip through pick.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 6 };

static void
require(int ok)
{
    if (!ok)
        abort();
}

static ckpi_block
block_of(const uint8_t *head, size_t n)
{
    static const ckp_dtype dtypes[] = {CKP_F32, CKP_BF16, CKP_F16, CKP_F64, CKP_I64, CKP_U8, CKP_F8E4M3FN, CKP_F128};
    const ckp_dtype dtype = dtypes[head[1] % (sizeof dtypes / sizeof *dtypes)];
    return (ckpi_block){.n = n, .width = ckpi_dtype_get(dtype)->part_bytes, .dtype = dtype, .cols = head[4]};
}

static void
decode(uint8_t id, const ckpi_block *b, const uint8_t *src, size_t len, ckpi_scratch *ws)
{
    uint8_t *first = malloc(b->n * b->width + 1), *other = malloc(b->n * b->width + 1);
    require(first != NULL && other != NULL);
    const ckp_status st = ckpi_codec_decode(id, b, src, len, first, ws, 0, NULL);
    require(st == CKP_OK || st == CKP_ECORRUPT || st == CKP_ETRUNCATED || st == CKP_EUNSUPPORTED);
    const uint32_t words[] = {ckpi_cpu() & (CKPI_CPU_AVX2 | CKPI_CPU_NEON), ckpi_cpu()};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        require(ckpi_codec_decode(id, b, src, len, other, ws, words[i], NULL) == st);
        require(st != CKP_OK || memcmp(first, other, b->n * b->width) == 0);
    }
    free(first);
    free(other);
}

static void
round_trip(const ckpi_block *like, const uint8_t *data, size_t bytes, ckpi_scratch *ws)
{
    ckpi_block b = *like;
    b.data = data;
    b.n = bytes / b.width;
    const size_t cap = ckpi_codec_pick_bound(&b);
    uint8_t *enc = malloc(cap), *back = malloc(bytes + 1), id = 0;
    size_t len = 0;
    bool used_base = false;
    require(enc != NULL && back != NULL);
    require(ckpi_codec_pick(&b, CKPI_EFFORT_FAST, enc, cap, &len, &id, &used_base, ws, ckpi_cpu(), NULL) == CKP_OK);
    require(len <= b.n * b.width + 64);
    b.data = NULL;
    if (!used_base)
        b.base = NULL;
    require(ckpi_codec_decode(id, &b, enc, len, back, ws, 0, NULL) == CKP_OK && memcmp(back, data, b.n * b.width) == 0);
    free(enc);
    free(back);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return 0;
    ckpi_block b = block_of(data, (size_t)data[2] << 4 | data[3] >> 4);
    ckpi_scratch *ws = ckpi_scratch_new();
    const uint8_t *payload = data + HEAD;
    const size_t len = size - HEAD, most = b.n * b.width > len ? b.n * b.width : len;
    uint8_t *base = malloc(most + 1);
    require(ws != NULL && base != NULL);
    for (size_t i = 0; i < most; i++) /* the payload again and again, changed a little */
        base[i] = len != 0 ? (uint8_t)(payload[i % len] + (i % 5 == 0)) : (uint8_t)i;
    if (data[5] & 1)
        b.base = base;
    decode(data[0], &b, payload, len, ws);
    round_trip(&b, payload, len, ws);
    free(base);
    ckpi_scratch_free(ws);
    return 0;
}
