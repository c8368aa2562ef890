/* SPDX-License-Identifier: Apache-2.0 */
/* The state tree as a pickle. Depth is bounded by the tree's own limit. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"
#include "io/dtypes.h"
#include "io/torch/pt_write.h"

bool
ckpi_pt_fail(ckpi_pt *p, ckp_status st, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    if (p->st != CKP_OK)
        return false;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->st = ckpi_fail(p->err, st, "%s", text);
    return false;
}

bool
ckpi_pt_next(ckpi_pt *p, ckp_tree_node *node)
{
    if (p->st != CKP_OK)
        return false;
    p->st = ckp_tree_next(&p->r, node, p->err);
    if (p->st == CKP_ENOTFOUND)
        p->st = ckpi_fail(p->err, CKP_ECORRUPT, "state tree: a value is missing");
    return p->st == CKP_OK;
}

bool
ckpi_pt_skip(ckpi_pt *p)
{
    ckp_tree_node node;
    uint64_t left = 1;
    while (left > 0) {
        if (!ckpi_pt_next(p, &node))
            return false;
        left--;
        switch (node.type) {
        case CKP_TREE_DICT:
        case CKP_TREE_ORDERED_DICT: left += 2 * node.count; break;
        case CKP_TREE_NAMED: left++; break;
        default: left += node.count; break;
        }
    }
    return true;
}

/* ---- tensors ---- */

static const ckpi_torch_dtype *
torch_dtype(const ckpi_pt *p, uint32_t i, const char *name)
{
    if (name != NULL)
        return ckpi_torch_dtype_by_name(name, strlen(name));
    return ckpi_torch_dtype_of(p->t[i].dtype == CKP_F4_PACKED ? CKP_F4E2M1FN_X2 : p->t[i].dtype);
}

bool
ckpi_pt_storage(ckpi_pt *p, uint32_t i, const char *dtype)
{
    char key[24];
    const ckpi_torch_dtype *d = torch_dtype(p, i, dtype);
    if (d == NULL)
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "%s: torch has no such dtype", p->t[i].name);
    const uint64_t bytes = p->t[i].bytes;
    (void)snprintf(key, sizeof key, "%" PRIu32, ckpi_pt_root(p, i));
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    ckpi_pkl_text(&p->pkl, "storage");
    if (d->storage != NULL)
        ckpi_pkl_global(&p->pkl, "torch", d->storage);
    else
        ckpi_pkl_global(&p->pkl, "torch.storage", "UntypedStorage");
    ckpi_pkl_text(&p->pkl, key);
    ckpi_pkl_text(&p->pkl, "cpu");
    ckpi_pkl_u64(&p->pkl, d->storage != NULL ? bytes / (ckp_dtype_bits(d->dt) / 8) : bytes);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    ckpi_pkl_op(&p->pkl, PKL_BINPERSID);
    return true;
}

bool
ckpi_pt_tensor_args(ckpi_pt *p, uint32_t i, bool grad, const char *dtype, bool *v3)
{
    const ckpi_out_tensor *t = &p->t[i];
    const ckpi_torch_dtype *d = torch_dtype(p, i, dtype);
    uint64_t shape[CKPI_MAX_DIMS];
    if (t->ndim > CKPI_MAX_DIMS)
        return ckpi_pt_fail(p, CKP_EINVAL, "%s: %u dimensions", t->name, t->ndim);
    if (t->ndim != 0)
        memcpy(shape, t->shape, t->ndim * sizeof *shape);
    if (t->dtype == CKP_F4_PACKED)
        shape[t->ndim - 1] /= 2;
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    if (!ckpi_pt_storage(p, i, dtype))
        return false;
    ckpi_pkl_int(&p->pkl, 0);
    ckpi_pkl_shape(&p->pkl, shape, t->ndim);
    ckpi_pkl_contiguous(&p->pkl, shape, t->ndim);
    ckpi_pkl_bool(&p->pkl, grad);
    ckpi_pkl_empty_odict(&p->pkl);
    *v3 = d->storage == NULL;
    if (*v3)
        ckpi_pkl_global(&p->pkl, "torch", d->name);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    return true;
}

