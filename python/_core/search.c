/* SPDX-License-Identifier: Apache-2.0 */
/* Search: a search for settings that asks and is told. A configuration is a tuple (bins, bins_embedding, prune, prune_by, protect). */
#include "_core/core.h"

typedef struct search_object {
    PyObject_HEAD
    ckp_search *search;
} search_object;

static PyObject *
config_tuple(const ckp_search_config *c)
{
    return Py_BuildValue("(IIdId)", c->bins, c->bins_embedding, c->prune, c->prune_by, c->protect);
}

static bool
config_from(ckp_search_config *out, PyObject *tuple)
{
    if (PyTuple_Check(tuple))
        return PyArg_ParseTuple(tuple, "IIdId:config", &out->bins, &out->bins_embedding, &out->prune, &out->prune_by, &out->protect) != 0;
    PyErr_SetString(PyExc_TypeError, "a configuration is a tuple (bins, bins_embedding, prune, prune_by, protect)");
    return false;
}

/* Owned by the caller (PyMem_Free); NULL with an exception set. */
static uint64_t *
sizes_from(PyObject *list)
{
    if (!PyList_Check(list) || PyList_Size(list) != CKP_SEARCH_CONFIGS) {
        (void)PyErr_Format(PyExc_ValueError, "sizes must be a list of %d ints", CKP_SEARCH_CONFIGS);
        return NULL;
    }
    uint64_t *sizes = PyMem_Malloc(CKP_SEARCH_CONFIGS * sizeof *sizes);
    if (sizes == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < CKP_SEARCH_CONFIGS && PyErr_Occurred() == NULL; i++)
        sizes[i] = PyLong_AsUnsignedLongLong(PyList_GetItem(list, i));
    if (PyErr_Occurred() == NULL)
        return sizes;
    PyMem_Free(sizes);
    return NULL;
}

PyDoc_STRVAR(search_doc, "Search(neighbourhood, loss_live, epsilon, last, group, radius, sensitivity, embeddings, sizes)\n--\n\n"
                         "For the smallest configuration whose loss is at most loss_live + epsilon * |loss_live| (ckpress/plan.h).");

static PyObject *
search_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    ckp_search_options opt = CKP_SEARCH_OPTIONS_INIT;
    ckp_search_config last;
    int neighbourhood, sensitivity, embeddings;
    PyObject *last_arg, *sizes_arg;
    uint64_t *sizes = NULL;
    if (kwargs != NULL && PyDict_Size(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "Search() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "pddOIIppO:Search", &neighbourhood, &opt.loss_live, &opt.epsilon, &last_arg, &opt.group, &opt.radius, &sensitivity,
                          &embeddings, &sizes_arg) ||
        (last_arg != Py_None && !config_from(&last, last_arg)) || (sizes_arg != Py_None && (sizes = sizes_from(sizes_arg)) == NULL))
        return NULL;
    opt.method = neighbourhood ? CKP_SEARCH_NEIGHBOURHOOD : CKP_SEARCH_GUIDED;
    opt.last = last_arg != Py_None ? &last : NULL;
    opt.no_sensitivity = !sensitivity;
    opt.no_embeddings = !embeddings;
    opt.sizes = sizes;
    const allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    search_object *self = (search_object *)alloc(type, 0);
    ckp_error err = {0};
    if (self != NULL && ckp_search_new(&self->search, &opt, &err) != CKP_OK) {
        Py_CLEAR(self);
        ckpy_raise(err.code, &err);
    }
    PyMem_Free(sizes);
    return (PyObject *)self;
}

