/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights the way of DynaQuant / Inshrinkerator (section 3 of that paper): the largest and the most sensitive values are kept as bf16, the
 * least important become zero, all others get the index of the nearest of a few centres (quant/codebook.h). A delta's indices are coded
 * under the base's, which is worth most while both mean the same centres: a piece keeps its codebook until leaving it pays.
 *
 *     live tensors --prepare--> thresholds by kind of layer --pass--> indices, codebooks, kept values --encode--> chunk
 *
 * Coded so are weights that are not fine (layout.h): two dimensions or more, CKPI_FINE_BELOW elements or more. Thresholds come from sketches
 * of integer counts, codebooks from the values of one piece alone: no order of threads shows.
 */
#ifndef CKPI_ENGINE_DYNAQUANT_H
#define CKPI_ENGINE_DYNAQUANT_H
#include "engine/stage.h"

typedef enum ckpi_layer { CKPI_LAYER_EMBEDDING, CKPI_LAYER_ATTENTION, CKPI_LAYER_CONV, CKPI_LAYER_LINEAR, CKPI_LAYERS } ckpi_layer;

/* The numbers of a configuration. */
typedef struct ckpi_dq_numbers {
    uint32_t bins, bins_embedding;   /* 1 to CKPI_CODEBOOK_MAX */
    double prune, protect;           /* shares of the values of a kind: 0 to below 1 */
    bool by_score;                   /* prune by sensitivity instead of magnitude */
} ckpi_dq_numbers;

/* A configuration for the tensors of one table. */
struct ckpi_dq {
    ckpi_dq_numbers num;
    uint8_t *kind;                   /* by tensor: ckpi_layer */
    const float **score;             /* by tensor: the caller's, or NULL */
    /* set by ckpi_dq_prepare; [1]: of tensors that have a score */
    ckpi_partition part[CKPI_LAYERS][2];
};

/* Whether a group's weights are coded so under these settings. */
bool ckpi_dq_takes(const ckpi_group *g, const ckpi_settings *set);
/* Whether a tensor has sensitivities: the caller's, or from the second moment. */
bool ckpi_dq_scored(const ckpi_dq *d, const ckpi_group *g, size_t k);

/* Thresholds from the live tensors: one more pass over them, none where nothing is pruned or protected. */
CKP_MUST_USE ckp_status ckpi_dq_prepare(ckpi_ctx *ctx, const ckpi_pass *p, ckp_error *err);
/* Sensitivities of n elements of piece k from `first` of its tensor on, NULL when it has none: the caller's, or sqrt(v) * |w|. w, v: of
   these elements. */
CKP_MUST_USE ckp_status ckpi_dq_scores(const ckpi_dq *d, const ckpi_group *g, size_t k, const float *w, const float *v, size_t n, const float **out,
                                       uint32_t cpu, ckpi_scratch *ws, ckp_error *err);

/* One piece of live weights: indices, codebook and kept values to s->idx, w^ to the reconstruction, what it lost to s->sums. at: of the
   piece's first element in its group; w16: the words of half dtypes, or NULL. Escapes are appended. */
CKP_MUST_USE ckp_status ckpi_dq_piece(const ckpi_pass *p, size_t g, size_t k, size_t at, const float *w, const uint16_t *w16, const float *v,
                                      ckpi_stage *s, ckpi_scratch *ws, ckp_error *err);
/* The weights of one group again, under another configuration: everything else of its stage stays. */
CKP_MUST_USE ckp_status ckpi_dq_again(const ckpi_pass *p, size_t g, ckpi_stage *s, ckpi_scratch *ws, ckp_error *err);

/* ---- chunks (dynaquant_chunk.c; docs/format.md, section 12) ------------------------------------------------------- */

/* Parameters and payload of a group's indices, behind one another in scratch. */
typedef struct ckpi_dq_coded {
    ckpi_buf params;                 /* the caller frees */
    uint8_t *payload;
    size_t payload_len;
    uint8_t codec;
    bool uses_base;
} ckpi_dq_coded;

/* base: the like chunk's indices, or NULL. */
CKP_MUST_USE ckp_status ckpi_dq_code(ckpi_dq_coded *out, const ckpi_group *g, const ckpi_indices *x, const ckpi_indices *base, ckpi_scratch *ws,
                                     uint32_t cpu, ckp_error *err);
/* A chunk's indices, which replace *x (the base's, where the chunk has one), and their values in fp32, not yet rounded to the dtype. */
CKP_MUST_USE ckp_status ckpi_dq_decode(const ckpi_chunk *c, ckpi_indices *x, float *values, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
#endif
