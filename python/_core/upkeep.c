/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to runs at rest. */
#include "_core/core.h"

/* Inside ckp_run_repair, without the interpreter's lock. */
static void
take_repaired(void *list, const ckp_list_entry *e, ckp_repair_fate fate, const char *reason)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *row = PyErr_Occurred() == NULL ? Py_BuildValue("(KsKiN)", (unsigned long long)e->step, e->dir, (unsigned long long)e->stored_bytes, (int)fate,
                                                             ckpy_text(reason))
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

/* ---- files for others, and from them ----------------------------------------------------------------------------------- */

PyDoc_STRVAR(export_to_doc, "export_to(checkpoint, dir, name, kind, only, max_file_bytes, replace, threads, progress) -> (name, files, tensors, bytes, lost)\n--\n\n"
                            "progress: None or as of encode.");

static PyObject *
export_to(PyObject *module, PyObject *args)
{
    const ckpy_types *types = PyModule_GetState(module);
    PyObject *ck_arg, *dir = NULL, *progress, *result = NULL;
    const char *name;
    int kind, replace;
    unsigned long long max;
    ckp_export_options o = CKP_EXPORT_OPTIONS_INIT;
    ckp_exported done = {.size = sizeof done};
    if (!PyArg_ParseTuple(args, "OO&sizKpIO:export_to", &ck_arg, PyUnicode_FSConverter, &dir, &name, &kind, &o.only, &max, &replace, &o.threads, &progress))
        return NULL;
    ckp_checkpoint *ck = ckpy_checkpoint_take(ck_arg, types);
    if (ck != NULL) {
        ckp_error err = {0};
        ckp_status st;
        o.to = (ckp_export_kind)kind;
        o.max_file_bytes = max;
        o.replace = replace != 0;
        o.progress = ckpy_progress;
        o.progress_user = progress;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_checkpoint_export_to(ck, PyBytes_AsString(dir), name, &o, &done, &err);
        Py_END_ALLOW_THREADS
        result = st != CKP_OK ? ckpy_raise(st, &err)
                              : Py_BuildValue("(sKKKK)", done.name, (unsigned long long)done.files, (unsigned long long)done.tensors,
                                              (unsigned long long)done.bytes, (unsigned long long)done.values_lost);
        ckpy_checkpoint_give_back(ck_arg);
    }
    Py_DECREF(dir);
    return result;
}

/* Inside ckp_run_import, without the interpreter's lock. */
static void
take_imported(void *list, const char *file, uint64_t step, uint64_t in_bytes, uint64_t stored_bytes)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *name = PyErr_Occurred() == NULL ? PyUnicode_DecodeFSDefault(file) : NULL;
    PyObject *row = name != NULL ? Py_BuildValue("(OKKK)", name, (unsigned long long)step, (unsigned long long)in_bytes, (unsigned long long)stored_bytes)
                                 : NULL;
    if (row != NULL)
        (void)PyList_Append(list, row);
    Py_XDECREF(row);
    Py_XDECREF(name);
    PyGILState_Release(gil);
}

/* A tuple of ints, or None: *out NULL. */
static bool
steps_from(uint64_t **out, PyObject *tuple, size_t n)
{
    *out = NULL;
    if (tuple == Py_None)
        return true;
    if (!PyTuple_Check(tuple) || (size_t)PyTuple_Size(tuple) != n) {
        PyErr_SetString(PyExc_TypeError, "steps must be a tuple, one for each file");
        return false;
    }
    *out = PyMem_Calloc(n + 1, sizeof **out);
    if (*out == NULL)
        PyErr_NoMemory();
    for (size_t i = 0; *out != NULL && i < n; i++)
        (*out)[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, (Py_ssize_t)i));
    return PyErr_Occurred() == NULL;
}

PyDoc_STRVAR(import_run_doc, "import_run(dir, files, steps, in_order, coding, progress) -> [(file, step, in_bytes, stored_bytes), ...]\n--\n\n"
                             "steps: a tuple or None; progress: None or as of encode.");

