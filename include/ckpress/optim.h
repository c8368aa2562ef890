/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_OPTIM_H
#define CKPRESS_OPTIM_H
/*
 * Optimizers whose state stays in memory as codes of 2 to 8 bits.
 *
 * A step reads p, g and the codes of m and v once, updates in f32 with the new m and v before they are rounded, and writes p and the
 * codes. Rounding is unbiased, by random numbers that depend on (seed, step, id, index of the element) alone: the same bits come out
 * on any CPU and with any number of threads.
 *
 *     ckp_optim_new(&o, 0, &err);                      threads, nothing else
 *     for each parameter: rows = numel / cols, rounded up; calloc of ckp_optim_state_bytes(numel, cols, bits) for m and for v,
 *                         of rows bytes for `row` and of cols bytes for `col`. All zero is the state before the first step.
 *     each step: set p, g, step and how; ckp_optim_adamw(o, tensors, n, &err);
 *
 * The state belongs to the caller and may be copied, moved and stored like any memory.   Since: 0.1
 */
#include <stdbool.h>
#include <ckpress/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Threads and scratch memory; no state of any parameter. Used by one thread at a time. */
typedef struct ckp_optim ckp_optim;

/** What torch.optim.AdamW and Adam call lr, betas, eps, weight_decay and maximize; and the seed of rounding. */
typedef struct ckp_adamw {
    double lr;            /**< finite, 0 or more */
    double beta1, beta2;  /**< 0 or more, below 1 */
    double eps;           /**< finite, 0 or more */
    double weight_decay;  /**< decoupled: p is multiplied by 1 - lr * weight_decay; finite, 0 or more */
    bool coupled;         /**< Adam: weight_decay * p is added to the gradient instead */
    bool maximize;
    uint64_t seed;
} ckp_adamw;

/**
 * What torch.optim.SGD calls lr, momentum, dampening, nesterov, weight_decay and maximize; or Lion (Chen et al. 2023), whose step is the sign of
 * `beta1` times the momentum and 1 - `beta1` times the gradient, and whose weight_decay is decoupled.
 */
typedef struct ckp_momentum {
    double lr;            /**< finite, 0 or more */
    double momentum;      /**< 0 to 1; Lion: beta2 */
    double dampening;     /**< finite; not for Lion */
    double weight_decay;  /**< finite, 0 or more */
    bool nesterov;        /**< not for Lion */
    bool maximize;
    bool lion;
    double beta1;         /**< Lion: 0 to 1 */
    uint64_t seed;
} ckp_momentum;

/** One parameter, or the part of it that is here. Everything is the caller's. */
typedef struct ckp_optim_tensor {
    const char *name;     /**< for errors; NULL: none */
    const ckp_adamw *how;
    const ckp_momentum *momentum;  /**< in the place of `how`, for ckp_optim_momentum */
    uint64_t id;          /**< number of the parameter, the same on every rank */
    uint64_t step;        /**< of this step, counted from 1 */
    uint64_t numel;
    uint64_t cols;        /**< elements of a row: numel / shape[0] of a matrix, or any block of what has no rows; the last row may be shorter */
    uint64_t first;       /**< index of the first element in the whole parameter */
    ckp_dtype p_dtype;    /**< CKP_F32, CKP_BF16 (rounded without bias) or CKP_F16 (to nearest) */
    ckp_dtype g_dtype;    /**< the same three */
    void *p;              /**< contiguous */
    unsigned rest_bits;   /**< CKP_BF16: 8 or 16 more bits of a master weight, which is updated in f32; 0: none */
    void *rest;           /**< int8 or int16 an element, 0 at first: the bits of the master in f32 less those of p, which is the master to nearest, >> 16 - rest_bits.
                               8 bits are rounded without bias. A p that was changed since is off by half of its last place at most. */
    const void *g;        /**< contiguous */
    unsigned m_bits, v_bits;  /**< 2, 3, 4, 5, 6 or 8; v_bits 0: there is no v, and m is a momentum with factors of its own. 32 (a step's alone): moments are floats */
    uint8_t *m, *v;       /**< ckp_optim_state_bytes each; of 32 bits: numel floats, as torch keeps them (not corrected), and row and col NULL */
    uint8_t *row;         /**< a factor a row; of a momentum: one for each 64 elements of each row, cols / 64 of them rounded up */
    int8_t *col;          /**< a factor a column, or NULL: all are 0; of a momentum NULL */
    int64_t *sums;        /**< NULL, or 2 * cols numbers: ckp_optim_sums() of all parts of the parameter, added up; column factors are fitted to these, not to what is here */
    double m_corr, v_corr;    /**< in and out: 1 - beta^step of the moments as they are stored (a momentum: 1); 0 before the first step */
    uint64_t unusable;    /**< out: elements that stayed as they were, as their gradient was NaN, infinite, or 2^40 and more */
    uint64_t raised;      /**< out: rows whose codes were rewritten in this step because v grew beyond their grid (a momentum: factors that grew) */
} ckp_optim_tensor;

