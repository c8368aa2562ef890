/* SPDX-License-Identifier: Apache-2.0 */
/* Table, tree and index share one envelope: a 56-byte head that proves itself, then stored bytes. Private to the room. */
#ifndef CKPI_FORMAT_SECTION_H
#define CKPI_FORMAT_SECTION_H
#include "base/bytes.h"
#include "format/wire.h"

typedef struct ckpi_section {
    ckpi_coding coding;
    uint64_t stored_len, raw_len;
    uint64_t stored_hash;        /* XXH3-64 of the stored bytes */
    ckpi_id raw_id;              /* XXH3-128 of the unpacked bytes */
} ckpi_section;

typedef struct ckpi_bytes { const void *p; size_t n; } ckpi_bytes;

/* Writes a section, packed when that is smaller (against prefix, if there is one). *total counts what was written. */
CKP_MUST_USE ckp_status ckpi_section_write(ckpi_writer *w, const char magic[4], ckpi_bytes raw, ckpi_bytes prefix, uint64_t *total,
                                           ckp_error *err);
/* Writes the head alone of a section whose bytes lie elsewhere. */
CKP_MUST_USE ckp_status ckpi_section_write_ref(ckpi_writer *w, const char magic[4], ckpi_id raw_id, uint64_t *total, ckp_error *err);

/* Checks magic, own hash and numbers of the head that lies at off. */
CKP_MUST_USE ckp_status ckpi_section_parse(ckpi_section *sec, const uint8_t head[CKPI_WIRE_SECTION], const char magic[4], uint64_t max,
                                           uint64_t off, ckp_error *err);
/* The stored bytes that lie at off, checked against their hash. */
CKP_MUST_USE ckp_status ckpi_section_stored(const ckpi_section *sec, ckpi_reader *r, uint64_t off, ckpi_buf *stored, ckp_error *err);
/* Unpacks and checks against raw_id. Not for CKPI_CODING_REF. `what` names the section in errors. */
CKP_MUST_USE ckp_status ckpi_section_unpack(const ckpi_section *sec, const ckpi_buf *stored, ckpi_bytes prefix, ckpi_buf *raw,
                                            const char *what, ckp_error *err);

/* n bytes at off into buf (cleared first). Memory grows with what has really been read: a length costs its bytes. */
CKP_MUST_USE ckp_status ckpi_read_paid(ckpi_reader *r, uint64_t off, uint64_t n, ckpi_buf *buf, ckp_error *err);

static inline ckpi_id
ckpi_rd_id(const uint8_t *p)
{
    return (ckpi_id){.lo = ckpi_ld64(p), .hi = ckpi_ld64(p + 8)};
}

static inline void
ckpi_st_id(uint8_t *p, ckpi_id id)
{
    ckpi_st64(p, id.lo);
    ckpi_st64(p + 8, id.hi);
}
#endif
