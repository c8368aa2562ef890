/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_STATE_H
#define CKPRESS_STATE_H
/*
 * A state: what one save holds. Views of live tensors (or pull sources) plus the tree of plain values around them.
 * Nothing is copied when a state is built: tensors must stay valid until the save that was given the state returns.
 */
#include <stdbool.h>
#include <ckpress/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckp_state ckp_state;

/**
 * Copies `count` elements from logical (row-major) index `first` of the tensor to dst, contiguously. For memory that the CPU
 * cannot read in place, and for values that are made when they are asked for. Called during ckp_run_save only, from the saving thread; with
 * `shared_pull` from other threads too, and from several at once.
 */
typedef ckp_status (*ckp_pull_fn)(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err);

/** One tensor as the caller holds it. Zero-initialise with CKP_TENSOR_INIT, then fill. */
typedef struct ckp_tensor {
    size_t size;                 /**< sizeof(ckp_tensor) */
    ckp_dtype dtype;
    unsigned ndim;               /**< 0 to 64 */
    const uint64_t *shape;       /**< ndim extents of what this process holds; NULL only if ndim is 0 */
    const int64_t *strides;      /**< in elements, may be 0 or negative; NULL: row-major contiguous */
    const void *data;            /**< first logical element; NULL with elements is refused unless pull is set */
    ckp_pull_fn pull;            /**< instead of data */
    void *pull_user;
    const uint64_t *global_shape;  /**< ndim extents of the whole tensor; NULL: this is the whole */
    const uint64_t *box_first;     /**< ndim starts of this box in it; with global_shape */
    uint64_t flat_first;           /**< instead of a box: this is a flat range of the global tensor, from here */
    bool flat;
    bool lossless;               /**< never coded lossily, whatever the profile says */
    bool shared_pull;            /**< several threads may call pull at once; else all that reads the state runs on one */
} ckp_tensor;
#define CKP_TENSOR_INIT {sizeof(ckp_tensor), (ckp_dtype)0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, false}

CKP_MUST_USE CKP_API ckp_status ckp_state_new(ckp_state **out, ckp_error *err);
/** Accepts NULL. */
CKP_API void ckp_state_free(ckp_state *s);

/*
 * Mixed precision: a weight of bf16 or fp16 that is, element by element, the rounding of its fp32 master is not stored but derived on reading. A master says so
 * by its role and its owner (the weight), or a copy by the role CKP_ROLE_COPY and its owner (the master). A copy without an owner is one of whatever master it is the
 * rounding of, which is looked for. A lossless save also finds pairs that nobody declared. All elements are compared at every save; a weight that is no such rounding is stored as any other. In a lossy profile moments of such a
 * weight count as the master's, which is quantized, and the copy is the rounding of what comes back of it.
 */

/**
 * Adds a tensor. Two tensors with the same data pointer, dtype, shape and strides are one payload and an alias.
 *
 * @param name   1 to 4096 bytes of UTF-8 without NUL, unique in the state.
 * @param owner  name of the weight that an m, v, momentum, master or copy belongs to (added before or after); else NULL.
 * @param[out] index  the tensor's index, for the tree; may be NULL.
 * @return CKP_OK; CKP_EINVAL: bad name, duplicate, shape, strides, dtype or null data; CKP_ENOMEM.
 */
CKP_MUST_USE CKP_API ckp_status ckp_state_add_tensor(ckp_state *s, const char *name, ckp_role role, const char *owner,
                                                     const ckp_tensor *t, uint32_t *index, ckp_error *err);

/**
 * Adam's constants for the moments of one owner, which bias correction needs. Without this call the moments of that owner are
 * coded as if step were infinite (no correction).
 * @param step  optimizer steps done, at least 1.
 */
CKP_MUST_USE CKP_API ckp_status ckp_state_set_adam(ckp_state *s, const char *owner, double beta1, double beta2, uint64_t step,
                                                   ckp_error *err);

/** Number of tensors, and a tensor's name by index (valid while the state lives; NULL out of range). */
CKP_API size_t ckp_state_count(const ckp_state *s);
CKP_API const char *ckp_state_name(const ckp_state *s, size_t index);

/* ---- the tree of plain values ----------------------------------------------------------------------------------- */

