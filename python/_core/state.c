/* SPDX-License-Identifier: Apache-2.0 */
/* State: tensors by pointer or buffer, and the tree put node by node. Keeps alive what it points into. */
#include "_core/core.h"

#define CKPY_MAX_DIMS 64     /* of a tensor (state.h) */

typedef struct state_object {
    PyObject_HEAD
    ckp_state *state;
    PyObject *keep;          /* list of objects whose memory the state points into */
    ckpy_memory *memory;     /* buffers held until the state goes */
    size_t n_memory, cap_memory;
    bool in_use;             /* a long call without the interpreter lock reads it */
} state_object;

static PyObject *
state_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_Size(args) != 0 || (kwargs != NULL && PyDict_Size(kwargs) != 0)) {
        PyErr_SetString(PyExc_TypeError, "State() takes no arguments");
        return NULL;
    }
    const allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    state_object *self = (state_object *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    ckp_error err = {0};
    self->keep = PyList_New(0);
    const ckp_status st = self->keep == NULL ? CKP_ENOMEM : ckp_state_new(&self->state, &err);
    if (st != CKP_OK) {
        Py_DECREF(self);
        return ckpy_raise(st, &err);
    }
    return (PyObject *)self;
}

static void
state_dealloc(state_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    ckp_state_free(self->state);
    for (size_t i = 0; i < self->n_memory; i++)
        ckpy_memory_free(&self->memory[i]);
    PyMem_Free(self->memory);
    Py_XDECREF(self->keep);
    const freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

ckp_state *
ckpy_state_take(PyObject *obj, const ckpy_types *types)
{
    if (Py_TYPE(obj) != types->state) {
        PyErr_SetString(PyExc_TypeError, "expected a State");
        return NULL;
    }
    state_object *self = (state_object *)obj;
    if (self->in_use) {
        PyErr_SetString(PyExc_RuntimeError, "the state is in use by another call");
        return NULL;
    }
    self->in_use = true;
    return self->state;
}

void
ckpy_state_give_back(PyObject *obj)
{
    ((state_object *)obj)->in_use = false;
}

static bool
state_idle(const state_object *self)
{
    if (self->in_use)
        PyErr_SetString(PyExc_RuntimeError, "the state is in use by another call");
    return !self->in_use;
}

/* Takes *m on success. */
static bool
hold_memory(state_object *self, ckpy_memory *m)
{
    if (!m->has_view)
        return true;
    if (self->n_memory == self->cap_memory) {
        const size_t cap = self->cap_memory == 0 ? 8 : self->cap_memory * 2;
        ckpy_memory *grown = PyMem_Realloc(self->memory, cap * sizeof *grown);
        if (grown == NULL) {
            PyErr_NoMemory();
            return false;
        }
        self->memory = grown;
        self->cap_memory = cap;
    }
    self->memory[self->n_memory++] = *m;
    return true;
}

/* A buffer must hold what the shape claims: a data pointer's length is the caller's promise, a buffer's is not. */
static bool
buffer_fits(const ckpy_memory *m, const ckpy_shape *shape, ckp_dtype dt)
{
    if (!m->has_view)
        return true;
    uint64_t bits = ckp_dtype_bits(dt);
    for (unsigned i = 0; i < shape->ndim; i++) {
        if (shape->extent[i] != 0 && bits > UINT64_MAX / shape->extent[i])
            return false;
        bits *= shape->extent[i];
    }
    return shape->stride == NULL && (bits + 7) / 8 == (uint64_t)m->len;
}

PyDoc_STRVAR(add_doc, "add(name, role, dtype, shape, strides, memory, owner=None, lossless=False, keep=None) -> index\n--\n\n"
                      "memory: a data pointer (strides in elements or None) or a contiguous buffer. keep: kept alive with the state.");

static PyObject *
state_add(state_object *self, PyObject *args)
{
    const char *name, *dtype, *owner = NULL;
    int role, lossless = 0;
    PyObject *shape_arg, *strides_arg, *memory_arg, *keep = Py_None;
    if (!PyArg_ParseTuple(args, "sisOOO|zpO:add", &name, &role, &dtype, &shape_arg, &strides_arg, &memory_arg, &owner, &lossless, &keep) ||
        !state_idle(self))
        return NULL;
    ckp_error err = {0};
    uint32_t index = 0;
    PyObject *result = NULL;
    ckpy_shape shape = CKPY_SHAPE_INIT;
    ckpy_memory memory = {0};
    const ckp_dtype dt = ckpy_dtype_from(dtype);
    if (dt == (ckp_dtype)0 || !ckpy_shape_from(&shape, shape_arg, strides_arg) || !ckpy_memory_from(&memory, memory_arg, false))
        goto done;
    if (!buffer_fits(&memory, &shape, dt)) {
        PyErr_Format(PyExc_ValueError, "%s: the buffer's length does not fit its shape", name);
        goto done;
    }
    ckp_tensor t = CKP_TENSOR_INIT;
    t.dtype = dt;
    t.ndim = shape.ndim;
    t.shape = shape.extent;
    t.strides = shape.stride;
    t.data = memory.data;
    t.lossless = lossless != 0;
    const ckp_status st = ckp_state_add_tensor(self->state, name, (ckp_role)role, owner, &t, &index, &err);
    if (st != CKP_OK) {
        ckpy_raise(st, &err);
        goto done;
    }
    if ((keep != Py_None && PyList_Append(self->keep, keep) < 0) || !hold_memory(self, &memory))
        goto done;
    memory.has_view = false;     /* moved */
    result = PyLong_FromUnsignedLong(index);
done:
    ckpy_memory_free(&memory);
    ckpy_shape_free(&shape);
    return result;
}

PyDoc_STRVAR(coded_doc, "add_coded(name, role, shape, moment, second, owner=None, keep=None) -> index\n--\n\n"
                        "A moment of a resident optimizer as float32, made from its codes when it is read. moment: as Optim.read() takes it; second: v.");

static PyObject *
state_add_coded(state_object *self, PyObject *args)
{
    const char *name, *owner = NULL;
    int role, second;
    PyObject *shape_arg, *moment, *keep = Py_None, *result = NULL;
    if (!PyArg_ParseTuple(args, "siOO!p|zO:add_coded", &name, &role, &shape_arg, &PyTuple_Type, &moment, &second, &owner, &keep) || !state_idle(self))
        return NULL;
    ckp_error err = {0};
    uint32_t index = 0;
    ckpy_shape shape = CKPY_SHAPE_INIT;
    PyObject *const held = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)sizeof(ckp_optim_tensor));
    ckp_optim_tensor *const t = held == NULL ? NULL : memset(PyByteArray_AsString(held), 0, sizeof *t);
    if (t == NULL || !ckpy_optim_state_from(t, moment) || !ckpy_shape_from(&shape, shape_arg, Py_None))
        goto done;
    t->name = NULL;                  /* the tuple's */
    ckp_tensor x = CKP_TENSOR_INIT;
    uint64_t numel = 1;
    for (unsigned i = 0; i < shape.ndim; i++)
        if (__builtin_mul_overflow(numel, shape.extent[i], &numel))
            numel = UINT64_MAX;
    if (numel != t->numel) {
        PyErr_Format(PyExc_ValueError, "%s: its codes do not fit its shape", name);
        goto done;
    }
    x.dtype = CKP_F32;
    x.ndim = shape.ndim;
    x.shape = shape.extent;
    x.pull = second ? ckp_optim_pull_v : ckp_optim_pull_m;
    x.pull_user = t;
    x.shared_pull = true;
    const ckp_status st = ckp_state_add_tensor(self->state, name, (ckp_role)role, owner, &x, &index, &err);
    if (st != CKP_OK)
        ckpy_raise(st, &err);
    else if (PyList_Append(self->keep, held) == 0 && PyList_Append(self->keep, keep) == 0)
        result = PyLong_FromUnsignedLong(index);
