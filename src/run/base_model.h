/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A base model: a file of weights (.ckp, safetensors or torch) that a run's keys are predicted from, and that stays where it is.
 *
 * To the decoder it is a key like any other, the base of the run's key: a file in memory with the run's table and the like chunks of the
 * key's (docs/format.md, section 10), whose weights are the base model's and whose other elements are zero. Its content id, which the key
 * names, proves on every restore that the file still says what it said.
 */
#ifndef CKPI_RUN_BASE_MODEL_H
#define CKPI_RUN_BASE_MODEL_H
#include "engine/layout.h"

typedef struct ckpi_base_model ckpi_base_model;

/* CKP_ENOTFOUND: no such file; whatever reading its kind may fail with. */
CKP_MUST_USE ckp_status ckpi_base_model_open(ckpi_base_model **out, const char *path, ckp_error *err);
void ckpi_base_model_free(ckpi_base_model *b);
/* Absolute, links followed. */
const char *ckpi_base_model_path(const ckpi_base_model *b);
/* Marks the tensors of the table that it has weights for (t->n of them); how many. */
size_t ckpi_base_model_matches(const ckpi_base_model *b, const ckpi_table *t, bool *has);

/*
 * Bytes of pieces, in the table's dtypes, one after another: the base model's where a weight or master of a table's row has its like there, else
 * zeros. Not for several threads at once.
 */
CKP_MUST_USE ckp_status ckpi_base_model_read(const ckpi_base_model *b, const ckpi_table *t, const ckpi_piece *piece, size_t n_pieces, void *dst,
                                             ckp_error *err);

/* The file in memory. `like`: the key's chunks. */
typedef struct ckpi_base_file {
    ckpi_fmt_file *f;            /* moves on to a lineage, which closes it */
    ckpi_buf bytes;              /* what it reads from: freed after it */
} ckpi_base_file;
CKP_MUST_USE ckp_status ckpi_base_file_make(ckpi_base_file *out, const ckpi_base_model *b, const ckpi_table *t, const ckpi_chunk *like, size_t n,
                                            ckp_error *err);
/* Its content id alone, from the layout that the key will have. */
CKP_MUST_USE ckp_status ckpi_base_file_id(ckpi_id *out, const ckpi_base_model *b, const ckpi_table *t, const ckpi_layout *l, ckp_error *err);
#endif
