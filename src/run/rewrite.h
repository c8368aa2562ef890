/* SPDX-License-Identifier: Apache-2.0 */
/* One checkpoint written anew, on another base, as a key, or without first moments; and what thin and rebase share. */
#ifndef CKPI_RUN_REWRITE_H
#define CKPI_RUN_REWRITE_H
#include <ckpress/run_rewrite.h>
#include "run/checkpoint.h"

typedef enum ckpi_rewrite_how {
    CKPI_REWRITE_NONE = 0,       /* stays as it is */
    CKPI_REWRITE_MOVE,           /* every chunk as it is */
    CKPI_REWRITE_THIN,           /* first moments become zeros */
    CKPI_REWRITE_KEY             /* lossless chunks that use the base are coded without it */
} ckpi_rewrite_how;

typedef struct ckpi_rewriting {
    ckpi_place place;            /* a directory */
    const ckp_rewrite_opts *o;
    ckp_rewritten *done;
    ckpi_store *s;
    ckpi_entries all;
    ckpi_rewrite_how *how;       /* by entry */
    bool *needed;                /* likewise: thin, its moments are needed */
    char (*made)[CKPI_DIR_NAME_MAX];   /* likewise: the directory of the stand-in that this call has made, or "" */
    size_t *stands;              /* likewise: the entry that stood in for it before, or SIZE_MAX */
    ckpi_ctx *ctx;
    uint64_t read, total;        /* bytes, for progress */
    double refreshed;
} ckpi_rewriting;

/* Opens the run (for writing unless it is a dry run) and lists it; fails on damage. Freed by ckpi_rewriting_free in any case. */
CKP_MUST_USE ckp_status ckpi_rewriting_start(ckpi_rewriting *r, const char *dir, const ckp_rewrite_opts *o, ckp_rewritten *done, ckp_error *err);
/* What is based on something that is written anew is written anew; then does it all, bases first, and deletes the old ones. */
CKP_MUST_USE ckp_status ckpi_rewriting_run(ckpi_rewriting *r, ckp_error *err);
void ckpi_rewriting_free(ckpi_rewriting *r);
/* Whether thinning makes zeros of chunk i of ck. */
bool ckpi_rewrite_drops(const ckp_checkpoint *ck, size_t i);

/* What a checkpoint has of first moments: bytes that would go, and whether any of its chunks are differences to its base's. */
typedef struct ckpi_moments { uint64_t bytes; bool droppable, on_base; } ckpi_moments;
CKP_MUST_USE ckp_status ckpi_rewriting_look(ckpi_rewriting *r, size_t i, ckpi_moments *out, ckp_error *err);
#endif
