/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_EXPORT_H
#define CKPRESS_RUN_EXPORT_H
/*
 * Checkpoints as files for others, and series of such files as runs.
 */
#include <ckpress/run_file.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ckp_export_kind {
    CKP_EXPORT_SAFETENSORS = 0,  /**< NAME.safetensors: every tensor; plain values are left out, with a notice */
    CKP_EXPORT_PT = 1,           /**< NAME.pt: everything; torch.load(weights_only=True) reads it */
    CKP_EXPORT_HF = 2            /**< a model's weights under its own names, as from_pretrained() of transformers reads them: model.safetensors, or
                                      model-00001-of-0000N.safetensors with model.safetensors.index.json */
} ckp_export_kind;

/** Make one with CKP_EXPORT_OPTIONS_INIT. */
typedef struct ckp_export_options {
    size_t size;                 /**< sizeof(ckp_export_options) */
    ckp_export_kind to;
    const char *only;            /**< tensors of one object alone, by their own names; NULL: all, but for HF "model", where there is one */
    uint64_t max_file_bytes;     /**< HF: bytes of tensors in one file; a tensor that is larger has a file of its own */
    bool replace;
    unsigned threads;            /**< 0: one a processor */
    ckp_progress_fn progress;    /**< may be NULL; starts anew with each file */
    void *progress_user;
    void (*notice)(void *user, const char *text);   /**< may be NULL */
    void *notice_user;
} ckp_export_options;
#define CKP_EXPORT_OPTIONS_INIT {sizeof(ckp_export_options), CKP_EXPORT_SAFETENSORS, NULL, UINT64_C(5000000000), false, 0, NULL, NULL, NULL, NULL}

typedef struct ckp_exported {
    size_t size;                 /**< sizeof(ckp_exported), set by the caller */
    uint64_t files, tensors, bytes;   /**< bytes: of all files */
    uint64_t values_lost;        /**< plain values for which the files have no place */
    char name[256];              /**< of the file, or of the index */
} ckp_exported;

/**
 * Writes an open checkpoint into a directory, which is made where it is not there. Each file appears whole or not at all; of several the index
 * comes last, and where it would replace an older one that goes first, so that files of two checkpoints are never read together.
 * @param name  stem of the file for SAFETENSORS and PT ("gpt@100"); not used for HF.
 * @return CKP_EEXIST: such a file is there, HF: weights of any kind are there, named; CKP_ENOTFOUND: no tensors of that object; CKP_EUNSUPPORTED: a
 *         dtype that safetensors does not have, or HF: which tensors are the model's is not known; otherwise as ckp_decompress.
 */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_export_to(ckp_checkpoint *ck, const char *dir, const char *name, const ckp_export_options *opt,
                                                         ckp_exported *done, ckp_error *err);

/** Make one with CKP_IMPORT_OPTIONS_INIT. */
typedef struct ckp_import_options {
    size_t size;                 /**< sizeof(ckp_import_options) */
    ckp_coding coding;
    unsigned key_every;          /**< as of ckp_run_options */
    const uint64_t *step;        /**< of each file, rising; NULL: the number by which the files' names differ */
    bool in_order;               /**< steps 1, 2, 3 ... in the order given */
    void (*told)(void *user, const char *file, uint64_t step, uint64_t in_bytes, uint64_t stored_bytes);   /**< after each; may be NULL */
    void *told_user;
    void (*notice)(void *user, const char *text);   /**< may be NULL */
    void *notice_user;
} ckp_import_options;
#define CKP_IMPORT_OPTIONS_INIT {sizeof(ckp_import_options), CKP_CODING_INIT, 32, NULL, false, NULL, NULL, NULL, NULL}

typedef struct ckp_imported { size_t size; uint64_t checkpoints, in_bytes, stored_bytes; } ckp_imported;

/**
 * Makes a new run of safetensors and PyTorch files, one checkpoint each, in order of their steps. What is read and refused is as of ckp_compress.
 * Steps come from the paths if they differ in one number alone ("out/checkpoint-500/model.safetensors", "out/checkpoint-1000/..."), or if there is
 * one file with one number in its name; anything else is refused before a file is read.
 * @param run   a directory, which is made where it is not there; must hold no checkpoints.
 * @param done  filled on failure too: what was imported before stays, a valid run.
 * @return CKP_EINVAL: the steps cannot be told, or do not rise (CKP_EEXIST: the run has checkpoints already); otherwise as ckp_compress and ckp_run_save.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_import(const char *run, const char *const *file, size_t n, const ckp_import_options *opt, ckp_imported *done,
                                               ckp_error *err);
/** The steps that ckp_run_import would take from the paths. @return CKP_EINVAL: they cannot be told; the text says why. */
CKP_MUST_USE CKP_API ckp_status ckp_import_steps(const char *const *file, size_t n, uint64_t *step, ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