static void
search_dealloc(search_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    ckp_search_free(self->search);
    const freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(ask_doc, "ask() -> list\n--\n\nThe next configurations to evaluate.");

static PyObject *
search_ask(search_object *self, PyObject *unused)
{
    ckp_search_config c[CKP_SEARCH_GROUP_MAX];
    ckp_error err = {0};
    size_t n = 0;
    (void)unused;
    const ckp_status st = ckp_search_ask(self->search, c, CKP_SEARCH_GROUP_MAX, &n, &err);
    if (st != CKP_OK)
        return ckpy_raise(st, &err);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = config_tuple(&c[i]);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

PyDoc_STRVAR(tell_doc, "tell(results)\n--\n\nresults: a list of (loss, bytes), in the order that was asked for.");

static PyObject *
search_tell(search_object *self, PyObject *list)
{
    ckp_search_result r[CKP_SEARCH_GROUP_MAX];
    if (!PyList_Check(list) || PyList_Size(list) > CKP_SEARCH_GROUP_MAX) {
        PyErr_SetString(PyExc_TypeError, "results must be a list, no longer than what was asked for");
        return NULL;
    }
    const Py_ssize_t n = PyList_Size(list);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(list, i);
        unsigned long long bytes;
        if (!PyTuple_Check(item)) {
            PyErr_SetString(PyExc_TypeError, "a result is a tuple (loss, bytes)");
            return NULL;
        }
        if (!PyArg_ParseTuple(item, "dK:result", &r[i].loss, &bytes))
            return NULL;
        r[i].bytes = bytes;
    }
    ckp_error err = {0};
    const ckp_status st = ckp_search_tell(self->search, r, (size_t)n, &err);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(best_doc, "best() -> tuple | None\n--\n\n(configuration, loss, bytes, whether it is good enough); None before a finite loss was told.");

static PyObject *
search_best(search_object *self, PyObject *unused)
{
    ckp_search_config c = {0};
    ckp_search_result r = {0, 0};
    (void)unused;
    const bool good = ckp_search_best(self->search, &c, &r);
    if (c.bins == 0)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(NdKN)", config_tuple(&c), r.loss, (unsigned long long)r.bytes, PyBool_FromLong(good));
}

PyDoc_STRVAR(stats_doc, "stats() -> dict\n--\n\nCounts of evaluations and rounds; whether a neighbourhood fell back.");

static PyObject *
search_stats(search_object *self, PyObject *unused)
{
    ckp_search_stats st = {.size = sizeof st};
    (void)unused;
    ckp_search_get_stats(self->search, &st);
    return Py_BuildValue("{s:I,s:I,s:I,s:I,s:I,s:N}", "evaluations", st.evaluations, "guided", st.by_method[CKP_SEARCH_GUIDED], "neighbourhood",
                         st.by_method[CKP_SEARCH_NEIGHBOURHOOD], "decided_by", st.decided_by, "rounds", st.rounds, "fell_back",
                         PyBool_FromLong(st.fell_back));
}

PyDoc_STRVAR(why_doc, "why() -> str\n--\n\nOne sentence on what was chosen and why.");

static PyObject *
search_why(search_object *self, PyObject *unused)
{
    (void)unused;
    return PyUnicode_FromString(ckp_search_why(self->search));
}

PyDoc_STRVAR(grid_doc, "grid() -> list\n--\n\nEvery configuration, in the order of sizes.");

static PyObject *
search_grid(PyObject *unused_type, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    ckp_search_config c;
    (void)unused_type;
    (void)unused;
    for (size_t i = 0; list != NULL && ckp_search_config_at(i, &c); i++) {
        PyObject *item = config_tuple(&c);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *
search_done(search_object *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(ckp_search_done(self->search));
}

static PyMethodDef methods[] = {
    {"ask", (PyCFunction)(void (*)(void))search_ask, METH_NOARGS, ask_doc},
    {"tell", (PyCFunction)(void (*)(void))search_tell, METH_O, tell_doc},
    {"best", (PyCFunction)(void (*)(void))search_best, METH_NOARGS, best_doc},
    {"stats", (PyCFunction)(void (*)(void))search_stats, METH_NOARGS, stats_doc},
    {"why", (PyCFunction)(void (*)(void))search_why, METH_NOARGS, why_doc},
    {"grid", search_grid, METH_NOARGS | METH_STATIC, grid_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"done", (getter)(uintptr_t)search_done, NULL, "True when nothing is left to ask.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)search_new},
    {Py_tp_dealloc, (void *)(uintptr_t)search_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_doc, (void *)(uintptr_t)search_doc},
    {0, NULL},
};

PyType_Spec ckpy_search_spec = {.name = "ckpress._core.Search", .basicsize = sizeof(search_object), .flags = Py_TPFLAGS_DEFAULT, .slots = slots};
