/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of this room share: the open file, its kind, and how a reader of one kind fills it. */
#ifndef CKPI_IO_FOREIGN_H
#define CKPI_IO_FOREIGN_H
#include "io/arena.h"
#include "io/io.h"
#include "io/source.h"

struct ckpi_foreign {
    ckpi_foreign_kind kind;
    ckpi_foreign_options opts;
    ckpi_source_file file;        /* file.r: the caller's reader, or spool */
    ckpi_reader *spool;           /* owned: a torch file that came from a pipe */
    ckpi_buf spooled;
    ckp_state *state;
    ckpi_io_arena arena;             /* sources, their names and shapes, and whatever tensors point into */
    ckpi_dropped dropped;
    uint64_t end;                 /* safetensors: where the file must end */
};

/* The bytes that tell kinds apart: enough for "ustar" at 257. */
#define CKPI_SNIFF 512

/* Each fills f->state; f->file.r is set. head: the first bytes of the file, at most CKPI_SNIFF. */
CKP_MUST_USE ckp_status ckpi_st_open(ckpi_foreign *f, const uint8_t *head, size_t n, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_pt_open_zip(ckpi_foreign *f, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_pt_open_legacy(ckpi_foreign *f, ckp_error *err);

#define CKPI_TREE_SAFETENSORS "safetensors"     /* NAMED over BYTES: the header verbatim */
#endif
