/* SPDX-License-Identifier: Apache-2.0 */
#include "format/section.h"
#include <string.h>
#include "base/fail.h"
#include "format/zpack.h"

/* ---- writing ---- */

static void
encode_head(uint8_t head[CKPI_WIRE_SECTION], const char magic[4], const ckpi_section *sec)
{
    memset(head, 0, CKPI_WIRE_SECTION);
    memcpy(head, magic, 4);
    head[4] = (uint8_t)sec->coding;
    ckpi_st64(head + 8, sec->stored_len);
    ckpi_st64(head + 16, sec->raw_len);
    ckpi_st64(head + 24, sec->stored_hash);
    ckpi_st_id(head + 32, sec->raw_id);
    ckpi_st64(head + 48, ckpi_hash64(head, 48));
}

static ckp_status
write_both(ckpi_writer *w, const char magic[4], const ckpi_section *sec, const void *stored, uint64_t *total, ckp_error *err)
{
    uint8_t head[CKPI_WIRE_SECTION];
    encode_head(head, magic, sec);
    ckp_status st = ckpi_writer_put(w, head, sizeof head, err);
    if (st == CKP_OK && sec->stored_len != 0)
        st = ckpi_writer_put(w, stored, (size_t)sec->stored_len, err);
    *total += sizeof head + sec->stored_len;
    return st;
}

ckp_status
ckpi_section_write(ckpi_writer *w, const char magic[4], ckpi_bytes raw, ckpi_bytes prefix, uint64_t *total, ckp_error *err)
{
    ckpi_buf packed = CKPI_BUF_INIT;
    ckpi_section sec = {.raw_len = raw.n, .raw_id = ckpi_hash128(raw.p, raw.n)};
    ckpi_bytes stored = raw;
    ckp_status st = ckpi_zpack(&packed, raw.p, raw.n, prefix.p, prefix.n, err);
    if (st != CKP_OK)
        goto done;
    sec.coding = CKPI_CODING_RAW;
    if (packed.len < raw.n && raw.n <= ckpi_zpack_most(packed.len, prefix.n)) {
        sec.coding = prefix.n != 0 ? CKPI_CODING_ZSTD_PREFIX : CKPI_CODING_ZSTD;
        stored = (ckpi_bytes){packed.data, packed.len};
    }
    sec.stored_len = stored.n;
    sec.stored_hash = ckpi_hash64(stored.p, stored.n);
    st = write_both(w, magic, &sec, stored.p, total, err);
done:
    ckpi_buf_free(&packed);
    return st;
}

ckp_status
ckpi_section_write_ref(ckpi_writer *w, const char magic[4], ckpi_id raw_id, uint64_t *total, ckp_error *err)
{
    const ckpi_section sec = {.coding = CKPI_CODING_REF, .stored_hash = ckpi_hash64(NULL, 0), .raw_id = raw_id};
    return write_both(w, magic, &sec, NULL, total, err);
}

/* ---- reading ---- */

ckp_status
ckpi_section_parse(ckpi_section *sec, const uint8_t head[CKPI_WIRE_SECTION], const char magic[4], uint64_t max, uint64_t off,
                   ckp_error *err)
{
    const char *name = magic + 1;
    if (memcmp(head, magic, 4) != 0)
        return ckpi_fail_at(err, CKP_ECORRUPT, off, "expected the head of section %.3s", name);
    if (ckpi_ld64(head + 48) != ckpi_hash64(head, 48))
        return ckpi_fail_at(err, CKP_ECORRUPT, off, "head of section %.3s: expected hash %016llx, found %016llx", name,
                            (unsigned long long)ckpi_hash64(head, 48), (unsigned long long)ckpi_ld64(head + 48));
    *sec = (ckpi_section){.coding = (ckpi_coding)head[4], .stored_len = ckpi_ld64(head + 8), .raw_len = ckpi_ld64(head + 16),
                          .stored_hash = ckpi_ld64(head + 24), .raw_id = ckpi_rd_id(head + 32)};
    if (head[4] > CKPI_CODING_ZSTD_PREFIX || (head[5] | head[6] | head[7]) != 0)
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, off, "section %.3s: coding %u, which this version does not know", name, head[4]);
    if (sec->raw_len > max || sec->stored_len > max)
        return ckpi_fail_at(err, CKP_ELIMIT, off, "section %.3s: %llu bytes, stored as %llu; the limit is %llu", name,
                            (unsigned long long)sec->raw_len, (unsigned long long)sec->stored_len, (unsigned long long)max);
    return CKP_OK;
}

ckp_status
ckpi_read_paid(ckpi_reader *r, uint64_t off, uint64_t n, ckpi_buf *buf, ckp_error *err)
{
    ckpi_buf_clear(buf);
    while (buf->len < n) {
        const uint64_t step = CKPI_MIN(n - buf->len, CKPI_MAX((uint64_t)buf->len, (uint64_t)65536));
        const size_t before = buf->len;
        uint8_t *p = ckpi_buf_extend(buf, (size_t)step);
        if (p == NULL)
            return ckpi_buf_status(buf, err, "read");
        const ckp_status st = ckpi_reader_read(r, off + before, p, (size_t)step, err);
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

ckp_status
ckpi_section_stored(const ckpi_section *sec, ckpi_reader *r, uint64_t off, ckpi_buf *stored, ckp_error *err)
{
    const ckp_status st = ckpi_read_paid(r, off, sec->stored_len, stored, err);
    if (st != CKP_OK)
        return st;
    const uint64_t found = ckpi_hash64(stored->data, stored->len);
    if (found != sec->stored_hash)
        return ckpi_fail_at(err, CKP_ECORRUPT, off, "%zu stored bytes: expected hash %016llx, found %016llx", stored->len,
                            (unsigned long long)sec->stored_hash, (unsigned long long)found);
    return CKP_OK;
}

ckp_status
ckpi_section_unpack(const ckpi_section *sec, const ckpi_buf *stored, ckpi_bytes prefix, ckpi_buf *raw, const char *what, ckp_error *err)
{
    ckpi_buf_clear(raw);
    if (sec->coding == CKPI_CODING_RAW) {
        if (sec->raw_len != stored->len)
            return ckpi_fail(err, CKP_ECORRUPT, "%s: %zu raw bytes where %llu were announced", what, stored->len,
                             (unsigned long long)sec->raw_len);
        ckpi_buf_put(raw, stored->data, stored->len);
        const ckp_status st = ckpi_buf_status(raw, err, what);
        if (st != CKP_OK)
            return st;
    } else {
        const bool prefixed = sec->coding == CKPI_CODING_ZSTD_PREFIX;
        if (sec->raw_len > ckpi_zpack_most(stored->len, prefixed ? prefix.n : 0))
            return ckpi_fail(err, CKP_ECORRUPT, "%s: %zu bytes cannot unpack to %llu", what, stored->len, (unsigned long long)sec->raw_len);
        const ckp_status st = ckpi_zunpack(raw, (size_t)sec->raw_len, stored->data, stored->len, prefixed ? prefix.p : NULL,
                                           prefixed ? prefix.n : 0, err);
        if (st != CKP_OK)
            return st;
    }
    if (!ckpi_id_eq(ckpi_hash128(raw->data, raw->len), sec->raw_id))
        return ckpi_fail(err, CKP_ECORRUPT, "%s: its bytes do not have the id that its head names", what);
    return CKP_OK;
}
