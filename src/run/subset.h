/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors of a checkpoint go into another file: all, or those of one object of a run ("model/..."), by their names in it. */
#ifndef CKPI_RUN_SUBSET_H
#define CKPI_RUN_SUBSET_H
#include "format/format.h"
#include "io/io.h"

typedef struct ckpi_subset {
    ckpi_out_tensor *tensor;     /* n of them; names point into the table */
    uint32_t *row;               /* by tensor: row of the table */
    uint32_t *number;            /* by row: tensor, or CKPI_NO_TENSOR */
    size_t n;
} ckpi_subset;

/* The name of a tensor inside of the object `only` (NULL: as it is); NULL: it is no part of it. */
const char *ckpi_subset_name(const char *name, const char *only);
/* only NULL: all. CKP_ENOTFOUND: no tensor is named so; CKP_EUNSUPPORTED: the file holds a part of one. The table must outlive it. */
CKP_MUST_USE ckp_status ckpi_subset_new(ckpi_subset *out, const ckpi_table *t, const char *only, ckp_error *err);
void ckpi_subset_free(ckpi_subset *s);
#endif
