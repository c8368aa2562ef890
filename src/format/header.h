/* SPDX-License-Identifier: Apache-2.0 */
/* Header and trailer: the two fixed records at the ends of a file. Private to the room. */
#ifndef CKPI_FORMAT_HEADER_H
#define CKPI_FORMAT_HEADER_H
#include "format/wire.h"

/* *hash: the header's own, which the index repeats. */
void ckpi_header_encode(uint8_t out[CKPI_WIRE_HEADER], const ckpi_file_info *info, uint64_t *hash);
/*
 * CKP_EFORMAT: no .ckp file; CKP_ECORRUPT: hash or numbers; CKP_EVERSION: a newer major version; CKP_EUNSUPPORTED: names the feature bit.
 */
CKP_MUST_USE ckp_status ckpi_header_parse(ckpi_file_info *info, const uint8_t in[CKPI_WIRE_HEADER], uint64_t *hash, ckp_error *err);

typedef struct ckpi_trailer {
    uint64_t index_offset, index_len;    /* of the index section, head included */
    ckpi_id index_id, content;
    uint64_t length;                     /* of the file */
} ckpi_trailer;
void ckpi_trailer_encode(uint8_t out[CKPI_WIRE_TRAILER], const ckpi_trailer *t);
/* off: where it lies, which must agree with what it says. CKP_ETRUNCATED: this is no trailer at all. */
CKP_MUST_USE ckp_status ckpi_trailer_parse(ckpi_trailer *t, const uint8_t in[CKPI_WIRE_TRAILER], uint64_t off, ckp_error *err);
#endif
