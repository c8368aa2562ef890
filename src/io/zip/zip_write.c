/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An archive that torch's reader takes: version, flags and descriptors as miniz writes them there. Sizes of 4 GiB and more, and offsets
 * beyond, are Zip64: in the directory entry's extra field, in a 24-byte descriptor and in the end records.
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/crc32.h"
#include "io/zip/zip.h"

#define ALIGNMENT 64u
#define VERSION 45u          /* needed to extract: Zip64 */
#define FLAGS (CKPI_ZIP_FLAG_DESCRIPTOR | CKPI_ZIP_FLAG_UTF8)
/* 1980-01-01: the same bytes on every day. */
#define DOS_DATE 0x0021u

struct ckpi_zip_writer {
    ckpi_writer *w;
    ckpi_buf dir;            /* directory entries, as they will be written */
    uint64_t n;
    uint64_t start;          /* of the archive in w */
    uint64_t header;         /* of the entry being written */
    uint64_t size, put;
    uint32_t crc;
    char *name;
    ckpi_crc table;
};

ckp_status
ckpi_zip_writer_new(ckpi_zip_writer **out, ckpi_writer *w, ckp_error *err)
{
    ckpi_zip_writer *z = ckpi_calloc(1, sizeof *z);
    *out = z;
    if (z == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "zip: out of memory");
    z->w = w;
    z->start = ckpi_writer_pos(w);
    ckpi_crc_init(&z->table);
    return CKP_OK;
}

static uint64_t
pos(const ckpi_zip_writer *z)
{
    return ckpi_writer_pos(z->w) - z->start;
}

