/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded, sticky reader: after the first bad read every read gives 0 and the position stays; check once at the end. */
#ifndef CKPI_BASE_CURSOR_H
#define CKPI_BASE_CURSOR_H
#include <stdbool.h>
#include <ckpress/base.h>

typedef struct ckpi_rd {
    const uint8_t *data;
    size_t len;
    size_t pos;
    uint64_t file_offset;  /* of data[0], for error messages */
    bool bad;
    const char *why;       /* what the failing read wanted */
} ckpi_rd;

ckpi_rd ckpi_rd_init(const void *data, size_t len, uint64_t file_offset);
uint8_t ckpi_rd_u8(ckpi_rd *r);
uint16_t ckpi_rd_u16(ckpi_rd *r);
uint32_t ckpi_rd_u32(ckpi_rd *r);
uint64_t ckpi_rd_u64(ckpi_rd *r);
float ckpi_rd_f32(ckpi_rd *r);
double ckpi_rd_f64(ckpi_rd *r);
/* LEB128; over-long encodings and values beyond 64 bits are bad; a value above max is bad. */
uint64_t ckpi_rd_varint(ckpi_rd *r, uint64_t max);
/* n bytes in place, NULL when bad or n is 0 */
const uint8_t *ckpi_rd_bytes(ckpi_rd *r, size_t n);
/* varint length (at most max), then that many bytes in place */
const uint8_t *ckpi_rd_str(ckpi_rd *r, size_t max, size_t *n);
size_t ckpi_rd_left(const ckpi_rd *r);
void ckpi_rd_fail(ckpi_rd *r, const char *why);        /* mark bad from outside */
bool ckpi_rd_ok(const ckpi_rd *r);
bool ckpi_rd_done(const ckpi_rd *r);                   /* ok and nothing left */
/* CKP_ECORRUPT with offset and what was wanted */
ckp_status ckpi_rd_error(const ckpi_rd *r, ckp_error *err, const char *record);
#endif
