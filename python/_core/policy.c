/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of widths: memory of what it keeps, a parameter's by its number. */
#include "_core/core.h"

typedef struct policy_object {
    PyObject_HEAD
    ckp_policy p;
    ckp_policy_item *item;
    size_t n;
} policy_object;

PyDoc_STRVAR(policy_doc, "Policy(tensors, /)\n--\n\nWidths of moments by a budget. tensors: (numel, cols, fixed, m_bits, v_bits, follows, lead) of each.");

static void
policy_dealloc(policy_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    const freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
    PyMem_Free(self->item);
    release(self);
    Py_DECREF(type);
}

static bool
width(unsigned long bits, uint8_t *out)
{
    *out = (uint8_t)bits;
    if (bits >= 2 && bits <= 8 && bits != 7)
        return true;
    PyErr_SetString(PyExc_ValueError, "not a width");
    return false;
}

static bool
item_from(ckp_policy_item *t, PyObject *tuple)
{
    unsigned long long numel, cols, fixed;
    unsigned long m_bits, v_bits;
    int follows;
    unsigned char lead;
    if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "KKKkkpb", &numel, &cols, &fixed, &m_bits, &v_bits, &follows, &lead)) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_TypeError, "a tensor must be a tuple");
        return false;
    }
    t->numel = numel;
    t->cols = cols;
    t->fixed = fixed;
    t->follows = (uint8_t)(follows != 0 ? 1 + (lead < 8 ? lead : 8) : 0);
    return width(m_bits, &t->bits[0]) && width(v_bits, &t->bits[1]);
}

