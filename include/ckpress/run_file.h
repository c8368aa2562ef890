/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_FILE_H
#define CKPRESS_RUN_FILE_H
/*
 * Single files: a state to one .ckp; other people's files (safetensors, PyTorch .pt) to .ckp and back; saving what a damaged file holds.
 */
#include <ckpress/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Writes a state to one file: temporary name, fsync, rename; an existing file is replaced only when `replace`.
 * @param base  an open checkpoint to make a delta against, or NULL; it stays the caller's.
 * @return CKP_EINVAL also where `path` is one of the files that the base is read from, or its base model: the new file would need what it replaces.
 */
CKP_MUST_USE CKP_API ckp_status ckp_file_save(const char *path, ckp_state *state, const ckp_coding *coding, ckp_checkpoint *base, bool replace,
                                              ckp_error *err);

typedef struct ckp_convert_options {
    size_t size;                 /**< sizeof(ckp_convert_options) */
    ckp_coding coding;
    const char *const *bases;    /**< chain of the base for a delta, nearest first; or NULL */
    size_t n_bases;
    bool replace;
    void (*notice)(void *user, const char *text);   /**< e.g. optimizer groups that could not be matched; may be NULL */
    void *notice_user;
    const char *only;            /**< decompressing: tensors of one object alone ("model": model/wte.weight as wte.weight); NULL: all. Without plain values */
    bool dry_run;                /**< ckp_compress: code everything and write nothing; out may be NULL, the result says what it would be */
} ckp_convert_options;
#define CKP_CONVERT_OPTIONS_INIT {sizeof(ckp_convert_options), CKP_CODING_INIT, NULL, 0, false, NULL, NULL, NULL, false}

/** What a conversion did. */
typedef struct ckp_convert_result {
    size_t size;                 /**< sizeof, set by the caller */
    uint64_t in_bytes, out_bytes, tensors;
    char kind[32];               /**< what the foreign file is: "safetensors", "torch zip" ...; written: "safetensors", "pt" */
    uint64_t lossy;              /**< compress: tensors that were coded lossily */
    char why_lossless[160];      /**< compress: why a lossy profile coded none so; "" else */
    uint64_t dropped, dropped_bytes;   /**< compress: tensors of optimizer state that the profile weights left out */
    uint64_t values_lost;        /**< decompress: plain values for which a safetensors file has no place */
    char values_named[200];      /**< the first of them, by their paths, with ", " between */
} ckp_convert_result;

/**
 * Compresses a safetensors or PyTorch file. "-" is standard input or output.
 * Lossless gives back a safetensors file byte for byte; of a .pt, every tensor and plain value, with aliases. The profile weights leaves out
 * what optimizers keep for each parameter (moments, step counters); their groups stay. CKP_EINVAL: `out` is one of the bases (here and on the way back).
 */
CKP_MUST_USE CKP_API ckp_status ckp_compress(const char *in, const char *out, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err);
/** The way back. A .ckp that came from no file (a run's shard, ckp_file_save) becomes a .pt, or safetensors when `out` ends so. */
CKP_MUST_USE CKP_API ckp_status ckp_decompress(const char *in, const char *out, const ckp_convert_options *opt, ckp_convert_result *res,
                                               ckp_error *err);
/** The same for a checkpoint that is open, also one of a run; opt->bases are not used. */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_export(ckp_checkpoint *ck, const char *out, const ckp_convert_options *opt,
                                                      ckp_convert_result *res, ckp_error *err);

/**
 * Reads every whole chunk of a damaged .ckp and writes what they hold as safetensors files into the directory `out`: whole tensors to
 * salvaged.safetensors, parts of broken ones to salvaged-parts.safetensors (named NAME[first:last]), and so what one shard of several holds of a
 * tensor (a box: NAME[first:last,first:last]). Elements of a dtype that safetensors does not know are written as bytes, under NAME@dtype.
 * fn gets a line a tensor: whole, or which ranges.
 * @param bases  those of a delta, nearest first; they may be damaged too, and what was predicted from chunks that they lost is lost.
 */
CKP_MUST_USE CKP_API ckp_status ckp_salvage(const char *in, const char *const *bases, size_t n_bases, const char *out, bool replace,
                                            void (*fn)(void *user, const char *tensor, uint64_t have, uint64_t of), void *user,
                                            ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
