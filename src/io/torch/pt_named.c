/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CKP_TREE_NAMED as a pickle: each row of the table at the end is a name and how its value is written (src/io/README.md has the list).
 * Where the pickle wants another order than the tree has, a copy of the reader goes back: it is a small struct.
 */
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "io/dtypes.h"
#include "io/torch/pt_write.h"

static bool
tuple_of(ckpi_pt *p, uint64_t n)
{
    ckp_tree_node node;
    if (!ckpi_pt_next(p, &node))
        return false;
    return (node.type == CKP_TREE_TUPLE && node.count == n) || ckpi_pt_fail(p, CKP_ECORRUPT, "state tree: a tuple of %llu was expected",
                                                                             (unsigned long long)n);
}

static bool
node_of(ckpi_pt *p, ckp_tree_type type, ckp_tree_node *node)
{
    if (!ckpi_pt_next(p, node))
        return false;
    return node->type == type || ckpi_pt_fail(p, CKP_ECORRUPT, "state tree: a node of type %d where %d was expected", (int)node->type, (int)type);
}

static bool
is(const ckp_tree_node *node, const char *text)
{
    return node->len == strlen(text) && memcmp(node->data, text, node->len) == 0;
}

/* Writes a value that lies elsewhere in the tree. */
static bool
value_at(ckpi_pt *p, const ckp_tree_reader *at)
{
    const ckp_tree_reader here = p->r;
    p->r = *at;
    const bool ok = ckpi_pt_value(p);
    p->r = here;
    return ok;
}

static bool
reduce1(ckpi_pt *p)
{
    ckpi_pkl_op(&p->pkl, PKL_TUPLE1);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

/* ---- collections ---- */

static bool
ordered_dict(ckpi_pt *p)
{
    if (!tuple_of(p, 2) || !ckpi_pt_value(p) || !ckpi_pt_value(p))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_BUILD);
    return true;
}

/* The plain types by name: texts of our own, for names must outlive the pickle. */
static const char *
plain_type(const ckp_tree_node *node)
{
    static const char *const names[] = {"list", "dict", "int", "float", "set", "str", "bool", "tuple"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(node, names[i]))
            return names[i];
    return NULL;
}

static bool
default_dict(ckpi_pt *p)
{
    ckp_tree_node node;
    if (!tuple_of(p, 2) || !ckpi_pt_next(p, &node))
        return false;
    ckpi_pkl_global(&p->pkl, "collections", "defaultdict");
    if (node.type == CKP_TREE_NONE) {
        ckpi_pkl_op(&p->pkl, PKL_NONE);
    } else {
        const char *type = node.type == CKP_TREE_STR ? plain_type(&node) : NULL;
        if (type == NULL)
            return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "a defaultdict of an unknown factory");
        ckpi_pkl_global(&p->pkl, "builtins", type);
    }
    reduce1(p);
    if (!node_of(p, CKP_TREE_DICT, &node))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    if (!ckpi_pt_items(p, 2 * node.count))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_SETITEMS);
    return true;
}

static bool
counter(ckpi_pt *p)
{
    ckpi_pkl_global(&p->pkl, "collections", "Counter");
    return ckpi_pt_value(p) && reduce1(p);
}

static bool
deque(ckpi_pt *p)
{
    if (!tuple_of(p, 2))
        return false;
    const ckp_tree_reader maxlen = p->r;
    ckpi_pkl_global(&p->pkl, "collections", "deque");
    if (!ckpi_pt_skip(p) || !ckpi_pt_value(p) || !value_at(p, &maxlen))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_TUPLE2);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

static bool
bytes_io(ckpi_pt *p)
{
    ckpi_pkl_global(&p->pkl, "_io", "BytesIO");
    return ckpi_pt_value(p) && reduce1(p);
}

static bool
array(ckpi_pt *p)
{
    ckp_tree_node node;
    if (!tuple_of(p, 2))
        return false;
    ckpi_pkl_global(&p->pkl, "array", "array");
    if (!ckpi_pt_value(p) || !node_of(p, CKP_TREE_TENSOR, &node) || !ckpi_pt_bytes(p, node.tensor))
        return false;
    ckpi_pkl_op(&p->pkl, PKL_TUPLE2);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

static bool
type_name(ckpi_pt *p)
{
    ckp_tree_node node;
    if (!node_of(p, CKP_TREE_STR, &node))
        return false;
    const char *type = plain_type(&node);
    if (type == NULL)
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "a type as a value that is not plain");
    ckpi_pkl_global(&p->pkl, "builtins", type);
    return true;
}

static bool
ellipsis(ckpi_pt *p)
{
    ckpi_pkl_global(&p->pkl, "builtins", "Ellipsis");
    return ckpi_pt_skip(p);
}

