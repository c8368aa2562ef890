/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include <stdlib.h>

void
ckpi_buf_free(ckpi_buf *b)
{
    if (b == NULL)
        return;
    free(b->data);
    *b = (ckpi_buf){.max = b->max};
}

void
ckpi_buf_fit(ckpi_buf *b)
{
    uint8_t *data = b->len != 0 ? ckpi_realloc(b->data, b->len, 1) : NULL;

    if (data != NULL) {
        b->data = data;
        b->cap = b->len;
    } else if (b->len == 0) {
        free(b->data);
        b->data = NULL;
        b->cap = 0;
    }
}

void
ckpi_buf_clear(ckpi_buf *b)
{
    b->len = 0;
    b->failed = CKP_OK;
}

bool
ckpi_buf_reserve(ckpi_buf *b, size_t extra)
{
    if (b->failed != CKP_OK)
        return false;
    const size_t limit = b->max != 0 ? b->max : SIZE_MAX / 2;
    if (b->len > limit || extra > limit - b->len) {
        b->failed = CKP_ELIMIT;
        return false;
    }
    const size_t need = b->len + extra;
    if (need <= b->cap)
        return true;
    /* Grow by half, from 256 bytes up, but never past the cap. */
    size_t cap = CKPI_MAX(b->cap + b->cap / 2, (size_t)256);
    cap = CKPI_MIN(CKPI_MAX(cap, need), limit);
    uint8_t *data = ckpi_realloc(b->data, cap, 1);
    if (data == NULL) {
        b->failed = CKP_ENOMEM;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

uint8_t *
ckpi_buf_extend(ckpi_buf *b, size_t n)
{
    /* An empty extension still gives a place to point at. */
    if (!ckpi_buf_reserve(b, n) || (b->data == NULL && !ckpi_buf_reserve(b, 1)))
        return NULL;
    uint8_t *place = b->data + b->len;
    b->len += n;
    return place;
}

void
ckpi_buf_put(ckpi_buf *b, const void *p, size_t n)
{
    if (n == 0)
        return;
    uint8_t *place = ckpi_buf_extend(b, n);
    if (place != NULL)
        memcpy(place, p, n);
}

void
ckpi_buf_u8(ckpi_buf *b, uint8_t v)
{
    ckpi_buf_put(b, &v, 1);
}

void
ckpi_buf_u16(ckpi_buf *b, uint16_t v)
{
    uint8_t *place = ckpi_buf_extend(b, 2);
    if (place != NULL)
        ckpi_st16(place, v);
}

void
ckpi_buf_u32(ckpi_buf *b, uint32_t v)
{
    uint8_t *place = ckpi_buf_extend(b, 4);
    if (place != NULL)
        ckpi_st32(place, v);
}

void
ckpi_buf_u64(ckpi_buf *b, uint64_t v)
{
    uint8_t *place = ckpi_buf_extend(b, 8);
    if (place != NULL)
        ckpi_st64(place, v);
}

void
ckpi_buf_varint(ckpi_buf *b, uint64_t v)
{
    uint8_t bytes[10];
    size_t n = 0;
    while (v >= 0x80) {
        bytes[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    bytes[n++] = (uint8_t)v;
    ckpi_buf_put(b, bytes, n);
}

void
ckpi_buf_f32(ckpi_buf *b, float v)
{
    ckpi_buf_u32(b, ckpi_f32_bits(v));
}

void
ckpi_buf_f64(ckpi_buf *b, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    ckpi_buf_u64(b, bits);
}

void
ckpi_buf_str(ckpi_buf *b, const void *p, size_t n)
{
    ckpi_buf_varint(b, n);
    ckpi_buf_put(b, p, n);
}

ckp_status
ckpi_buf_status(const ckpi_buf *b, ckp_error *err, const char *what)
{
    if (b->failed == CKP_ELIMIT)
        return ckpi_fail(err, CKP_ELIMIT, "%s: more than %zu bytes", what, b->max != 0 ? b->max : SIZE_MAX / 2);
    if (b->failed != CKP_OK)
        return ckpi_fail(err, b->failed, "%s: out of memory at %zu bytes", what, b->len);
    return CKP_OK;
}
