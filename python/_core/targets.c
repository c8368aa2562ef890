/* SPDX-License-Identifier: Apache-2.0 */
/* Where tensors are read to: tuples of Python as targets of the library. */
#include "_core/core.h"

void
ckpy_targets_free(ckpy_targets *all)
{
    for (size_t i = 0; i < all->n; i++) {
        ckpy_memory_free(&all->memory[i]);
        ckpy_shape_free(&all->shape[i]);
    }
    PyMem_Free(all->t);
    PyMem_Free(all->shape);
    PyMem_Free(all->memory);
}

/* (index, dtype, shape, strides or None, memory) */
static bool
targets_add(ckpy_targets *all, PyObject *item)
{
    const char *dtype;
    unsigned int index;
    PyObject *shape, *strides, *memory;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a target must be a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(item, "IsOOO", &index, &dtype, &shape, &strides, &memory))
        return false;
    const ckp_dtype dt = ckpy_dtype_from(dtype);
    if (dt == (ckp_dtype)0 || !ckpy_shape_from(&all->shape[all->n], shape, strides))
        return false;
    if (!ckpy_memory_from(&all->memory[all->n], memory, true)) {
        ckpy_shape_free(&all->shape[all->n]);
        return false;
    }
    ckp_target *t = &all->t[all->n];
    t->index = index;
    t->dtype = dt;
    t->ndim = all->shape[all->n].ndim;
    t->shape = all->shape[all->n].extent;
    t->strides = all->shape[all->n].stride;
    t->data = all->memory[all->n].data;
    all->n++;
    return true;
}

bool
ckpy_targets_from(ckpy_targets *all, PyObject *list)
{
    const Py_ssize_t n = PyList_Check(list) ? PyList_Size(list) : -1;
    if (n < 0) {
        PyErr_SetString(PyExc_TypeError, "targets must be a list");
        return false;
    }
    all->t = PyMem_Calloc((size_t)n + 1, sizeof *all->t);
    all->shape = PyMem_Calloc((size_t)n + 1, sizeof *all->shape);
    all->memory = PyMem_Calloc((size_t)n + 1, sizeof *all->memory);
    if (all->t == NULL || all->shape == NULL || all->memory == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (!targets_add(all, PyList_GetItem(list, i)))
            return false;
    return true;
}
