/* SPDX-License-Identifier: Apache-2.0 */
/* Files that no encoder of ours writes: chunks of a real one, changed at will, with all hashes right again. */
#ifndef CKP_TESTS_ENGINE_CRAFT_H
#define CKP_TESTS_ENGINE_CRAFT_H
#include "chain.h"

typedef struct craft_chunk {
    ckpi_chunk c;                /* pointers are set from the buffers when written */
    ckpi_buf params, escapes, payload;
    ckpi_piece piece[64];
} craft_chunk;

typedef struct craft {
    ckpi_fmt_file *f;            /* the real one: table, tree, info */
    craft_chunk *at;
    size_t n;
} craft;

/* Save i of a chain, taken apart. */
craft *craft_open(const chain *c, size_t i);
void craft_free(craft *x);
/* The first chunk of a role, or fails the test. */
craft_chunk *craft_find(craft *x, ckp_role role);
/* Drops a chunk of the list. */
void craft_drop(craft *x, craft_chunk *k);
/* Replaces a part. */
void craft_set(ckpi_buf *part, const void *p, size_t n);
/* Writes it: whole, or (cut) without index and trailer, as a crash would leave it. */
void craft_write(const craft *x, bool cut, ckpi_buf *out);
#endif
