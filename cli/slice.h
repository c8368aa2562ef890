/* SPDX-License-Identifier: Apache-2.0 */
/* Slices as in Python, without steps: "1000:1010", "3, :, -1", ":5". */
#ifndef CLI_SLICE_H
#define CLI_SLICE_H
#include "ui.h"

#define CLI_MAX_DIMS 64

typedef struct cli_slice {
    unsigned ndim;                       /* of the tensor */
    uint64_t dim[CLI_MAX_DIMS];          /* its shape */
    uint64_t first[CLI_MAX_DIMS], count[CLI_MAX_DIMS];
    bool dropped[CLI_MAX_DIMS];          /* by a plain index */
    unsigned out_ndim;                   /* a plain index drops its dimension */
    uint64_t out[CLI_MAX_DIMS];
    uint64_t elements;
} cli_slice;

void cli_slice_all(cli_slice *s, unsigned ndim, const uint64_t *shape);
/* text: what stands between the brackets. Told on stderr when it makes no sense: CLI_USAGE. */
int cli_slice_parse(cli_slice *s, const char *text, size_t len);

/* "[3:5,1]" for a file's name; when that does not fit, "[#" and a number that stands for it. */
void cli_slice_text(const cli_slice *s, char *out, size_t cap);

/* Walks the selected elements as runs that are contiguous in the tensor. */
typedef struct cli_walk {
    const cli_slice *s;
    unsigned outer;                      /* dimensions that are walked one by one */
    uint64_t run;                        /* elements of each run */
    uint64_t at[CLI_MAX_DIMS];
    uint64_t left;                       /* runs to come */
} cli_walk;
void cli_walk_start(cli_walk *w, const cli_slice *s);
/* First element of the next run (of w->run elements); false at the end. */
bool cli_walk_next(cli_walk *w, uint64_t *first);
#endif