bool
ckpi_pt_tensor(ckpi_pt *p, uint32_t i, bool grad, const char *dtype)
{
    const ckpi_torch_dtype *d = torch_dtype(p, i, dtype);
    bool v3;
    if (d == NULL)
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "%s: torch has no such dtype", p->t[i].name);
    ckpi_pkl_global(&p->pkl, "torch._utils", d->storage != NULL ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    if (!ckpi_pt_tensor_args(p, i, grad, dtype, &v3))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

bool
ckpi_pt_bytes(ckpi_pt *p, uint32_t i)
{
    const ckpi_buf *b = &p->data[ckpi_pt_root(p, i)];
    if (p->t[i].bytes > UINT32_MAX / 2 || b->len != p->t[i].bytes)
        return ckpi_pt_fail(p, CKP_ELIMIT, "%s: %" PRIu64 " bytes cannot stand in a pickle that torch reads", p->t[i].name, p->t[i].bytes);
    ckpi_pkl_bytes(&p->pkl, b->data, b->len);
    return true;
}

static bool
ints(ckpi_pt *p, uint32_t i)
{
    const ckpi_buf *b = &p->data[ckpi_pt_root(p, i)];
    if (p->t[i].dtype != CKP_U32 || b->len != p->t[i].bytes)
        return ckpi_pt_fail(p, CKP_ECORRUPT, "%s: a tuple of integers that is no u32", p->t[i].name);
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    for (size_t k = 0; k + 4 <= b->len; k += 4)
        ckpi_pkl_int(&p->pkl, ckpi_ld32(b->data + k));
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    return true;
}

/* ---- numpy ---- */


/* dtype(what, False, True): what was pushed after the name. */
static void
dtype_call(ckpi_pt *p)
{
    ckpi_pkl_bool(&p->pkl, false);
    ckpi_pkl_bool(&p->pkl, true);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE3);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
}

bool
ckpi_pt_numpy_dtype(ckpi_pt *p, const char *name, size_t len)
{
    const bool ml = len > 10 && memcmp(name, "ml_dtypes.", 10) == 0;
    const size_t skip = ml ? 10 : 6;
    if (!ml && (len <= 6 || memcmp(name, "numpy.", 6) != 0))
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "'%.*s' is no dtype of numpy", (int)CKPI_MIN(len, 80u), name);
    ckpi_pkl_global(&p->pkl, "numpy", "dtype");
    const ckpi_numpy_dtype *row = ckpi_numpy_dtype_by_name(ml ? "ml_dtypes" : "numpy", name + skip, len - skip);
    if (ml && row == NULL)
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "'%.*s' is no dtype of ml_dtypes", (int)CKPI_MIN(len, 80u), name);
    if (ml)
        ckpi_pkl_global(&p->pkl, "ml_dtypes", row->name);
    else
        ckpi_pkl_str(&p->pkl, row != NULL ? row->code : name + skip, row != NULL ? strlen(row->code) : len - skip);
    dtype_call(p);
    return true;
}

bool
ckpi_pt_ndarray_begin(ckpi_pt *p)
{
    ckpi_pkl_global(&p->pkl, "numpy._core.multiarray", "_reconstruct");
    ckpi_pkl_global(&p->pkl, "numpy", "ndarray");
    ckpi_pkl_int(&p->pkl, 0);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE1);
    ckpi_pkl_bytes(&p->pkl, "b", 1);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE3);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    ckpi_pkl_int(&p->pkl, 1);
    return true;
}

bool
ckpi_pt_ndarray_end(ckpi_pt *p, uint32_t i)
{
    ckpi_pkl_bool(&p->pkl, false);
    if (!ckpi_pt_bytes(p, i))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    ckpi_pkl_op(&p->pkl, PKL_BUILD);
    return true;
}

static bool
ndarray(ckpi_pt *p, uint32_t i)
{
    char name[80];
    const ckpi_numpy_dtype *d = ckpi_numpy_dtype_of(p->t[i].dtype);
    if (d == NULL)
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "%s: numpy has no dtype %s", p->t[i].name, ckp_dtype_name(p->t[i].dtype));
    ckpi_pt_ndarray_begin(p);
    ckpi_pkl_shape(&p->pkl, p->t[i].shape, p->t[i].ndim);
    const int n = snprintf(name, sizeof name, "%s.%s", d->module, d->name);
    return ckpi_pt_numpy_dtype(p, name, (size_t)n) && ckpi_pt_ndarray_end(p, i);
}

