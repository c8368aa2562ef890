/* SPDX-License-Identifier: Apache-2.0 */
/* The resident optimizer: threads, steps over tensors given by their pointers, codes and moments in and out. */
#include "_core/core.h"

typedef struct optim_object {
    PyObject_HEAD
    ckp_optim *optim;
} optim_object;

PyDoc_STRVAR(optim_doc, "Optim(threads, /)\n--\n\nThreads of an optimizer's steps; no state of any parameter. One call at a time.");

static PyObject *
optim_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    unsigned threads;
    ckp_error err;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "I", &threads))
        return NULL;
    const allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    optim_object *self = (optim_object *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    const ckp_status st = ckp_optim_new(&self->optim, threads, &err);
    if (st == CKP_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return ckpy_raise(st, &err);
}

static void
optim_dealloc(optim_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    const freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
    ckp_optim_free(self->optim);
    release(self);
    Py_DECREF(type);
}

/* Settings of one group: a member by the rule. */
typedef struct settings {
    ckp_adamw adamw;
    ckp_momentum momentum;
} settings;

/* (lr, beta1, beta2, eps, weight_decay, coupled, maximize, seed) */
static bool
adamw_from(settings *s, PyObject *tuple)
{
    ckp_adamw *h = &s->adamw;
    int coupled, maximize;
    unsigned long long seed;
    if (!PyArg_ParseTuple(tuple, "dddddppK", &h->lr, &h->beta1, &h->beta2, &h->eps, &h->weight_decay, &coupled, &maximize, &seed))
        return false;
    h->coupled = coupled != 0;
    h->maximize = maximize != 0;
    h->seed = seed;
    return true;
}

/* (lr, momentum, dampening, weight_decay, nesterov, maximize, lion, beta1, seed) */
static bool
momentum_from(settings *s, PyObject *tuple)
{
    ckp_momentum *h = &s->momentum;
    int nesterov, maximize, lion;
    unsigned long long seed;
    if (!PyArg_ParseTuple(tuple, "ddddpppdK", &h->lr, &h->momentum, &h->dampening, &h->weight_decay, &nesterov, &maximize, &lion, &h->beta1, &seed))
        return false;
    h->nesterov = nesterov != 0;
    h->maximize = maximize != 0;
    h->lion = lion != 0;
    h->seed = seed;
    return true;
}

typedef struct rule {
    bool (*from)(settings *s, PyObject *tuple);
    ckp_status (*step)(ckp_optim *o, ckp_optim_tensor *t, size_t n, ckp_error *err);
} rule;
static const rule by_adamw = {adamw_from, ckp_optim_adamw}, by_momentum = {momentum_from, ckp_optim_momentum};

static bool
how_from(const rule *by, settings *s, PyObject *tuple)
{
    if (PyTuple_Check(tuple))
        return by->from(s, tuple);
    PyErr_SetString(PyExc_TypeError, "settings must be a tuple");
    return false;
}

static void *
at(unsigned long long address)
{
    return (void *)(uintptr_t)address;
}

/* (name, numel, cols, m_bits, v_bits, m, v, row, col, m_corr, v_corr) */
bool
ckpy_optim_state_from(ckp_optim_tensor *t, PyObject *tuple)
{
    unsigned long long numel, cols, m, v, row, col;
    if (!PyArg_ParseTuple(tuple, "zKKIIKKKKdd", &t->name, &numel, &cols, &t->m_bits, &t->v_bits, &m, &v, &row, &col, &t->m_corr, &t->v_corr))
        return false;
    t->numel = numel;
    t->cols = cols;
    t->m = at(m);
    t->v = at(v);
    t->row = at(row);
    t->col = at(col);
    return true;
}

/* how: NULL: the caller sets t->how. (state, index of settings, id, step, first, dtype of p, dtype of g, p, g, bits of rest, rest, sums) */
static bool
tensor_from(const rule *by, ckp_optim_tensor *t, PyObject *tuple, const settings *how, size_t n_how)
{
    PyObject *state;
    unsigned long long index, id, step, first, p, g, rest, sums;
    const char *p_dtype, *g_dtype;
    if (!PyArg_ParseTuple(tuple, "O!KKKKssKKIKK", &PyTuple_Type, &state, &index, &id, &step, &first, &p_dtype, &g_dtype, &p, &g, &t->rest_bits,
                          &rest, &sums) ||
        !ckpy_optim_state_from(t, state))
        return false;
    if (index >= n_how) {
        PyErr_SetString(PyExc_IndexError, "no such settings");
        return false;
    }
    t->how = how != NULL && by == &by_adamw ? &how[index].adamw : NULL;
    t->momentum = how != NULL && by == &by_momentum ? &how[index].momentum : NULL;
    t->id = id;
    t->step = step;
    t->first = first;
    t->p = at(p);
    t->g = at(g);
    t->rest = at(rest);
    t->sums = at(sums);
    return (t->p_dtype = ckpy_dtype_from(p_dtype)) != 0 && (t->g_dtype = ckpy_dtype_from(g_dtype)) != 0;
}

static PyObject *
results_of(const ckp_optim_tensor *t, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *row = Py_BuildValue("(ddKK)", t[i].m_corr, t[i].v_corr, (unsigned long long)t[i].unusable, (unsigned long long)t[i].raised);
        if (row == NULL || PyList_SetItem(list, (Py_ssize_t)i, row) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* results: a step's; else sums are where the caller wants them, and nothing is to be said. */
static PyObject *
run_step(const rule *by, optim_object *self, PyObject *args, bool results)
{
    PyObject *hows, *tensors, *out = NULL;
    ckp_error err;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &hows, &PyList_Type, &tensors))
        return NULL;
    const size_t n_how = (size_t)PyList_Size(hows), n = (size_t)PyList_Size(tensors);
    settings *how = PyMem_Calloc(n_how + 1, sizeof *how);
    ckp_optim_tensor *t = PyMem_Calloc(n + 1, sizeof *t);
    bool ok = how != NULL && t != NULL;
    if (!ok)
        PyErr_NoMemory();
    for (size_t i = 0; ok && i < n_how; i++)
        ok = how_from(by, &how[i], PyList_GetItem(hows, (Py_ssize_t)i));
    for (size_t i = 0; ok && i < n; i++)
        ok = tensor_from(by, &t[i], PyList_GetItem(tensors, (Py_ssize_t)i), how, n_how);
    if (ok) {
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = by->step(self->optim, t, n, &err);
        Py_END_ALLOW_THREADS
        out = st != CKP_OK ? ckpy_raise(st, &err) : results ? results_of(t, n) : Py_NewRef(Py_None);
    }
    PyMem_Free(how);
    PyMem_Free(t);
    return out;
}

PyDoc_STRVAR(adamw_doc, "adamw(settings, tensors, /) -> list\n--\n\nOne step of AdamW or Adam; (m_corr, v_corr, unusable, raised) of each tensor.");

static PyObject *
optim_adamw(optim_object *self, PyObject *args)
{
    return run_step(&by_adamw, self, args, true);
}

PyDoc_STRVAR(sums_doc, "sums(settings, tensors, /)\n--\n\nSums by column of tensors in parts, as adamw() takes them, to their `sums`.");

static PyObject *
optim_sums(optim_object *self, PyObject *args)
{
    static const rule by_sums = {adamw_from, ckp_optim_sums};
    return run_step(&by_sums, self, args, false);
}

PyDoc_STRVAR(momentum_doc, "momentum(settings, tensors, /) -> list\n--\n\nThe same of SGD with momentum, or Lion.");

static PyObject *
optim_momentum(optim_object *self, PyObject *args)
{
    return run_step(&by_momentum, self, args, true);
}

/* settings and one tensor of them, as adamw() takes both */
static bool
one_from(ckp_optim_tensor *t, settings *how, PyObject *hows, PyObject *tensor)
{
    PyObject *index = PyTuple_Check(tensor) && PyTuple_Size(tensor) == 12 ? PyTuple_GetItem(tensor, 1) : NULL;
    const Py_ssize_t i = index != NULL ? PyLong_AsSsize_t(index) : -1;
    if (i < 0 || i >= PyList_Size(hows)) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_IndexError, "no such settings");
        return false;
    }
    if (!how_from(&by_adamw, how, PyList_GetItem(hows, i)) || !tensor_from(&by_adamw, t, tensor, NULL, (size_t)i + 1))
        return false;
    t->how = &how->adamw;
    return true;
}

