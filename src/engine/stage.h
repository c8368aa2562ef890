/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages: what the pass over live memory leaves behind for the coders, one a group. After the pass the live tensors may change.
 */
#ifndef CKPI_ENGINE_STAGE_H
#define CKPI_ENGINE_STAGE_H
#include "engine/pack2.h"
#include "engine/pred.h"

/* What the pass learned about one piece. */
typedef struct ckpi_piece_sums {
    ckpi_wstats w;
    double w_max_err, v_max_rel, w_err2, w_sum2;   /* over finite elements */
    uint64_t n_nan, n_inf;       /* of the weights */
} ckpi_piece_sums;

typedef struct ckpi_stage {
    /* lossy */
    int8_t *wcode;                             /* n, or NULL */
    int8_t *mcode;                             /* n, or NULL: codes of u, as moments.h takes them */
    ckpi_pack2 vdiff;                          /* of a delta: by pieces. Of a key they are the predictor's codes */
    ckpi_indices idx;                          /* instead of wcode, where the weights are coded by DynaQuant */
    ckpi_escapes wesc, mesc, vesc;             /* indices of the group; bits in the tensors' own dtype */
    int8_t *moves;                             /* of the factors of v since the base; not for a key */
    float *mg, *mshare;                        /* by piece: what a step of mcode is worth; for three values: the share that is kept */
    ckpi_wstep *wstep;                         /* by piece */
    ckpi_piece_sums *sums;                     /* by piece */
    bool stale;                                /* momentum beyond its factors (moments.h) */
    int64_t lsum, move;
    uint64_t lcount, n_move;
    /* lossless: the bytes; also the weights of a final save */
    uint8_t *raw;
    uint64_t raw_len;
    bool key;                                  /* nothing here refers to a base ... */
    bool w_key;                                /* ... but weights do, of a key on a base model */
    bool exact_w, indexed;
    bool mthree;                               /* moments are to have three values */
    ckpi_clusters_kind clusters;               /* of a clustered group */
    ckpi_clusters_loss *cluster_loss;          /* by piece, of a clustered group: set by the coder */
} ckpi_stage;

typedef struct ckpi_dq ckpi_dq;                /* dynaquant.h */

/* What one pass is about. */
typedef struct ckpi_pass {
    ckpi_pred *pred;
    const ckp_state *state;
    const ckpi_settings *set;
    ckpi_lasting *lasting;       /* NULL: a lone file */
    ckpi_dq *dq;                 /* with set->dynaquant */
    bool key;
    bool on_model;               /* of a key: its weights are predicted from a base model's, which are in the predictor */
    bool lone;                   /* a single file: nothing will be coded against it, so it rounds to nearest */
    uint64_t run_key, restore_count;           /* of the frozen phases */
    uint32_t cpu;
} ckpi_pass;

/* Memory of a group's stage (wanted: codes or bytes). Accepts one that is allocated already. */
CKP_MUST_USE ckp_status ckpi_stage_alloc(ckpi_stage *s, const ckpi_group *g, const ckpi_settings *set, ckp_error *err);
void ckpi_stage_free(ckpi_stage *s);
uint64_t ckpi_stage_bytes(const ckpi_stage *s, const ckpi_group *g);

/*
 * Before a key, before the first delta of a process, and when weights have changed their size: RMS and mean logarithms are taken from the live tensors (a second pass).
 */
CKP_MUST_USE ckp_status ckpi_pass_prepare(ckpi_ctx *ctx, const ckpi_pass *p, ckp_error *err);
/* Adam's constants of a weight, or of the one that it is the master of; NULL when unknown. */
const ckpi_adam *ckpi_pass_adam(const ckp_state *s, uint32_t tensor);
/* Whether any tensor is a pull source that is read on the saving thread only. */
bool ckpi_state_pulls(const ckp_state *s);
/* Looks at a few weights of each tensor: whether any tensor's size is another than at the last look. Then the pass wants
   ckpi_pass_prepare too. Pull sources: always false. */
bool ckpi_pass_rescaled(const ckpi_pass *p);
/* Chooses q0 for this pass from the predictor's numbers. */
void ckpi_pass_steps(const ckpi_pass *p);
/* The pass over one group; only reads the live tensors, updates pred's reconstruction of this group (for a key: makes it, and
   its factors). */
CKP_MUST_USE ckp_status ckpi_pass_group(const ckpi_pass *p, size_t g, ckpi_stage *s, ckpi_scratch *ws, ckp_error *err);
/* After the pass over all groups: the numbers for the next one. */
void ckpi_pass_finish(const ckpi_pass *p, const ckpi_stage *stages);
#endif
