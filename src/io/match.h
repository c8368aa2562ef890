/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parameter of an optimizer is which entry of a model, when only order and shapes tell. An optimizer keeps its parameters in groups,
 * each in the model's order; the model's entries may hold more (buffers). An assignment counts only if it is the only one possible.
 */
#ifndef CKPI_IO_MATCH_H
#define CKPI_IO_MATCH_H
#include <stdbool.h>
#include <ckpress/base.h>

typedef struct ckpi_match_entry { const char *name; unsigned ndim; const uint64_t *shape; } ckpi_match_entry;

/* One parameter: its name where the file has it, and the shape of its moments; neither: anything may be it. */
typedef struct ckpi_match_param {
    const char *name;            /* NULL: unknown */
    unsigned ndim;
    const uint64_t *shape;       /* NULL: unknown */
    unsigned group;              /* 0, 1, ... in order, without gaps */
} ckpi_match_param;

/*
 * to[k]: the entry of params[k], or UINT32_MAX where it is not certain. Names decide where they are given (an entry of another shape is then
 * no match); the rest by order. The same entry is never given twice.
 * @return CKP_OK whether or not anything matched; CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_match_solve(const ckpi_match_entry *entries, size_t n, const ckpi_match_param *params, size_t m, uint32_t *to,
                                         ckp_error *err);
/* Entries that torch's own layers keep beside their parameters: running means and the like. */
bool ckpi_match_is_buffer(const char *name);
/* The name without what wrappers put before it: "_orig_mod." of torch.compile, "module." of DataParallel, at any level. dst: n + 1 bytes. */
size_t ckpi_match_strip(const char *name, size_t n, char *dst);
#endif