static bool
call_slice(ckpi_pt *p)
{
    ckpi_pkl_global(&p->pkl, "builtins", "slice");
    const bool ok = ckpi_pt_value(p);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return ok;
}

static bool
call_range(ckpi_pt *p)
{
    ckpi_pkl_global(&p->pkl, "builtins", "range");
    const bool ok = ckpi_pt_value(p);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return ok;
}

/* ---- torch ---- */

static bool
frozen(ckpi_pt *p)
{
    ckpi_pkl_global(&p->pkl, "torch._utils", "_rebuild_parameter");
    if (!ckpi_pt_value(p))
        return false;
    ckpi_pkl_bool(&p->pkl, false);
    ckpi_pkl_empty_odict(&p->pkl);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE3);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

/* (dtype, bytes): a tensor whose dtype the format keeps as bytes. */
static bool
opaque(ckpi_pt *p)
{
    ckp_tree_node dtype, node;
    if (!tuple_of(p, 2) || !node_of(p, CKP_TREE_DTYPE, &dtype) || !node_of(p, CKP_TREE_TENSOR, &node))
        return false;
    const char *s = dtype.data;
    const ckpi_torch_dtype *d = dtype.len > 6 ? ckpi_torch_dtype_by_name(s + 6, dtype.len - 6) : NULL;
    if (d == NULL || p->t[node.tensor].dtype != d->dt)
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "%s: torch has no such dtype", p->t[node.tensor].name);
    return ckpi_pt_tensor(p, node.tensor, node.as == CKP_AS_TORCH_REQUIRES_GRAD, d->name);
}

/* (class, elements) */
static bool
storage(ckpi_pt *p)
{
    ckp_tree_node cls, node;
    return tuple_of(p, 2) && node_of(p, CKP_TREE_STR, &cls) && node_of(p, CKP_TREE_TENSOR, &node) && ckpi_pt_storage(p, node.tensor, NULL);
}

/* Where the values of a dict with text keys lie. */
static bool
find_values(ckpi_pt *p, const char *const *keys, size_t n_keys, ckp_tree_reader *at, bool *have)
{
    ckp_tree_node dict, key;
    if (!node_of(p, CKP_TREE_DICT, &dict))
        return false;
    for (uint64_t i = 0; i < dict.count; i++) {
        if (!node_of(p, CKP_TREE_STR, &key))
            return false;
        for (size_t k = 0; k < n_keys; k++)
            if (is(&key, keys[k])) {
                at[k] = p->r;
                have[k] = true;
            }
        if (!ckpi_pt_skip(p))
            return false;
    }
    return true;
}

/* _rebuild_sparse_tensor(layout, (parts ..., size[, coalesced])) */
static bool
sparse(ckpi_pt *p, const char *layout, const char *first, const char *second)
{
    const char *const keys[] = {"size", "coalesced", first, second, "values"};
    const bool coo = strcmp(first, "indices") == 0;
    ckp_tree_reader at[5];
    bool have[5] = {false};
    if (!find_values(p, keys, 5, at, have))
        return false;
    if (!have[0] || !have[2] || !have[4] || (!coo && !have[3]) || (coo && !have[1]))
        return ckpi_pt_fail(p, CKP_ECORRUPT, "state tree: a sparse tensor without its parts");
    ckpi_pkl_global(&p->pkl, "torch._utils", "_rebuild_sparse_tensor");
    ckpi_pkl_global(&p->pkl, "torch.serialization", "_get_layout");
    ckpi_pkl_text(&p->pkl, layout);
    reduce1(p);
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    bool ok = value_at(p, &at[2]) && (coo || value_at(p, &at[3])) && value_at(p, &at[4]) && value_at(p, &at[0]);
    if (coo)
        ok = ok && value_at(p, &at[1]);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE2);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return ok;
}

static bool coo(ckpi_pt *p) { return sparse(p, "torch.sparse_coo", "indices", "indices"); }
static bool csr(ckpi_pt *p) { return sparse(p, "torch.sparse_csr", "crow_indices", "col_indices"); }
static bool bsr(ckpi_pt *p) { return sparse(p, "torch.sparse_bsr", "crow_indices", "col_indices"); }
static bool csc(ckpi_pt *p) { return sparse(p, "torch.sparse_csc", "ccol_indices", "row_indices"); }
static bool bsc(ckpi_pt *p) { return sparse(p, "torch.sparse_bsc", "ccol_indices", "row_indices"); }

