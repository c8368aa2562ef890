/* SPDX-License-Identifier: Apache-2.0 */
/* One side of a comparison: the tensors of a checkpoint or of somebody else's file, by name, read in stretches. */
#ifndef CKPI_RUN_DIFF_SOURCE_H
#define CKPI_RUN_DIFF_SOURCE_H
#include <ckpress/run_diff.h>
#include "engine/engine.h"
#include "io/io.h"
#include "run/checkpoint.h"

typedef struct ckpi_diff_item {
    const char *name;
    ckp_role role;
    ckp_dtype dtype;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t numel;
    uint32_t payload;            /* the tensor that holds its elements: itself, or what it is an alias of */
    bool left_out;               /* no part of what is compared */
} ckpi_diff_item;

typedef struct ckpi_diff_source {
    const char *path;
    ckp_checkpoint *ck;          /* NULL: foreign */
    ckp_checkpoint *own;         /* ck, where it was opened here */
    ckpi_reader *r;
    ckpi_foreign *foreign;
    ckpi_diff_item *item;
    size_t n;
    uint32_t *by_name;           /* those that are compared, sorted */
    size_t n_names;
    bool has_object;             /* something is left out: the side has the object that was asked for */
    const void *tree;
    size_t tree_len;
    /* the chunk that was decoded last: small tensors share one, and stretches are shorter than chunks */
    ckpi_ctx *ctx;
    uint32_t chunk;              /* CKPI_NO_CHUNK: none */
    uint8_t *bytes;
    size_t room;
} ckpi_diff_source;

/* Close it in either case. only (may be NULL): as in ckp_diff_options. */
CKP_MUST_USE ckp_status ckpi_diff_source_open(ckpi_diff_source *s, const ckp_diff_side *side, const char *only, ckp_error *err);
void ckpi_diff_source_close(ckpi_diff_source *s);
/* CKPI_NO_TENSOR when there is none. */
uint32_t ckpi_diff_source_find(const ckpi_diff_source *s, const char *name);
/* Elements [first, first + count), which begin and end on a byte. */
CKP_MUST_USE ckp_status ckpi_diff_source_read(ckpi_diff_source *s, uint32_t i, uint64_t first, uint64_t count, void *dst, ckp_error *err);
#endif
