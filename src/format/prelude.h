/* SPDX-License-Identifier: Apache-2.0 */
/* The front of a file (header, table, tree), read the same way from a file and from a pipe. Private to the room. */
#ifndef CKPI_FORMAT_PRELUDE_H
#define CKPI_FORMAT_PRELUDE_H
#include "format/index.h"
#include "format/section.h"
#include "format/table.h"

typedef struct ckpi_prelude {
    ckpi_file_info info;
    ckpi_front front;
    ckpi_table *table;           /* NULL until resolved when it lives elsewhere */
    ckpi_section tree_sec;
    ckpi_buf tree_stored;        /* kept while the tree waits for its prefix */
    ckpi_buf tree;
    bool tree_ready;             /* tree is unpacked; checked against the table if that is there */
    uint64_t end;                /* where the first frame begins */
} ckpi_prelude;                  /* zero-initialised is empty */

/*
 * tree_fault: where to put a damaged tree's error instead of failing with it (CKP_OK when there is none), for those who want the frames anyway; or NULL.
 */
CKP_MUST_USE ckp_status ckpi_prelude_read(ckpi_prelude *p, ckpi_reader *r, ckp_status *tree_fault, ckp_error *err);
/* Takes the table, and what the tree needs, from the file that stores them. */
CKP_MUST_USE ckp_status ckpi_prelude_resolve(ckpi_prelude *p, const ckpi_fmt_file *ref, ckp_error *err);
void ckpi_prelude_free(ckpi_prelude *p);
#endif