static bool
scalar(ckpi_pt *p, const ckp_tree_node *node)
{
    ckpi_pkl_global(&p->pkl, "numpy._core.multiarray", "scalar");
    if (!ckpi_pt_numpy_dtype(p, node->name, node->name_len))
        return false;
    ckpi_pkl_bytes(&p->pkl, node->data, node->len);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE2);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

/* ---- nodes ---- */

bool
ckpi_pt_items(ckpi_pt *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!ckpi_pt_value(p))
            return false;
    return p->pkl.b.failed == CKP_OK || ckpi_pt_fail(p, p->pkl.b.failed, "the pickle of the state tree is too large");
}

static bool
tuple(ckpi_pt *p, uint64_t n)
{
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    if (!ckpi_pt_items(p, n))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    return true;
}

static bool
list(ckpi_pt *p, uint64_t n)
{
    ckpi_pkl_op(&p->pkl, PKL_EMPTY_LIST);
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    if (!ckpi_pt_items(p, n))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_APPENDS);
    return true;
}

/* The dict, empty, is on the stack. */
static bool
pairs(ckpi_pt *p, uint64_t n)
{
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    if (!ckpi_pt_items(p, 2 * n))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_SETITEMS);
    return true;
}

/* A name applied to a list or tuple of n values. */
static bool
call_on(ckpi_pt *p, const char *module, const char *name, uint64_t n, bool as_list)
{
    ckpi_pkl_global(&p->pkl, module, name);
    if (as_list ? !list(p, n) : !tuple(p, n))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_TUPLE1);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

static bool
complex_number(ckpi_pt *p, const ckp_tree_node *node)
{
    ckpi_pkl_global(&p->pkl, "builtins", "complex");
    ckpi_pkl_float(&p->pkl, node->re);
    ckpi_pkl_float(&p->pkl, node->im);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE2);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

static bool
text(ckpi_pt *p, const ckp_tree_node *node)
{
    if (node->len > UINT32_MAX / 2)
        return ckpi_pt_fail(p, CKP_ELIMIT, "a text of %zu bytes cannot stand in a pickle that torch reads", node->len);
    ckpi_pkl_str(&p->pkl, node->data, node->len);
    return true;
}

static bool
bytes(ckpi_pt *p, const ckp_tree_node *node, bool array)
{
    if (array)
        ckpi_pkl_global(&p->pkl, "builtins", "bytearray");
    ckpi_pkl_bytes(&p->pkl, node->data, node->len);
    if (array) {
        ckpi_pkl_op(&p->pkl, PKL_TUPLE1);
        ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    }
    return true;
}

static bool
dtype(ckpi_pt *p, const ckp_tree_node *node)
{
    const char *s = node->data;
    if (node->len <= 6 || memcmp(s, "torch.", 6) != 0)
        return ckpi_pt_numpy_dtype(p, s, node->len);
    const ckpi_torch_dtype *d = ckpi_torch_dtype_by_name(s + 6, node->len - 6);
    if (d == NULL)
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "'%.*s' is no dtype of torch", (int)CKPI_MIN(node->len, 80u), s);
    ckpi_pkl_global(&p->pkl, "torch", d->name);
    return true;
}

static bool
device(ckpi_pt *p, const ckp_tree_node *node)
{
    ckpi_pkl_global(&p->pkl, "torch", "device");
    ckpi_pkl_str(&p->pkl, node->data, node->len);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE1);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

static bool
parameter(ckpi_pt *p, uint32_t i)
{
    ckpi_pkl_global(&p->pkl, "torch._utils", "_rebuild_parameter");
    if (!ckpi_pt_tensor(p, i, false, NULL))
        return false;
    ckpi_pkl_bool(&p->pkl, true);
    ckpi_pkl_empty_odict(&p->pkl);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE3);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

