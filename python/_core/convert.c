/* SPDX-License-Identifier: Apache-2.0 */
/* Between Python values and the library's: errors, shapes, paths, memory. */
#include "_core/core.h"

PyObject *
ckpy_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

/* The class, and its constructor for each family, are Python's business: errors.from_status() builds the exception. */
PyObject *
ckpy_raise(ckp_status st, const ckp_error *err)
{
    if (PyErr_Occurred() != NULL)
        return NULL;
    PyObject *module = PyImport_ImportModule("ckpress.errors");
    if (module == NULL)
        return NULL;
    PyObject *offset = err->offset == CKP_NO_OFFSET ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(err->offset);
    PyObject *text = ckpy_text(err->text);
    PyObject *file = PyUnicode_DecodeUTF8(err->file, (Py_ssize_t)strlen(err->file), "surrogateescape");
    PyObject *tensor = ckpy_text(err->tensor);
    PyObject *exc = NULL;
    if (offset != NULL && text != NULL && file != NULL && tensor != NULL)
        exc = PyObject_CallMethod(module, "from_status", "isiOOOO", (int)st, ckp_status_name(st), err->sys_errno, text, file, tensor,
                                  offset);
    if (exc != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
    Py_XDECREF(exc);
    Py_XDECREF(tensor);
    Py_XDECREF(file);
    Py_XDECREF(text);
    Py_XDECREF(offset);
    Py_DECREF(module);
    return NULL;
}

static bool
extents_from(uint64_t *out, PyObject *tuple, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
        if (PyErr_Occurred() != NULL)
            return false;
    }
    return true;
}

static bool
strides_from(int64_t *out, PyObject *tuple, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (PyErr_Occurred() != NULL)
            return false;
    }
    return true;
}

bool
ckpy_shape_from(ckpy_shape *out, PyObject *shape, PyObject *strides)
{
    const ckpy_shape empty = CKPY_SHAPE_INIT;
    *out = empty;
    if (!PyTuple_Check(shape) || (strides != Py_None && !PyTuple_Check(strides))) {
        PyErr_SetString(PyExc_TypeError, "shape must be a tuple, strides a tuple or None");
        return false;
    }
    const Py_ssize_t n = PyTuple_Size(shape);
    if (strides != Py_None && PyTuple_Size(strides) != n) {
        PyErr_SetString(PyExc_ValueError, "shape and strides differ in length");
        return false;
    }
    if (n == 0)
        return true;
    out->ndim = n < 255 ? (unsigned)n : 255;    /* the library names its own cap */
    out->extent = PyMem_Calloc((size_t)n, sizeof *out->extent);
    if (strides != Py_None)
        out->stride = PyMem_Calloc((size_t)n, sizeof *out->stride);
    if (out->extent == NULL || (strides != Py_None && out->stride == NULL)) {
        PyErr_NoMemory();
        ckpy_shape_free(out);
        return false;
    }
    if (!extents_from(out->extent, shape, n) || (out->stride != NULL && !strides_from(out->stride, strides, n))) {
        ckpy_shape_free(out);
        return false;
    }
    return true;
}

void
ckpy_shape_free(ckpy_shape *s)
{
    PyMem_Free(s->extent);
    PyMem_Free(s->stride);
    s->extent = NULL;
    s->stride = NULL;
}

PyObject *
ckpy_tuple_u64(const uint64_t *v, size_t n)
{
    PyObject *out = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; out != NULL && i < n; i++) {
        PyObject *item = PyLong_FromUnsignedLongLong(v[i]);
        if (item == NULL || PyTuple_SetItem(out, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(out);
    }
    return out;
}

ckp_dtype
ckpy_dtype_from(const char *name)
{
    const ckp_dtype dt = ckp_dtype_find(name);
    if (dt == (ckp_dtype)0)
        PyErr_Format(PyExc_ValueError, "unknown dtype '%s'", name);
    return dt;
}

/* Names point into the dict's keys. */
static bool
steps_from(ckp_coding *out, PyObject *dict)
{
    if (dict == Py_None)
        return true;
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "steps must be a dict");
        return false;
    }
    ckp_tensor_step *s = PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof *s);
    if (s == NULL) {
        PyErr_NoMemory();
        return false;
    }
    out->steps = s;
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (PyDict_Next(dict, &pos, &key, &value)) {
        s[out->n_steps].name = PyUnicode_AsUTF8AndSize(key, NULL);
        s[out->n_steps].step = s[out->n_steps].name != NULL ? PyFloat_AsDouble(value) : 0;
        if (PyErr_Occurred() != NULL) {
            ckpy_coding_free(out);
            return false;
        }
        out->n_steps++;
    }
    return true;
}

