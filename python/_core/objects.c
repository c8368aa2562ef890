/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run behind a URL: ckp_objects over a Python object (ckpress._url.Store) with stat(key), get(key, offset, n), put(key, bytes, replace), list(dir),
 * list_all() and remove(key). Its exceptions end here, as a status and a text.
 */
#include <string.h>
#include "_core/core.h"

/* ---- what is to be put ------------------------------------------------------------------------------------------- */

typedef struct bytes_object {
    PyObject_HEAD
    const ckp_object_bytes *bytes;   /* NULL once put() has returned: a thread that was given up may ask later */
} bytes_object;

/* The interpreter lock is kept: it is what keeps put() from returning meanwhile. */
static PyObject *
bytes_read(bytes_object *self, PyObject *args)
{
    unsigned long long off;
    Py_ssize_t n;
    ckp_error err = {0};
    if (!PyArg_ParseTuple(args, "Kn:read", &off, &n))
        return NULL;
    if (self->bytes == NULL || n < 0) {
        PyErr_SetString(PyExc_ValueError, self->bytes == NULL ? "the upload was given up" : "negative count");
        return NULL;
    }
    PyObject *out = PyBytes_FromStringAndSize(NULL, n);
    if (out == NULL)
        return NULL;
    const ckp_status st = self->bytes->read(self->bytes, off, PyBytes_AsString(out), (size_t)n, &err);
    if (st != CKP_OK) {
        Py_DECREF(out);
        return ckpy_raise(st, &err);
    }
    return out;
}

static Py_ssize_t
bytes_len(bytes_object *self)
{
    return self->bytes != NULL ? (Py_ssize_t)self->bytes->size : 0;
}

static PyMethodDef bytes_methods[] = {
    {"read", (PyCFunction)(void (*)(void))bytes_read, METH_VARARGS, "read(offset, n) -> bytes\n--\n\nExactly n bytes of what is to be put."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot bytes_slots[] = {
    {Py_tp_methods, bytes_methods},
    {Py_sq_length, (void *)(uintptr_t)bytes_len},
    {Py_tp_doc, (void *)(uintptr_t)"What is to be put into an object store; valid until put() returns."},
    {0, NULL},
};

PyType_Spec ckpy_bytes_spec = {.name = "ckpress._core.ObjectBytes",
                               .basicsize = sizeof(bytes_object),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = bytes_slots};

/* ---- entering Python, and what it raised ------------------------------------------------------------------------- */

/* What was raised before (by a progress callback of the same call) is put aside: Python code must not run on top of it. */
typedef ckpy_entry entry;

void
ckpy_enter_python(ckpy_entry *e)
{
    e->gil = PyGILState_Ensure();
    PyErr_Fetch(&e->type, &e->value, &e->trace);
}

void
ckpy_leave_python(ckpy_entry *e)
{
    if (e->type != NULL)
        PyErr_Restore(e->type, e->value, e->trace);
    PyGILState_Release(e->gil);
}

/* Whether a signal's handler has raised it (ckpress._url): it says nothing about what was asked for. */
static bool
of_signal(PyObject *exc)
{
    PyObject *mark = PyObject_GetAttrString(exc, "ckpress_of_signal");
    const bool is = mark == Py_True;
    Py_XDECREF(mark);
    PyErr_Clear();
    return is;
}

/* The main thread calls it, as soon as it runs Python code. */
static int
raise_again(void *exc)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exc), exc);
    Py_DECREF((PyObject *)exc);
    return -1;
}

/* errors.Error has the status (other libraries' attribute of that name is positive); the rest by the classes that file systems raise. */
static ckp_status
status_of(PyObject *exc)
{
    static const struct { PyObject **type; ckp_status st; } table[] = {
        {&PyExc_FileNotFoundError, CKP_ENOTFOUND}, {&PyExc_FileExistsError, CKP_EEXIST}, {&PyExc_PermissionError, CKP_EACCESS},
        {&PyExc_MemoryError, CKP_ENOMEM}, {&PyExc_KeyboardInterrupt, CKP_ECANCELLED}, {&PyExc_SystemExit, CKP_ECANCELLED},
    };
    PyObject *status = PyObject_GetAttrString(exc, "status");
    long n = status != NULL ? PyLong_AsLong(status) : 0;
    Py_XDECREF(status);
    PyErr_Clear();
    if (of_signal(exc))
        return CKP_ECANCELLED;
    if (n < 0 && n > -1000)
        return (ckp_status)n;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (PyErr_GivenExceptionMatches(exc, *table[i].type))
            return table[i].st;
    return CKP_EIO;
}