PyDoc_STRVAR(look_doc, "look(settings, tensors, totals=None, /) -> bytearray\n--\n\nWhat a visit sees of each of these tensors, as adamw() takes them: CKP_OPTIM_STATS int64 each. "
                       "totals: elements of the whole parameters, of which these are parts.");

static PyObject *
optim_look(PyObject *unused, PyObject *args)
{
    PyObject *hows, *tensors, *totals = NULL;
    ckp_error err;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O!O!|O!", &PyList_Type, &hows, &PyList_Type, &tensors, &PyList_Type, &totals))
        return NULL;
    const Py_ssize_t n = PyList_Size(tensors);
    if (totals != NULL && PyList_Size(totals) != n) {
        PyErr_SetString(PyExc_ValueError, "as many totals as tensors");
        return NULL;
    }
    PyObject *out = PyByteArray_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(ckp_optim_stats));
    for (Py_ssize_t i = 0; out != NULL && i < n; i++) {
        ckp_optim_tensor t = {0};
        settings how;
        ckp_optim_stats stats;
        ckp_status st = CKP_OK;
        const bool ok = one_from(&t, &how, hows, PyList_GetItem(tensors, i));
        const uint64_t total = !ok || totals == NULL ? t.numel : PyLong_AsUnsignedLongLong(PyList_GetItem(totals, i));
        if (PyErr_Occurred() != NULL) {
            Py_CLEAR(out);
            break;
        }
        if (ok)
            st = ckp_optim_look(&t, total, &stats, &err);
        if (ok && st == CKP_OK) {
            memcpy(PyByteArray_AsString(out) + i * (Py_ssize_t)sizeof stats, &stats, sizeof stats);
            continue;
        }
        Py_CLEAR(out);
        if (ok)
            ckpy_raise(st, &err);
    }
    return out;
}

