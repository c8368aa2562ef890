/* SPDX-License-Identifier: Apache-2.0 */
/* Element types by the names that torch and numpy give them. */
#ifndef CKPI_IO_DTYPES_H
#define CKPI_IO_DTYPES_H
#include <stdbool.h>
#include <ckpress/base.h>

typedef struct ckpi_torch_dtype {
    const char *name;        /* as in torch.NAME */
    ckp_dtype dt;
    const char *storage;     /* class of its storage in a pickle; NULL: torch.storage.UntypedStorage and a dtype beside it */
    bool opaque;             /* dt is bits8 and does not say which of several dtypes this is */
} ckpi_torch_dtype;

const ckpi_torch_dtype *ckpi_torch_dtype_by_name(const char *name, size_t len);
const ckpi_torch_dtype *ckpi_torch_dtype_by_storage(const char *name, size_t len);
const ckpi_torch_dtype *ckpi_torch_dtype_of(ckp_dtype dt);           /* never an opaque one; NULL: torch has none */

typedef struct ckpi_numpy_dtype {
    const char *module;      /* "numpy" or "ml_dtypes" */
    const char *name;        /* attribute of the module */
    const char *code;        /* numpy's type string without byte order: "f4"; what its dtype says for ml_dtypes: "V2" */
    ckp_dtype dt;
    unsigned align;          /* in the state of a pickled ml_dtypes dtype */
} ckpi_numpy_dtype;

const ckpi_numpy_dtype *ckpi_numpy_dtype_by_name(const char *module, const char *name, size_t len);
const ckpi_numpy_dtype *ckpi_numpy_dtype_by_code(const char *code, size_t len);      /* numpy's own only */
const ckpi_numpy_dtype *ckpi_numpy_dtype_of(ckp_dtype dt);
bool ckpi_numpy_is_ml(const ckpi_numpy_dtype *d);
#endif
