/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of frames: what a chunk holds and how it is coded. The index repeats them word for word. Private to the room. */
#ifndef CKPI_FORMAT_FRAME_H
#define CKPI_FORMAT_FRAME_H
#include "base/cursor.h"
#include "format/wire.h"

typedef struct ckpi_pieces { ckpi_piece *at; size_t n, cap; } ckpi_pieces;    /* zero-initialised is empty */
bool ckpi_pieces_add(ckpi_pieces *p, ckpi_piece piece);
void ckpi_pieces_free(ckpi_pieces *p);

/* What the pieces of one chunk must obey; NULL when they do. Sets *n to their elements. */
const char *ckpi_frame_fault(const ckpi_chunk *c, const ckpi_piece *piece, size_t n_pieces, const ckpi_table *t, const ckpi_file_info *info,
                             uint64_t *n);

/* Appends the head (without prefix and hash). */
void ckpi_frame_put(ckpi_buf *b, const ckpi_chunk *c, const ckpi_table *t);
/*
 * Reads a head that fills the cursor's bytes. With a table the pieces are appended to *pieces and checked (c->n_pieces of them; c->piece is the
 * caller's to set, as the array may move); without one, pieces are skipped and c->n_pieces and c->n stay 0.
 * Everything in *c but places and pointers is set.
 */
CKP_MUST_USE ckp_status ckpi_frame_get(ckpi_rd *rd, ckpi_chunk *c, const ckpi_table *t, const ckpi_file_info *info, ckpi_pieces *pieces,
                                       ckp_error *err);
static inline uint64_t
ckpi_frame_body(const ckpi_chunk *c)
{
    return (uint64_t)c->params_len + c->escapes_len + c->payload_len;
}
#endif