static PyObject *
import_run(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *dir = NULL, *files, *steps, *coding, *progress, *list = NULL;
    int in_order;
    uint64_t *step = NULL;
    ckp_import_options o = CKP_IMPORT_OPTIONS_INIT;
    ckp_imported done = {.size = sizeof done};
    ckpy_paths paths = CKPY_PATHS_INIT;
    if (!PyArg_ParseTuple(args, "O&OOpOO:import_run", PyUnicode_FSConverter, &dir, &files, &steps, &in_order, &coding, &progress))
        return NULL;
    if (ckpy_paths_from(&paths, files) && steps_from(&step, steps, paths.n) && ckpy_coding_from(&o.coding, coding) && (list = PyList_New(0)) != NULL) {
        ckp_error err = {0};
        ckp_status st;
        o.coding.progress = ckpy_progress;
        o.coding.progress_user = progress;
        o.step = step;
        o.in_order = in_order != 0;
        o.told = take_imported;
        o.told_user = list;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_import(PyBytes_AsString(dir), paths.path, paths.n, &o, &done, &err);
        Py_END_ALLOW_THREADS
        if (st != CKP_OK) {
            Py_CLEAR(list);
            ckpy_raise(st, &err);
        }
    }
    ckpy_coding_free(&o.coding);
    PyMem_Free(step);
    ckpy_paths_free(&paths);
    Py_DECREF(dir);
    return list;
}

/* ---- writing anew ------------------------------------------------------------------------------------------------------ */

/* Inside ckp_run_thin and _rebase, without the interpreter's lock. */
static void
take_rewritten(void *list, const ckp_list_entry *e, ckp_rewrite_fate fate, uint64_t new_bytes)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *row = PyErr_Occurred() == NULL ? Py_BuildValue("(KsKKi)", (unsigned long long)e->step, e->dir, (unsigned long long)e->stored_bytes,
                                                             (unsigned long long)new_bytes, (int)fate)
                                             : NULL;
    if (row != NULL)
        (void)PyList_Append(list, row);
    Py_XDECREF(row);
    PyGILState_Release(gil);
}

PyDoc_STRVAR(rewrite_doc, "rewrite(dir, step, older_than, dry_run, base, threads, progress) -> dict\n--\n\nstep None: thin, else rebase. progress: None or as of encode.");

static PyObject *
rewrite(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *dir = NULL, *step_arg, *progress, *result = NULL, *base = NULL, *base_arg;
    unsigned long long older, step = 0;
    int dry;
    ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
    ckp_rewritten done = {.size = sizeof done};
    if (!PyArg_ParseTuple(args, "O&OKpOIO:rewrite", PyUnicode_FSConverter, &dir, &step_arg, &older, &dry, &base_arg, &o.threads, &progress))
        return NULL;
    PyObject *list = PyList_New(0);
    if (step_arg != Py_None)
        step = PyLong_AsUnsignedLongLong(step_arg);
    if (list != NULL && PyErr_Occurred() == NULL && (base_arg == Py_None || PyUnicode_FSConverter(base_arg, &base) != 0)) {
        ckp_error err = {0};
        ckp_status st;
        o.older_than = older;
        o.dry_run = dry != 0;
        o.base_model = base != NULL ? PyBytes_AsString(base) : NULL;
        o.progress = ckpy_progress;
        o.user = progress;
        o.told = take_rewritten;
        o.told_user = list;
        Py_BEGIN_ALLOW_THREADS
        st = step_arg == Py_None ? ckp_run_thin(PyBytes_AsString(dir), &o, &done, &err) : ckp_run_rebase(PyBytes_AsString(dir), step, &o, &done, &err);
        Py_END_ALLOW_THREADS
        result = st != CKP_OK ? ckpy_raise(st, &err)
                              : Py_BuildValue("{sKsKsKsKsKsKsO}", "done", (unsigned long long)done.done, "moved", (unsigned long long)done.moved, "needed",
                                              (unsigned long long)done.needed, "deleted", (unsigned long long)done.deleted, "freed_bytes",
                                              (unsigned long long)done.freed_bytes, "new_bytes", (unsigned long long)done.new_bytes, "checkpoints", list);
    }
    Py_XDECREF(base);
    Py_XDECREF(list);
    Py_DECREF(dir);
    return result;
}

PyMethodDef ckpy_upkeep_functions[] = {
    {"rewrite", rewrite, METH_VARARGS, rewrite_doc},
    {"export_to", export_to, METH_VARARGS, export_to_doc},
    {"import_run", import_run, METH_VARARGS, import_run_doc},
    {"repair", repair, METH_VARARGS, repair_doc},
    {NULL, NULL, 0, NULL},
};
