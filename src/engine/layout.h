/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout: which elements are coded together. A group is the unit of threads, of memory and of chunks: at most 2^20 elements.
 *
 * A lossy group holds pieces of weights together with the same elements of their moments, and makes up to three chunks (v, m, w); the
 * rows of a piece are whole, so that factors are local to the chunk. A lossless group makes one chunk of one role and dtype.
 */
#ifndef CKPI_ENGINE_LAYOUT_H
#define CKPI_ENGINE_LAYOUT_H
#include "engine/engine.h"

/* Parameters below this many elements, and all 1-D ones, are coded with finer steps (DESIGN section 3, item 8). */
#define CKPI_FINE_BELOW 4096
/* A lossless tensor of at least this many elements has chunks of its own, so that its row length serves as context. */
#define CKPI_OWN_CHUNK (1u << 15)
/* Elements of one block factor of a 1-D piece. */
#define CKPI_BLOCK 128

typedef struct ckpi_group {
    ckpi_piece *piece;           /* lossy: of the weights; lossless: of the tensors themselves */
    uint32_t *m, *v;             /* lossy: moments of each piece's weight, or CKPI_NO_TENSOR */
    size_t n_pieces;
    uint64_t n;                  /* elements */
    uint64_t bytes;              /* lossless: of the elements */
    bool lossy;
    bool fine;
    bool has_m, has_v;
    bool clustered;              /* of a lossless layout: moments in clusters (clusters.h) */
    ckp_role role, m_role;       /* m_role: first moment or momentum */
    ckp_dtype dtype, m_dtype, v_dtype;
} ckpi_group;

typedef struct ckpi_layout {
    ckpi_group *g;
    size_t n, cap;
    uint32_t *m_of, *v_of;       /* by tensor: its moments, or CKPI_NO_TENSOR */
    size_t n_tensors;
} ckpi_layout;

typedef enum ckpi_packing {
    CKPI_PACK_GROUPED,           /* small tensors of a kind together, wherever they stand: fewest bytes */
    CKPI_PACK_ORDERED            /* neighbours only, so that chunks follow the table's order: a pipe can be decoded as it comes */
} ckpi_packing;

/* Weights without moments, of a lossy layout. */
typedef enum ckpi_alone {
    CKPI_ALONE_LOSSLESS,
    CKPI_ALONE_LOSSY,
    CKPI_ALONE_LARGE,            /* lossy where they are not fine: what codebooks take (dynaquant.h) */
    CKPI_ALONE_CLUSTERS          /* of a lossless layout: weights lossless, moments of CKPI_FINE_BELOW elements or more in clusters */
} ckpi_alone;

/*
 * lossy: code weights with moments lossily; alone: those without. no_loss (by tensor, may be NULL): never lossy.
 */
CKP_MUST_USE ckp_status ckpi_layout_new(ckpi_layout **out, const ckpi_table *t, bool lossy, ckpi_alone alone, const bool *no_loss,
                                        ckpi_packing packing, ckp_error *err);
void ckpi_layout_free(ckpi_layout *l);
/* Same groups with the same pieces: a delta needs it. */
bool ckpi_layout_equal(const ckpi_layout *a, const ckpi_layout *b);

/* Columns of a tensor as a matrix n0 x rest, or 0 when it is coded in blocks. */
size_t ckpi_matrix_cols(const ckpi_rec *r);
/* Weights, masters and averages of them: what a base model has, and what grids are for. */
bool ckpi_role_is_weight(unsigned role);
bool ckpi_is_small_float(ckp_dtype dt);     /* f32, bf16, f16: what the quantizers take */
#endif