bool
ckpy_coding_from(ckp_coding *out, PyObject *tuple)
{
    const ckp_coding init = CKP_CODING_INIT;
    *out = init;
    int profile = 0, states = 0;
    unsigned long long budget = 0;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "coding must be a tuple");
        return false;
    }
    PyObject *steps = Py_None;
    if (!PyArg_ParseTuple(tuple, "idIIKO|i", &profile, &out->quality, &out->threads, &out->effort, &budget, &steps, &states))
        return false;
    out->profile = (ckp_profile)profile;
    out->optimizer_states = (ckp_optimizer_states)states;
    out->memory_budget = budget;
    return steps_from(out, steps);
}

void
ckpy_coding_free(ckp_coding *c)
{
    PyMem_Free((ckp_tensor_step *)(uintptr_t)c->steps);
    c->steps = NULL;
    c->n_steps = 0;
}

bool
ckpy_paths_from(ckpy_paths *out, PyObject *sequence)
{
    const ckpy_paths empty = CKPY_PATHS_INIT;
    *out = empty;
    PyObject *in = PySequence_Tuple(sequence);
    if (in == NULL)
        return false;
    const Py_ssize_t n = PyTuple_Size(in);
    out->owner = PyTuple_New(n);
    out->path = PyMem_Calloc((size_t)n + 1, sizeof *out->path);
    bool ok = out->owner != NULL && out->path != NULL;
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *encoded = NULL;
        ok = PyUnicode_FSConverter(PyTuple_GetItem(in, i), &encoded) != 0 && PyTuple_SetItem(out->owner, i, encoded) == 0;
        if (ok)
            out->path[i] = PyBytes_AsString(encoded);
    }
    out->n = (size_t)n;
    Py_DECREF(in);
    if (!ok) {
        if (PyErr_Occurred() == NULL)
            PyErr_NoMemory();
        ckpy_paths_free(out);
    }
    return ok;
}

void
ckpy_paths_free(ckpy_paths *p)
{
    PyMem_Free(p->path);
    p->path = NULL;
    Py_CLEAR(p->owner);
}

int
ckpy_progress(void *user, uint64_t done, uint64_t total)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *fn = user;
    int stop = PyErr_CheckSignals();
    if (stop == 0 && fn != Py_None) {
        PyObject *r = PyObject_CallFunction(fn, "KK", (unsigned long long)done, (unsigned long long)total);
        stop = r == NULL ? -1 : 0;
        Py_XDECREF(r);
    }
    PyGILState_Release(gil);
    return stop;
}

bool
ckpy_memory_from(ckpy_memory *out, PyObject *obj, bool writable)
{
    memset(out, 0, sizeof *out);
    if (PyLong_Check(obj)) {
        out->data = PyLong_AsVoidPtr(obj);
        out->len = -1;
        return PyErr_Occurred() == NULL;
    }
    if (PyObject_GetBuffer(obj, &out->view, writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO) < 0)
        return false;
    out->has_view = true;
    out->data = out->view.buf;
    out->len = out->view.len;
    return true;
}

void
ckpy_memory_free(ckpy_memory *m)
{
    if (m->has_view)
        PyBuffer_Release(&m->view);
    m->has_view = false;
}

bool
ckpy_set(PyObject *dict, const char *key, PyObject *value)
{
    const bool ok = value != NULL && PyDict_SetItemString(dict, key, value) == 0;
    Py_XDECREF(value);
    return ok;
}

PyObject *
ckpy_by_role(const uint64_t *n)
{
    PyObject *out = PyDict_New();
    for (int r = 0; out != NULL && r < CKP_ROLE_COUNT_; r++)
        if (n[r] > 0 && !ckpy_set(out, ckp_role_name((ckp_role)r), PyLong_FromUnsignedLongLong(n[r])))
            Py_CLEAR(out);
    return out;
}

PyObject *
ckpy_doubles_by_role(const double *x)
{
    PyObject *out = PyDict_New();
    for (int r = 0; out != NULL && r < CKP_ROLE_COUNT_; r++)
        if (x[r] > 0 && !ckpy_set(out, ckp_role_name((ckp_role)r), PyFloat_FromDouble(x[r])))
            Py_CLEAR(out);
    return out;
}

PyObject *
ckpy_metrics(bool (*next)(const void *of, size_t index, ckp_metric *out), const void *of)
{
    PyObject *d = PyDict_New();
    ckp_metric m;
    for (size_t i = 0; d != NULL && next(of, i, &m); i++)
        if (!ckpy_set(d, m.name, PyFloat_FromDouble(m.value)))
            Py_CLEAR(d);
    return d;
}
