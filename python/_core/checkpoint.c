/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint: a saved state, open for reading, by any number of threads at once. */
#include "_core/core.h"

typedef struct checkpoint_object {
    PyObject_HEAD
    ckp_checkpoint *ck;      /* NULL when closed */
    unsigned users;          /* calls in it; closing has to wait for none */
    PyObject *store;         /* that it reads from, or NULL */
} checkpoint_object;

PyObject *
ckpy_checkpoint_wrap(const ckpy_types *types, ckp_checkpoint *ck, PyObject *store)
{
    const allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(types->checkpoint, Py_tp_alloc);
    checkpoint_object *self = (checkpoint_object *)alloc(types->checkpoint, 0);
    if (self == NULL) {
        ckp_checkpoint_close(ck);
        return NULL;
    }
    self->ck = ck;
    self->store = Py_XNewRef(store);
    return (PyObject *)self;
}

PyObject *
ckpy_checkpoint_store(PyObject *obj)
{
    return Py_XNewRef(((checkpoint_object *)obj)->store);
}

static bool
enter(checkpoint_object *self)
{
    if (self->ck == NULL) {
        PyErr_SetString(PyExc_ValueError, "the checkpoint is closed");
        return false;
    }
    self->users++;
    return true;
}

static void
leave(checkpoint_object *self)
{
    self->users--;
}

ckp_checkpoint *
ckpy_checkpoint_take(PyObject *obj, const ckpy_types *types)
{
    if (Py_TYPE(obj) != types->checkpoint) {
        PyErr_SetString(PyExc_TypeError, "expected a Checkpoint");
        return NULL;
    }
    checkpoint_object *self = (checkpoint_object *)obj;
    return enter(self) ? self->ck : NULL;
}

void
ckpy_checkpoint_give_back(PyObject *obj)
{
    leave((checkpoint_object *)obj);
}

