/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lineage: a checkpoint's file and the files behind it down to a key, resolved against each other. Level 0 is the checkpoint itself,
 * level i + 1 the base of level i. Chunks that predict from the base name the same pieces one level down.
 */
#ifndef CKPI_ENGINE_LINEAGE_H
#define CKPI_ENGINE_LINEAGE_H
#include "engine/layout.h"

/* Finds the chunk that has a given piece. before: elements of the pieces before it there. */
typedef struct ckpi_chunk_key { uint32_t tensor; uint64_t first; uint32_t chunk; uint32_t piece; uint64_t before; } ckpi_chunk_key;

typedef struct ckpi_level {
    ckpi_fmt_file *f;            /* owned */
    ckpi_chunk_key *key;         /* sorted by tensor, first: every piece of every chunk */
    size_t n_keys;
} ckpi_level;

typedef struct ckpi_lineage {
    ckpi_level *level;
    size_t n;
    const ckpi_table *table;     /* of level 0 */
} ckpi_lineage;

/*
 * Takes the opened files (n of them, any order but files[0] first), also on failure. Orders them by content id, resolves tables, checks
 * that each base is the one named (CKP_EBASE names both ids), and that every chunk that uses a base finds its like there.
 */
CKP_MUST_USE ckp_status ckpi_lineage_new(ckpi_lineage **out, ckpi_fmt_file **files, size_t n, ckp_error *err);
/*
 * Level 0 alone, whose bases are not there: for what a file says of itself. Takes f, whose table is known, also on failure. Chunks that use a base
 * cannot be decoded.
 */
CKP_MUST_USE ckp_status ckpi_lineage_alone(ckpi_lineage **out, ckpi_fmt_file *f, ckp_error *err);
void ckpi_lineage_free(ckpi_lineage *c);
/* The key of the piece of `tensor` that holds element `elem` at a level; NULL when the tensor has none there. */
const ckpi_chunk_key *ckpi_lineage_find(const ckpi_lineage *c, size_t level, uint32_t tensor, uint64_t elem);
/* The keys of a tensor's pieces at a level, in the order of their elements; *n of them. */
const ckpi_chunk_key *ckpi_lineage_pieces(const ckpi_lineage *c, size_t level, uint32_t tensor, size_t *n);
/* The chunk at `level` with exactly the pieces of c (tensors mapped by map, NULL: as they are), or NULL. */
const ckpi_chunk *ckpi_lineage_like(const ckpi_lineage *c, size_t level, const ckpi_chunk *like, size_t *index);
/* Reads every chunk of every level and checks its stored hash. */
CKP_MUST_USE ckp_status ckpi_lineage_check_data(const ckpi_lineage *c, ckpi_ctx *ctx, ckp_error *err);
#endif
