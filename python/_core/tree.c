/* SPDX-License-Identifier: Apache-2.0 */
/* An encoded tree as a flat list of tuples, in the order of the bytes; python/ckpress/_decode.py builds the objects. */
#include "_core/core.h"

static PyObject *
bytes_of(const void *data, size_t len)
{
    return PyBytes_FromStringAndSize(len == 0 ? "" : data, (Py_ssize_t)len);
}

/* (type, value) for values; (type, count) for containers; (type, index, as) for tensors; (type, bytes, name) for numpy scalars. */
static PyObject *
node_tuple(const ckp_tree_node *n)
{
    switch (n->type) {
    case CKP_TREE_NONE:
    case CKP_TREE_FALSE:
    case CKP_TREE_TRUE:
        return Py_BuildValue("(i)", (int)n->type);
    case CKP_TREE_INT:
        return Py_BuildValue("(iL)", (int)n->type, (long long)n->i);
    case CKP_TREE_FLOAT:
        return Py_BuildValue("(id)", (int)n->type, n->re);
    case CKP_TREE_COMPLEX:
        return Py_BuildValue("(idd)", (int)n->type, n->re, n->im);
    case CKP_TREE_TENSOR:
        return Py_BuildValue("(iIi)", (int)n->type, (unsigned int)n->tensor, (int)n->as);
    case CKP_TREE_LIST:
    case CKP_TREE_TUPLE:
    case CKP_TREE_DICT:
    case CKP_TREE_ORDERED_DICT:
    case CKP_TREE_SET:
    case CKP_TREE_FROZENSET:
    case CKP_TREE_TORCH_SIZE:
        return Py_BuildValue("(iK)", (int)n->type, (unsigned long long)n->count);
    case CKP_TREE_NUMPY_SCALAR:
        return Py_BuildValue("(iNN)", (int)n->type, bytes_of(n->data, n->len), bytes_of(n->name, n->name_len));
    default:                 /* STR, BYTES, BYTEARRAY, BIGINT, DTYPE, DEVICE, NAMED */
        return Py_BuildValue("(iN)", (int)n->type, bytes_of(n->data, n->len));
    }
}

PyObject *
ckpy_tree_list(const void *data, size_t len)
{
    ckp_error err = {0};
    ckp_tree_reader reader;
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    ckp_tree_reader_init(&reader, data, len);
    for (;;) {
        ckp_tree_node node = {0};
        const ckp_status st = ckp_tree_next(&reader, &node, &err);
        if (st == CKP_ENOTFOUND)
            return list;
        if (st != CKP_OK) {
            Py_DECREF(list);
            return ckpy_raise(st, &err);
        }
        PyObject *item = node_tuple(&node);
        const bool ok = item != NULL && PyList_Append(list, item) == 0;
        Py_XDECREF(item);
        if (!ok) {
            Py_DECREF(list);
            return NULL;
        }
    }
}
