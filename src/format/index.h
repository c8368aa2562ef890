/* SPDX-License-Identifier: Apache-2.0 */
/* What the index says: a fingerprint of the front of the file, the heads of all frames, error records. Private to the room. */
#ifndef CKPI_FORMAT_INDEX_H
#define CKPI_FORMAT_INDEX_H
#include "base/cursor.h"
#include "format/wire.h"

/* The front of the file that the index belongs to. Its hash in trailer and manifest thus pins every byte of the file. */
typedef struct ckpi_front { uint64_t header_hash; ckpi_id table, tree; } ckpi_front;

/* heads: for each frame varint length, head. */
void ckpi_index_put(ckpi_buf *b, const ckpi_front *front, size_t n_chunks, const ckpi_buf *heads);
/* Bytes that ckpi_index_put writes for the same arguments match the cursor's next ones. */
bool ckpi_index_matches(ckpi_rd *rd, const ckpi_front *front, size_t n_chunks, const ckpi_buf *heads);
/* Checks the front and leaves the cursor at the first head. */
size_t ckpi_index_begin(ckpi_rd *rd, const ckpi_front *front, uint64_t most_chunks);

/* Sorted by tensor, none twice: else CKP_EINVAL. The two errors are rounded up to bf16: never told smaller than they are. */
CKP_MUST_USE ckp_status ckpi_errrecs_put(ckpi_buf *b, const ckpi_errrec *e, size_t n, size_t n_tensors, ckp_error *err);
/* *out is malloc'd (NULL when there are none). n_tensors: rows of the table, or CKPI_MAX_TENSORS while it is not known. */
CKP_MUST_USE ckp_status ckpi_errrecs_get(ckpi_rd *rd, ckpi_errrec **out, size_t *n, size_t n_tensors, ckp_error *err);
#endif
