/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor that lies in a file, as a pull source (ckp_pull_fn): nothing is read before it is asked for. Contiguous tensors are read
 * straight to where they are wanted. A strided view is gathered from its span of the file, which is kept while it fits SPAN_MAX.
 */
#ifndef CKPI_IO_SOURCE_H
#define CKPI_IO_SOURCE_H
#include "os/os.h"
#include "state/state.h"

/* Shared by all sources of a file: one span in memory at a time. Pulls come from one thread (ckpress/state.h). */
typedef struct ckpi_source_file {
    ckpi_reader *r;
    const void *span_of;       /* the source whose span is held */
    uint8_t *span;
} ckpi_source_file;

typedef struct ckpi_source {
    ckpi_source_file *file;
    const char *name;          /* of the tensor, for errors */
    uint64_t offset;           /* in the file, of the first logical element */
    ckp_dtype dtype;
    unsigned ndim;
    const uint64_t *shape;
    const int64_t *strides;    /* elements, none negative; NULL: contiguous */
    uint64_t numel;
    bool flip_even, flip_odd;  /* torch's conj and neg bits: change the sign of the parts of a number at even (real) and odd places */
    uint64_t span_bytes;       /* strided: from the first to the last element that the view touches */
} ckpi_source;

/* ckp_pull_fn with a ckpi_source as user. */
ckp_status ckpi_source_pull(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err);
void ckpi_source_file_free(ckpi_source_file *f);      /* the reader stays the caller's */

/*
 * Elements from the first to one past the farthest that a view reaches; 0 for an empty one. False on overflow or a negative stride.
 */
bool ckpi_source_reach(const uint64_t *shape, const int64_t *strides, unsigned ndim, uint64_t *elems);
/* Whether strides say nothing more than row-major. */
bool ckpi_source_contiguous(const uint64_t *shape, const int64_t *strides, unsigned ndim);
#endif
