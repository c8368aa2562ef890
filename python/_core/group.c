/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that write a run together: ckp_group over a callable that gathers bytes of all of them. */
#include <string.h>
#include "_core/core.h"

static ckp_status
on_exchange(void *ctx, const void *mine, size_t n, void *all, double seconds, ckp_error *err)
{
    ckpy_entry e;
    ckpy_memory m = {0};
    ckp_status st = CKP_OK;
    ckpy_enter_python(&e);
    PyObject *world = PyObject_GetAttrString(ctx, "world");
    const size_t ranks = world != NULL ? PyLong_AsSize_t(world) : 0;
    PyObject *data = PyErr_Occurred() == NULL ? PyObject_CallMethod(ctx, "exchange", "y#d", (const char *)mine, (Py_ssize_t)n, seconds) : NULL;
    if (data == NULL || !ckpy_memory_from(&m, data, false))
        st = ckpy_failed_python(err);
    else if (m.len != (Py_ssize_t)(n * ranks))
        st = ckp_objects_fail(err, CKP_EIO, "the exchange gave another number of bytes than all ranks have given");
    else
        memcpy(all, m.data, n * ranks);
    ckpy_memory_free(&m);
    Py_XDECREF(data);
    Py_XDECREF(world);
    ckpy_leave_python(&e);
    return st;
}

bool
ckpy_group_from(ckp_group *out, const ckp_group **given, PyObject *obj)
{
    *out = (ckp_group)CKP_GROUP_INIT;
    *given = NULL;
    if (obj == NULL || obj == Py_None)
        return true;
    static const char *const names[] = {"rank", "world", "seconds", "join_seconds"};
    double v[4];
    for (int i = 0; i < 4; i++) {
        PyObject *x = PyObject_GetAttrString(obj, names[i]);
        v[i] = x != NULL ? PyFloat_AsDouble(x) : 0.0;
        Py_XDECREF(x);
        if (PyErr_Occurred() != NULL)
            return false;
    }
    if (!(v[0] >= 0.0 && v[0] < 65536.0 && v[1] >= 1.0 && v[1] <= 65536.0)) {
        PyErr_SetString(PyExc_ValueError, "group: rank or world is out of range");
        return false;
    }
    out->ctx = obj;
    out->rank = (unsigned)v[0];
    out->world = (unsigned)v[1];
    out->seconds = v[2];
    out->join_seconds = v[3];
    out->exchange = on_exchange;
    *given = out;
    return true;
}
