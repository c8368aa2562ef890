/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_RUN_H
#define CKPRESS_RUN_H
/*
 * Runs and files: saving a state, reading it back, and proving that it is whole.
 *
 * A run is a directory of checkpoints with one identity and lineage (docs/runs.md), or lies in an object store (run_objects.h); one process writes
 * to it at a time, any number read. A file is one state in one .ckp file.
 *
 * Threads: a ckp_run is used by one thread at a time; a ckp_checkpoint may be read by many at once. Fork: a handle belongs to the
 * process that made it; in a forked child every call returns CKP_EFORK and freeing does nothing to the disk.
 */
#include <ckpress/objects.h>
#include <ckpress/run_group.h>
#include <ckpress/state.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a state may be coded (docs/quality.md has what was measured). */
typedef enum ckp_profile {
    CKP_PROFILE_LOSSLESS = 0, /**< every bit comes back */
    CKP_PROFILE_RESUME = 1,   /**< to train on: final loss inside seed noise after 10 restores */
    CKP_PROFILE_SMALL = 2,    /**< smaller; at most 12 steps of training lost per restore */
    CKP_PROFILE_WEIGHTS = 3   /**< weights to pass on. ckp_compress leaves moments out; others do by not putting them into the state */
} ckp_profile;
CKP_API const char *ckp_profile_name(ckp_profile p);            /* "lossless" ...; NULL for an unknown value */

/** The step of one weight, instead of what the profile would choose. */
typedef struct ckp_tensor_step {
    const char *name;            /**< of a weight of the state */
    double step;                 /**< in units of the weight, used as the nearest f32: CKP_STEP_MIN to CKP_STEP_MAX; 0: this tensor, and its
                                      moments, losslessly */
} ckp_tensor_step;
#define CKP_STEP_MIN 1e-30
#define CKP_STEP_MAX 1e30

/** What tells which weights matter least. */
typedef enum ckp_score {
    CKP_SCORE_MAGNITUDE = 0,     /**< |w| */
    CKP_SCORE_SENSITIVITY = 1    /**< |g * w| (ckp_sensitivity), else sqrt(v) * |w| with Adam's second moment; where neither is there, |w| */
} ckp_score;

/** Sensitivities of one tensor: averages of |g * w| over some batches, as the caller has collected them. */
typedef struct ckp_sensitivity {
    const char *name;            /**< of the tensor in the state */
    const float *score;          /**< one for each element that the state holds of it, row-major; the sign does not matter, NaN protects */
    uint64_t count;              /**< of them: must equal the tensor's elements */
} ckp_sensitivity;

/**
 * Weights coded the way of DynaQuant / Inshrinkerator: the top fraction by magnitude, and the top fraction by sensitivity, is kept as bf16;
 * the lowest fraction becomes zero; all others get the nearest of a few centres, which are placed by exact one-dimensional clustering. Fractions
 * are of all values of one kind of layer: embedding, attention, convolution, linear (told by names and shapes). So are coded weights of at least
 * 4096 elements and two dimensions, with or without moments; smaller ones and moments as the profile does. Initialise with CKP_DYNAQUANT_INIT.
 */
typedef struct ckp_dynaquant {
    size_t size;                 /**< sizeof(ckp_dynaquant) */
    unsigned bins;               /**< centres of a tensor, 1 to 32 */
    unsigned bins_embedding;     /**< the same of embeddings */
    double prune;                /**< fraction that becomes zero, 0 to below 1 */
    ckp_score prune_by;
    double protect;              /**< fraction that is kept, by each of magnitude and sensitivity; 0 to below 1 */
    const char *const *embeddings;   /**< names of embedding weights; NULL: those whose names say so ("embed", "wte", "wpe") */
    size_t n_embeddings;
    const ckp_sensitivity *sensitivity;   /**< names that are not in the state do not matter */
    size_t n_sensitivity;
} ckp_dynaquant;
#define CKP_DYNAQUANT_INIT {sizeof(ckp_dynaquant), 16, 32, 0.2, CKP_SCORE_MAGNITUDE, 0.005, NULL, 0, NULL, 0}

/** How to code. Initialise with CKP_CODING_INIT. */
/**
 * What becomes of optimizer states beside lossless weights: BitSnap's quantizers, to compare with (docs/quality.md). Of moments and momentum in f32, of 4096 elements or
 * more; smaller ones, other dtypes and all else stay lossless. Nothing is predicted from the last save.
 */
