/* SPDX-License-Identifier: Apache-2.0 */
/* DynaQuant's configuration from a tuple; and what a run does with it. */
#include "_core/core.h"

static const char *
name_from(PyObject *obj)
{
    if (PyUnicode_Check(obj))
        return PyUnicode_AsUTF8AndSize(obj, NULL);
    PyErr_SetString(PyExc_TypeError, "dynaquant: a name must be a str");
    return NULL;
}

static bool
embeddings_from(ckpy_dynaquant *out, PyObject *names)
{
    const Py_ssize_t n = PyTuple_Size(names);
    out->name = PyMem_Calloc((size_t)n + 1, sizeof *out->name);
    if (out->name == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if ((out->name[i] = name_from(PyTuple_GetItem(names, i))) == NULL)
            return false;
    out->config.embeddings = out->name;
    out->config.n_embeddings = (size_t)n;
    return true;
}

static bool
sensitivity_from(ckpy_dynaquant *out, PyObject *list)
{
    const Py_ssize_t n = PyTuple_Size(list);
    out->score = PyMem_Calloc((size_t)n + 1, sizeof *out->score);
    out->memory = PyMem_Calloc((size_t)n + 1, sizeof *out->memory);
    if (out->score == NULL || out->memory == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name, *memory;
        unsigned long long count;
        if (!PyArg_ParseTuple(PyTuple_GetItem(list, i), "OOK", &name, &memory, &count) || !ckpy_memory_from(&out->memory[i], memory, false))
            return false;
        out->n_memory = (size_t)i + 1;
        if (out->memory[i].len >= 0 && (unsigned long long)out->memory[i].len / sizeof(float) < count) {
            PyErr_SetString(PyExc_ValueError, "dynaquant: fewer sensitivities than their count says");
            return false;
        }
        out->score[i] = (ckp_sensitivity){name_from(name), out->memory[i].data, count};
        if (out->score[i].name == NULL)
            return false;
    }
    out->config.sensitivity = out->score;
    out->config.n_sensitivity = (size_t)n;
    return true;
}

bool
ckpy_dynaquant_from(ckpy_dynaquant *out, PyObject *tuple)
{
    const ckp_dynaquant init = CKP_DYNAQUANT_INIT;
    PyObject *embeddings, *sensitivity;
    int prune_by = 0;
    memset(out, 0, sizeof *out);
    out->config = init;
    if (tuple == Py_None)
        return true;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "dynaquant must be a tuple or None");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "IIdidO!O!", &out->config.bins, &out->config.bins_embedding, &out->config.prune, &prune_by, &out->config.protect,
                          &PyTuple_Type, &embeddings, &PyTuple_Type, &sensitivity))
        return false;
    out->config.prune_by = (ckp_score)prune_by;
    if (embeddings_from(out, embeddings) && sensitivity_from(out, sensitivity)) {
        out->given = &out->config;
        return true;
    }
    ckpy_dynaquant_free(out);
    return false;
}

void
ckpy_dynaquant_free(ckpy_dynaquant *d)
{
    for (size_t i = 0; i < d->n_memory; i++)
        ckpy_memory_free(&d->memory[i]);
    PyMem_Free((void *)(uintptr_t)d->name);
    PyMem_Free(d->score);
    PyMem_Free(d->memory);
    memset(d, 0, sizeof *d);
}
