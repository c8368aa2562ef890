/* SPDX-License-Identifier: Apache-2.0 */
/* One file that tensors of a checkpoint are written to, as they are decoded. */
#ifndef CKPI_RUN_EMIT_H
#define CKPI_RUN_EMIT_H
#include "io/io.h"
#include "run/checkpoint.h"
#include "run/subset.h"

typedef struct ckpi_emit {
    const ckpi_table *t;
    ckpi_subset sub;
    ckpi_export *e;
    const char *kind;
    char archive[64];            /* the .pt's inner folder */
    uint32_t open;               /* tensor begun last; begins as CKPI_NO_TENSOR */
    uint64_t next;               /* element of it that comes next */
} ckpi_emit;

/* Decodes and writes all tensors that x->e has data for, in its order; the export is then to be finished. */
CKP_MUST_USE ckp_status ckpi_emit_all(ckpi_emit *x, const ckp_checkpoint *ck, unsigned threads, ckp_progress_fn progress, void *user, ckp_error *err);
#endif