PyDoc_STRVAR(recode_doc, "recode(settings, tensor, m_bits, v_bits, m, v, /)\n--\n\nCodes of a tensor, as adamw() takes it, in other widths into memory at m and v.");

static PyObject *
optim_recode(optim_object *self, PyObject *args)
{
    PyObject *hows, *tensor;
    ckp_optim_tensor t = {0};
    settings how;
    unsigned m_bits, v_bits;
    unsigned long long m, v;
    ckp_error err;
    ckp_status st;
    if (!PyArg_ParseTuple(args, "O!OIIKK", &PyList_Type, &hows, &tensor, &m_bits, &v_bits, &m, &v) || !one_from(&t, &how, hows, tensor))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_optim_recode(self->optim, &t, m_bits, v_bits, at(m), at(v), &err);
    Py_END_ALLOW_THREADS
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(bytes_doc, "state_bytes(numel, cols, bits, /) -> int\n--\n\nBytes of a packed moment.");

static PyObject *
optim_state_bytes(PyObject *unused, PyObject *args)
{
    unsigned long long numel, cols;
    unsigned bits;
    (void)unused;
    if (!PyArg_ParseTuple(args, "KKI", &numel, &cols, &bits))
        return NULL;
    return PyLong_FromUnsignedLongLong(ckp_optim_state_bytes(numel, cols, bits));
}

PyDoc_STRVAR(unpack_doc, "unpack(code, packed, numel, cols, bits, is_signed, /)\n--\n\nCodes, a byte each, from packed ones; memory by address.");

static PyObject *
optim_unpack(PyObject *unused, PyObject *args)
{
    unsigned long long code, packed, numel, cols;
    unsigned bits;
    int is_signed;
    ckp_error err;
    (void)unused;
    if (!PyArg_ParseTuple(args, "KKKKIp", &code, &packed, &numel, &cols, &bits, &is_signed))
        return NULL;
    const ckp_status st = ckp_optim_unpack(at(code), at(packed), numel, cols, bits, is_signed != 0, &err);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(pack_doc, "pack(packed, code, numel, cols, bits, /)\n--\n\nThe reverse of unpack().");

static PyObject *
optim_pack(PyObject *unused, PyObject *args)
{
    unsigned long long code, packed, numel, cols;
    unsigned bits;
    ckp_error err;
    (void)unused;
    if (!PyArg_ParseTuple(args, "KKKKI", &packed, &code, &numel, &cols, &bits))
        return NULL;
    const ckp_status st = ckp_optim_pack(at(packed), at(code), numel, cols, bits, &err);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(read_doc, "read(state, m, v, /)\n--\n\nMoments as floats, not corrected; memory by address, v's 0 where there is none.");

static PyObject *
optim_read(PyObject *unused, PyObject *args)
{
    PyObject *state;
    ckp_optim_tensor t = {0};
    unsigned long long m, v;
    ckp_error err;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O!KK", &PyTuple_Type, &state, &m, &v) || !ckpy_optim_state_from(&t, state))
        return NULL;
    const ckp_status st = ckp_optim_read(&t, at(m), at(v), &err);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(write_doc, "write(state, seed, id, step, m, v, first=0, sums=0, /)\n--\n\nThe reverse of read(). first, sums: of a part of a parameter.");

static PyObject *
optim_write(PyObject *unused, PyObject *args)
{
    PyObject *state;
    ckp_adamw how = {0};
    ckp_momentum momentum = {0};
    ckp_optim_tensor t = {.how = &how};
    unsigned long long seed, id, step, m, v, first = 0, sums = 0;
    ckp_error err;
    (void)unused;
    if (!PyArg_ParseTuple(args, "O!KKKKK|KK", &PyTuple_Type, &state, &seed, &id, &step, &m, &v, &first, &sums) || !ckpy_optim_state_from(&t, state))
        return NULL;
    t.first = first;
    t.sums = at(sums);
    how.seed = momentum.seed = seed;
    if (t.v_bits == 0) {
        t.how = NULL;
        t.momentum = &momentum;
    }
    t.id = id;
    t.step = step;
    const ckp_status st = ckp_optim_write(&t, at(m), at(v), &err);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

static PyMethodDef methods[] = {
    {"adamw", (PyCFunction)(void (*)(void))optim_adamw, METH_VARARGS, adamw_doc},
    {"momentum", (PyCFunction)(void (*)(void))optim_momentum, METH_VARARGS, momentum_doc},
    {"sums", (PyCFunction)(void (*)(void))optim_sums, METH_VARARGS, sums_doc},
    {"look", optim_look, METH_VARARGS | METH_STATIC, look_doc},
    {"recode", (PyCFunction)(void (*)(void))optim_recode, METH_VARARGS, recode_doc},
    {"state_bytes", optim_state_bytes, METH_VARARGS | METH_STATIC, bytes_doc},
    {"unpack", optim_unpack, METH_VARARGS | METH_STATIC, unpack_doc},
    {"pack", optim_pack, METH_VARARGS | METH_STATIC, pack_doc},
    {"read", optim_read, METH_VARARGS | METH_STATIC, read_doc},
    {"write", optim_write, METH_VARARGS | METH_STATIC, write_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)optim_new},
    {Py_tp_dealloc, (void *)(uintptr_t)optim_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, (void *)(uintptr_t)optim_doc},
    {0, NULL},
};

PyType_Spec ckpy_optim_spec = {.name = "ckpress._core.Optim", .basicsize = sizeof(optim_object), .flags = Py_TPFLAGS_DEFAULT, .slots = slots};
