/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Low-precision copies of masters (docs/format.md, "Copies"). Mixed-precision training holds each weight twice: in bf16 or fp16 for the
 * model, in fp32 for the optimizer. Where every element of the first is the second's, rounded, the first need not be stored.
 *
 * A pair is declared (a master with its owner, a copy with its owner) or found: by a few values that lie evenly over both, for all tensors of a
 * lossless save, and for what is said to be a copy without an owner in any. Either way it counts only once all elements have been compared, at every save.
 */
#ifndef CKPI_RUN_COPIES_H
#define CKPI_RUN_COPIES_H
#include "engine/engine.h"

/* How to look for them. */
typedef struct ckpi_copies {
    ckpi_ctx *ctx;               /* NULL: not at all, all is stored */
    const ckpi_table *like;      /* a base's, whose copies are taken if they still are copies: a delta's table is its base's. Or NULL */
    bool search;                 /* also pairs of which nobody declared anything */
} ckpi_copies;

/* Makes rows of a fresh table of s copies, where they are. Of a copy that was a weight with moments, those become the master's. A copy without an owner
   that is nobody's rounding becomes a weight: ckpi_copies_strayed. */
CKP_MUST_USE ckp_status ckpi_copies_link(ckpi_table *t, const ckp_state *s, const ckpi_copies *how, ckp_error *err);
/* Whether row i said that it is a copy, of whatever, and is none: a weight that stays as it is. */
bool ckpi_copies_strayed(const ckpi_table *t, const ckp_state *s, size_t i);
#endif
