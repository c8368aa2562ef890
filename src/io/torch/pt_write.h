/* SPDX-License-Identifier: Apache-2.0 */
/* A .pt being written: which tensors become storages and which stand in the pickle, and the tree as a pickle (pt_tree.c, pt_named.c). */
#ifndef CKPI_IO_PT_WRITE_H
#define CKPI_IO_PT_WRITE_H
#include <ckpress/state.h>
#include "base/fail.h"
#include "io/export.h"
#include "io/torch/pkl.h"
#include "io/zip/zip.h"

enum { CKPI_PT_STORAGE = 1, CKPI_PT_INLINE = 2 };

typedef struct ckpi_pt {
    ckpi_zip_writer *z;
    const char *name;            /* of the archive */
    const ckpi_out_tensor *t;
    size_t n;
    uint8_t *use;                /* per tensor: what its data are needed for; aliases: 0, their target has it */
    ckpi_buf *data;              /* per tensor: what was fed, for those that stand in the pickle */
    const void *tree;
    size_t tree_len;             /* 0: an OrderedDict of all tensors */

    ckpi_pkl pkl;
    ckp_tree_reader r;           /* where the tree is being read */
    ckp_error *err;
    ckp_status st;               /* first failure while writing the pickle; sticky */
} ckpi_pt;

/* Where a tensor's payload lives. */
uint32_t ckpi_pt_root(const ckpi_pt *p, uint32_t i);
/* Marks what each tensor of the tree is needed for; refuses what torch cannot hold, by name. */
CKP_MUST_USE ckp_status ckpi_pt_plan(ckpi_pt *p, ckp_error *err);
/* The whole pickle into p->pkl. All inline data must have been fed. */
CKP_MUST_USE ckp_status ckpi_pt_pickle(ckpi_pt *p, ckp_error *err);

/* ---- between the writer's files ---- */

/* The next node; false when the tree is at an end where none may be, or on failure: p->st says so. */
bool ckpi_pt_next(ckpi_pt *p, ckp_tree_node *node);
bool ckpi_pt_fail(ckpi_pt *p, ckp_status st, const char *fmt, ...) CKPI_PRINTF(3, 4);      /* false */
/* One whole value: read from the tree, written to the pickle. */
bool ckpi_pt_value(ckpi_pt *p);
bool ckpi_pt_node(ckpi_pt *p, const ckp_tree_node *node);
/* Passes over one whole value. */
bool ckpi_pt_skip(ckpi_pt *p);
/* A value under a name of CKP_TREE_NAMED. */
bool ckpi_pt_named(ckpi_pt *p, const ckp_tree_node *node);
/* The items of a container that was opened: n values, or n pairs. */
bool ckpi_pt_items(ckpi_pt *p, uint64_t n);
/* A torch tensor's arguments as a tuple: for _rebuild_tensor_v2, or v3 when *v3. dtype: a name of torch, or NULL for the tensor's own. */
bool ckpi_pt_tensor_args(ckpi_pt *p, uint32_t i, bool grad, const char *dtype, bool *v3);
bool ckpi_pt_tensor(ckpi_pt *p, uint32_t i, bool grad, const char *dtype);
/* ("storage", class, key, "cpu", count) as a persistent id; dtype as above. */
bool ckpi_pt_storage(ckpi_pt *p, uint32_t i, const char *dtype);
/* Inline data of tensor i as bytes. */
bool ckpi_pt_bytes(ckpi_pt *p, uint32_t i);
/* A name of the form numpy.X or ml_dtypes.X as a numpy dtype. */
bool ckpi_pt_numpy_dtype(ckpi_pt *p, const char *name, size_t len);
bool ckpi_pt_ndarray_begin(ckpi_pt *p);       /* up to where the state tuple begins: version pushed, shape comes next */
bool ckpi_pt_ndarray_end(ckpi_pt *p, uint32_t i);      /* dtype was pushed: order, data, BUILD */
#endif
