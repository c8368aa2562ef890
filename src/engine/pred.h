/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The predictor: what a decoder of the last save has, kept in memory so that the next save can be coded against it, and the
 * model-wide numbers that the next save's steps come from. One per run in progress; a single file makes one and throws it away.
 *
 *   for a lossy group, a parameter: 4 bytes of w^ and 1 of v-code; for a lossless one: its bytes, when there is memory for them.
 */
#ifndef CKPI_ENGINE_PRED_H
#define CKPI_ENGINE_PRED_H
#include "engine/layout.h"
#include "engine/params.h"
#include "quant/clusters.h"
#include "quant/codebook.h"

/* How lossy state is coded: DESIGN sections 3 and 4. */
typedef struct ckpi_settings {
    bool lossy, weights_only;
    double f;                    /* step of weights, in RMS of all weights; a run's keys take half of it (numbers.c) */
    double clamp_lo, clamp_hi;   /* of f times the tensor's own RMS */
    double k_move;               /* step of weights, at most so many RMS of the movement between two saves */
    double average, average_move; /* step of running averages: so much of their own RMS, at most so many RMS of the weights' movement (0: any) */
    double named;                /* multiplies the steps that weights have by name */
    int32_t vstep;               /* of second moments, 1/256 octave of sqrt v */
    double vstay;                /* a code of v stays while v is within so many steps of it (quant.h) */
    bool mthree;                 /* first moments and momentum in three values, and along directions (moments.h); else in steps of mstep */
    double mshare;               /* of those in three values: the share that is kept */
    double mstep;                /* of first moments without second ones: step, in the mean logarithm of their size */
    int fine_shift;              /* small tensors: steps finer by 2^this */
    bool exact_weights;          /* the final save: weights losslessly */
    ckpi_clusters_kind clusters; /* of a lossless save: moments in clusters */
    bool dynaquant;              /* weights as indices into codebooks, where the layout says so (dynaquant.h) */
} ckpi_settings;

/* Feature bits of a file that is coded so. */
uint64_t ckpi_settings_features(const ckpi_settings *set);
/* How weights without moments are laid out under these settings. */
ckpi_alone ckpi_settings_alone(const ckpi_settings *set);

/* A group's weights as indices into codebooks. Freed by ckpi_indices_free, which leaves {0}. */
typedef struct ckpi_indices {
    int8_t *code;                /* n, or NULL: the weights have none */
    ckpi_codebook *book;         /* by piece */
    double *fit;                 /* by piece: relative square error when its book was fitted; negative: not known */
    uint16_t *kept;              /* protected values as bf16, in order */
    size_t n_kept, cap;
} ckpi_indices;
/* Memory for n codes and the books of n_pieces, unless it is there. False: none. */
bool ckpi_indices_alloc(ckpi_indices *x, size_t n, size_t n_pieces);
void ckpi_indices_free(ckpi_indices *x);
/* Room for so many kept values behind those there are; NULL: no memory. */
uint16_t *ckpi_indices_room(ckpi_indices *x, size_t more);

/* One lossy group's reconstruction. */
typedef struct ckpi_recon {
    float *wrec;                 /* n values of w^ (already rounded to the weights' dtype) */
    int8_t *vcode;               /* n absolute codes, or NULL without v */
    ckpi_factors fac;            /* of v, or of momentum; at NULL: none */
    ckpi_indices idx;            /* of the last save, where its weights have indices */
    float *sample;               /* every CKPI_SAMPLE-th true weight of the last save */
    size_t n_sample;
} ckpi_recon;
#define CKPI_SAMPLE 1024

/* What outlives a predictor: a run keeps it, over keys and restarts (docs/runs.md, "Manifest"). */
typedef struct ckpi_lasting {
    double move;                 /* RMS movement between two saves in the steps' metric, last measured */
    bool moved;
    bool stale;                  /* momentum has left the scale that its factors were made for: the next save is a key */
} ckpi_lasting;

typedef struct ckpi_pred {
    ckpi_table *table;           /* owned */
    ckpi_layout *layout;         /* owned */
    ckpi_recon *rec;             /* by group; empty for lossless ones */
    uint8_t **raw;               /* by group: bytes of the last save, or NULL */
    double *step;                /* by tensor: step of its weights by name, 0: the settings choose */
    bool *in_model;              /* by tensor: the base model has its like */
    float *rms;                  /* by tensor: RMS of weights at the last save */
    double *probe;               /* by tensor: RMS of a few weights at the last save (probe.c) */
    int *sq_exp;                 /* by tensor: scale of the integer sums of squares (quant.h) */
    double most;                 /* as no larger than which a coarse tensor counts in rms_all and scale; HUGE_VAL: as large as it is */
    double rms_all;              /* of all coarse weights */
    double scale;                /* what steps are shares of: rms_all, or less in an uneven model (numbers.c) */
    double cap;                  /* no coarse tensor counts as larger */
    float **mworth;              /* by group: of each piece's first moments beside second ones, at the last survey (numbers.h); NULL without */
    double mworth_all;           /* mean of it over the model's elements; 0: not known */
    double mean_l[2];            /* mean log2, 1/256 octave, over coarse weights: [0] of sqrt v^, [1] of |momentum| */
    double q0;                   /* step in use */
    bool valid;                  /* holds a committed (or in-flight) save's values */
} ckpi_pred;

/* Takes table and layout, also on failure. */
CKP_MUST_USE ckp_status ckpi_pred_new(ckpi_pred **out, ckpi_table *table, ckpi_layout *layout, ckp_error *err);
void ckpi_pred_free(ckpi_pred *p);
/* Memory of group g's reconstruction, unless it is there; freed again by ckpi_recon_drop. */
CKP_MUST_USE ckp_status ckpi_recon_alloc(ckpi_pred *p, size_t g, ckp_error *err);
void ckpi_recon_drop(ckpi_pred *p, size_t g);
/* Reconstruction and lossless bytes of group g. */
void ckpi_pred_drop(ckpi_pred *p, size_t g);
/* Bytes held: reconstructions, codes, samples, lossless bases. */
uint64_t ckpi_pred_bytes(const ckpi_pred *p);
/* Columns of each piece of a group (0: blocks), for factors. cols has room for n_pieces. */
void ckpi_group_cols(const ckpi_table *t, const ckpi_group *g, size_t *cols);
/* The matrix view of piece k for the quantizers; has_v says whether codes scale. */
ckpi_grid ckpi_recon_grid(const ckpi_recon *r, size_t k, size_t n, bool has_v);
#endif