typedef enum ckp_optimizer_states {
    CKP_STATES_PROFILE = 0,      /**< as the profile has it */
    CKP_STATES_CLUSTER = 1,      /**< 16 bits a value: one of up to 256 clusters, and 8 bits between its least and largest value */
    CKP_STATES_CODEBOOK = 2      /**< 8 bits a value: the mean of one of up to 256 clusters */
} ckp_optimizer_states;

typedef struct ckp_coding {
    size_t size;                 /**< sizeof(ckp_coding) */
    ckp_profile profile;
    double quality;              /**< scales the weights' steps: 0.5 is twice as fine; 0.01 to 100, default 1. To 0.2 first moments are rounded evenly, not in three values */
    unsigned threads;            /**< 0: one a processor */
    unsigned effort;             /**< 0 fast (default), 1 normal, 2 smallest: lossless codecs only */
    uint64_t memory_budget;      /**< bytes of extra memory, 0: a default by the state's size; ELIMIT when it cannot be kept */
    ckp_progress_fn progress;    /**< may be NULL */
    void *progress_user;
    const ckp_dynaquant *dynaquant;   /**< weights by codebooks instead of grids; NULL: grids. Lossy profiles only. ckp_run_open copies it; its
                                           sensitivities must stay where they are until the run is closed */
    /**
     * Steps by name, n_steps of them, for lossy profiles; tensors that are not named keep the profile's. A named weight without moments has
     * that step for all its elements, however small it is: values k * step (k from -127 to 127, product in f32) come back exactly. With second
     * moments or momentum the step is the middle of the elements' own, which follow the moments within 1/4 and 3/2 of it. `quality`
     * scales named steps too, and keys of a run are finer by 2, as always; what a run's weights have moved does not count.
     * A name that the state does not have, or whose values are stored losslessly, is CKP_EINVAL with that tensor. Copied by ckp_run_open.
     */
    const ckp_tensor_step *steps;
    size_t n_steps;
    ckp_optimizer_states optimizer_states;   /**< of the profile lossless only */
} ckp_coding;
#define CKP_CODING_INIT {sizeof(ckp_coding), CKP_PROFILE_LOSSLESS, 1.0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, CKP_STATES_PROFILE}

/* ---- a training run: writing ------------------------------------------------------------------------------------ */

typedef struct ckp_run ckp_run;
typedef struct ckp_checkpoint ckp_checkpoint;

/** What save() does while an earlier save is still being written. */
typedef enum ckp_busy { CKP_BUSY_WAIT = 0, CKP_BUSY_SKIP = 1 } ckp_busy;

/**
 * Which restorable points of a run stay: those that any rule names, and always the newest, and the newest whose metrics are finite. Bases that
 * they need stay with them. Without a rule all stay. Initialise with CKP_RETENTION_INIT.
 */
typedef struct ckp_retention {
    size_t size;                 /**< sizeof(ckp_retention) */
    uint32_t keep_last;          /**< the newest so many; 0: no such rule */
    uint32_t keep_best;          /**< so many with the best values of `metric` (ties: the newer); 0: no such rule. Points without it, or with NaN, are none */
    uint64_t keep_every;         /**< the first of each stretch of so many steps: [0, N), [N, 2 N) ...; 0: no such rule */
    const char *metric;          /**< as named at ckp_run_save */
    bool best_is_max;            /**< highest, else lowest */
    uint64_t max_bytes;          /**< of all that stays, bases counted: the oldest points go until it fits, never the newest; 0: no limit */
} ckp_retention;
#define CKP_RETENTION_INIT {sizeof(ckp_retention), 0, 0, 0, NULL, false, 0}