/* ({scale, zero_point[, axis]}, values) */
static bool
quantized(ckpi_pt *p)
{
    static const char *const keys[] = {"scale", "zero_point", "axis"};
    ckp_tree_reader at[3];
    bool have[3] = {false};
    ckp_tree_node node;
    if (!tuple_of(p, 2) || !find_values(p, keys, 3, at, have) || !node_of(p, CKP_TREE_TENSOR, &node))
        return false;
    if (!have[0] || !have[1])
        return ckpi_pt_fail(p, CKP_ECORRUPT, "state tree: a quantized tensor without its scale");
    const ckpi_out_tensor *t = &p->t[node.tensor];
    ckpi_pkl_global(&p->pkl, "torch._utils", "_rebuild_qtensor");
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    if (!ckpi_pt_storage(p, node.tensor, NULL))
        return false;
    ckpi_pkl_int(&p->pkl, 0);
    ckpi_pkl_shape(&p->pkl, t->shape, t->ndim);
    ckpi_pkl_contiguous(&p->pkl, t->shape, t->ndim);
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    ckpi_pkl_global(&p->pkl, "torch", have[2] ? "per_channel_affine" : "per_tensor_affine");
    const bool ok = value_at(p, &at[0]) && value_at(p, &at[1]) && (!have[2] || value_at(p, &at[2]));
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    ckpi_pkl_bool(&p->pkl, false);
    ckpi_pkl_empty_odict(&p->pkl);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return ok;
}

/* A Parameter with attributes: _rebuild_parameter_with_state(data, requires_grad, hooks, attributes). */
static bool
parameter_attributes(ckpi_pt *p, const ckp_tree_reader *tensor, const ckp_tree_reader *state)
{
    const ckp_tree_reader here = p->r;
    ckp_tree_node node;
    p->r = *tensor;
    if (!ckpi_pt_next(p, &node))
        return false;
    const bool grad = node.type == CKP_TREE_TENSOR;
    if (!grad && !(node.type == CKP_TREE_NAMED && is(&node, "torch.nn.Parameter") && ckpi_pt_next(p, &node)))
        return ckpi_pt_fail(p, CKP_ECORRUPT, "state tree: attributes of something that is no Parameter");
    if (node.type == CKP_TREE_TENSOR)
        node.as = CKP_AS_TORCH;
    ckpi_pkl_global(&p->pkl, "torch._utils", "_rebuild_parameter_with_state");
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    bool ok = ckpi_pt_node(p, &node);
    ckpi_pkl_bool(&p->pkl, grad);
    ckpi_pkl_empty_odict(&p->pkl);
    ok = ok && value_at(p, state);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    p->r = here;
    return ok;
}

/* A tensor with attributes: _rebuild_from_type_v2(function, type, arguments, attributes). */
static bool
tensor_attributes(ckpi_pt *p, const ckp_tree_reader *tensor, const ckp_tree_reader *state)
{
    const ckp_tree_reader here = p->r;
    ckp_tree_node node;
    bool v3;
    p->r = *tensor;
    if (!ckpi_pt_next(p, &node))
        return false;
    p->r = here;
    if (node.type != CKP_TREE_TENSOR)
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "attributes of a tensor that is not plain");
    const ckpi_torch_dtype *d = ckpi_torch_dtype_of(p->t[node.tensor].dtype);
    ckpi_pkl_global(&p->pkl, "torch._tensor", "_rebuild_from_type_v2");
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    ckpi_pkl_global(&p->pkl, "torch._utils", d != NULL && d->storage != NULL ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    ckpi_pkl_global(&p->pkl, "torch", "Tensor");
    const bool ok = ckpi_pt_tensor_args(p, node.tensor, node.as == CKP_AS_TORCH_REQUIRES_GRAD, NULL, &v3) && value_at(p, state);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return ok;
}

/* (tensor, class, attributes) */
static bool
attributes(ckpi_pt *p)
{
    ckp_tree_node cls;
    if (!tuple_of(p, 3))
        return false;
    const ckp_tree_reader tensor = p->r;
    if (!ckpi_pt_skip(p) || !node_of(p, CKP_TREE_STR, &cls))
        return false;
    const ckp_tree_reader state = p->r;
    if (!ckpi_pt_skip(p))
        return false;
    return is(&cls, "torch.nn.Parameter") ? parameter_attributes(p, &tensor, &state) : tensor_attributes(p, &tensor, &state);
}

static bool
layout(ckpi_pt *p)
{
    ckpi_pkl_global(&p->pkl, "torch.serialization", "_get_layout");
    return ckpi_pt_value(p) && reduce1(p);
}

static bool
qscheme(ckpi_pt *p)
{
    ckp_tree_node node;
    if (!node_of(p, CKP_TREE_STR, &node))
        return false;
    const bool tensor = is(&node, "per_tensor_affine");
    if (!tensor && !is(&node, "per_channel_affine"))
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "an unknown scheme of quantized tensors");
    ckpi_pkl_global(&p->pkl, "torch", tensor ? "per_tensor_affine" : "per_channel_affine");
    return true;
}

