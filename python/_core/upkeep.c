/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to runs at rest. */
#include "_core/core.h"

/* Inside ckp_run_repair, without the interpreter's lock. */
static void
take_repaired(void *list, const ckp_list_entry *e, ckp_repair_fate fate, const char *reason)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *row = PyErr_Occurred() == NULL ? Py_BuildValue("(KsKis)", (unsigned long long)e->step, e->dir, (unsigned long long)e->stored_bytes, (int)fate,
                                                             reason)
                                             : NULL;
    if (row != NULL)
        (void)PyList_Append(list, row);
    Py_XDECREF(row);
    PyGILState_Release(gil);
}

PyDoc_STRVAR(repair_doc, "repair(dir, dry_run, remove, data, progress) -> dict\n--\n\nprogress: None or as of encode.");

static PyObject *
repair(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *dir = NULL, *progress, *result = NULL;
    ckp_repair_opts o = CKP_REPAIR_OPTS_INIT;
    ckp_repaired done = {.size = sizeof done};
    int dry = 0, remove = 0, data = 0;
    if (!PyArg_ParseTuple(args, "O&pppO:repair", PyUnicode_FSConverter, &dir, &dry, &remove, &data, &progress))
        return NULL;
    PyObject *list = PyList_New(0);
    if (list != NULL) {
        ckp_error err = {0};
        ckp_status st;
        o.dry_run = dry != 0;
        o.remove = remove != 0;
        o.data = data != 0;
        o.progress = ckpy_progress;
        o.user = progress;
        o.told = take_repaired;
        o.told_user = list;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_repair(PyBytes_AsString(dir), &o, &done, &err);
        Py_END_ALLOW_THREADS
        if (st != CKP_OK)
            ckpy_raise(st, &err);
        else
            result = Py_BuildValue("{sKsKsKsKsKsKsOsO}", "set_aside", (unsigned long long)done.set_aside, "deleted", (unsigned long long)done.deleted, "left",
                                   (unsigned long long)done.left, "swept", (unsigned long long)done.swept, "restorable", (unsigned long long)done.restorable,
                                   "newest_step", (unsigned long long)done.newest_step, "identity", done.identity ? Py_True : Py_False, "checkpoints", list);
    }
    Py_XDECREF(list);
    Py_DECREF(dir);
    return result;
}

PyMethodDef ckpy_upkeep_functions[] = {
    {"repair", repair, METH_VARARGS, repair_doc},
    {NULL, NULL, 0, NULL},
};
