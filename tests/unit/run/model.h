/* SPDX-License-Identifier: Apache-2.0 */
/* A small training for the tests of runs: weights with moments that move from step to step, and a place to restore into. */
#ifndef CKP_TESTS_RUN_MODEL_H
#define CKP_TESTS_RUN_MODEL_H
#include <ckpress/ckpress.h>
#include "harness/check.h"
#include "harness/seed.h"

#define MODEL_MAX 32

typedef struct model_tensor {
    char name[64];
    char owner[64];              /* "" for none */
    ckp_role role;
    ckp_dtype dtype;
    unsigned ndim;
    uint64_t shape[4];
    uint64_t n;
    void *data;                  /* contiguous; owned unless alias */
    bool alias;                  /* same memory as the tensor before */
    bool pull;                   /* given by callback */
    bool lossless;
} model_tensor;

typedef struct model {
    model_tensor t[MODEL_MAX];
    size_t n;
    uint64_t step;
    test_rng rng;
} model;

size_t model_bytes(const model_tensor *t);
/* Adds a tensor with memory full of zeros. shape ends with 0 where there are fewer than four dimensions. */
model_tensor *model_add(model *m, const char *name, ckp_role role, const char *owner, ckp_dtype dtype, const uint64_t shape[4]);
/* A weight with Adam's moments, all drawn at random; dtype of the weight, moments are f32 (or bf16 where mdtype says). */
void model_add_adam(model *m, const char *name, ckp_dtype dtype, ckp_dtype mdtype, const uint64_t shape[4]);
/* w 48 x 96 and 16 x 20 and a bias of 40, with moments; an i64 counter. Small, so that sweeps over every bit stay short. */
void model_small(model *m, const char *seed);
/* One training step: weights and moments of every float tensor move. */
void model_step(model *m);
void model_copy(model *dst, const model *src);       /* fresh memory */
void model_clear(model *m);                          /* fills all memory with 0xA5 */
void model_free(model *m);
bool model_equal(const model *a, const model *b);    /* bit for bit */
float model_get(const model_tensor *t, uint64_t i);  /* f32, bf16, f16 */
void model_set(model_tensor *t, uint64_t i, float x);

/* A state of views of it, with Adam's constants for every owner that has a v, and the step as its tree. */
ckp_state *model_state(const model *m);
/* Opens a run with these options (threads 1 unless they say otherwise), or fails the test. */
ckp_run *model_run(const char *dir, ckp_run_options opt);
ckp_status model_save(ckp_run *run, const model *m, const ckp_save_options *opt, ckp_error *err);
/* Reads every tensor of an open checkpoint into the model, all in one call. */
ckp_status model_read(ckp_checkpoint *ck, model *m, ckp_error *err);
/* The newest of a run, or of a step, with its step. Asserts that it works. */
void model_restore(const char *dir, int64_t step, model *m);
uint64_t model_tree_step(const ckp_checkpoint *ck);

/* ---- files ----------------------------------------------------------------------------------------------------------- */

int model_setup(void **state);       /* *state: a fresh directory */
int model_teardown(void **state);
const char *model_path(void **state, const char *name);   /* valid until the next but three */
uint8_t *model_load_file(const char *path, size_t *n);    /* freed by the caller */
void model_store_file(const char *path, const void *p, size_t n);
void model_remove_tree(const char *path);
void model_copy_tree(const char *from, const char *to);
/* The only shard of the checkpoint of a step. Valid like model_path. */
const char *model_shard(const char *run, uint64_t step);
/* Names under a directory, at any depth. */
size_t model_count_files(const char *dir);
#endif
