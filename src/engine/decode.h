/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks back to elements. A unit is what must be decoded together: one lossless chunk, or the chunks of one group's weights and
 * moments. Decoding replays the unit's lineage from its deepest needed level up to level 0; units are independent of each other.
 */
#ifndef CKPI_ENGINE_DECODE_H
#define CKPI_ENGINE_DECODE_H
#include "engine/lineage.h"
#include "engine/pred.h"

#define CKPI_NO_CHUNK UINT32_MAX

typedef struct ckpi_unit {
    uint32_t w, m, v;            /* chunks of level 0, or CKPI_NO_CHUNK. A lossless chunk alone stands in w, whatever its role */
} ckpi_unit;

/* Units in the order of their first chunk in the file. *out is freed by free(). */
CKP_MUST_USE ckp_status ckpi_units(const ckpi_lineage *c, ckpi_unit **out, size_t *n, ckp_error *err);

/* Which elements are wanted of a unit's chunks. */
#define CKPI_WANT_W 1u
#define CKPI_WANT_M 2u
#define CKPI_WANT_V 4u

/* Gets a decoded chunk: its elements one after another, in the output dtype. Called once for each wanted chunk. */
typedef ckp_status (*ckpi_sink_fn)(void *user, const ckpi_chunk *c, const void *bytes, ckp_error *err);

/*
 * Decodes a unit and checks the decoded hashes of level 0. sink may be NULL: proof only. Errors name file, tensor and offset.
 */
CKP_MUST_USE ckp_status ckpi_decode_unit(const ckpi_lineage *c, const ckpi_unit *u, unsigned want, ckpi_sink_fn sink, void *user,
                                         ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* The reconstruction that a save after this checkpoint predicts from: of group g, whose pieces equal the unit's. */
CKP_MUST_USE ckp_status ckpi_decode_into_pred(const ckpi_lineage *c, const ckpi_unit *u, ckpi_pred *pred, size_t g, bool keep_raw, ckpi_scratch *ws,
                                              uint32_t cpu, ckp_error *err);
/* A chunk alone, as it comes from a pipe: lossless and without base only. */
CKP_MUST_USE ckp_status ckpi_decode_plain(const ckpi_table *t, const ckpi_chunk *c, const void *base, void *dst, ckpi_scratch *ws, uint32_t cpu,
                                          ckp_error *err);
/* Bytes of a chunk's elements. */
uint64_t ckpi_chunk_bytes(const ckpi_table *t, const ckpi_chunk *c);
#endif