/** Node types; values are wire tags (docs/format.md, "state tree"). */
typedef enum ckp_tree_type {
    CKP_TREE_NONE = 0,
    CKP_TREE_FALSE = 1,
    CKP_TREE_TRUE = 2,
    CKP_TREE_INT = 3,        /**< 64-bit signed */
    CKP_TREE_BIGINT = 4,     /**< two's complement, little-endian bytes */
    CKP_TREE_FLOAT = 5,      /**< 64-bit, bits kept */
    CKP_TREE_COMPLEX = 6,
    CKP_TREE_STR = 7,        /**< UTF-8 (surrogates allowed, as in Python's surrogatepass) */
    CKP_TREE_BYTES = 8,
    CKP_TREE_LIST = 9,       /**< then count values */
    CKP_TREE_TUPLE = 10,
    CKP_TREE_DICT = 11,      /**< then count (key, value) pairs */
    CKP_TREE_ORDERED_DICT = 12,
    CKP_TREE_SET = 13,
    CKP_TREE_FROZENSET = 14,
    CKP_TREE_TORCH_SIZE = 15,   /**< then count ints */
    CKP_TREE_DTYPE = 16,        /**< library-qualified name: "torch.float32", "numpy.float32" */
    CKP_TREE_DEVICE = 17,       /**< "cpu", "cuda:0" */
    CKP_TREE_NUMPY_SCALAR = 18, /**< dtype name ("numpy.float32", "numpy.datetime64[ns]"), then the bytes */
    CKP_TREE_TENSOR = 19,       /**< a tensor of the table: index, and what to make of it */
    CKP_TREE_NAMED = 20,        /**< a value with a type name: "name", then one value: for known plain types (e.g. defaultdict, Counter) */
    CKP_TREE_BYTEARRAY = 21
} ckp_tree_type;

/** What a CKP_TREE_TENSOR was: how to rebuild it. Wire values. */
typedef enum ckp_tensor_as {
    CKP_AS_TORCH = 0,
    CKP_AS_TORCH_PARAMETER = 1,
    CKP_AS_NUMPY = 2,
    CKP_AS_TORCH_REQUIRES_GRAD = 3,
    CKP_AS_PYTHON_BYTES = 4,     /**< long bytes and byte strings are kept as u8 tensors */
    CKP_AS_PYTHON_INTS = 5,      /**< long tuples of small non-negative ints (Python's RNG state) as u32 tensors */
    CKP_AS_SPARSE_PART = 6
} ckp_tensor_as;

typedef struct ckp_tree_node {
    ckp_tree_type type;
    uint64_t count;          /**< containers: values or pairs that follow */
    int64_t i;               /**< INT */
    double re, im;           /**< FLOAT (re), COMPLEX */
    const void *data;        /**< STR, BYTES, BIGINT, DTYPE, DEVICE, NAMED; NUMPY_SCALAR: the bytes */
    size_t len;
    const char *name;        /**< NUMPY_SCALAR: dtype name, name_len bytes, no NUL */
    size_t name_len;
    uint32_t tensor;         /**< TENSOR: index in the table */
    ckp_tensor_as as;
} ckp_tree_node;

/**
 * Appends one node to the state's tree, in depth-first order: the first node is the root; a container's children follow it.
 * @return CKP_OK; CKP_EINVAL: malformed node, or the tree is already complete; CKP_ELIMIT: depth or size; CKP_ENOMEM.
 */
CKP_MUST_USE CKP_API ckp_status ckp_state_tree_put(ckp_state *s, const ckp_tree_node *node, ckp_error *err);
/** Drops a tree, e.g. an unfinished one after an error. */
CKP_API void ckp_state_tree_clear(ckp_state *s);

/** A cursor over an encoded tree. The bytes must outlive it; nodes point into them. */
typedef struct ckp_tree_reader {
    const uint8_t *data;
    size_t len, pos;
    uint64_t left[128];      /**< values still expected at each depth */
    unsigned depth;
    bool started;
} ckp_tree_reader;
CKP_API void ckp_tree_reader_init(ckp_tree_reader *r, const void *data, size_t len);
/**
 * The next node. @return CKP_OK; CKP_ENOTFOUND at the end; CKP_ECORRUPT with the offset; CKP_ELIMIT too deep.
 */
CKP_MUST_USE CKP_API ckp_status ckp_tree_next(ckp_tree_reader *r, ckp_tree_node *node, ckp_error *err);

#ifdef __cplusplus
}
#endif
#endif
