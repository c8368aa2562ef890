/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codebooks: a few levels, placed where the squared error is least, and the codes that values get from them (DynaQuant's quantizer).
 *
 *     ckpi_sketch  ->  ckpi_points  ->  ckpi_codebook_fit  ->  ckpi_codebook for any k  ->  codes  ->  ckpi_codebook_recentre
 *
 * Codes: 0 is pruned (+0), 1 to k are levels in rising order, k + 1 is protected: kept apart as bf16, in order. So indices stay
 * comparable from save to save as long as the codebook is kept (ckpi_codebook_pays says when to leave it), and the commonest is 0.
 *
 * A codebook is at most 32 f32 numbers: in 16 bits the levels of a narrow tensor (1 to 1.001) would fall together, and a codebook that
 * is kept costs nothing. All arithmetic that decides is single IEEE operations in a stated order.
 */
#ifndef CKPI_QUANT_CODEBOOK_H
#define CKPI_QUANT_CODEBOOK_H
#include "quant/sketch.h"

#define CKPI_CODEBOOK_MAX 32

typedef struct ckpi_codebook {
    uint32_t k;                           /* 0: no levels; what is not pruned is protected */
    float centre[CKPI_CODEBOOK_MAX];      /* k of them, finite, strictly rising */
} ckpi_codebook;

/* What every codebook from outside must be. */
bool ckpi_codebook_valid(const ckpi_codebook *cb);

/* ---- fitting ------------------------------------------------------------------------------------------------------------ */

/* Values that stand for many: rising x, weight > 0. In scratch; the caller releases. */
typedef struct ckpi_points {
    size_t n;
    float *x;
    double *weight;
} ckpi_points;

/* The buckets with from <= |x| < below (edges, from ckpi_sketch_below and _above), weighted by their counts; zeros too if from is 0. */
CKP_MUST_USE ckp_status ckpi_points_of(ckpi_points *p, const ckpi_sketch *s, float from, float below, ckpi_scratch *ws, ckp_error *err);
/* DynaQuant's weights: sigma * count / largest count + (1 - sigma) * |x| / largest |x|; they take levels away from the dense middle.
   Weights that become 0 leave. */
void ckpi_points_mix(ckpi_points *p, double sigma);

/* The best codebooks of every size up to `most` at once. In scratch; the caller releases. */
typedef struct ckpi_codebook_fit {
    const ckpi_points *points;
    uint32_t most;                            /* at most the number of points */
    double error[CKPI_CODEBOOK_MAX + 1];      /* [k]: least sum of weight * (x - centre)^2 with k levels, k = 1 to most */
    uint16_t *cut;                            /* [(k - 1) * (n + 1) + j]: where the last of k cells over the first j points begins */
    double *sum[3];                           /* prefix sums of weight, weight * x, weight * x^2 */
} ckpi_codebook_fit;

/**
 * Exact one-dimensional clustering by dynamic programming: O(most * n * log n), 4 ms for 32 levels of 2400 points. points must
 * outlive the fit. 16-bit cuts: n is below 2^16, which a sketch's points are.
 * @return CKP_OK; CKP_EINVAL: most is 0 or above CKPI_CODEBOOK_MAX, or too many points; CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_codebook_fit_all(ckpi_codebook_fit *f, const ckpi_points *points, uint32_t most, ckpi_scratch *ws, ckp_error *err);
/* The codebook of k levels; of all there are where k is more than the points allow. */
void ckpi_codebook_take(ckpi_codebook *cb, const ckpi_codebook_fit *f, uint32_t k);

/* Sum of weight * (x - nearest centre)^2; 0 without levels. */
double ckpi_codebook_error(const ckpi_codebook *cb, const ckpi_points *p);
/*
 * Whether to leave `old` for `fresh`, the best for these points (weights are counts): half the log2 of the ratio of their errors,
 * which is what the gain is worth in bits a value at equal error, must be more than churn_bits for each value that changes its code
 * (about 2 where codes are coded under the previous ones) and 32 a level. Codebooks of different size: always.
 */
bool ckpi_codebook_pays(const ckpi_codebook *old, const ckpi_codebook *fresh, const ckpi_points *p, double churn_bits);

/* ---- coding ------------------------------------------------------------------------------------------------------------- */

/* Which values get no level. The score is |g * x|, or |g| where g_is_score; thresholds from a sketch of the magnitudes or of the scores. */
typedef struct ckpi_partition {
    float prune_below;        /* pruned: magnitude (or score) below it. 0: none */
    bool prune_by_score;
    float keep_from;          /* protected, before pruning: magnitude at or above it, NaN and infinities. +Inf: only those */
    float keep_score_from;    /* or score at or above it, or NaN. Ignored without g */
    bool g_is_score;          /* g holds the scores themselves: averages of |g * x| that somebody else has taken */
} ckpi_partition;

/* Codes of n values: the nearest centre (the upper one at equal distance). g: gradients or scores, or NULL (then prune_by_score is false).
   kept: room for n; receives the protected values as bf16 (nearest even, but finite stays finite). Returns how many those are. A NaN or
   infinity among them may not come back exactly: it is the caller's to note. */
size_t ckpi_codebook_assign(const ckpi_codebook *cb, const ckpi_partition *part, const float *x, const float *g, size_t n, int8_t *code,
                            uint16_t *kept, uint32_t cpu);
/**
 * Values of n codes.
 * @return CKP_OK; CKP_ECORRUPT: a code above k + 1, or not n_kept of that; x then holds rubbish.
 */
CKP_MUST_USE ckp_status ckpi_codebook_decode(const ckpi_codebook *cb, const int8_t *code, size_t n, const uint16_t *kept, size_t n_kept,
                                             float *x, ckp_error *err);

/* What the values of each level have in common, for better centres than a histogram gives. Start from {0}; pieces added in a fixed
   order give the same sums whatever the threads. */
typedef struct ckpi_level_sums {
    uint64_t count[CKPI_CODEBOOK_MAX];
    double sum[CKPI_CODEBOOK_MAX];
    float least[CKPI_CODEBOOK_MAX], most[CKPI_CODEBOOK_MAX];
} ckpi_level_sums;
void ckpi_level_sums_add(ckpi_level_sums *s, const float *x, const int8_t *code, size_t n);
void ckpi_level_sums_merge(ckpi_level_sums *s, const ckpi_level_sums *other);
/* Centres become the means of their values: exact where they are all the same, so a tensor of few values comes back exactly. */
void ckpi_codebook_recentre(ckpi_codebook *cb, const ckpi_level_sums *s);
#endif
