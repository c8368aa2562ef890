/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_INSPECT_H
#define CKPRESS_RUN_INSPECT_H
/*
 * Looking back on a training: what its checkpoints say of themselves. Nothing here decodes a tensor.
 */
#include <ckpress/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a save was coded with ---------------------------------------------------------------------------------- */

/**
 * Setting number `index` that the save recorded; false beyond the last. Wholly lossless saves and plain files have none. The name is valid while ck
 * lives (of an entry: during fn). Names (docs/runs.md, "Manifest"):
 *   quality      scale of the profile's steps, 0.01 to 100
 *   step         of the weights, in RMS of all large ones; 0: this save kept them exactly
 *   rms          of all large weights
 *   movement     RMS of the weights' movement since the save before, in that RMS; not with keys that were surveyed anew
 *   m_share      of first moments, the largest, that is kept; the others are coded as zero. Not there where moments are rounded evenly
 *   v_octaves    step of the second moment's root, in octaves
 *   dynaquant_bins, dynaquant_bins_embedding, dynaquant_prune, dynaquant_prune_by_sensitivity (0 or 1), dynaquant_protect: as in ckp_dynaquant,
 *                where weights were coded so
 *   optimizer_states_bits   16 or 8, where moments are in clusters (ckp_optimizer_states)
 */
CKP_API bool ckp_checkpoint_setting(const ckp_checkpoint *ck, size_t index, ckp_metric *out);
CKP_API bool ckp_list_entry_setting(const ckp_list_entry *e, size_t index, ckp_metric *out);

/** How one tensor is coded, by the parameters of its first chunk. What does not apply is 0. */
typedef struct ckp_tensor_settings {
    size_t size;                 /**< sizeof(ckp_tensor_settings), set by the caller */
    const char *quantizer;       /**< "none" (lossless), "w", "m", "v", "index", "cluster", "codebook"; "?": one that this version does not describe */
    bool step_follows;           /**< w: an element's step follows its second moment (or momentum's factors), between the bounds */
    double step;                 /**< w: the step, in the weight's own unit, or what is multiplied with the element's scale */
    double step_min, step_max;   /**< w: bounds of an element's step */
    double magnitude;            /**< m: of a code of one, in units of what scales it */
    double octaves;              /**< v: step of its root, octaves; 0: as its base has it */
    unsigned levels;             /**< index: centres of its codebook; 0: as its base has it, or none. cluster, codebook: clusters */
    double mse, mre;             /**< cluster, codebook: over all chunks, as measured when it was saved: mean of e^2; of |e / x| where x is not 0 */
} ckp_tensor_settings;
/**
 * Reads one chunk from the file (of clusters all of the tensor's) and checks its hash.
 * @return CKP_OK; CKP_EINVAL: bad arguments; CKP_ENOTFOUND: no such tensor; CKP_ECORRUPT, CKP_ETRUNCATED, CKP_EIO: the chunk; CKP_ENOMEM.
 */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_tensor_settings(const ckp_checkpoint *ck, size_t index, ckp_tensor_settings *out, ckp_error *err);

/* ---- a run from its beginning ------------------------------------------------------------------------------------- */

/**
 * Calls fn as ckp_run_list does, with each checkpoint opened from its own manifest and shard (and the one that stores its table): its bases
 * are neither opened nor checked. A return other than 0 ends it with CKP_ECANCELLED.
 * @param ck   valid during fn, for ckp_checkpoint_get_info, _metric, _setting, _count, _tensor, _tensor_settings, _find and _tree; its tensors cannot be
 *             read. NULL: there is no manifest, or its shard cannot be opened.
 * @param why  then, if there is a manifest: what is wrong with the shard; else NULL.
 */
typedef int (*ckp_inspect_fn)(void *user, const ckp_list_entry *e, const ckp_checkpoint *ck, const ckp_error *why);
CKP_MUST_USE CKP_API ckp_status ckp_run_inspect(const char *dir, ckp_inspect_fn fn, void *user, ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
