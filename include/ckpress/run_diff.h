/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_DIFF_H
#define CKPRESS_RUN_DIFF_H
/*
 * What changed between two states, each an open checkpoint or a file of any kind that ckpress reads.
 */
#include <ckpress/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One of the two. */
typedef struct ckp_diff_side {
    ckp_checkpoint *ck;          /**< open; stays the caller's. NULL: the file at path */
    const char *path;            /**< .ckp, safetensors or a PyTorch file; not used with ck */
    const char *const *bases;    /**< of a .ckp that is a delta, as ckp_checkpoint_open_file takes them; may be NULL */
    size_t n_bases;
} ckp_diff_side;

typedef enum ckp_diff_kind {
    CKP_DIFF_SAME = 0,           /**< every bit is equal */
    CKP_DIFF_VALUES = 1,         /**< same dtype and shape, other elements */
    CKP_DIFF_LAYOUT = 2,         /**< another dtype or shape: elements were not compared */
    CKP_DIFF_ONLY_A = 3,
    CKP_DIFF_ONLY_B = 4
} ckp_diff_kind;

/** One name. Pointers are valid during the call that is given it. */
typedef struct ckp_diff_tensor {
    const char *name;
    ckp_diff_kind kind;
    ckp_role role;               /**< A's, or B's where A does not say. Found by names and shapes where a file stores none */
    ckp_dtype dtype_a, dtype_b;  /**< 0: not there */
    unsigned ndim_a, ndim_b;
    const uint64_t *shape_a, *shape_b;
    uint64_t numel;              /**< elements of A's, or of B's where A has none */
    bool alias;                  /**< in both, another name for elements that are told under the first */
    uint64_t differ;             /**< elements whose bits differ: -0 is not 0, a NaN is equal to one of the same bits */
    /**
     * With numbers, for SAME and VALUES of every dtype whose elements are numbers (bool: 0 and 1; complex: absolute values); others, such as
     * packed types, are compared as bytes. Elements that are NaN or infinite in A or B, or whose difference is beyond an f64, are in
     * no sum: those of them that differ are counted.
     */
    bool numbers;
    uint64_t not_finite;         /**< of those that differ */
    double max_abs;              /**< largest |B - A| */
    double rms;                  /**< root of the mean square of B - A, over all numel elements */
    double rms_a;                /**< of A */
} ckp_diff_tensor;

/** A value that is no tensor (a step, a learning rate, a string), by its keys joined by "/". Texts are shortened; NULL: not there. */
typedef struct ckp_diff_value { const char *path, *a, *b; } ckp_diff_value;

/** Initialise with CKP_DIFF_OPTIONS_INIT. Either function may be NULL; a return other than 0 ends it with CKP_ECANCELLED. */
typedef struct ckp_diff_options {
    size_t size;                 /**< sizeof(ckp_diff_options) */
    int (*tensor)(void *user, const ckp_diff_tensor *t);   /**< each name once: A's in their order, then those only in B; equal ones too */
    int (*value)(void *user, const ckp_diff_value *v);     /**< those that differ, by path */
    void *user;
    ckp_progress_fn progress;    /**< in bytes of elements; may be NULL */
    void *progress_user;
    /**
     * Tensors of one object alone: of a side that has some named "ONLY/...", these, by the rest of their names; a side that has none is taken
     * whole. So a run's "model" is compared with a file of weights. Values are not compared then. NULL: all.
     */
    const char *only;
} ckp_diff_options;
#define CKP_DIFF_OPTIONS_INIT {sizeof(ckp_diff_options), NULL, NULL, NULL, NULL, NULL, NULL}

/**
 * Compares tensors by name and plain values by path. Elements are read in stretches: memory does not grow with tensors or files. Where both
 * have a tensor at a path of the tree, or the same container, nothing is told there.
 * @return CKP_OK whether they differ or not; CKP_EINVAL; CKP_EFORMAT: not such a file; CKP_EUNSUPPORTED: one shard of several; CKP_ECORRUPT,
 *         CKP_ETRUNCATED, CKP_EBASE, CKP_EUNSAFE, CKP_EIO, CKP_ENOTFOUND, CKP_ENOMEM: reading, with file and tensor; CKP_ENOTFOUND: neither has the object `only`;
 *         CKP_ECANCELLED; CKP_EFORK: a checkpoint of another process.
 * Thread safety: safe; a checkpoint may be on both sides, and read by other threads meanwhile.
 */
CKP_MUST_USE CKP_API ckp_status ckp_diff(const ckp_diff_side *a, const ckp_diff_side *b, const ckp_diff_options *opt, ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
