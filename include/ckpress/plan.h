/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_PLAN_H
#define CKPRESS_PLAN_H
/*
 * Choosing settings: DynaQuant's searches for the smallest configuration whose loss stays within a budget (Agrawal et al.,
 * "Inshrinkerator", SoCC 2024, arXiv 2306.11800, configuration manager).
 *
 * A search asks and is told; it evaluates nothing itself, so it fits any model, any coder and any number of ranks:
 *
 *     ckp_search_new(&s, &opt, &err);
 *     while (!ckp_search_done(s)) {
 *         ckp_search_ask(s, config, CKP_SEARCH_GROUP_MAX, &n, &err);   the next group, at most opt.group of them
 *         ... code and evaluate each, on as many ranks as there are ...
 *         ckp_search_tell(s, result, n, &err);
 *     }
 *     found = ckp_search_best(s, &config, &result);
 *
 * Grid: bins 4, 6, 8, 12, 16, 32; bins of embeddings 16, 32; pruned share 0, 0.1 ... 0.5, by magnitude or by sensitivity; protected share
 * 0.0005, 0.005, 0.01. Where nothing is pruned the metric does not matter, and there is one configuration, not two: 396 of them.
 *
 * What the searches rely on: a configuration that is at least as precise on every axis (bins, pruned, protected) loses no more and is
 * no smaller. Sizes that do not follow it may be given (ckp_search_options.sizes) and are then taken as they are.
 *
 * A guided search never asks what an answer that was taken decides. The group's size changes how many rounds there are, never the choice:
 * answers are taken one after the other, and what a group holds beyond the next question are those that may follow it.
 *
 * Threads: a ckp_search is used by one thread at a time.   Since: 0.1
 */
#include <stdbool.h>
#include <ckpress/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKP_SEARCH_CONFIGS 432   /**< indexes of ckp_search_config_at */
#define CKP_SEARCH_GROUP_MAX 64

/** How to look. */
typedef enum ckp_search_method {
    CKP_SEARCH_GUIDED = 0,       /**< the whole grid, by diagonals of the cubes that monotonicity leaves undecided */
    CKP_SEARCH_NEIGHBOURHOOD = 1 /**< near the last configuration; the whole grid if nothing there is good enough */
} ckp_search_method;

/** One point of the grid. */
typedef struct ckp_search_config {
    unsigned bins;               /**< levels of a codebook: 4 to 32 */
    unsigned bins_embedding;     /**< of embeddings: 16 or 32 */
    double prune;                /**< share of weights that become zero, 0 to 0.5 */
    unsigned prune_by;           /**< 0: the smallest magnitudes; 1: the least sensitive, |g * w| */
    double protect;              /**< share of weights kept in bf16, 0.0005 to 0.01 */
} ckp_search_config;

/** What an evaluation gave. */
typedef struct ckp_search_result {
    double loss;                 /**< of the decoded weights, lower is better; not finite: no good */
    uint64_t bytes;              /**< as coded; 0: not known, then its size counts */
} ckp_search_result;

typedef struct ckp_search_options {
    size_t size;                 /**< sizeof(ckp_search_options) */
    ckp_search_method method;
    double loss_live;            /**< of the weights as they are; finite */
    double epsilon;              /**< a loss is good enough up to loss_live + epsilon * |loss_live|; default 0.05, the paper's */
    const ckp_search_config *last; /**< the last choice, a point of the grid; needed by the neighbourhood. Copied */
    unsigned group;              /**< evaluations asked for at once, 1 (default) to CKP_SEARCH_GROUP_MAX: the ranks there are */
    unsigned radius;             /**< of the neighbourhood, in steps of the grid, L1; 1 (default) to 16. The paper gives none */
    bool no_sensitivity;         /**< there are no scores |g * w|: prune by magnitude only */
    bool no_embeddings;          /**< the model has none: bins_embedding stays 16 */
    const uint64_t *sizes;       /**< bytes of each ckp_search_config_at, known or estimated, CKP_SEARCH_CONFIGS of them; or NULL. Copied.
                                      They decide what cannot be the smallest, which is never evaluated; among what was evaluated, the
                                      bytes that were told decide. 0 marks one that cannot be coded */
} ckp_search_options;
#define CKP_SEARCH_OPTIONS_INIT {sizeof(ckp_search_options), CKP_SEARCH_GUIDED, 0.0, 0.05, NULL, 1, 1, false, false, NULL}

/** Configuration number `index`; false beyond the last. With nothing pruned, those by magnitude and by sensitivity are the same. */
CKP_API bool ckp_search_config_at(size_t index, ckp_search_config *out);
/** The index of a point of the grid (its shares to within 10^-9), the same for both metrics where nothing is pruned; CKP_SEARCH_CONFIGS
    when it is none. */
CKP_API size_t ckp_search_config_index(const ckp_search_config *c);

typedef struct ckp_search ckp_search;

/**
 * A search that has asked nothing yet.
 * @param[out] out  owned by the caller (ckp_search_free); NULL on failure.
 * @return CKP_OK; CKP_EINVAL: an option out of its range, or a last configuration that is not of the grid; CKP_ENOMEM.
 */
CKP_MUST_USE CKP_API ckp_status ckp_search_new(ckp_search **out, const ckp_search_options *opt, ckp_error *err);
/** Accepts NULL. */
CKP_API void ckp_search_free(ckp_search *s);

/**
 * The next configurations to evaluate: n of them, 1 to min(max, group), the one that is needed first and those that may be needed after it.
 * @return CKP_OK; CKP_ESTATE: nothing is left to ask, or the last answer is still owed; CKP_EINVAL: NULL, or no room.
 */
CKP_MUST_USE CKP_API ckp_status ckp_search_ask(ckp_search *s, ckp_search_config *config, size_t max, size_t *n, ckp_error *err);
/**
 * What they gave, in the order they were asked for.
 * @return CKP_OK; CKP_ESTATE: nothing was asked; CKP_EINVAL: not as many as were asked for.
 */
CKP_MUST_USE CKP_API ckp_status ckp_search_tell(ckp_search *s, const ckp_search_result *result, size_t n, ckp_error *err);
/** Whether nothing is left to ask. */
CKP_API bool ckp_search_done(const ckp_search *s);

/**
 * The choice so far: the smallest that is good enough, or, when none is, the one of least loss.
 * @param[out] config, result  may be NULL; untouched while nothing finite was told.
 * @return whether it is good enough.
 */
CKP_API bool ckp_search_best(const ckp_search *s, ckp_search_config *config, ckp_search_result *result);

typedef struct ckp_search_stats {
    size_t size;                 /**< sizeof(ckp_search_stats), set by the caller */
    unsigned evaluations;        /**< told so far, the questions asked ahead among them */
    unsigned by_method[2];       /**< of them, by the ckp_search_method that asked */
    unsigned decided_by;         /**< that the choice rests on: what a group of 1 evaluates */
    unsigned rounds;             /**< groups told */
    bool fell_back;              /**< a neighbourhood had nothing good enough */
} ckp_search_stats;
CKP_API void ckp_search_get_stats(const ckp_search *s, ckp_search_stats *st);
/** Evaluations told so far. */
CKP_API unsigned ckp_search_evaluations(const ckp_search *s);
/** One sentence on what was chosen and why. Valid until the next call with this search. */
CKP_API const char *ckp_search_why(ckp_search *s);

#ifdef __cplusplus
}
#endif
#endif