static void
say(PyObject *exc, ckp_status st, ckp_error *err)
{
    PyObject *text = PyObject_Str(exc);
    const char *utf8 = text != NULL ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    PyErr_Clear();
    (void)ckp_objects_fail(err, st, utf8 != NULL && utf8[0] != '\0' ? utf8 : "an exception without a text");
    Py_XDECREF(text);
}

/* Takes the exception that is set. Ctrl-C and what other signals' handlers raise come back as soon as the library has returned: what it is doing must be
   ended in good order first. */
ckp_status
ckpy_failed_python(ckp_error *err)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const ckp_status st = value != NULL ? status_of(value) : CKP_EIO;
    if (value != NULL)
        say(value, st, err);
    if (value != NULL && PyErr_GivenExceptionMatches(value, PyExc_KeyboardInterrupt))
        PyErr_SetInterrupt();
    else if (value != NULL && of_signal(value) && Py_AddPendingCall(raise_again, Py_NewRef(value)) < 0)
        Py_DECREF(value);            /* too many are waiting: CKP_ECANCELLED has to do */
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return st;
}

/* ---- callbacks ---------------------------------------------------------------------------------------------------- */

static ckp_status
on_stat(void *user, const char *key, uint64_t *bytes, ckp_error *err)
{
    entry e;
    ckp_status st = CKP_OK;
    ckpy_enter_python(&e);
    PyObject *size = PyObject_CallMethod(user, "stat", "s", key);
    if (size != NULL)
        *bytes = PyLong_AsUnsignedLongLong(size);
    if (PyErr_Occurred() != NULL)
        st = ckpy_failed_python(err);
    Py_XDECREF(size);
    ckpy_leave_python(&e);
    return st;
}

static ckp_status
on_get(void *user, const char *key, uint64_t off, void *dst, size_t n, ckp_error *err)
{
    entry e;
    ckpy_memory m = {0};
    ckp_status st = CKP_OK;
    ckpy_enter_python(&e);
    PyObject *data = PyObject_CallMethod(user, "get", "sKn", key, (unsigned long long)off, (Py_ssize_t)n);
    if (data == NULL || !ckpy_memory_from(&m, data, false))
        st = ckpy_failed_python(err);
    else if (m.len != (Py_ssize_t)n)
        st = ckp_objects_fail(err, CKP_EIO, "the file system gave another number of bytes than it was asked for");
    else
        memcpy(dst, m.data, n);
    ckpy_memory_free(&m);
    Py_XDECREF(data);
    ckpy_leave_python(&e);
    return st;
}

/* user's class keeps the type of bytes objects where it finds it without the module. */
static bytes_object *
bytes_new(PyObject *store, const ckp_object_bytes *bytes)
{
    PyObject *type = PyObject_GetAttrString(store, "bytes_type");
    bytes_object *b = NULL;
    if (type != NULL) {
        const allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
        b = (bytes_object *)alloc((PyTypeObject *)type, 0);
    }
    if (b != NULL)
        b->bytes = bytes;
    Py_XDECREF(type);
    return b;
}

static ckp_status
on_put(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err)
{
    entry e;
    ckp_status st = CKP_OK;
    ckpy_enter_python(&e);
    bytes_object *b = bytes_new(user, bytes);
    PyObject *done = b != NULL ? PyObject_CallMethod(user, "put", "sOO", key, (PyObject *)b, replace ? Py_True : Py_False) : NULL;
    if (done == NULL)
        st = ckpy_failed_python(err);
    if (st == CKP_ECANCELLED)           /* which would promise that it will not be done */
        st = ckp_objects_fail(err, CKP_EIO, "interrupted while a request was on its way");
    if (b != NULL)
        b->bytes = NULL;
    Py_XDECREF(done);
    Py_XDECREF((PyObject *)b);
    ckpy_leave_python(&e);
    return st;
}

/* false: an exception is set. */
static bool
pass_entries(PyObject *entries, bool (*fn)(void *fn_user, const char *name, bool is_dir), void *fn_user)
{
    const Py_ssize_t n = PySequence_Size(entries);
    for (Py_ssize_t i = 0; i < n; i++) {
        const char *name;
        int is_dir;
        PyObject *item = PySequence_GetItem(entries, i);
        const bool ok = item != NULL && PyArg_ParseTuple(item, "sp", &name, &is_dir);
        const bool more = ok && fn(fn_user, name, is_dir != 0);
        Py_XDECREF(item);
        if (!more)
            return ok;
    }
    return n >= 0;
}

