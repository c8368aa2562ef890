/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_VERIFY_H
#define CKPRESS_RUN_VERIFY_H
/*
 * Checking runs and files at rest: all of them, a sample that differs from check to check, or as much as an amount of time allows.
 * ckp_verify (run.h) is the same with everything checked.
 */
#include <ckpress/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckp_verify_options {
    size_t size;                 /**< sizeof(ckp_verify_options) */
    ckp_verify_level level;
    unsigned threads;            /**< 0: one a processor */
    double share;                /**< of each file's chunks that is checked, above 0 and at most 1; structure is always checked whole */
    uint64_t seed;               /**< which ones: the same seed chooses the same chunks of the same files */
    double max_seconds;          /**< then it ends, newest checkpoints being first; 0: no limit */
    const char *const *bases;    /**< as for ckp_verify */
    size_t n_bases;
    void (*fn)(void *user, const char *what, const ckp_error *e);   /**< a finding; names file, tensor and offset where they are known. May be NULL */
    void *user;
    ckp_progress_fn progress;    /**< bytes of files; on the caller's thread. May be NULL */
    void *progress_user;
} ckp_verify_options;
#define CKP_VERIFY_OPTIONS_INIT {sizeof(ckp_verify_options), CKP_VERIFY_STRUCTURE, 0, 1.0, 0, 0.0, NULL, 0, NULL, NULL, NULL, NULL}

/** How far it came. A single file, or one checkpoint, counts as one, with the files of its chain. */
typedef struct ckp_verified {
    size_t size;                 /**< sizeof(ckp_verified), set by the caller */
    uint64_t checkpoints;        /**< in the run */
    uint64_t looked_at;          /**< of these, to the end; all unless the time was up */
    uint64_t whole;              /**< of these: nothing is wrong with it or with what it needs */
    uint64_t chunks, bytes;      /**< that were read and checked */
    uint64_t stored_bytes;       /**< of all files */
    uint64_t findings;
    bool out_of_time;
} ckp_verified;

/**
 * Verifies a .ckp file with its bases, or a run, newest checkpoint first. Damage does not end it: each chunk that is damaged is a finding, up
 * to 16 a file. A chunk that several checkpoints need is one finding. What a writer deletes meanwhile is not missed.
 * @return CKP_OK: nothing is wrong with what was checked, also when the time was up; else the first finding's status. CKP_ENOTFOUND: a run of
 *         attempts without one checkpoint; CKP_ECANCELLED.
 */
CKP_MUST_USE CKP_API ckp_status ckp_verify_with(const char *path, const ckp_verify_options *opt, ckp_verified *done, ckp_error *err);
/** The same for one open checkpoint and its bases; what opening checks is not checked again. */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_verify_with(ckp_checkpoint *ck, const ckp_verify_options *opt, ckp_verified *done, ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
