/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BitSnap's quantizer of optimizer states, as far as its paper says what it is: values fall into at most 256 clusters.
 *
 *     CKPI_CLUSTERS_AFFINE    16 bits a value: the number of its cluster, and 8 bits between the cluster's least and largest value
 *     CKPI_CLUSTERS_CENTRES   8 bits: the number alone, for the cluster's mean
 *
 * What makes a cluster is ours. Affine ones have the least sum of squared *relative* errors, for a second moment counts by its size, over many octaves; centres have
 * the least squared error, as k-means has. Both by exact clustering of a histogram of 64 buckets an octave (cells.inc). Zeros have a cluster of their own.
 * NaN and infinities are escapes. One plain scalar body: the same codes on every machine.
 */
#ifndef CKPI_QUANT_CLUSTERS_H
#define CKPI_QUANT_CLUSTERS_H
#include "base/alloc.h"
#include "quant/escape.h"

#define CKPI_CLUSTERS_MAX 256u   /* FORMAT: a label is a byte */

typedef enum ckpi_clusters_kind { CKPI_CLUSTERS_NONE = 0, CKPI_CLUSTERS_AFFINE = 1, CKPI_CLUSTERS_CENTRES = 2 } ckpi_clusters_kind;   /* FORMAT */

/* Value of label l and code c: low[l] + (float)c * step[l], each operation rounded; of centres low[l]. */
typedef struct ckpi_clusters {
    ckpi_clusters_kind kind;
    uint32_t k;                             /* 1 to 256 */
    float low[CKPI_CLUSTERS_MAX];           /* finite */
    float step[CKPI_CLUSTERS_MAX];          /* finite, not negative */
} ckpi_clusters;

/* What coding lost, over finite values. */
typedef struct ckpi_clusters_loss {
    double err2, sum2, max_err;
    double rel, max_rel;                    /* sum and largest of |x - x^| / |x| over those that are not 0 */
    uint64_t n, n_rel, n_nan, n_inf;
} ckpi_clusters_loss;

/*
 * Clusters of n values, n at least 1, and their codes: code[i] is label + 256 * affine code. Escapes (indices from `at` on) are appended.
 */
CKP_MUST_USE ckp_status ckpi_clusters_encode(ckpi_clusters *c, ckpi_clusters_kind kind, const float *x, size_t n, size_t at, uint16_t *code,
                                             ckpi_escapes *esc, ckpi_clusters_loss *loss, ckpi_scratch *ws, ckp_error *err);
/* CKP_ECORRUPT: a label of no cluster; x then holds rubbish. */
CKP_MUST_USE ckp_status ckpi_clusters_decode(const ckpi_clusters *c, const uint16_t *code, size_t n, float *x, ckp_error *err);
/* Whether clusters from outside are ones: every value of theirs is finite. */
bool ckpi_clusters_valid(const ckpi_clusters *c);
#endif