static bool
tensor(ckpi_pt *p, const ckp_tree_node *node)
{
    switch (node->as) {
    case CKP_AS_TORCH_PARAMETER: return parameter(p, node->tensor);
    case CKP_AS_TORCH_REQUIRES_GRAD: return ckpi_pt_tensor(p, node->tensor, true, NULL);
    case CKP_AS_NUMPY: return ndarray(p, node->tensor);
    case CKP_AS_PYTHON_BYTES: return ckpi_pt_bytes(p, node->tensor);
    case CKP_AS_PYTHON_INTS: return ints(p, node->tensor);
    default: return ckpi_pt_tensor(p, node->tensor, false, NULL);
    }
}

static bool
done(ckpi_pt *p)
{
    return p->st == CKP_OK;
}

bool
ckpi_pt_node(ckpi_pt *p, const ckp_tree_node *node)
{
    switch (node->type) {
    case CKP_TREE_NONE: ckpi_pkl_op(&p->pkl, PKL_NONE); return done(p);
    case CKP_TREE_FALSE: ckpi_pkl_bool(&p->pkl, false); return done(p);
    case CKP_TREE_TRUE: ckpi_pkl_bool(&p->pkl, true); return done(p);
    case CKP_TREE_INT: ckpi_pkl_int(&p->pkl, node->i); return done(p);
    case CKP_TREE_BIGINT: ckpi_pkl_long(&p->pkl, node->data, node->len); return done(p);
    case CKP_TREE_FLOAT: ckpi_pkl_float(&p->pkl, node->re); return done(p);
    case CKP_TREE_COMPLEX: return complex_number(p, node);
    case CKP_TREE_STR: return text(p, node);
    case CKP_TREE_BYTES: return bytes(p, node, false);
    case CKP_TREE_BYTEARRAY: return bytes(p, node, true);
    case CKP_TREE_LIST: return list(p, node->count);
    case CKP_TREE_TUPLE: return tuple(p, node->count);
    case CKP_TREE_DICT: ckpi_pkl_op(&p->pkl, PKL_EMPTY_DICT); return pairs(p, node->count);
    case CKP_TREE_ORDERED_DICT: ckpi_pkl_empty_odict(&p->pkl); return pairs(p, node->count);
    case CKP_TREE_SET: return call_on(p, "builtins", "set", node->count, true);
    case CKP_TREE_FROZENSET: return call_on(p, "builtins", "frozenset", node->count, true);
    case CKP_TREE_TORCH_SIZE: return call_on(p, "torch", "Size", node->count, false);
    case CKP_TREE_DTYPE: return dtype(p, node);
    case CKP_TREE_DEVICE: return device(p, node);
    case CKP_TREE_NUMPY_SCALAR: return scalar(p, node);
    case CKP_TREE_TENSOR: return tensor(p, node);
    case CKP_TREE_NAMED: return ckpi_pt_named(p, node);
    }
    return ckpi_pt_fail(p, CKP_ECORRUPT, "state tree: a node that does not exist");
}

bool
ckpi_pt_value(ckpi_pt *p)
{
    ckp_tree_node node;
    return ckpi_pt_next(p, &node) && ckpi_pt_node(p, &node);
}

static bool
all_tensors(ckpi_pt *p)
{
    ckpi_pkl_empty_odict(&p->pkl);
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    for (uint32_t i = 0; i < p->n; i++) {
        ckpi_pkl_text(&p->pkl, p->t[i].name);
        if (!ckpi_pt_tensor(p, i, false, NULL))
            return false;
    }
    ckpi_pkl_op(&p->pkl, PKL_SETITEMS);
    return true;
}

ckp_status
ckpi_pt_pickle(ckpi_pt *p, ckp_error *err)
{
    p->err = err;
    p->st = CKP_OK;
    p->pkl.b.max = CKPI_MAX_PICKLE;
    ckpi_pkl_begin(&p->pkl);
    ckp_tree_reader_init(&p->r, p->tree, p->tree_len);
    const bool ok = p->tree_len == 0 ? all_tensors(p) : ckpi_pt_value(p);
    ckpi_pkl_op(&p->pkl, PKL_STOP);
    return ok ? ckpi_buf_status(&p->pkl.b, err, "pickle of the state tree") : p->st;
}