typedef struct ckp_run_options {
    size_t size;                 /**< sizeof(ckp_run_options) */
    ckp_coding coding;
    unsigned key_every;          /**< a key at least every so many checkpoints; default 32; 1: keys only. Earlier after a delta that is no smaller */
    unsigned keep_last;          /**< restorable points to keep, at least 1; 0: all (default) */
    ckp_busy busy;
    unsigned lock_seconds;       /**< a silent writer's lock expires after this; default 60 */
    /**
     * The file that training starts from (.ckp, safetensors or a torch file), for fine-tuning: keys store weights as differences to its own, so
     * that even coarse steps leave untouched what was not trained. It stays where it is and must not change: restores read it from the run's directory
     * if it lies there, else from this path, and refuse another content. Tensors belong together by the longest common ending of their names and equal shapes;
     * what it does not have is coded as ever. NULL: none. Copied.
     */
    const char *base_model;
    const ckp_retention *retention;   /**< rules beside keep_last; NULL: none. Copied */
    /**
     * What the run may cost: bits a parameter in the mean of a key and the deltas up to the next, all counted; 0.05 to 32, 0: as it comes. Saves that
     * ask for no quality of their own then get one between an eighth of coding.quality and twice that, by what the saves before have cost: coarser as soon as that
     * is needed, finer with the next key. A target out of reach is told in ckp_save_stats.warning. For lossy grids (no dynaquant), key_every above 1.
     */
    double target_bits;
    const ckp_objects *objects;       /**< where the run lies: ckp_run_open's dir is its name then; NULL: a directory. Copied */
    /**
     * Several writers (run_group.h): this is one rank of them. NULL: the only writer. Copied. Not with base_model, CKP_BUSY_SKIP or ckp_run_stage. ckp_run_open returns
     * when all ranks have it open, or fails on all of them. Retention is rank 0's.
     */
    const ckp_group *group;
    /**
     * Bytes of shared memory (/dev/shm) for a copy of the newest checkpoint with its chain: it outlives the process, and ckp_checkpoint_open reads it instead of
     * the run's files where length and hash are those of the manifest. 0: none. What does not fit is not copied (ckp_save_stats.copy_note). CKP_MEMORY_DEFAULT:
     * 512 MB for a run in objects on a machine with four times as much left, else none. Not with `group`: none then.
     */
    uint64_t memory;
} ckp_run_options;
#define CKP_MEMORY_DEFAULT UINT64_MAX
#define CKP_RUN_OPTIONS_INIT {sizeof(ckp_run_options), CKP_CODING_INIT, 32, 0, CKP_BUSY_WAIT, 60, NULL, NULL, 0.0, NULL, NULL, 0}

/**
 * Opens a run for writing, creating the directory when there is none, and takes its lock.
 * Other files in the directory are left alone.
 * @return CKP_OK; CKP_EBUSY: another live process writes to it (text names host and pid); CKP_ECORRUPT: run.json is damaged, or missing
 *         while checkpoints are there; CKP_EVERSION, CKP_EACCESS, CKP_EIO, CKP_ENOMEM, CKP_EINVAL.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_open(ckp_run **out, const char *dir, const ckp_run_options *opt, ckp_error *err);

typedef struct ckp_metric { const char *name; double value; } ckp_metric;
typedef struct ckp_save_options {
    size_t size;                 /**< sizeof(ckp_save_options) */
    bool final;                  /**< weights losslessly, whatever the profile: the run's last save */
    bool key;                    /**< ask for a key */
    bool wait;                   /**< return when it is committed */
    const ckp_metric *metrics;
    size_t n_metrics;
    double quality;              /**< of this save alone; 0: the run's */
    const ckp_dynaquant *dynaquant;   /**< of this save alone, used during the call only; NULL: the run's */
    uint64_t alike;              /**< in a group: a number that must be the same on all ranks, such as a hash of which rank saves which tensor */
} ckp_save_options;
#define CKP_SAVE_OPTIONS_INIT {sizeof(ckp_save_options), false, false, false, NULL, 0, 0.0, NULL, 0}

