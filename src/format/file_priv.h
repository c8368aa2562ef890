/* SPDX-License-Identifier: Apache-2.0 */
/* What opening and salvaging share. Private to the room. */
#ifndef CKPI_FORMAT_FILE_PRIV_H
#define CKPI_FORMAT_FILE_PRIV_H
#include "format/prelude.h"

/* Behind ckpi_fmt_file.priv. */
typedef struct file_priv {
    ckpi_prelude front;
    ckpi_buf index;              /* unpacked */
    size_t *head_at, *head_len;  /* of each chunk's head in it */
    ckpi_piece *pieces;          /* of all chunks */
    size_t errs_at;              /* where the error records begin in it */
    ckpi_fmt_file **part;        /* of a joined file: whose frames its chunks are, in this order; owned. Some may be NULL */
    size_t n_parts;
} file_priv;
#endif