static void
checkpoint_dealloc(checkpoint_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    ckp_checkpoint_close(self->ck);
    Py_CLEAR(self->store);
    const freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(close_doc, "close()\n--\n\nCloses the files. Closing twice is fine.");

static PyObject *
checkpoint_close(checkpoint_object *self, PyObject *unused)
{
    (void)unused;
    if (self->users > 0) {
        PyErr_SetString(PyExc_RuntimeError, "the checkpoint is in use by another thread");
        return NULL;
    }
    ckp_checkpoint_close(self->ck);
    self->ck = NULL;
    return Py_NewRef(Py_None);
}

static PyObject *
info_dict(const ckp_checkpoint_info *i)
{
    PyObject *d = Py_BuildValue(
        "{s:K,s:K,s:K,s:N,s:N,s:I,s:s,s:(II),s:K,s:K,s:K,s:s,s:s,s:N,s:K}", "step", (unsigned long long)i->step, "sequence",
        (unsigned long long)i->sequence, "restore_count", (unsigned long long)i->restore_count, "is_delta", PyBool_FromLong(i->is_delta), "lossy",
        PyBool_FromLong(i->lossy), "chain", i->chain, "profile", ckp_profile_name(i->profile), "format", i->format_major, i->format_minor,
        "raw_bytes", (unsigned long long)i->raw_bytes, "stored_bytes", (unsigned long long)i->stored_bytes, "overhead_bytes",
        (unsigned long long)i->overhead_bytes, "content_id", i->content_id, "base_id", i->base_id, "name", ckpy_text(i->name), "memory_bytes",
        (unsigned long long)i->memory_bytes);
    if (d != NULL && !(ckpy_set(d, "raw_by_role", ckpy_by_role(i->raw_by_role)) && ckpy_set(d, "stored_by_role", ckpy_by_role(i->stored_by_role)) &&
                       ckpy_set(d, "params_by_role", ckpy_by_role(i->params_by_role))))
        Py_CLEAR(d);
    return d;
}

static bool
next_metric(const void *of, size_t index, ckp_metric *out)
{
    return ckp_checkpoint_metric(of, index, out);
}

static bool
next_setting(const void *of, size_t index, ckp_metric *out)
{
    return ckp_checkpoint_setting(of, index, out);
}

PyDoc_STRVAR(info_doc, "info() -> dict\n--\n\nStep, lineage, sizes in bytes, metrics, settings.");

static PyObject *
checkpoint_info(checkpoint_object *self, PyObject *unused)
{
    (void)unused;
    if (!enter(self))
        return NULL;
    ckp_checkpoint_info info = {.size = sizeof info};
    ckp_checkpoint_get_info(self->ck, &info);
    PyObject *d = info_dict(&info);
    const char *dropped = ckp_checkpoint_dropped(self->ck);
    if (d != NULL && !ckpy_set(d, "shards", PyLong_FromSize_t(ckp_checkpoint_shards(self->ck))))
        Py_CLEAR(d);
    if (d != NULL && !ckpy_set(d, "dropped", dropped != NULL ? PyUnicode_FromString(dropped) : Py_NewRef(Py_None)))
        Py_CLEAR(d);
    if (d != NULL && !(ckpy_set(d, "metrics", ckpy_metrics(next_metric, self->ck)) && ckpy_set(d, "settings", ckpy_metrics(next_setting, self->ck))))
        Py_CLEAR(d);
    leave(self);
    return d;
}

PyDoc_STRVAR(notes_doc, "notes() -> str\n--\n\nWhy newer checkpoints were passed over, a line each.");

static PyObject *
checkpoint_notes(checkpoint_object *self, PyObject *unused)
{
    (void)unused;
    if (!enter(self))
        return NULL;
    const char *notes = ckp_checkpoint_notes(self->ck);
    PyObject *out = ckpy_text(notes);
    leave(self);
    return out;
}

static PyObject *
index_or_none(uint32_t index)
{
    return index == UINT32_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(index);
}

static PyObject *
tensor_dict(const ckp_tensor_info *t)
{
    return Py_BuildValue("{s:s,s:s,s:s,s:N,s:K,s:K,s:K,s:N,s:N,s:N,s:z,s:N,s:d,s:d,s:K,s:K,s:d}", "name", t->name, "role",
                         ckp_role_name(t->role), "dtype", ckp_dtype_name(t->dtype), "shape", ckpy_tuple_u64(t->shape, t->ndim), "numel",
                         (unsigned long long)t->numel, "raw_bytes", (unsigned long long)t->raw_bytes, "stored_bytes",
                         (unsigned long long)t->stored_bytes, "owner", index_or_none(t->owner), "alias_of", index_or_none(t->alias_of), "copy_of",
                         index_or_none(t->copy_of), "codec",
                         t->codec, "lossy", PyBool_FromLong(t->lossy), "max_rel_error", t->max_rel_error, "rms_rel_error", t->rms_rel_error,
                         "n_nan", (unsigned long long)t->n_nan, "n_inf", (unsigned long long)t->n_inf, "bits_per_element",
                         t->bits_per_element);
}

PyDoc_STRVAR(tensor_doc, "tensor(index) -> dict\n--\n\nName, role, dtype, shape, sizes and errors of one tensor.");

static PyObject *
checkpoint_tensor(checkpoint_object *self, PyObject *arg)
{
    const size_t index = PyLong_AsSize_t(arg);
    if (PyErr_Occurred() != NULL || !enter(self))
        return NULL;
    ckp_error err = {0};
    ckp_tensor_info info = {.size = sizeof info};
    const ckp_status st = ckp_checkpoint_tensor(self->ck, index, &info, &err);
    PyObject *out = st == CKP_OK ? tensor_dict(&info) : ckpy_raise(st, &err);
    leave(self);
    return out;
}

PyDoc_STRVAR(find_doc, "find(name) -> index or None\n--\n\nThe tensor of that name.");

static PyObject *
checkpoint_find(checkpoint_object *self, PyObject *arg)
{
    const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
    if (name == NULL || !enter(self))
        return NULL;
    PyObject *out = index_or_none(ckp_checkpoint_find(self->ck, name));
    leave(self);
    return out;
}

PyDoc_STRVAR(tree_doc, "tree() -> list of tuples\n--\n\nNodes of the state tree, depth first; empty when none was saved.");

static PyObject *
checkpoint_tree(checkpoint_object *self, PyObject *unused)
{
    (void)unused;
    if (!enter(self))
        return NULL;
    size_t len = 0;
    const void *tree = ckp_checkpoint_tree(self->ck, &len);
    PyObject *out = len == 0 ? PyList_New(0) : ckpy_tree_list(tree, len);
    leave(self);
    return out;
}

/* A buffer that is too short for its tensor must be caught here: the library sees a pointer only. */
static bool
targets_fit(const ckpy_targets *all, const ckp_checkpoint *ck)
{
    for (size_t i = 0; i < all->n; i++) {
        ckp_tensor_info info = {.size = sizeof info};
        ckp_error err = {0};
        if (all->memory[i].has_view && ckp_checkpoint_tensor(ck, all->t[i].index, &info, &err) == CKP_OK &&
            (uint64_t)all->memory[i].len != info.raw_bytes) {
            PyErr_Format(PyExc_ValueError, "%s: the buffer has %zd bytes, the tensor another number", info.name, all->memory[i].len);
            return false;
        }
    }
    return true;
}

PyDoc_STRVAR(hold_doc, "hold(max_bytes)\n--\n\nThe files of the chain into memory: reads cannot fail for a file's sake any more.");

static PyObject *
checkpoint_hold(checkpoint_object *self, PyObject *arg)
{
    const unsigned long long max = PyLong_AsUnsignedLongLong(arg);
    if (PyErr_Occurred() != NULL || !enter(self))
        return NULL;
    ckp_error err = {0};
    ckp_status st = CKP_OK;
    if (self->users == 1) {      /* ours */
        Py_BEGIN_ALLOW_THREADS
        st = ckp_checkpoint_hold(self->ck, max, &err);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_RuntimeError, "the checkpoint is in use by another thread");
    }
    leave(self);
    if (PyErr_Occurred() != NULL)
        return NULL;
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(read_doc, "read(targets, threads=0)\n--\n\nReads tensors into the caller's memory, all or nothing. A target is\n"
                       "(index, dtype, shape, strides in elements or None, data pointer or writable buffer).");

static PyObject *
checkpoint_read(checkpoint_object *self, PyObject *args)
{
    PyObject *list, *result = NULL;
    unsigned int threads = 0;
    ckpy_targets all = {0};
    if (!PyArg_ParseTuple(args, "O|I:read", &list, &threads) || !enter(self))
        return NULL;
    if (ckpy_targets_from(&all, list) && targets_fit(&all, self->ck)) {
        ckp_error err = {0};
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_checkpoint_read(self->ck, all.t, all.n, threads, &err);
        Py_END_ALLOW_THREADS
        result = st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
    }
    ckpy_targets_free(&all);
    leave(self);
    return result;
}

/* A buffer must hold exactly the elements that will be written. */
static bool
range_fits(const ckpy_memory *m, const ckp_tensor_info *info, uint64_t count)
{
    const uint64_t bits = ckp_dtype_bits(info->dtype);
    if (!m->has_view)
        return true;
    if (count <= info->numel && count * bits / 8 == (uint64_t)m->len)
        return true;
    PyErr_Format(PyExc_ValueError, "%s: the buffer does not have the length of the range", info->name);
    return false;
}

PyDoc_STRVAR(range_doc, "read_range(index, first, count, memory)\n--\n\nElements [first, first + count) of one tensor, row-major.");

static PyObject *
checkpoint_read_range(checkpoint_object *self, PyObject *args)
{
    unsigned int index;
    unsigned long long first, count;
    PyObject *memory_arg, *result = NULL;
    if (!PyArg_ParseTuple(args, "IKKO:read_range", &index, &first, &count, &memory_arg) || !enter(self))
        return NULL;
    ckp_error err = {0};
    ckp_tensor_info info = {.size = sizeof info};
    ckpy_memory memory = {0};
    ckp_status st = ckp_checkpoint_tensor(self->ck, index, &info, &err);
    if (st != CKP_OK)
        ckpy_raise(st, &err);
    else if (ckpy_memory_from(&memory, memory_arg, true) && range_fits(&memory, &info, count)) {
        Py_BEGIN_ALLOW_THREADS
        st = ckp_checkpoint_read_range(self->ck, index, first, count, memory.data, &err);
        Py_END_ALLOW_THREADS
        result = st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
    }
    ckpy_memory_free(&memory);
    leave(self);
    return result;
}

static Py_ssize_t
checkpoint_len(checkpoint_object *self)
{
    return self->ck != NULL ? (Py_ssize_t)ckp_checkpoint_count(self->ck) : 0;
}

static PyObject *
checkpoint_closed(checkpoint_object *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(self->ck == NULL);
}

static PyMethodDef methods[] = {
    {"close", (PyCFunction)(void (*)(void))checkpoint_close, METH_NOARGS, close_doc},
    {"info", (PyCFunction)(void (*)(void))checkpoint_info, METH_NOARGS, info_doc},
    {"notes", (PyCFunction)(void (*)(void))checkpoint_notes, METH_NOARGS, notes_doc},
    {"tensor", (PyCFunction)(void (*)(void))checkpoint_tensor, METH_O, tensor_doc},
    {"find", (PyCFunction)(void (*)(void))checkpoint_find, METH_O, find_doc},
    {"tree", (PyCFunction)(void (*)(void))checkpoint_tree, METH_NOARGS, tree_doc},
    {"hold", (PyCFunction)(void (*)(void))checkpoint_hold, METH_O, hold_doc},
    {"read", (PyCFunction)(void (*)(void))checkpoint_read, METH_VARARGS, read_doc},
    {"read_range", (PyCFunction)(void (*)(void))checkpoint_read_range, METH_VARARGS, range_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"closed", (getter)(uintptr_t)checkpoint_closed, NULL, "True after close().", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)checkpoint_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_sq_length, (void *)(uintptr_t)checkpoint_len},
    {Py_tp_doc, (void *)(uintptr_t)"A saved state, open for reading."},
    {0, NULL},
};

PyType_Spec ckpy_checkpoint_spec = {.name = "ckpress._core.Checkpoint",
                                    .basicsize = sizeof(checkpoint_object),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                    .slots = slots};