/**
 * Saves a state. Returns when the live tensors may change; coding, writing, fsync and commit go on in the background.
 * The state may be freed or reused after return.
 *
 * @param step  finished steps; any number, also one that exists (the sequence number decides which is newest).
 * @param[out] taken  may be NULL; false when the save was skipped (CKP_BUSY_SKIP).
 * @return CKP_OK, or the failure of this or of the *previous* save (which is then forgotten; this state was not saved). In a group each call is a save
 *         on every rank: a failure of the previous one is returned, and this state is saved all the same, as *taken says.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_save(ckp_run *run, uint64_t step, ckp_state *state, const ckp_save_options *opt, bool *taken,
                                             ckp_error *err);
/**
 * In a group, instead of ckp_run_save: this rank cannot save. The others' saves of this step fail with `why` (a failure) and text, as they would for a state
 * that ckp_run_save itself refuses. Does nothing without a group.
 * @param wait  return when all have heard of it.
 * @return CKP_OK, or the failure of the save before.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_refuse(ckp_run *run, uint64_t step, ckp_status why, const char *text, bool wait, ckp_error *err);
/**
 * In a group every rank calls it, and all get the first failure of any, such as that of reading a checkpoint: a restore is one of all ranks too. Waits for a save in
 * flight first. Without a group it returns `mine`.
 * @param mine, text  what has become of this rank's part.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_agree(ckp_run *run, ckp_status mine, const char *text, ckp_error *err);
/** Waits for the save in flight and returns its failure, if any. */
CKP_MUST_USE CKP_API ckp_status ckp_run_wait(ckp_run *run, ckp_error *err);
/** True while a save is in flight. */
CKP_API bool ckp_run_busy(const ckp_run *run);
/**
 * Waits, gives the lock back, frees. Accepts NULL. The failure of the last save is returned; everything is freed all the same. The copy in
 * shared memory goes.
 */
CKP_API ckp_status ckp_run_close(ckp_run *run, ckp_error *err);
/** The copy in shared memory stays when the run is closed, as it does when the process is killed: training is to go on. Accepts NULL. */
CKP_API void ckp_run_keep_memory(ckp_run *run);

/**
 * A save in two steps, for who wants to see what would come back before it is written: stage, read and judge, stage finer or commit.
 * While a save is staged nothing is on disk, and ckp_run_save, ckp_run_wait and ckp_run_adopt return CKP_EINVAL; closing forgets it.
 *
 * ckp_run_stage: as ckp_run_save (opt->wait is ignored; a save in flight is waited for). *staged (not NULL) is false when the save was
 * skipped. CKP_ELIMIT: the memory budget does not hold a staged save.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_stage(ckp_run *run, uint64_t step, ckp_state *state, const ckp_save_options *opt, bool *staged,
                                              ckp_error *err);
/**
 * Stages the same state again, which must not have changed, with another quality, as a key: by grids, also where the save was staged by
 * DynaQuant. A failure forgets the staged save.
 * @param quality  0.01 to 100.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_restage(ckp_run *run, ckp_state *state, double quality, ckp_error *err);
/**
 * Codes the weights of the staged save again by DynaQuant; the state must not have changed. A delta stays one, and moments are not looked at
 * again, when the save was staged by DynaQuant; else it becomes a key. A failure forgets the staged save, but for CKP_EINVAL.
 * @param config  used during the call only.
 * @return CKP_EINVAL: nothing is staged, an option out of range, another state; CKP_EMISMATCH: a sensitivity of another size than its tensor.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_restage_dynaquant(ckp_run *run, ckp_state *state, const ckp_dynaquant *config, ckp_error *err);
/**
 * What the staged save's tensors of one role will take in its file: parameters and codes, without the heads of frames (some 40 bytes each).
 * Codes them, as committing will, and throws that away.
 * @param role  of what the state has beside moments: weights, masters, others.
 * @return CKP_EINVAL: nothing is staged, or a role of moments; CKP_ENOMEM.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_staged_bytes(ckp_run *run, ckp_role role, uint64_t *bytes, ckp_error *err);
/** Whether the staged save is a key; false when none is staged. */
CKP_API bool ckp_run_staged_key(const ckp_run *run);
/** Gives the staged save to the background. `more` metrics (n of them, may be NULL) are added to those of its options. */
CKP_MUST_USE CKP_API ckp_status ckp_run_commit(ckp_run *run, const ckp_metric *more, size_t n, ckp_error *err);
/** Forgets the staged save, if there is one; the next is a key. */
CKP_API void ckp_run_unstage(ckp_run *run);