static bool
meta(ckpi_pt *p)
{
    ckpi_pkl_global(&p->pkl, "torch._utils", "_rebuild_meta_tensor_no_storage");
    const bool ok = ckpi_pt_value(p);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return ok;
}

/* ---- numpy ---- */

/* dtype(what lies there, False, True) */
static bool
dtype_from(ckpi_pt *p, const ckp_tree_reader *descr)
{
    ckpi_pkl_global(&p->pkl, "numpy", "dtype");
    if (!value_at(p, descr))
        return false;
    ckpi_pkl_bool(&p->pkl, false);
    ckpi_pkl_bool(&p->pkl, true);
    ckpi_pkl_op(&p->pkl, PKL_TUPLE3);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

/* Big-endian arrays: an array's state would be swapped to native order on loading, _frombuffer keeps it. A bytearray, so that it can be written to. */
static bool
swapped(ckpi_pt *p, const ckp_tree_reader *descr)
{
    const ckp_tree_reader shape = p->r;
    ckp_tree_node node;
    if (!ckpi_pt_skip(p) || !node_of(p, CKP_TREE_TENSOR, &node))
        return false;
    ckpi_pkl_global(&p->pkl, "numpy._core.numeric", "_frombuffer");
    ckpi_pkl_op(&p->pkl, PKL_MARK);
    ckpi_pkl_global(&p->pkl, "builtins", "bytearray");
    if (!ckpi_pt_bytes(p, node.tensor) || !reduce1(p) || !dtype_from(p, descr) || !value_at(p, &shape))
        return false;
    ckpi_pkl_text(&p->pkl, "C");
    ckpi_pkl_op(&p->pkl, PKL_TUPLE);
    ckpi_pkl_op(&p->pkl, PKL_REDUCE);
    return true;
}

/* (what dtype() takes, shape, data) */
static bool
ndarray(ckpi_pt *p)
{
    ckp_tree_node node;
    if (!tuple_of(p, 3))
        return false;
    const ckp_tree_reader descr = p->r;
    if (!ckpi_pt_next(p, &node))
        return false;
    if (node.type == CKP_TREE_STR && node.len != 0 && ((const char *)node.data)[0] == '>')
        return swapped(p, &descr);
    p->r = descr;
    ckpi_pt_ndarray_begin(p);
    return ckpi_pt_skip(p) && ckpi_pt_value(p) && dtype_from(p, &descr) && node_of(p, CKP_TREE_TENSOR, &node) && ckpi_pt_ndarray_end(p, node.tensor);
}

static bool
numpy_type(ckpi_pt *p)
{
    ckp_tree_node node;
    if (!node_of(p, CKP_TREE_STR, &node))
        return false;
    const char *s = node.data;
    const bool ml = node.len > 10 && memcmp(s, "ml_dtypes.", 10) == 0;
    const size_t skip = ml ? 10 : 6;
    const ckpi_numpy_dtype *d = node.len > skip ? ckpi_numpy_dtype_by_name(ml ? "ml_dtypes" : "numpy", s + skip, node.len - skip) : NULL;
    if (d == NULL)
        return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "'%.*s' is no type of numpy", (int)CKPI_MIN(node.len, 80u), s);
    ckpi_pkl_global(&p->pkl, d->module, d->name);
    return true;
}

bool
ckpi_pt_named(ckpi_pt *p, const ckp_tree_node *node)
{
    static const struct { const char *name; bool (*write)(ckpi_pt *p); } rows[] = {
        {"collections.OrderedDict", ordered_dict},
        {"collections.defaultdict", default_dict},
        {"collections.Counter", counter},
        {"collections.deque", deque},
        {"io.BytesIO", bytes_io},
        {"array.array", array},
        {"builtins.type", type_name},
        {"builtins.Ellipsis", ellipsis},
        {"builtins.slice", call_slice},
        {"builtins.range", call_range},
        {"torch.nn.Parameter", frozen},
        {"torch.attributes", attributes},
        {"torch.dtype", opaque},
        {"torch.storage", storage},
        {"torch.sparse_coo", coo},
        {"torch.sparse_csr", csr},
        {"torch.sparse_bsr", bsr},
        {"torch.sparse_csc", csc},
        {"torch.sparse_bsc", bsc},
        {"torch.quantized", quantized},
        {"torch.layout", layout},
        {"torch.qscheme", qscheme},
        {"torch.meta", meta},
        {"numpy.ndarray", ndarray},
        {"numpy.type", numpy_type},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is(node, rows[i].name))
            return rows[i].write(p);
    return ckpi_pt_fail(p, CKP_EUNSUPPORTED, "a value of type %.*s cannot stand in a file of torch.save", (int)CKPI_MIN(node->len, 100u),
                        (const char *)node->data);
}
