/* SPDX-License-Identifier: Apache-2.0 */
/* What every export has in common: which tensor is being fed and how much of it is missing. The rest is the format's. */
#ifndef CKPI_IO_EXPORT_H
#define CKPI_IO_EXPORT_H
#include "io/io.h"

typedef struct ckpi_export_ops {
    ckp_status (*begin)(ckpi_export *e, uint32_t i, ckp_error *err);                     /* each may be NULL */
    ckp_status (*data)(ckpi_export *e, const void *p, size_t n, ckp_error *err);         /* NULL: written as it is */
    ckp_status (*end)(ckpi_export *e, uint32_t i, ckp_error *err);
    ckp_status (*finish)(ckpi_export *e, ckp_error *err);
    void (*free)(ckpi_export *e);                                                        /* what is behind `more` */
} ckpi_export_ops;

struct ckpi_export {
    const ckpi_export_ops *ops;
    ckpi_writer *w;
    const ckpi_out_tensor *t;
    size_t n;
    uint32_t *order;            /* tensors that get data, in the order in which they should come */
    size_t n_order, at;         /* at: the next of them; all before it have been fed when `fixed` */
    bool fixed;                 /* no other order is possible */
    uint8_t *fed;               /* one byte a tensor */
    size_t n_fed;
    uint32_t now;               /* being fed, or UINT32_MAX */
    uint64_t left;              /* of it */
    bool finished;
    void *more;                 /* the format's own */
};

/* An export of n tensors with room for its order; ops and more are the caller's to set. */
CKP_MUST_USE ckp_status ckpi_export_new(ckpi_export **out, ckpi_writer *w, const ckpi_out_tensor *t, size_t n, ckp_error *err);
#endif
