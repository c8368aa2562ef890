/* SPDX-License-Identifier: Apache-2.0 */
/* Whether chunks hold every element once, and the identity of what they hold. Private to the room. */
#ifndef CKPI_FORMAT_COVER_H
#define CKPI_FORMAT_COVER_H
#include "format/format.h"

typedef struct ckpi_span { uint32_t tensor; uint64_t first, count, hash; } ckpi_span;
typedef struct ckpi_cover { ckpi_span *at; size_t n, cap; } ckpi_cover;      /* zero-initialised is empty */

void ckpi_cover_free(ckpi_cover *c);
/* Notes a chunk's pieces. False on lack of memory. */
bool ckpi_cover_add(ckpi_cover *c, const ckpi_piece *piece, size_t n, uint64_t decoded_hash);
/*
 * After the last chunk: CKP_ECORRUPT names the tensor with a gap or an overlap. *content: XXH3-128 over, for every piece in order of (tensor, first),
 * varint name length, name, u64 first, u64 count, u64 decoded hash of its chunk.
 */
CKP_MUST_USE ckp_status ckpi_cover_check(ckpi_cover *c, const ckpi_table *t, ckpi_id *content, ckp_error *err);
#endif