static uint32_t
narrow(uint64_t v)
{
    return v >= UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

static void
zip64_extra(ckpi_buf *b, uint64_t size, uint64_t header, bool both_sizes)
{
    const bool wide_size = size >= UINT32_MAX || both_sizes, wide_header = header >= UINT32_MAX;
    ckpi_buf_u16(b, CKPI_ZIP_EXTRA64);
    ckpi_buf_u16(b, (uint16_t)((wide_size ? 16 : 0) + (wide_header ? 8 : 0)));
    if (wide_size) {
        ckpi_buf_u64(b, size);
        ckpi_buf_u64(b, size);
    }
    if (wide_header)
        ckpi_buf_u64(b, header);
}

/* The local header, padded so that what follows it lies on a multiple of ALIGNMENT. Sizes and CRC stand behind the data. */
static void
local_header(ckpi_buf *b, const char *name, uint64_t at, bool wide)
{
    const size_t len = strlen(name), wide_len = wide ? 20 : 0;
    const uint64_t data = at + CKPI_ZIP_LOCAL_LEN + len + wide_len + 4;
    const size_t pad = (size_t)((ALIGNMENT - data % ALIGNMENT) % ALIGNMENT);
    ckpi_buf_u32(b, CKPI_ZIP_LOCAL);
    ckpi_buf_u16(b, wide ? VERSION : 0);
    ckpi_buf_u16(b, FLAGS);
    ckpi_buf_u16(b, 0);                       /* stored */
    ckpi_buf_u16(b, 0);
    ckpi_buf_u16(b, DOS_DATE);
    ckpi_buf_u32(b, 0);
    ckpi_buf_u32(b, wide ? UINT32_MAX : 0);
    ckpi_buf_u32(b, wide ? UINT32_MAX : 0);
    ckpi_buf_u16(b, (uint16_t)len);
    ckpi_buf_u16(b, (uint16_t)(wide_len + 4 + pad));
    ckpi_buf_put(b, name, len);
    if (wide)
        zip64_extra(b, 0, 0, true);           /* marks the descriptor as one of 64-bit sizes */
    ckpi_buf_put(b, "FB", 2);
    ckpi_buf_u16(b, (uint16_t)pad);
    for (size_t i = 0; i < pad; i++)
        ckpi_buf_u8(b, 'Z');
}

ckp_status
ckpi_zip_begin(ckpi_zip_writer *z, const char *name, uint64_t size, ckp_error *err)
{
    ckpi_buf b = CKPI_BUF_INIT;
    ckp_status st = ckpi_path_ok(name, err);
    if (st != CKP_OK)
        return st;
    free(z->name);
    z->name = ckpi_strdup(name);
    if (z->name == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "zip: out of memory");
    z->header = pos(z);
    z->size = size;
    z->put = 0;
    z->crc = 0;
    local_header(&b, name, z->header, size >= UINT32_MAX);
    st = ckpi_buf_status(&b, err, "zip header");
    if (st == CKP_OK)
        st = ckpi_writer_put(z->w, b.data, b.len, err);
    ckpi_buf_free(&b);
    return st;
}

ckp_status
ckpi_zip_put(ckpi_zip_writer *z, const void *p, size_t n, ckp_error *err)
{
    if (n > z->size - z->put)
        return ckpi_fail(err, CKP_EINTERNAL, "zip: more bytes than entry '%s' was begun with", z->name);
    z->crc = ckpi_crc_add(&z->table, z->crc, p, n);
    z->put += n;
    return ckpi_writer_put(z->w, p, n, err);
}

static void
descriptor(ckpi_buf *b, const ckpi_zip_writer *z)
{
    ckpi_buf_u32(b, CKPI_ZIP_DESCRIPTOR);
    ckpi_buf_u32(b, z->crc);
    if (z->size >= UINT32_MAX) {
        ckpi_buf_u64(b, z->size);
        ckpi_buf_u64(b, z->size);
    } else {
        ckpi_buf_u32(b, (uint32_t)z->size);
        ckpi_buf_u32(b, (uint32_t)z->size);
    }
}

static void
dir_entry(ckpi_zip_writer *z)
{
    ckpi_buf *b = &z->dir;
    const bool wide = z->size >= UINT32_MAX || z->header >= UINT32_MAX;
    const size_t extra = !wide ? 0 : 4u + (z->size >= UINT32_MAX ? 16u : 0u) + (z->header >= UINT32_MAX ? 8u : 0u);
    ckpi_buf_u32(b, CKPI_ZIP_DIR);
    ckpi_buf_u16(b, 0);                       /* made by */
    ckpi_buf_u16(b, wide ? VERSION : 0);
    ckpi_buf_u16(b, FLAGS);
    ckpi_buf_u16(b, 0);
    ckpi_buf_u16(b, 0);
    ckpi_buf_u16(b, DOS_DATE);
    ckpi_buf_u32(b, z->crc);
    ckpi_buf_u32(b, narrow(z->size));
    ckpi_buf_u32(b, narrow(z->size));
    ckpi_buf_u16(b, (uint16_t)strlen(z->name));
    ckpi_buf_u16(b, (uint16_t)extra);
    ckpi_buf_u16(b, 0);                       /* comment */
    ckpi_buf_u16(b, 0);                       /* part */
    ckpi_buf_u16(b, 0);
    ckpi_buf_u32(b, 0);
    ckpi_buf_u32(b, narrow(z->header));
    ckpi_buf_put(b, z->name, strlen(z->name));
    if (wide)
        zip64_extra(b, z->size, z->header, false);
    z->n++;
}

ckp_status
ckpi_zip_end(ckpi_zip_writer *z, ckp_error *err)
{
    ckpi_buf b = CKPI_BUF_INIT;
    if (z->put != z->size)
        return ckpi_fail(err, CKP_EINTERNAL, "zip: entry '%s' is not complete", z->name);
    descriptor(&b, z);
    dir_entry(z);
    ckp_status st = ckpi_buf_status(&b, err, "zip descriptor");
    if (st == CKP_OK)
        st = ckpi_buf_status(&z->dir, err, "zip directory");
    if (st == CKP_OK)
        st = ckpi_writer_put(z->w, b.data, b.len, err);
    ckpi_buf_free(&b);
    return st;
}

ckp_status
ckpi_zip_add(ckpi_zip_writer *z, const char *name, const void *p, size_t n, ckp_error *err)
{
    ckp_status st = ckpi_zip_begin(z, name, n, err);
    if (st == CKP_OK)
        st = ckpi_zip_put(z, p, n, err);
    return st == CKP_OK ? ckpi_zip_end(z, err) : st;
}

static void
end_records(ckpi_buf *b, const ckpi_zip_writer *z, uint64_t dir)
{
    const bool wide = z->n >= UINT16_MAX || dir >= UINT32_MAX || z->dir.len >= UINT32_MAX;
    if (wide) {
        const uint64_t at = dir + z->dir.len;
        ckpi_buf_u32(b, CKPI_ZIP_END64);
        ckpi_buf_u64(b, CKPI_ZIP_END64_LEN - 12);
        ckpi_buf_u16(b, VERSION);
        ckpi_buf_u16(b, VERSION);
        ckpi_buf_u32(b, 0);
        ckpi_buf_u32(b, 0);
        ckpi_buf_u64(b, z->n);
        ckpi_buf_u64(b, z->n);
        ckpi_buf_u64(b, z->dir.len);
        ckpi_buf_u64(b, dir);
        ckpi_buf_u32(b, CKPI_ZIP_LOCATOR);
        ckpi_buf_u32(b, 0);
        ckpi_buf_u64(b, at);
        ckpi_buf_u32(b, 1);
    }
    ckpi_buf_u32(b, CKPI_ZIP_END);
    ckpi_buf_u32(b, 0);
    ckpi_buf_u16(b, z->n >= UINT16_MAX ? UINT16_MAX : (uint16_t)z->n);
    ckpi_buf_u16(b, z->n >= UINT16_MAX ? UINT16_MAX : (uint16_t)z->n);
    ckpi_buf_u32(b, narrow(z->dir.len));
    ckpi_buf_u32(b, narrow(dir));
    ckpi_buf_u16(b, 0);
}

ckp_status
ckpi_zip_finish(ckpi_zip_writer *z, ckp_error *err)
{
    ckpi_buf b = CKPI_BUF_INIT;
    end_records(&b, z, pos(z));
    ckp_status st = ckpi_buf_status(&b, err, "zip end");
    if (st == CKP_OK)
        st = ckpi_writer_put(z->w, z->dir.data, z->dir.len, err);
    if (st == CKP_OK)
        st = ckpi_writer_put(z->w, b.data, b.len, err);
    ckpi_buf_free(&b);
    return st;
}

void
ckpi_zip_writer_free(ckpi_zip_writer *z)
{
    if (z == NULL)
        return;
    ckpi_buf_free(&z->dir);
    free(z->name);
    free(z);
}