/** Figures of the last save that has ended, and of the call that started the newest. Times in seconds, sizes in bytes; in a group those of this rank's shard. */
typedef struct ckp_save_stats {
    size_t size;                 /**< sizeof(ckp_save_stats), set by the caller */
    uint64_t step, sequence;
    bool is_key, committed;
    double stall, encode, write, total;      /**< stall: inside ckp_run_save; encode, write: background; total: call to commit */
    double cpu;                  /**< CPU seconds of all threads from call to before fsync */
    uint64_t raw_bytes, stored_bytes;        /**< whole checkpoint, manifest included */
    uint64_t raw_by_role[CKP_ROLE_COUNT_], stored_by_role[CKP_ROLE_COUNT_];   /**< by ckp_role; frames with their heads */
    uint64_t overhead_bytes;     /**< stored bytes that belong to no role: headers, table, tree, index, manifest */
    uint64_t params_by_role[CKP_ROLE_COUNT_];  /**< elements */
    uint64_t saves, failed, skipped;         /**< since open */
    uint64_t memory_bytes;       /**< held between saves: reconstructions, codes, staging, buffers of chunks */
    double mse_by_role[CKP_ROLE_COUNT_], mre_by_role[CKP_ROLE_COUNT_];   /**< of optimizer states in clusters: mean of e^2, and of |e / x| where x is not 0 */
    uint64_t memory_peak;        /**< most of that since open */
    double sum_stall, sum_encode, sum_write;     /**< of all committed saves since open */
    uint64_t sum_raw, sum_stored;
    uint64_t copy_bytes;         /**< in shared memory now (ckp_run_options.memory) */
    char copy_note[160];         /**< why the newest checkpoint is not there; "" when it is, or was not asked for */
    char warning[256];           /**< why old checkpoints could not be deleted, or what has become of the base model; "" when all is well */
} ckp_save_stats;
CKP_API void ckp_run_stats(const ckp_run *run, ckp_save_stats *st);

/* ---- reading ---------------------------------------------------------------------------------------------------- */

#define CKP_STEP_NEWEST INT64_C(-1)

/**
 * Opens a checkpoint of a run for reading: structure, tables and payload hashes of its whole chain are checked before it returns.
 * With CKP_STEP_NEWEST, checkpoints that do not pass are passed over; ckp_checkpoint_notes says which and why.
 * @param verify_payload  false: only structure (fast listing); reads check hashes anyway.
 * @return CKP_OK; CKP_ENOTFOUND: no such run, step, or no valid checkpoint; CKP_ECORRUPT ... for a given step.
 */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_open_run(ckp_checkpoint **out, const char *dir, int64_t step, bool verify_payload,
                                                        ckp_error *err);
/**
 * The same for a run whose base model is not where its writer found it.
 * @param base_model  path; NULL: as ckp_checkpoint_open_run. Of no matter to checkpoints without one.
 * @return also CKP_EBASE: the base model is not there, or another than the run was begun with.
 */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_open_run_on(ckp_checkpoint **out, const char *dir, const char *base_model, int64_t step,
                                                           bool verify_payload, ckp_error *err);
/**
 * The same through a run that is open for writing; waits for a save in flight first. In a group every rank calls it, and all get the same checkpoint, the newest that
 * opens on each of them, or the same failure (CKP_EMISMATCH: there is none, while some have one). A rank gets its own shard, as ckp_run_save had it; with another
 * number of ranks than have saved it, all shards.
 */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_open(ckp_checkpoint **out, ckp_run *run, int64_t step, ckp_error *err);
/** The same with all shards on every rank: one checkpoint of all tensors that some rank has saved whole, and the tree of this rank (of rank 0 where it had none). */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_open_all(ckp_checkpoint **out, ckp_run *run, int64_t step, ckp_error *err);
/** How many writers it has; 1 for a file. Readers without a group see all shards as one: what several hold whole is there as "shard-RRRRR/NAME" too. */
CKP_API size_t ckp_checkpoint_shards(const ckp_checkpoint *ck);
/**
 * Opens one .ckp file. A delta needs the files of its chain, nearest base first or in any order, and the run's base model where it has one.
 * @return CKP_EBASE: a base is missing or another one than the delta names (before anything is decoded).
 */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_open_file(ckp_checkpoint **out, const char *path, const char *const *bases, size_t n_bases,
                                                         ckp_error *err);
/** Accepts NULL. */
CKP_API void ckp_checkpoint_close(ckp_checkpoint *ck);

