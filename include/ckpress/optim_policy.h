/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_OPTIM_POLICY_H
#define CKPRESS_OPTIM_POLICY_H
/*
 * Widths of moments chosen while training runs: so many bits on average, everything counted, where they do the most.
 *
 *     ckp_policy p; ckp_policy_item item[n];          all zero; p.budget and what the items say of their tensors set
 *     every step, after it, for N/K tensors in turn:
 *         ckp_optim_look(&t, total, &stats, &err);     sums of integers; parts of a parameter are added up here
 *         if (ckp_policy_visit(&p, &item[i], &stats, lr, rate, step, bits))
 *             ckp_optim_recode(o, &t, bits[0], bits[1], m, v, &err), and if that went well ckp_policy_moved(&p, &item[i], bits);
 *     when all had their turn: ckp_policy_plan(&p, item, n);
 *
 * Decisions are arithmetic on integers, the same everywhere. How they are made: docs/decisions/0020.   Since: 0.1
 */
#include <ckpress/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CKP_OPTIM_STATS = 48,
    CKP_POLICY_FACTORS = 9  /**< sizes of g, its dispersion, size of v, its spread, v's spread within rows, its depth below their largest, size of m beside sqrt(v), of a step beside p, age */
};

/** Sums over elements looked at; two parts' are added number by number. */
typedef struct ckp_optim_stats { int64_t sum[CKP_OPTIM_STATS]; } ckp_optim_stats;

/**
 * Looks at no more than 1024 elements of a parameter, drawn by (seed, step, id) in runs of 64, before or after a step; allocates nothing.
 *
 * @param t      as for a step, with all of it set.
 * @param total  elements of the whole parameter, of which t is the part from t->first on.
 * @return CKP_OK, CKP_EINVAL.
 */
CKP_MUST_USE CKP_API ckp_status ckp_optim_look(const ckp_optim_tensor *t, uint64_t total, ckp_optim_stats *out, ckp_error *err);

/**
 * Moments in other widths: reads t's codes once and writes `m` and `v`, memory of the caller of ckp_optim_state_bytes; a moment whose width stays may
 * keep its memory (m == t->m). Rounding is unbiased, by (seed, step, id, index); row factors follow. On CKP_OK t has the new memory and widths, on anything
 * else nothing was changed.
 *
 * @return CKP_OK, CKP_EINVAL, CKP_ENOMEM, CKP_EFORK.
 */
CKP_MUST_USE CKP_API ckp_status ckp_optim_recode(ckp_optim *o, ckp_optim_tensor *t, unsigned m_bits, unsigned v_bits, uint8_t *m, uint8_t *v, ckp_error *err);

/** All that is kept of a parameter, in memory of the caller; [0] is m's, [1] v's. */
typedef struct ckp_policy_item {
    uint64_t numel, cols; /**< caller's: of the whole parameter */
    uint64_t fixed;       /**< caller's: bytes that no width changes */
    int32_t score[2];     /**< log2 of what a step of the grid costs a parameter here, against others, in parts of 256 */
    uint8_t bits[2];      /**< now */
    uint8_t wanted[2];    /**< by the last plan; 0: none yet */
    uint8_t votes[2];     /**< visits in a row for fewer */
    uint8_t follows;      /**< caller's: 0: a tensor whose widths stay, but whose bytes count; else 1 and its lead (ckp_policy_lead), which counts at the start alone */
    uint8_t seen;         /**< has scores */
} ckp_policy_item;

/** And of all together. */
typedef struct ckp_policy {
    uint64_t budget;      /**< caller's: bytes, all items' */
    uint64_t used;        /**< as of the last plan and what was moved since */
    uint64_t followers;   /**< as of the last plan */
    uint64_t visits, raised, lowered, plans;
    int64_t mean[CKP_POLICY_FACTORS]; /**< running means over tensors, in parts of 2^24 */
    int64_t price;        /**< what the last plan's last bit brought: log2, in parts of 256 */
} ckp_policy;

/**
 * How a learning rate compares with the one that most parameters have: log2, in parts of 256, limited to 8 octaves either way. A rate of 0 is the lowest; without one to compare with
 * (`common` not between 2^-100 and 2^100), or for an lr that is none (negative, NaN, above 2^100), it is 0. A step of the grid moves a weight in proportion to the rate, and
 * what that costs grows with the square: where rates differ, scores do by twice as much.
 */
CKP_API int32_t ckp_policy_rate(double lr, double common);
/** Levels above the others' that a tensor of this rate starts with. */
CKP_API uint8_t ckp_policy_lead(int32_t rate);
/**
 * Widths of m and v at the start: the largest of a ladder by which all items stay within p->budget, those with a lead so many levels above it.
 * @return false: with their leads no rung of the ladder fits, and `bits` are for all.
 */
CKP_API bool ckp_policy_start(const ckp_policy *p, const ckp_policy_item *item, size_t n, unsigned bits[2]);
/** Widths of a tensor with this lead, where others have `bits`. */
CKP_API void ckp_policy_led(const unsigned bits[2], uint8_t lead, unsigned out[2]);

/**
 * Takes what was seen of a tensor, and says in `bits` which widths it should have now: up at once where the plan asks for it, or its score has risen
 * since and a bit now brings more than the plan's price, and the budget has room; down after two visits in a row; by one level.
 * @param rate   of ckp_policy_rate, for the tensor's lr now.
 * @return whether they differ from the item's.
 */
CKP_API bool ckp_policy_visit(ckp_policy *p, ckp_policy_item *item, const ckp_optim_stats *s, double lr, int32_t rate, uint64_t step, unsigned bits[2]);
/** The tensor has these widths now. */
CKP_API void ckp_policy_moved(ckp_policy *p, ckp_policy_item *item, const unsigned bits[2]);
/** Shares the budget out anew; time is linear in n, and nothing is allocated. */
CKP_API void ckp_policy_plan(ckp_policy *p, ckp_policy_item *item, size_t n);

/** What a visit measures, log2 in parts of 256, by the numbers of CKP_POLICY_FACTORS; false: nothing to measure (no gradient, no moments). */
CKP_API bool ckp_policy_factors(const ckp_optim_stats *s, double lr, uint64_t step, int32_t out[CKP_POLICY_FACTORS]);

#ifdef __cplusplus
}
#endif
#endif