static PyObject *
policy_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *list;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list))
        return NULL;
    const allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    policy_object *self = (policy_object *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->n = (size_t)PyList_Size(list);
    self->item = PyMem_Calloc(self->n + 1, sizeof *self->item);
    bool ok = self->item != NULL;
    if (!ok)
        PyErr_NoMemory();
    for (size_t i = 0; ok && i < self->n; i++)
        ok = item_from(&self->item[i], PyList_GetItem(list, (Py_ssize_t)i));
    if (!ok)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static ckp_policy_item *
item_of(policy_object *self, Py_ssize_t i)
{
    if (i >= 0 && (size_t)i < self->n)
        return &self->item[i];
    PyErr_SetString(PyExc_IndexError, "no such tensor");
    return NULL;
}

PyDoc_STRVAR(start_doc, "start(budget, /) -> list\n--\n\nSets the budget in bytes; widths of each tensor at the start, with which all stay within it.");

static PyObject *
policy_start(policy_object *self, PyObject *args)
{
    unsigned long long budget;
    unsigned bits[2], own[2];
    if (!PyArg_ParseTuple(args, "K", &budget))
        return NULL;
    self->p.budget = budget;
    const bool leads = ckp_policy_start(&self->p, self->item, self->n, bits);
    PyObject *list = PyList_New((Py_ssize_t)self->n);
    for (size_t i = 0; list != NULL && i < self->n; i++) {
        const uint8_t follows = self->item[i].follows;
        ckp_policy_led(bits, (uint8_t)(leads && follows != 0 ? follows - 1 : 0), own);
        PyObject *pair = Py_BuildValue("(II)", own[0], own[1]);
        if (pair == NULL || PyList_SetItem(list, (Py_ssize_t)i, pair) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(lead_doc, "lead(lr, common, /) -> int\n--\n\nLevels above the others' that a tensor starts with whose learning rate is lr, most others' being common.");

static PyObject *
policy_lead(PyObject *unused, PyObject *args)
{
    double lr, common;
    (void)unused;
    return PyArg_ParseTuple(args, "dd", &lr, &common) ? PyLong_FromLong(ckp_policy_lead(ckp_policy_rate(lr, common))) : NULL;
}

PyDoc_STRVAR(visit_doc, "visit(index, stats, at, lr, common, step, /) -> tuple | None\n--\n\nWidths that the tensor should have now; None: those it has. stats: of look(), its `at`th; common: the lr of most.");

static PyObject *
policy_visit(policy_object *self, PyObject *args)
{
    Py_ssize_t index, at;
    Py_buffer stats;
    double lr, common;
    unsigned long long step;
    unsigned bits[2];
    if (!PyArg_ParseTuple(args, "ny*nddK", &index, &stats, &at, &lr, &common, &step))
        return NULL;
    ckp_policy_item *t = item_of(self, index);
    bool other = false;
    if (t != NULL && (at < 0 || at >= stats.len / (Py_ssize_t)sizeof(ckp_optim_stats))) {
        PyErr_SetString(PyExc_IndexError, "no such statistics");
        t = NULL;
    }
    if (t != NULL) {
        ckp_optim_stats s;
        memcpy(&s, (const char *)stats.buf + at * (Py_ssize_t)sizeof s, sizeof s);
        other = ckp_policy_visit(&self->p, t, &s, lr, ckp_policy_rate(lr, common), step, bits);
    }
    PyBuffer_Release(&stats);
    if (t == NULL)
        return NULL;
    return other ? Py_BuildValue("(II)", bits[0], bits[1]) : Py_NewRef(Py_None);
}

PyDoc_STRVAR(moved_doc, "moved(index, m_bits, v_bits, /)\n--\n\nThe tensor has these widths now.");

static PyObject *
policy_moved(policy_object *self, PyObject *args)
{
    Py_ssize_t index;
    unsigned long m_bits, v_bits;
    uint8_t narrow[2];
    if (!PyArg_ParseTuple(args, "nkk", &index, &m_bits, &v_bits) || !width(m_bits, &narrow[0]) || !width(v_bits, &narrow[1]))
        return NULL;
    ckp_policy_item *t = item_of(self, index);
    if (t == NULL)
        return NULL;
    ckp_policy_moved(&self->p, t, (const unsigned[2]){narrow[0], narrow[1]});
    Py_RETURN_NONE;
}

PyDoc_STRVAR(plan_doc, "plan(budget, /)\n--\n\nShares the budget out anew.");

static PyObject *
policy_plan(policy_object *self, PyObject *args)
{
    unsigned long long budget;
    if (!PyArg_ParseTuple(args, "K", &budget))
        return NULL;
    self->p.budget = budget;
    ckp_policy_plan(&self->p, self->item, self->n);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(factors_doc, "factors(stats, lr, step, /) -> tuple | None\n--\n\nWhat a visit measures, log2 in parts of 256.");

static PyObject *
policy_factors(PyObject *unused, PyObject *args)
{
    Py_buffer stats;
    double lr;
    unsigned long long step;
    ckp_optim_stats s;
    int32_t out[CKP_POLICY_FACTORS];
    (void)unused;
    if (!PyArg_ParseTuple(args, "y*dK", &stats, &lr, &step))
        return NULL;
    const bool fits = stats.len == (Py_ssize_t)sizeof s;
    if (fits)
        memcpy(&s, stats.buf, sizeof s);
    PyBuffer_Release(&stats);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "statistics of another size");
        return NULL;
    }
    if (!ckp_policy_factors(&s, lr, step, out))
        return Py_NewRef(Py_None);
    PyObject *tuple = PyTuple_New(CKP_POLICY_FACTORS);
    for (Py_ssize_t i = 0; tuple != NULL && i < CKP_POLICY_FACTORS; i++) {
        PyObject *x = PyLong_FromLong(out[i]);
        if (x == NULL || PyTuple_SetItem(tuple, i, x) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

PyDoc_STRVAR(item_doc, "item(index, /) -> tuple\n--\n\nWhat is kept of a tensor: scores, wanted widths, votes (of m and v each), whether it has scores.");

static PyObject *
policy_item(policy_object *self, PyObject *args)
{
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "n", &index))
        return NULL;
    const ckp_policy_item *t = item_of(self, index);
    return t == NULL ? NULL : Py_BuildValue("(iiBBBBB)", t->score[0], t->score[1], t->wanted[0], t->wanted[1], t->votes[0], t->votes[1], t->seen);
}

PyDoc_STRVAR(set_item_doc, "set_item(index, item, /)\n--\n\nThe reverse of item().");

static PyObject *
policy_set_item(policy_object *self, PyObject *args)
{
    Py_ssize_t index;
    int score[2];
    unsigned char wanted[2], votes[2], seen;
    uint8_t checked;
    if (!PyArg_ParseTuple(args, "n(iibbbbb)", &index, &score[0], &score[1], &wanted[0], &wanted[1], &votes[0], &votes[1], &seen))
        return NULL;
    ckp_policy_item *t = item_of(self, index);
    if (t == NULL)
        return NULL;
    for (int i = 0; i < 2; i++)
        if ((wanted[i] != 0 && !width(wanted[i], &checked)) || votes[i] > 2 || seen > 1 || score[i] > 1 << 24 || score[i] < -(1 << 24)) {
            PyErr_SetString(PyExc_ValueError, "not what a policy keeps of a tensor");
            return NULL;
        }
    for (int i = 0; i < 2; i++) {
        t->score[i] = score[i];
        t->wanted[i] = wanted[i];
        t->votes[i] = votes[i];
    }
    t->seen = seen;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(state_doc, "state() -> list\n--\n\nWhat is kept of all tensors together, as ints: used, followers, visits, raised, lowered, plans, price, then running means.");

enum { STATE = 7 + CKP_POLICY_FACTORS };

static PyObject *
policy_state(policy_object *self, PyObject *unused)
{
    (void)unused;
    const ckp_policy *p = &self->p;
    const int64_t first[7] = {(int64_t)p->used, (int64_t)p->followers, (int64_t)p->visits, (int64_t)p->raised, (int64_t)p->lowered, (int64_t)p->plans, p->price};
    PyObject *list = PyList_New(STATE);
    for (Py_ssize_t i = 0; list != NULL && i < STATE; i++) {
        PyObject *x = PyLong_FromLongLong(i < 7 ? first[i] : p->mean[i - 7]);
        if (x == NULL || PyList_SetItem(list, i, x) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(set_state_doc, "set_state(state, /)\n--\n\nThe reverse of state().");

static PyObject *
policy_set_state(policy_object *self, PyObject *args)
{
    PyObject *list;
    int64_t x[STATE];
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list))
        return NULL;
    bool ok = PyList_Size(list) == STATE;
    for (Py_ssize_t i = 0; ok && i < STATE; i++) {
        x[i] = PyLong_AsLongLong(PyList_GetItem(list, i));
        if (PyErr_Occurred() != NULL)
            return NULL;
        ok = i < 6 ? x[i] >= 0 : x[i] >= -(INT64_C(1) << 48) && x[i] <= INT64_C(1) << 48;
    }
    if (!ok) {
        PyErr_SetString(PyExc_ValueError, "not what a policy keeps");
        return NULL;
    }
    ckp_policy *p = &self->p;
    p->used = (uint64_t)x[0];
    p->followers = (uint64_t)x[1];
    p->visits = (uint64_t)x[2];
    p->raised = (uint64_t)x[3];
    p->lowered = (uint64_t)x[4];
    p->plans = (uint64_t)x[5];
    p->price = x[6];
    memcpy(p->mean, x + 7, sizeof p->mean);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(nbytes_doc, "nbytes() -> tuple\n--\n\nMemory of all tensors together, and of each.");

static PyObject *
policy_nbytes(PyObject *unused, PyObject *none)
{
    (void)unused;
    (void)none;
    return Py_BuildValue("(nn)", (Py_ssize_t)sizeof(policy_object), (Py_ssize_t)sizeof(ckp_policy_item));
}

static PyMethodDef methods[] = {
    {"start", (PyCFunction)(void (*)(void))policy_start, METH_VARARGS, start_doc},
    {"visit", (PyCFunction)(void (*)(void))policy_visit, METH_VARARGS, visit_doc},
    {"moved", (PyCFunction)(void (*)(void))policy_moved, METH_VARARGS, moved_doc},
    {"plan", (PyCFunction)(void (*)(void))policy_plan, METH_VARARGS, plan_doc},
    {"lead", policy_lead, METH_VARARGS | METH_STATIC, lead_doc},
    {"factors", policy_factors, METH_VARARGS | METH_STATIC, factors_doc},
    {"item", (PyCFunction)(void (*)(void))policy_item, METH_VARARGS, item_doc},
    {"set_item", (PyCFunction)(void (*)(void))policy_set_item, METH_VARARGS, set_item_doc},
    {"state", (PyCFunction)(void (*)(void))policy_state, METH_NOARGS, state_doc},
    {"set_state", (PyCFunction)(void (*)(void))policy_set_state, METH_VARARGS, set_state_doc},
    {"nbytes", policy_nbytes, METH_NOARGS | METH_STATIC, nbytes_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)policy_new},
    {Py_tp_dealloc, (void *)(uintptr_t)policy_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, (void *)(uintptr_t)policy_doc},
    {0, NULL},
};

PyType_Spec ckpy_policy_spec = {.name = "ckpress._core.Policy", .basicsize = sizeof(policy_object), .flags = Py_TPFLAGS_DEFAULT, .slots = slots};
