/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "base/cursor.h"
#include "base/fail.h"
#include "base/float.h"

ckpi_rd
ckpi_rd_init(const void *data, size_t len, uint64_t file_offset)
{
    return (ckpi_rd){.data = data, .len = len, .file_offset = file_offset};
}

void
ckpi_rd_fail(ckpi_rd *r, const char *why)
{
    if (r->bad)
        return;   /* the first failure is the one to report */
    r->bad = true;
    r->why = why;
}

/* The next n bytes, or NULL. Every read goes through here. */
static const uint8_t *
take(ckpi_rd *r, size_t n, const char *why)
{
    if (r->bad)
        return NULL;
    if (n > r->len - r->pos) {
        ckpi_rd_fail(r, why);
        return NULL;
    }
    const uint8_t *p = r->data + r->pos;
    r->pos += n;
    return p;
}

uint8_t
ckpi_rd_u8(ckpi_rd *r)
{
    const uint8_t *p = take(r, 1, "a byte");
    return p != NULL ? *p : 0;
}

uint16_t
ckpi_rd_u16(ckpi_rd *r)
{
    const uint8_t *p = take(r, 2, "2 bytes");
    return p != NULL ? ckpi_ld16(p) : 0;
}

uint32_t
ckpi_rd_u32(ckpi_rd *r)
{
    const uint8_t *p = take(r, 4, "4 bytes");
    return p != NULL ? ckpi_ld32(p) : 0;
}

uint64_t
ckpi_rd_u64(ckpi_rd *r)
{
    const uint8_t *p = take(r, 8, "8 bytes");
    return p != NULL ? ckpi_ld64(p) : 0;
}

float
ckpi_rd_f32(ckpi_rd *r)
{
    return ckpi_f32_from_bits(ckpi_rd_u32(r));
}

double
ckpi_rd_f64(ckpi_rd *r)
{
    const uint64_t bits = ckpi_rd_u64(r);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

uint64_t
ckpi_rd_varint(ckpi_rd *r, uint64_t max)
{
    const size_t start = r->pos;
    uint64_t v = 0;
    const char *why = "a varint of at most 64 bits";
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t *p = take(r, 1, "a varint");
        if (p == NULL)
            break;
        const uint64_t part = *p & 0x7f;
        if (part << shift >> shift != part)
            break;
        v |= part << shift;
        if ((*p & 0x80) != 0)
            continue;
        /* One value, one encoding: a last byte of zero could have been left out. */
        if (part == 0 && shift != 0) {
            why = "a varint in its shortest form";
            break;
        }
        if (v > max) {
            why = "a smaller number";
            break;
        }
        return v;
    }
    if (!r->bad)
        ckpi_rd_fail(r, why);
    r->pos = start;
    return 0;
}

const uint8_t *
ckpi_rd_bytes(ckpi_rd *r, size_t n)
{
    return n != 0 ? take(r, n, "more bytes") : NULL;
}

const uint8_t *
ckpi_rd_str(ckpi_rd *r, size_t max, size_t *n)
{
    const size_t start = r->pos;
    *n = 0;
    const size_t len = (size_t)ckpi_rd_varint(r, max);
    const uint8_t *p = take(r, len, "a string as long as it says");
    if (p == NULL) {
        r->pos = start;
        return NULL;
    }
    *n = len;
    return p;
}

size_t
ckpi_rd_left(const ckpi_rd *r)
{
    return r->bad ? 0 : r->len - r->pos;
}

bool
ckpi_rd_ok(const ckpi_rd *r)
{
    return !r->bad;
}

bool
ckpi_rd_done(const ckpi_rd *r)
{
    return !r->bad && r->pos == r->len;
}

ckp_status
ckpi_rd_error(const ckpi_rd *r, ckp_error *err, const char *record)
{
    return ckpi_fail_at(err, CKP_ECORRUPT, r->file_offset + r->pos, "%s: expected %s, %zu bytes left of %zu", record,
                        r->why != NULL ? r->why : "the end", r->len - r->pos, r->len);
}
