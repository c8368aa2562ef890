/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that a quantized chunk carries beside its codes (docs/format.md, "parameters"). All little-endian.
 *
 * V:  u8 flags (1: factors follow; 8: moves of the base's factors follow; neither: they are the base's)
 *     with factors, for each piece: varint cols (0: blocks of 128, no column factors), u8 log2 of vstep; then the factor block
 *     with moves: i8 numbers in the factor block's order, as one block of a codec: u8 codec, varint length, bytes; a factor moves by 32 times its
 *     number
 *     then for each piece: i8 lift
 * M:  u8 flags (1: factors follow; 2: scales come from the v chunk; 4: they come from the base's factors; 32: directions follow)
 *     for each piece: f32 mg;   with factors: as in V
 *     with directions, for each piece: u8 rank, and unless that is 0 f32 gain; then one block of a codec (as for moves): i8 numbers of all
 *     pieces, `rank` times a number for each row, then as often one for each column
 * W:  u8 flags (2: steps follow the v chunk; 16: a multiplier for each piece)
 *     f32 qmul, or with the flag one for each piece; then for each piece: f32 qlo, f32 qhi
 *
 * Factor block: i16 numbers of all pieces, row factors then column factors of each, as one block of a codec:
 *     u8 codec, varint length, bytes.
 */
#ifndef CKPI_ENGINE_PARAMS_H
#define CKPI_ENGINE_PARAMS_H
#include "base/buf.h"
#include "base/cursor.h"
#include "engine/engine.h"
#include "quant/low.h"

#define CKPI_PAR_FACTORS 1u
#define CKPI_PAR_SCALE_V 2u
#define CKPI_PAR_SCALE_BASE 4u
#define CKPI_PAR_MOVES 8u
#define CKPI_PAR_QMULS 16u
#define CKPI_PAR_DIRECTIONS 32u

/* Factors of one piece. Memory belongs to the ckpi_factors that holds it. */
typedef struct ckpi_fac {
    size_t n, cols, rows;        /* cols: elements of a row, CKPI_BLOCK for blocks */
    bool blocks;                 /* no column factors */
    int16_t *row, *col;          /* col NULL for blocks */
    int32_t vstep;
    int32_t lift;                /* quant.h */
} ckpi_fac;

/* Factors of a group's pieces. */
typedef struct ckpi_factors {
    ckpi_fac *at;
    size_t n;
    int16_t *mem;                /* all factors, in wire order */
    size_t mem_n;
} ckpi_factors;

/* Places for the factors of n pieces of `count[i]` elements and `cols[i]` columns (0: blocks), cleared. */
CKP_MUST_USE ckp_status ckpi_factors_alloc(ckpi_factors *f, const ckpi_piece *piece, const size_t *cols, size_t n, int32_t vstep, ckp_error *err);
void ckpi_factors_free(ckpi_factors *f);

void ckpi_params_put_factors(ckpi_buf *b, const ckpi_factors *f, ckpi_scratch *ws, uint32_t cpu);
/* Replaces *f; pieces give the element counts. */
CKP_MUST_USE ckp_status ckpi_params_get_factors(ckpi_rd *r, ckpi_factors *f, const ckpi_piece *piece, size_t n, ckpi_scratch *ws, uint32_t cpu,
                                                ckp_error *err);

/* Moves of all factors, and back (added to *f). */
void ckpi_params_put_moves(ckpi_buf *b, const int8_t *moves, size_t n, ckpi_scratch *ws, uint32_t cpu);
CKP_MUST_USE ckp_status ckpi_params_get_moves(ckpi_rd *r, ckpi_factors *f, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* Directions of all n pieces (quant/low.h), and back; f: their factors, for rows and columns. What is read lies in ws. */
void ckpi_params_put_directions(ckpi_buf *b, const ckpi_low *low, size_t n, ckpi_scratch *ws, uint32_t cpu);
CKP_MUST_USE ckp_status ckpi_params_get_directions(ckpi_rd *r, ckpi_low *low, const ckpi_factors *f, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* Lifts of all pieces, and back. */
void ckpi_params_put_lifts(ckpi_buf *b, const ckpi_factors *f);
void ckpi_params_get_lifts(ckpi_rd *r, ckpi_factors *f);

/* Escapes: varint count, then for each: varint gap to the previous index, u32 (u16 for 2-byte dtypes) bits. Index is of the chunk. */
void ckpi_params_put_escapes(ckpi_buf *b, const ckpi_escape *e, size_t n, size_t elem_bytes);
CKP_MUST_USE ckp_status ckpi_params_get_escapes(const uint8_t *p, size_t len, size_t elem_bytes, uint64_t n_elems, ckpi_escapes *out,
                                                uint64_t offset, ckp_error *err);
#endif
