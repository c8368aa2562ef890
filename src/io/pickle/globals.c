/* SPDX-License-Identifier: Apache-2.0 */
#include "io/pickle/globals.h"
#include <string.h>

static const struct { const char *module, *name; ckpi_global_id id; } rows[] = {
    {"torch._utils", "_rebuild_tensor_v2", G_REBUILD_V2},
    {"collections", "OrderedDict", G_ORDERED_DICT},
    {"torch._utils", "_rebuild_parameter", G_REBUILD_PARAMETER},
    {"torch._utils", "_rebuild_tensor_v3", G_REBUILD_V3},
    {"torch._utils", "_rebuild_tensor", G_REBUILD},
    {"torch._utils", "_rebuild_parameter_with_state", G_REBUILD_PARAMETER_STATE},
    {"torch._utils", "_rebuild_sparse_tensor", G_REBUILD_SPARSE},
    {"torch._utils", "_rebuild_qtensor", G_REBUILD_QTENSOR},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", G_REBUILD_META},
    {"torch._tensor", "_rebuild_from_type_v2", G_REBUILD_FROM_TYPE},
    {"torch.tensor", "_rebuild_from_type_v2", G_REBUILD_FROM_TYPE},
    {"torch", "Size", G_SIZE},
    {"torch", "device", G_DEVICE},
    {"torch", "Tensor", G_TENSOR},
    {"torch.nn.parameter", "Parameter", G_PARAMETER},
    {"torch.nn.parameter", "Buffer", G_TENSOR},
    {"torch.serialization", "_get_layout", G_LAYOUT},
    {"torch.storage", "UntypedStorage", G_UNTYPED},
    {"torch", "UntypedStorage", G_UNTYPED},
    {"torch", "per_tensor_affine", G_QSCHEME},
    {"torch", "per_channel_affine", G_QSCHEME},
    {"collections", "Counter", G_COUNTER},
    {"collections", "defaultdict", G_DEFAULTDICT},
    {"collections", "deque", G_DEQUE},
    {"_codecs", "encode", G_ENCODE},
    {"_io", "BytesIO", G_BYTESIO},
    {"io", "BytesIO", G_BYTESIO},
    {"builtins", "set", G_SET},
    {"builtins", "frozenset", G_FROZENSET},
    {"builtins", "bytearray", G_BYTEARRAY},
    {"builtins", "bytes", G_BYTES},
    {"builtins", "complex", G_COMPLEX},
    {"builtins", "slice", G_SLICE},
    {"builtins", "range", G_RANGE},
    {"builtins", "xrange", G_RANGE},
    {"builtins", "Ellipsis", G_ELLIPSIS},
    {"builtins", "int", G_TYPE},
    {"builtins", "float", G_TYPE},
    {"builtins", "bool", G_TYPE},
    {"builtins", "str", G_TYPE},
    {"builtins", "list", G_TYPE},
    {"builtins", "dict", G_TYPE},
    {"builtins", "tuple", G_TYPE},
    {"numpy", "dtype", G_NP_DTYPE},
    {"numpy", "ndarray", G_NP_NDARRAY},
    {"numpy._core.multiarray", "_reconstruct", G_NP_RECONSTRUCT},
    {"numpy.core.multiarray", "_reconstruct", G_NP_RECONSTRUCT},
    {"numpy._core.multiarray", "scalar", G_NP_SCALAR},
    {"numpy.core.multiarray", "scalar", G_NP_SCALAR},
    {"numpy._core.numeric", "_frombuffer", G_NP_FROMBUFFER},
    {"numpy.core.numeric", "_frombuffer", G_NP_FROMBUFFER},
};

static bool
is(const char *text, const uint8_t *p, size_t n)
{
    return strlen(text) == n && memcmp(text, p, n) == 0;
}

/* Families whose members are the rows of a table of dtypes. */
static bool
find_dtype(ckpi_pv *v, const uint8_t *module, size_t module_len, const char *name, size_t len)
{
    if (is("torch", module, module_len) || is("torch.cuda", module, module_len)) {
        v->u.g.row = ckpi_torch_dtype_by_storage(name, len);
        v->u.g.id = G_STORAGE;
        if (v->u.g.row == NULL && module_len == 5) {
            v->u.g.row = ckpi_torch_dtype_by_name(name, len);
            v->u.g.id = G_DTYPE;
        }
    } else if (is("numpy", module, module_len) || is("ml_dtypes", module, module_len)) {
        v->u.g.row = ckpi_numpy_dtype_by_name(module[0] == 'n' ? "numpy" : "ml_dtypes", name, len);
        v->u.g.id = G_NP_TYPE;
    }
    return v->u.g.row != NULL;
}

bool
ckpi_global_find(ckpi_pv *v, const uint8_t *module, size_t module_len, const uint8_t *name, size_t name_len)
{
    v->kind = PV_GLOBAL;
    v->u.g.row = NULL;
    v->u.g.name = NULL;
    /* Python 2's name, which protocol 2 still writes. */
    if (is("__builtin__", module, module_len)) {
        module = (const uint8_t *)"builtins";
        module_len = 8;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is(rows[i].name, name, name_len) && is(rows[i].module, module, module_len)) {
            v->u.g.id = rows[i].id;
            v->u.g.name = rows[i].name;
            return true;
        }
    return find_dtype(v, module, module_len, (const char *)name, name_len);
}