typedef struct ckp_checkpoint_info {
    size_t size;                 /**< sizeof, set by the caller */
    uint64_t step, sequence, restore_count;   /**< 0 for plain files */
    bool is_delta, lossy;
    unsigned chain;              /**< deltas behind the key, this one included */
    ckp_profile profile;         /**< lossless also for a file that does not record it */
    unsigned format_major, format_minor;
    uint64_t raw_bytes, stored_bytes, overhead_bytes;
    uint64_t stored_by_role[CKP_ROLE_COUNT_], raw_by_role[CKP_ROLE_COUNT_], params_by_role[CKP_ROLE_COUNT_];
    double rms_error_by_role[CKP_ROLE_COUNT_], max_error_by_role[CKP_ROLE_COUNT_];   /**< largest of the role's tensors, relative to the tensor's RMS; 0 when none is recorded */
    char content_id[33], base_id[33];         /**< hex; base "" for a key */
    char name[256];              /**< directory in the run, or file */
    uint64_t memory_bytes;       /**< of the chain's files, those of which a copy in shared memory is read */
} ckp_checkpoint_info;
CKP_API void ckp_checkpoint_get_info(const ckp_checkpoint *ck, ckp_checkpoint_info *info);
/** The file that is the base model of the run at this checkpoint; NULL: none. Valid while ck lives. */
CKP_API const char *ckp_checkpoint_base_model(const ckp_checkpoint *ck);
/** Metric number `index` of what the save was told; false beyond the last (plain files have none). The name is valid while ck lives. */
CKP_API bool ckp_checkpoint_metric(const ckp_checkpoint *ck, size_t index, ckp_metric *out);
/** Why newer checkpoints were passed over, a line each; "" when none was. Valid while ck lives. */
CKP_API const char *ckp_checkpoint_notes(const ckp_checkpoint *ck);

typedef struct ckp_tensor_info {
    size_t size;                 /**< sizeof, set by the caller */
    const char *name;            /**< valid while the checkpoint is open, like all pointers here */
    ckp_role role;
    ckp_dtype dtype;
    unsigned ndim;
    const uint64_t *shape;       /**< whole tensor */
    uint64_t numel, raw_bytes, stored_bytes;
    uint32_t owner, alias_of;    /**< UINT32_MAX: none */
    uint32_t copy_of;            /**< the master that it is the rounding of, and derived from; UINT32_MAX: none */
    const char *codec;           /**< of its first chunk, e.g. "planes", "quant-w+mask" */
    bool lossy;
    double max_rel_error, rms_rel_error;  /**< of weights: of the tensor's RMS, in the output dtype; of v: max of each value itself, no RMS; of m, and when lossless: 0 */
    uint64_t n_nan, n_inf;
    double bits_per_element;
} ckp_tensor_info;
CKP_API size_t ckp_checkpoint_count(const ckp_checkpoint *ck);
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_tensor(const ckp_checkpoint *ck, size_t index, ckp_tensor_info *info, ckp_error *err);
/**
 * Roles of all n == ckp_checkpoint_count tensors. Where a file stores none (a PyTorch file that was compressed losslessly), they are those
 * that matching by names and shapes finds, as for a lossy profile; *matched says so.
 */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_roles(const ckp_checkpoint *ck, ckp_role *role, size_t n, bool *matched, ckp_error *err);
/** Index by name; UINT32_MAX when there is none. */
CKP_API uint32_t ckp_checkpoint_find(const ckp_checkpoint *ck, const char *name);
/** The encoded tree of plain values (ckp_tree_reader), *len 0 when none was saved. Valid while ck lives. */
CKP_API const void *ckp_checkpoint_tree(const ckp_checkpoint *ck, size_t *len);

/**
 * Keeps the files of the whole chain in memory, so that no read from now on can fail for a file's sake. Call it before `ck` is shared among
 * threads. A failure changes nothing that matters: reads go to the files as before.
 * @param max_bytes  of memory that it may take.
 * @return CKP_OK; CKP_ELIMIT: more than max_bytes; CKP_ENOMEM, CKP_EIO, CKP_ETRUNCATED.
 */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_hold(ckp_checkpoint *ck, uint64_t max_bytes, ckp_error *err);
