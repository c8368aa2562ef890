/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_PLAN_H
#define CKPRESS_RUN_PLAN_H
/*
 * Planning: which step each weight of a lossy state should have, so that a budget of size or error is met with the least distortion.
 *
 * Rate-distortion optimal allocation with one Lagrange multiplier over all weights (Shoham and Gersho, "Efficient bit allocation for an arbitrary
 * set of quantizers", 1988). The rate is what the real coder makes of a sample of each weight. An error e costs h e^2 / 2, with h from the
 * caller's score, else the root of second moments v / (1 - b2^t), else 1 / (RMS of the tensor * RMS of all weights).
 * A plan's steps go into ckp_coding.steps.
 */
#include <ckpress/run_file.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a plan keeps to. */
typedef enum ckp_plan_target {
    CKP_PLAN_BITS = 0,   /**< stored bits a parameter: the whole file over the elements of weights and masters; above 0 */
    CKP_PLAN_RATIO = 1,  /**< bytes of all tensors over bytes of the file; above 0 */
    CKP_PLAN_BYTES = 2,  /**< of the file; above 0 */
    CKP_PLAN_ERROR = 3,  /**< root of the mean, over planned weights, of (error / RMS of its tensor)^2; above 0 */
    CKP_PLAN_LOSS = 4    /**< sum over planned weights of v e^2 / (2 (1 - b2^t)), with v as Fisher information about the increase of the loss; of
                              h e^2 / 2 without second moments or with scores; above 0 */
} ckp_plan_target;

/** How much a tensor matters: the mean over its elements of the second derivative of the loss, or what stands for it (squared gradients). */
typedef struct ckp_tensor_score {
    const char *name;            /**< of a weight of the state */
    double score;                /**< above 0, finite; in the same unit for all. Tensors without one count by their second moments or size */
} ckp_tensor_score;

typedef struct ckp_plan_options {
    size_t size;                 /**< sizeof(ckp_plan_options) */
    ckp_coding coding;           /**< a lossy profile; steps that are given stay. quality: of the steps that are not planned */
    ckp_plan_target target;
    double value;
    const ckp_tensor_score *scores;
    size_t n_scores;
    unsigned encodes;            /**< 1 to 3 whole codings, to nowhere, that tell a plan for a size what the file costs; default 2. Other targets need none */
    void (*notice)(void *user, const char *text);   /**< as in ckp_convert_options; may be NULL */
    void *notice_user;
} ckp_plan_options;
#define CKP_PLAN_OPTIONS_INIT {sizeof(ckp_plan_options), CKP_CODING_INIT, CKP_PLAN_BITS, 0.0, NULL, 0, 2, NULL, NULL}

typedef struct ckp_plan ckp_plan;

/**
 * Plans for a state that will be written to one file as a key (ckp_file_save). The state is sealed and otherwise left as it is.
 * @return CKP_OK, also when the budget cannot be met (ckp_plan_info.met); CKP_EINVAL: an option, a score for a name that the state does not have
 *         or that is not coded lossily, or nothing to plan; CKP_ENOMEM, CKP_EIO ... of what the state pulls from, CKP_ECANCELLED.
 */
CKP_MUST_USE CKP_API ckp_status ckp_plan_state(ckp_plan **out, ckp_state *state, const ckp_plan_options *opt, ckp_error *err);
/** The same for a safetensors or PyTorch file (as ckp_compress would code it) or a .ckp; not for a pipe. */
CKP_MUST_USE CKP_API ckp_status ckp_plan_file(ckp_plan **out, const char *path, const ckp_plan_options *opt, ckp_error *err);
/** Accepts NULL. */
CKP_API void ckp_plan_free(ckp_plan *p);

typedef struct ckp_plan_info {
    size_t size;                 /**< sizeof, set by the caller */
    bool met;                    /**< false: the steps are the finest or coarsest that a plan has, and the figures say what they reach */
    uint64_t params;             /**< elements of weights and masters */
    uint64_t raw_bytes;          /**< of all tensors */
    uint64_t bytes;              /**< expected, of the file; 0 without encodes */
    double bits;                 /**< expected, a parameter, of the planned weights alone */
    double bits_all;             /**< of the whole file; 0 without encodes */
    double error;                /**< as CKP_PLAN_ERROR, expected */
    double loss;                 /**< as CKP_PLAN_LOSS, expected */
    double multiplier;           /**< cost that a bit is worth */
    unsigned encodes;            /**< that were made */
    double cpu, encode_cpu;      /**< CPU seconds of all threads: of measuring samples; of the last encode */
} ckp_plan_info;
CKP_API void ckp_plan_get_info(const ckp_plan *p, ckp_plan_info *info);

typedef struct ckp_plan_row {
    size_t size;                 /**< sizeof, set by the caller */
    const char *name;            /**< valid while the plan lives, like `why` */
    ckp_role role;
    uint64_t numel;
    double step;                 /**< 0: lossless */
    double step_rms;             /**< step over the tensor's RMS; 0: lossless */
    double bits;                 /**< expected, an element; 0: lossless, not estimated */
    double error;                /**< expected RMS error over the tensor's RMS */
    double loss;                 /**< expected, of all its elements */
    const char *why;             /**< "multiplier", "small: 16 times finer", "finest step", "coarsest step", "given", "lossless" */
} ckp_plan_row;
/** A row for each weight and master that has elements of its own, in the state's order. */
CKP_API size_t ckp_plan_count(const ckp_plan *p);
CKP_API void ckp_plan_get_row(const ckp_plan *p, size_t index, ckp_plan_row *row);
/** For ckp_coding.steps: those that were planned, and those that were given. Valid while the plan lives. */
CKP_API const ckp_tensor_step *ckp_plan_steps(const ckp_plan *p, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