static ckp_status
on_list(void *user, const char *dir, bool (*fn)(void *fn_user, const char *name, bool is_dir), void *fn_user, ckp_error *err)
{
    entry e;
    ckp_status st = CKP_OK;
    ckpy_enter_python(&e);
    PyObject *entries = PyObject_CallMethod(user, "list", "s", dir);
    if (entries == NULL || !pass_entries(entries, fn, fn_user))
        st = ckpy_failed_python(err);
    Py_XDECREF(entries);
    ckpy_leave_python(&e);
    return st;
}

/* false: an exception is set. */
static bool
pass_sizes(PyObject *entries, bool (*fn)(void *fn_user, const char *key, uint64_t bytes), void *fn_user)
{
    const Py_ssize_t n = PySequence_Size(entries);
    for (Py_ssize_t i = 0; i < n; i++) {
        const char *key;
        unsigned long long bytes;
        PyObject *item = PySequence_GetItem(entries, i);
        const bool ok = item != NULL && PyArg_ParseTuple(item, "sK", &key, &bytes);
        const bool more = ok && fn(fn_user, key, bytes);
        Py_XDECREF(item);
        if (!more)
            return ok;
    }
    return n >= 0;
}

static ckp_status
on_list_all(void *user, bool (*fn)(void *fn_user, const char *key, uint64_t bytes), void *fn_user, ckp_error *err)
{
    entry e;
    ckp_status st = CKP_OK;
    ckpy_enter_python(&e);
    PyObject *entries = PyObject_CallMethod(user, "list_all", NULL);
    if (entries == NULL || !pass_sizes(entries, fn, fn_user))
        st = ckpy_failed_python(err);
    Py_XDECREF(entries);
    ckpy_leave_python(&e);
    return st;
}

static ckp_status
on_remove(void *user, const char *key, ckp_error *err)
{
    entry e;
    ckp_status st = CKP_OK;
    ckpy_enter_python(&e);
    PyObject *done = PyObject_CallMethod(user, "remove", "s", key);
    if (done == NULL)
        st = ckpy_failed_python(err);
    Py_XDECREF(done);
    ckpy_leave_python(&e);
    return st;
}

/* ---- places ------------------------------------------------------------------------------------------------------- */

static bool
from_store(ckpy_place *out, PyObject *store)
{
    PyObject *url = PyObject_GetAttrString(store, "url"), *stage = PyObject_GetAttrString(store, "stage_dir");
    PyObject *whole = PyObject_GetAttrString(store, "reads_back"), *lists = PyObject_GetAttrString(store, "lists_all");
    const int all = whole != NULL ? PyObject_IsTrue(whole) : -1, lists_all = lists != NULL ? PyObject_IsTrue(lists) : -1;
    const bool ok = url != NULL && stage != NULL && all >= 0 && lists_all >= 0 && PyUnicode_FSConverter(url, &out->path) && PyUnicode_FSConverter(stage, &out->stage);
    Py_XDECREF(url);
    Py_XDECREF(stage);
    Py_XDECREF(whole);
    Py_XDECREF(lists);
    if (!ok)
        return false;
    out->table = (ckp_objects)CKP_OBJECTS_INIT;
    out->table.user = store;
    out->table.stat = on_stat;
    out->table.get = on_get;
    out->table.put = on_put;
    out->table.list = on_list;
    out->table.remove = on_remove;
    if (lists_all)
        out->table.list_all = on_list_all;
    out->table.stage_dir = PyBytes_AsString(out->stage);
    out->table.read_back = all ? CKP_READ_BACK_BYTES : CKP_READ_BACK_SIZE;
    out->store = Py_NewRef(store);
    out->in = &out->table;
    return true;
}

bool
ckpy_place_from(ckpy_place *out, PyObject *arg)
{
    *out = (ckpy_place){0};
    const bool is_store = !PyUnicode_Check(arg) && !PyBytes_Check(arg) && PyObject_HasAttrString(arg, "bytes_type");
    if (is_store ? !from_store(out, arg) : !PyUnicode_FSConverter(arg, &out->path)) {
        ckpy_place_free(out);
        return false;
    }
    out->name = PyBytes_AsString(out->path);
    return true;
}

void
ckpy_place_free(ckpy_place *p)
{
    Py_CLEAR(p->path);
    Py_CLEAR(p->stage);
    Py_CLEAR(p->store);
}
