/* SPDX-License-Identifier: Apache-2.0 */
/* A state as the engine sees it. */
#ifndef CKPI_STATE_H
#define CKPI_STATE_H
#include <ckpress/state.h>
#include "base/buf.h"
#include "base/hash.h"

#define CKPI_NO_TENSOR UINT32_MAX

typedef struct ckpi_tensor {
    char *name;
    ckp_role role;
    char *owner_name;            /* NULL: none */
    uint32_t owner;              /* resolved index, or CKPI_NO_TENSOR */
    uint32_t alias_of;           /* payload lives in that tensor, or CKPI_NO_TENSOR */
    ckp_dtype dtype;
    unsigned ndim;
    uint64_t *shape;             /* local */
    uint64_t *global_shape;      /* NULL: same as shape */
    uint64_t *box_first;         /* NULL: all zero */
    uint64_t flat_first;
    bool flat;
    bool lossless;
    int64_t *strides;            /* NULL: contiguous */
    const void *data;
    ckp_pull_fn pull;
    void *pull_user;
    bool shared_pull;
    uint64_t numel;              /* local elements */
    uint64_t bytes;              /* numel * element size, packed dtypes included */
} ckpi_tensor;

typedef struct ckpi_adam { uint32_t owner; double beta1, beta2; uint64_t step; } ckpi_adam;

struct ckp_state {
    ckpi_tensor *t;
    size_t n, cap;
    ckpi_adam *adam;
    size_t n_adam, cap_adam;
    ckpi_buf tree;               /* encoded; complete when tree_left[0] has run out */
    uint64_t tree_left[128];
    unsigned tree_depth;
    bool tree_started;
    void *by_name;               /* hash index, private to state.c */
};

/* Resolve owners; CKP_EINVAL names a missing owner, a shape that differs from the owner's, or an unfinished tree. Idempotent. */
CKP_MUST_USE ckp_status ckpi_state_seal(ckp_state *s, ckp_error *err);
uint32_t ckpi_state_find(const ckp_state *s, const char *name);             /* CKPI_NO_TENSOR when absent */
/*
 * Takes tensors out: to[i] is tensor i's new number, counted up, or CKPI_NO_TENSOR for one that goes. An alias whose payload goes holds it from then on. The tree is
 * the caller's to make anew. CKP_EINVAL once Adam's constants were set; CKP_ENOMEM: all are still there.
 */
CKP_MUST_USE ckp_status ckpi_state_drop(ckp_state *s, const uint32_t *to, ckp_error *err);
const ckpi_adam *ckpi_state_adam(const ckp_state *s, uint32_t owner);       /* NULL when unknown */

/* Elements [first, first + count) in logical order to dst, contiguous; packed dtypes need byte-aligned ranges. Strided, reversed,
   expanded views and pull sources all go through here. */
CKP_MUST_USE ckp_status ckpi_tensor_copy_out(const ckpi_tensor *t, uint64_t first, uint64_t count, void *dst, ckp_error *err);
/* In-place pointer to that range when the tensor is contiguous memory, else NULL. */
const void *ckpi_tensor_direct(const ckpi_tensor *t, uint64_t first);
/* Write `count` elements from src into strided memory at logical index first: the restore side. */
void ckpi_scatter(void *data, const uint64_t *shape, const int64_t *strides, unsigned ndim, size_t elem_bytes, uint64_t first,
                  uint64_t count, const void *src);
/* The whole tree: well-formed, complete, tensor indices below n_tensors. */
CKP_MUST_USE ckp_status ckpi_tree_check(const void *data, size_t len, uint32_t n_tensors, ckp_error *err);
#endif