done:
    Py_XDECREF(held);
    ckpy_shape_free(&shape);
    return result;
}

PyDoc_STRVAR(absent_doc, "add_absent(name, dtype, shape) -> index\n--\n\nA tensor that another rank saves: its row, without elements.");

static PyObject *
state_add_absent(state_object *self, PyObject *args)
{
    static const uint64_t nothing[CKPY_MAX_DIMS] = {0}, one[1] = {1};
    const char *name, *dtype;
    PyObject *shape_arg;
    if (!PyArg_ParseTuple(args, "ssO:add_absent", &name, &dtype, &shape_arg) || !state_idle(self))
        return NULL;
    ckp_error err = {0};
    uint32_t index = 0;
    ckpy_shape shape = CKPY_SHAPE_INIT;
    const ckp_dtype dt = ckpy_dtype_from(dtype);
    if (dt == (ckp_dtype)0 || !ckpy_shape_from(&shape, shape_arg, Py_None))
        return NULL;
    ckp_tensor t = CKP_TENSOR_INIT;
    t.dtype = dt;
    /* a row without elements needs a dimension that has none */
    t.ndim = shape.ndim != 0 ? shape.ndim : 1;
    t.shape = nothing;
    t.global_shape = shape.ndim != 0 ? shape.extent : one;
    t.flat = true;
    const ckp_status st = t.ndim <= CKPY_MAX_DIMS ? ckp_state_add_tensor(self->state, name, CKP_ROLE_OTHER, NULL, &t, &index, &err) : CKP_ELIMIT;
    ckpy_shape_free(&shape);
    return st == CKP_OK ? PyLong_FromUnsignedLong(index) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(adam_doc, "set_adam(owner, beta1, beta2, step)\n--\n\nConstants for the moments of one weight; step counts from 1.");

static PyObject *
state_set_adam(state_object *self, PyObject *args)
{
    const char *owner;
    double beta1, beta2;
    unsigned long long step;
    if (!PyArg_ParseTuple(args, "sddK:set_adam", &owner, &beta1, &beta2, &step) || !state_idle(self))
        return NULL;
    ckp_error err = {0};
    const ckp_status st = ckp_state_set_adam(self->state, owner, beta1, beta2, step, &err);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

static PyObject *
put_node(state_object *self, const ckp_tree_node *node)
{
    ckp_error err = {0};
    const ckp_status st = ckp_state_tree_put(self->state, node, &err);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(put_doc, "put(type, count=0)\n--\n\nNone, a bool, or the head of a container whose values follow.");

static PyObject *
state_put(state_object *self, PyObject *args)
{
    int type;
    unsigned long long count = 0;
    if (!PyArg_ParseTuple(args, "i|K:put", &type, &count) || !state_idle(self))
        return NULL;
    const ckp_tree_node node = {.type = (ckp_tree_type)type, .count = count};
    return put_node(self, &node);
}

PyDoc_STRVAR(put_int_doc, "put_int(value)\n--\n\nAn int of 64 bits.");

static PyObject *
state_put_int(state_object *self, PyObject *value)
{
    const ckp_tree_node node = {.type = CKP_TREE_INT, .i = PyLong_AsLongLong(value)};
    if (PyErr_Occurred() != NULL || !state_idle(self))
        return NULL;
    return put_node(self, &node);
}

PyDoc_STRVAR(put_float_doc, "put_float(value)\n--\n\nA float, bit for bit.");

static PyObject *
state_put_float(state_object *self, PyObject *value)
{
    const ckp_tree_node node = {.type = CKP_TREE_FLOAT, .re = PyFloat_AsDouble(value)};
    if (PyErr_Occurred() != NULL || !state_idle(self))
        return NULL;
    return put_node(self, &node);
}

PyDoc_STRVAR(put_complex_doc, "put_complex(re, im)\n--\n\nA complex number, bit for bit.");

static PyObject *
state_put_complex(state_object *self, PyObject *args)
{
    double re, im;
    if (!PyArg_ParseTuple(args, "dd:put_complex", &re, &im) || !state_idle(self))
        return NULL;
    const ckp_tree_node node = {.type = CKP_TREE_COMPLEX, .re = re, .im = im};
    return put_node(self, &node);
}

PyDoc_STRVAR(put_data_doc, "put_data(type, bytes, name=None)\n--\n\nA node that is bytes: str, bytes, big int, dtype, device, a type name;"
                           " with name a numpy scalar.");

static PyObject *
state_put_data(state_object *self, PyObject *args)
{
    int type;
    const char *data, *name = NULL;
    Py_ssize_t len, name_len = 0;
    if (!PyArg_ParseTuple(args, "iy#|z#:put_data", &type, &data, &len, &name, &name_len) || !state_idle(self))
        return NULL;
    const ckp_tree_node node = {
        .type = (ckp_tree_type)type, .data = data, .len = (size_t)len, .name = name, .name_len = (size_t)name_len};
    return put_node(self, &node);
}

PyDoc_STRVAR(put_tensor_doc, "put_tensor(index, as_)\n--\n\nA tensor that was added, and what to make of it.");

static PyObject *
state_put_tensor(state_object *self, PyObject *args)
{
    unsigned int index;
    int as;
    if (!PyArg_ParseTuple(args, "Ii:put_tensor", &index, &as) || !state_idle(self))
        return NULL;
    const ckp_tree_node node = {.type = CKP_TREE_TENSOR, .tensor = index, .as = (ckp_tensor_as)as};
    return put_node(self, &node);
}

static Py_ssize_t
state_len(state_object *self)
{
    return (Py_ssize_t)ckp_state_count(self->state);
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)(void (*)(void))state_add, METH_VARARGS, add_doc},
    {"add_coded", (PyCFunction)(void (*)(void))state_add_coded, METH_VARARGS, coded_doc},
    {"add_absent", (PyCFunction)(void (*)(void))state_add_absent, METH_VARARGS, absent_doc},
    {"set_adam", (PyCFunction)(void (*)(void))state_set_adam, METH_VARARGS, adam_doc},
    {"put", (PyCFunction)(void (*)(void))state_put, METH_VARARGS, put_doc},
    {"put_int", (PyCFunction)(void (*)(void))state_put_int, METH_O, put_int_doc},
    {"put_float", (PyCFunction)(void (*)(void))state_put_float, METH_O, put_float_doc},
    {"put_complex", (PyCFunction)(void (*)(void))state_put_complex, METH_VARARGS, put_complex_doc},
    {"put_data", (PyCFunction)(void (*)(void))state_put_data, METH_VARARGS, put_data_doc},
    {"put_tensor", (PyCFunction)(void (*)(void))state_put_tensor, METH_VARARGS, put_tensor_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)state_new},
    {Py_tp_dealloc, (void *)(uintptr_t)state_dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, (void *)(uintptr_t)state_len},
    {Py_tp_doc, (void *)(uintptr_t)"What one save holds: views of tensors and the tree of plain values around them."},
    {0, NULL},
};

PyType_Spec ckpy_state_spec = {
    .name = "ckpress._core.State", .basicsize = sizeof(state_object), .flags = Py_TPFLAGS_DEFAULT, .slots = slots};