/**
 * @param threads  0: one a processor that this process may use.
 * @return CKP_OK, CKP_EINVAL, CKP_ENOMEM.
 */
CKP_MUST_USE CKP_API ckp_status ckp_optim_new(ckp_optim **out, unsigned threads, ckp_error *err);
/** Accepts NULL. */
CKP_API void ckp_optim_free(ckp_optim *o);

/** Bytes of m or v of that width; 0: cols is 0, the width is not known, or the size is out of range. */
CKP_API uint64_t ckp_optim_state_bytes(uint64_t numel, uint64_t cols, unsigned bits);

/**
 * One step of AdamW or Adam. On CKP_EINVAL, CKP_ENOMEM and CKP_EFORK (the handle was made by another process) nothing was changed.
 * No two tensors may share memory.
 */
CKP_MUST_USE CKP_API ckp_status ckp_optim_adamw(ckp_optim *o, ckp_optim_tensor *t, size_t n, ckp_error *err);
/** One step of SGD with momentum, or of Lion: the same rules. v_bits are 0. */
CKP_MUST_USE CKP_API ckp_status ckp_optim_momentum(ckp_optim *o, ckp_optim_tensor *t, size_t n, ckp_error *err);

/**
 * A parameter in parts, as on several ranks: each has whole rows of it, `first` the first one's, and `col` is the same everywhere. Everything is a row's own but column
 * factors, which follow from sums over all rows, at few steps:
 *
 *     if (ckp_optim_sums_due(&t, total))       the same answer for every part, an empty one (numel 0) included, which takes part as any other
 *         t.sums = ...; ckp_optim_sums(o, &t, 1, &err), and the parts' numbers are added up, one by one
 *     ckp_optim_adamw(o, &t, 1, &err)          at other steps with sums NULL
 *
 * gives the codes, factors and weights that a step of the whole parameter gives.
 *
 * @param total  elements of the whole parameter.
 * @return whether the step that t is set for fits column factors.
 */
CKP_API bool ckp_optim_sums_due(const ckp_optim_tensor *t, uint64_t total);
/**
 * Sums and counts of exponents by column, of the part that is here: column j's at sums[2 * j] and sums[2 * j + 1]. Reads g at the first step (v_corr 0), v's codes later.
 *
 * @param t  as for a step; each with a col, and with sums to write to.
 * @return CKP_OK; CKP_EINVAL, CKP_ENOMEM, CKP_EFORK: nothing was written.
 */
CKP_MUST_USE CKP_API ckp_status ckp_optim_sums(ckp_optim *o, ckp_optim_tensor *t, size_t n, ckp_error *err);

/** Codes of the first `numel` elements, a byte each: v's as they are, m's as int8. */
CKP_MUST_USE CKP_API ckp_status ckp_optim_unpack(uint8_t *code, const uint8_t *packed, uint64_t numel, uint64_t cols, unsigned bits, bool is_signed,
                                                 ckp_error *err);
/** The reverse: `packed` gets ckp_optim_state_bytes. */
CKP_MUST_USE CKP_API ckp_status ckp_optim_pack(uint8_t *packed, const uint8_t *code, uint64_t numel, uint64_t cols, unsigned bits, ckp_error *err);

/**
 * Moments as floats, as torch keeps them: not corrected. m and v may each be NULL. A momentum is m.
 * Of t: numel, cols, m_bits, v_bits, m, v, row, col, m_corr, v_corr are read.
 */
CKP_MUST_USE CKP_API ckp_status ckp_optim_read(const ckp_optim_tensor *t, float *m, float *v, ckp_error *err);
/**
 * The same for a part of m or of v: elements [first, first + count), as a ckp_pull_fn gives them. So a state (state.h) may hold moments as tensors of CKP_F32 that are
 * nowhere in memory: pull_user is the tensor, with what ckp_optim_read reads of it, and shared_pull may be set. dst: room for `count` floats.
 *
 * @return CKP_OK; CKP_EINVAL: beyond numel, no such moment, or a tensor that ckp_optim_read refuses.
 */
CKP_MUST_USE CKP_API ckp_status ckp_optim_pull_m(void *tensor, uint64_t first, uint64_t count, void *dst, ckp_error *err);
CKP_MUST_USE CKP_API ckp_status ckp_optim_pull_v(void *tensor, uint64_t first, uint64_t count, void *dst, ckp_error *err);
/**
 * The reverse: codes and factors of these moments, rounded by (seed, step, id); m_corr and v_corr are the caller's to set before,
 * both above 0 (a momentum: m_corr alone, 1; v is NULL). Of a part of a parameter, sums are those of v's exponents (the 8 bits of the float) where v is not 0, of all parts; v that is negative, or moments that are not finite: CKP_EINVAL, with nothing changed.
 */
CKP_MUST_USE CKP_API ckp_status ckp_optim_write(ckp_optim_tensor *t, const float *m, const float *v, ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