/** Where a tensor goes. */
typedef struct ckp_target {
    uint32_t index;              /**< in the checkpoint */
    ckp_dtype dtype;             /**< must equal the saved one: nothing is cast */
    unsigned ndim;
    const uint64_t *shape;       /**< must equal the saved one: the whole tensor's, or a box's own */
    const int64_t *strides;      /**< in elements; NULL: contiguous */
    void *data;                  /**< first logical element */
} ckp_target;
/**
 * Reads tensors into the caller's memory, all or nothing: every hash, dtype and shape of the whole chain is checked, and every chunk
 * decoded once for proof, before the first byte of a target is written. What remains is a file that can no longer be read between the
 * two (a failing disk, somebody who cuts it short): then it is tried once more, and fails with CKP_EPARTIAL, targets being undefined. After
 * ckp_checkpoint_hold that cannot be.
 * A tensor of which the file holds a flat range is CKP_EUNSUPPORTED, but in a checkpoint that a run has saved and opens (ckp_checkpoint_open): there the
 * target has memory for the range. Others read it by ckp_checkpoint_read_range.
 * @param threads  0: one a processor.
 */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_read(ckp_checkpoint *ck, const ckp_target *t, size_t n, unsigned threads, ckp_error *err);
/** Elements [first, first + count) in row-major order of one tensor; reads and checks only the chunks that hold them. */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_read_range(ckp_checkpoint *ck, uint32_t index, uint64_t first, uint64_t count, void *dst,
                                                          ckp_error *err);
/**
 * Reads weights (and whatever is not an optimizer's moment) of the staged save, as a restore would give them. Targets' indexes are those
 * of the staged state.
 * @return CKP_EINVAL: nothing is staged, or a target has no memory or strides; CKP_ENOTFOUND, CKP_EMISMATCH: no such tensor, another dtype
 *         or shape; CKP_EUNSUPPORTED: a moment, or a packed sub-byte dtype.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_staged_read(ckp_run *run, const ckp_target *t, size_t n, ckp_error *err);
/**
 * After training went on from `ck` (read into the live tensors): the next save is a delta against it, and its restore count is one more.
 * Not calling it makes the next save a key.
 */
CKP_MUST_USE CKP_API ckp_status ckp_run_adopt(ckp_run *run, ckp_checkpoint *ck, ckp_error *err);

/* ---- listing and checking runs ---------------------------------------------------------------------------------- */

typedef struct ckp_list_entry {
    uint64_t step, sequence;
    bool is_delta;
    uint64_t stored_bytes, raw_bytes, params;
    int64_t saved_unix;          /**< seconds; information only */
    uint64_t base_step;
    uint64_t restore_count;
    unsigned chain;              /**< deltas behind the key, this one included */
    ckp_profile profile;
    char dir[256];
    char base_dir[256];
    char parent_dir[256];        /**< of the checkpoint that this state was trained from; "" at the start of a training */
    char health[256];            /**< "ok", or what is wrong */
    const void *manifest;        /**< for ckp_list_entry_metric; valid during fn only */
    const char *base_model;      /**< of a key: the file, as its writer had it, that it is predicted from; NULL: none. Valid during fn only */
} ckp_list_entry;
/** Calls fn for each checkpoint in order of sequence, then for directories that look like one and are none. */
CKP_MUST_USE CKP_API ckp_status ckp_run_list(const char *dir, int (*fn)(void *user, const ckp_list_entry *e), void *user, ckp_error *err);
/** Metric number `index` of what the save was told, inside fn; false beyond the last. */
CKP_API bool ckp_list_entry_metric(const ckp_list_entry *e, size_t index, ckp_metric *out);

/** How deep to check. */
typedef enum ckp_verify_level {
    CKP_VERIFY_STRUCTURE = 0, /**< manifests, lengths, tables, indexes */
    CKP_VERIFY_DATA = 1,      /**< and the hash of every stored chunk */
    CKP_VERIFY_DECODE = 2     /**< and the hash of every decoded chunk */
} ckp_verify_level;
/**
 * Verifies a .ckp file (with its bases) or a run directory (bases[0]: its base model, if that was moved). fn (may be NULL) gets a line a finding.
 * @return CKP_OK when everything is whole, else the first finding's status. CKP_ENOTFOUND: a run of attempts without one checkpoint.
 */
CKP_MUST_USE CKP_API ckp_status ckp_verify(const char *path, const char *const *bases, size_t n_bases, ckp_verify_level level, unsigned threads,
                                           void (*fn)(void *user, const char *what, const ckp_error *e), void *user, ckp_error *err);
/** The same for one open checkpoint and its bases; what opening checks is not checked again. */
CKP_MUST_USE CKP_API ckp_status ckp_checkpoint_verify(ckp_checkpoint *ck, ckp_verify_level level, unsigned threads,
                                                      void (*fn)(void *user, const char *what, const ckp_error *e), void *user, ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
