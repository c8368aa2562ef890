/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the module: opening, single files, conversion, listing, checking. */
#include "_core/core.h"

PyDoc_STRVAR(open_run_doc, "open_run(dir, step, verify_payload, base=None) -> Checkpoint\n--\n\nstep -1: the newest valid one; base: of a base model.");

static PyObject *
open_run(PyObject *module, PyObject *args)
{
    PyObject *dir_arg, *base = NULL, *base_arg = Py_None;
    ckpy_place place;
    long long step;
    int verify;
    if (!PyArg_ParseTuple(args, "OLp|O:open_run", &dir_arg, &step, &verify, &base_arg) || !ckpy_place_from(&place, dir_arg))
        return NULL;
    if (base_arg != Py_None && !PyUnicode_FSConverter(base_arg, &base)) {
        ckpy_place_free(&place);
        return NULL;
    }
    ckp_error err = {0};
    ckp_checkpoint *ck = NULL;
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_checkpoint_open_run_in(&ck, place.in, place.name, base != NULL ? PyBytes_AsString(base) : NULL, step, verify != 0, &err);
    Py_END_ALLOW_THREADS
    Py_XDECREF(base);
    PyObject *out = st == CKP_OK ? ckpy_checkpoint_wrap(PyModule_GetState(module), ck, place.store) : ckpy_raise(st, &err);
    ckpy_place_free(&place);
    return out;
}

PyDoc_STRVAR(open_file_doc, "open_file(path, bases=()) -> Checkpoint\n--\n\nbases: the files of a delta's chain.");

static PyObject *
open_file(PyObject *module, PyObject *args)
{
    PyObject *path = NULL, *bases_arg = NULL, *result = NULL;
    ckpy_paths bases = CKPY_PATHS_INIT;
    if (!PyArg_ParseTuple(args, "O&O:open_file", PyUnicode_FSConverter, &path, &bases_arg))
        return NULL;
    if (ckpy_paths_from(&bases, bases_arg)) {
        ckp_error err = {0};
        ckp_checkpoint *ck = NULL;
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_checkpoint_open_file(&ck, PyBytes_AsString(path), bases.path, bases.n, &err);
        Py_END_ALLOW_THREADS
        result = st == CKP_OK ? ckpy_checkpoint_wrap(PyModule_GetState(module), ck, NULL) : ckpy_raise(st, &err);
    }
    ckpy_paths_free(&bases);
    Py_DECREF(path);
    return result;
}

PyDoc_STRVAR(save_doc, "save(path, state, coding, base, replace, progress)\n--\n\nOne state to one file; base: an open Checkpoint or None.");

static PyObject *
file_save(PyObject *module, PyObject *args)
{
    const ckpy_types *types = PyModule_GetState(module);
    PyObject *path = NULL, *state_arg, *coding_arg, *base_arg, *progress, *result = NULL;
    int replace;
    if (!PyArg_ParseTuple(args, "O&OOOpO:save", PyUnicode_FSConverter, &path, &state_arg, &coding_arg, &base_arg, &replace, &progress))
        return NULL;
    ckp_coding coding = CKP_CODING_INIT;
    ckp_checkpoint *base = NULL;
    ckp_state *state = NULL;
    if (!ckpy_coding_from(&coding, coding_arg) || (base_arg != Py_None && (base = ckpy_checkpoint_take(base_arg, types)) == NULL))
        goto done;
    state = ckpy_state_take(state_arg, types);
    if (state == NULL)
        goto done;
    coding.progress = ckpy_progress;
    coding.progress_user = progress;
    ckp_error err = {0};
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_file_save(PyBytes_AsString(path), state, &coding, base, replace != 0, &err);
    Py_END_ALLOW_THREADS
    result = st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
done:
    if (state != NULL)
        ckpy_state_give_back(state_arg);
    if (base != NULL)
        ckpy_checkpoint_give_back(base_arg);
    ckpy_coding_free(&coding);
    Py_XDECREF(path);
    return result;
}

/* A ckp notice: appended to a list; never fails the conversion. */
static void
take_notice(void *user, const char *text)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *line = ckpy_text(text);
    if (line == NULL || PyList_Append(user, line) < 0)
        PyErr_Clear();
    Py_XDECREF(line);
    PyGILState_Release(gil);
}

typedef ckp_status (*convert_fn)(const char *in, const char *out, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err);

static PyObject *
converted(ckp_status st, const ckp_convert_result *res, const ckp_error *err, PyObject *notices)
{
    if (st != CKP_OK)
        return ckpy_raise(st, err);
    return Py_BuildValue("{s:K,s:K,s:K,s:s,s:O}", "in_bytes", (unsigned long long)res->in_bytes, "out_bytes", (unsigned long long)res->out_bytes,
                         "tensors", (unsigned long long)res->tensors, "kind", res->kind, "notices", notices);
}

static PyObject *
convert(PyObject *args, convert_fn fn)
{
    PyObject *in = NULL, *out = NULL, *coding_arg, *bases_arg, *progress, *result = NULL, *notices = NULL;
    int replace;
    ckpy_paths bases = CKPY_PATHS_INIT;
    ckp_convert_options opt = CKP_CONVERT_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "O&O&OOpO|z", PyUnicode_FSConverter, &in, PyUnicode_FSConverter, &out, &coding_arg, &bases_arg, &replace,
                          &progress, &opt.only))
        goto done;
    notices = PyList_New(0);
    if (notices == NULL || !ckpy_coding_from(&opt.coding, coding_arg) || !ckpy_paths_from(&bases, bases_arg))
        goto done;
    opt.coding.progress = ckpy_progress;
    opt.coding.progress_user = progress;
    opt.bases = bases.path;
    opt.n_bases = bases.n;
    opt.replace = replace != 0;
    opt.notice = take_notice;
    opt.notice_user = notices;
    ckp_convert_result res = {.size = sizeof res};
    ckp_error err = {0};
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = fn(PyBytes_AsString(in), PyBytes_AsString(out), &opt, &res, &err);
    Py_END_ALLOW_THREADS
    result = converted(st, &res, &err, notices);
done:
    ckpy_paths_free(&bases);
    ckpy_coding_free(&opt.coding);
    Py_XDECREF(notices);
    Py_XDECREF(out);
    Py_XDECREF(in);
    return result;
}

PyDoc_STRVAR(compress_doc, "compress(src, dst, coding, bases, replace, progress) -> dict\n--\n\nA safetensors or PyTorch file to a .ckp.");

static PyObject *
file_compress(PyObject *module, PyObject *args)
{
    (void)module;
    return convert(args, ckp_compress);
}

PyDoc_STRVAR(decompress_doc, "decompress(src, dst, coding, bases, replace, progress, only=None) -> dict\n--\n\nThe way back.");

static PyObject *
file_decompress(PyObject *module, PyObject *args)
{
    (void)module;
    return convert(args, ckp_decompress);
}

PyDoc_STRVAR(export_doc, "export(checkpoint, dst, coding, replace, progress, only=None) -> dict\n--\n\nAn open checkpoint as a .pt or safetensors file.");

static PyObject *
file_export(PyObject *module, PyObject *args)
{
    const ckpy_types *types = PyModule_GetState(module);
    PyObject *out = NULL, *ck_arg, *coding_arg, *progress, *result = NULL, *notices = NULL;
    ckp_checkpoint *ck = NULL;
    int replace;
    ckp_convert_options opt = CKP_CONVERT_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "OO&OpO|z:export", &ck_arg, PyUnicode_FSConverter, &out, &coding_arg, &replace, &progress, &opt.only))
        return NULL;
    notices = PyList_New(0);
    if (notices == NULL || !ckpy_coding_from(&opt.coding, coding_arg) || (ck = ckpy_checkpoint_take(ck_arg, types)) == NULL)
        goto done;
    opt.coding.progress = ckpy_progress;
    opt.coding.progress_user = progress;
    opt.replace = replace != 0;
    opt.notice = take_notice;
    opt.notice_user = notices;
    ckp_convert_result res = {.size = sizeof res};
    ckp_error err = {0};
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_checkpoint_export(ck, PyBytes_AsString(out), &opt, &res, &err);
    Py_END_ALLOW_THREADS
    result = converted(st, &res, &err, notices);
    ckpy_checkpoint_give_back(ck_arg);
done:
    Py_XDECREF(notices);
    Py_XDECREF(out);
    return result;
}

/* (what, status, text) a finding. The library may call from its own threads, hence the lock. */
static void
take_finding(void *user, const char *what, const ckp_error *e)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *item = Py_BuildValue("(NiN)", ckpy_text(what), e != NULL ? (int)e->code : 0, ckpy_text(e != NULL ? e->text : ""));
    if (item == NULL || PyList_Append(user, item) < 0)
        PyErr_Clear();
    Py_XDECREF(item);
    PyGILState_Release(gil);
}

PyDoc_STRVAR(verify_doc, "verify(path, bases, level, threads, share, seed, max_seconds, findings, progress) -> dict\n--\n\n"
                         "A file or a run; appends (what, status, text) to findings, raises the first. progress: None or as of encode.");

static PyObject *
verified(const ckp_verified *d)
{
    return Py_BuildValue("{sKsKsKsKsKsKsO}", "checkpoints", (unsigned long long)d->checkpoints, "looked_at", (unsigned long long)d->looked_at, "whole",
                         (unsigned long long)d->whole, "chunks", (unsigned long long)d->chunks, "bytes", (unsigned long long)d->bytes, "stored_bytes",
                         (unsigned long long)d->stored_bytes, "out_of_time", d->out_of_time ? Py_True : Py_False);
}

static PyObject *
file_verify(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *path_arg, *bases_arg, *findings, *progress, *result = NULL;
    ckpy_place place;
    int level;
    unsigned long long seed;
    ckp_verify_options o = CKP_VERIFY_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "OOiIdKdOO:verify", &path_arg, &bases_arg, &level, &o.threads, &o.share, &seed, &o.max_seconds, &findings,
                          &progress) ||
        !ckpy_place_from(&place, path_arg))
        return NULL;
    ckpy_paths bases = CKPY_PATHS_INIT;
    if (ckpy_paths_from(&bases, bases_arg)) {
        ckp_verified done = {.size = sizeof done};
        ckp_error err = {0};
        ckp_status st;
        o.level = (ckp_verify_level)level;
        o.seed = seed;
        o.bases = bases.path;
        o.n_bases = bases.n;
        o.fn = take_finding;
        o.user = findings;
        o.progress = ckpy_progress;
        o.progress_user = progress;
        Py_BEGIN_ALLOW_THREADS
        st = place.in != NULL ? ckp_run_verify_in(place.in, place.name, &o, &done, &err) : ckp_verify_with(place.name, &o, &done, &err);
        Py_END_ALLOW_THREADS
        result = st == CKP_OK ? verified(&done) : ckpy_raise(st, &err);
    }
    ckpy_paths_free(&bases);
    ckpy_place_free(&place);
    return result;
}

static void
take_salvaged(void *user, const char *tensor, uint64_t have, uint64_t of)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *item = Py_BuildValue("(sKK)", tensor, (unsigned long long)have, (unsigned long long)of);
    if (item == NULL || PyList_Append(user, item) < 0)
        PyErr_Clear();
    Py_XDECREF(item);
    PyGILState_Release(gil);
}

PyDoc_STRVAR(salvage_doc, "salvage(src, bases, out, replace) -> [(tensor, have, of), ...]\n--\n\nWhat a damaged file still holds, elements.");

static PyObject *
file_salvage(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *in = NULL, *out = NULL, *bases_arg, *found = NULL, *result = NULL;
    int replace;
    ckpy_paths bases = CKPY_PATHS_INIT;
    if (!PyArg_ParseTuple(args, "O&OO&p:salvage", PyUnicode_FSConverter, &in, &bases_arg, PyUnicode_FSConverter, &out, &replace))
        goto done;
    found = PyList_New(0);
    if (found == NULL || !ckpy_paths_from(&bases, bases_arg))
        goto done;
    ckp_error err = {0};
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_salvage(PyBytes_AsString(in), bases.path, bases.n, PyBytes_AsString(out), replace != 0, take_salvaged, found, &err);
    Py_END_ALLOW_THREADS
    result = st == CKP_OK ? Py_NewRef(found) : ckpy_raise(st, &err);
done:
    ckpy_paths_free(&bases);
    Py_XDECREF(found);
    Py_XDECREF(out);
    Py_XDECREF(in);
    return result;
}

static bool
next_metric(const void *of, size_t index, ckp_metric *out)
{
    return ckp_list_entry_metric(of, index, out);
}

static bool
next_setting(const void *of, size_t index, ckp_metric *out)
{
    return ckp_list_entry_setting(of, index, out);
}

/* Appends a dict; on failure the exception stays set and stops the listing. */
static int
take_entry(void *user, const ckp_list_entry *e)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *d = Py_BuildValue("{s:K,s:K,s:N,s:K,s:K,s:K,s:L,s:K,s:s,s:s,s:N,s:s,s:K,s:s,s:z,s:z}", "step", (unsigned long long)e->step, "sequence",
                                (unsigned long long)e->sequence, "is_delta", PyBool_FromLong(e->is_delta), "stored_bytes",
                                (unsigned long long)e->stored_bytes, "raw_bytes", (unsigned long long)e->raw_bytes, "params",
                                (unsigned long long)e->params, "saved_unix", (long long)e->saved_unix, "base_step",
                                (unsigned long long)e->base_step, "dir", e->dir, "base_dir", e->base_dir, "health", ckpy_text(e->health), "profile",
                                ckp_profile_name(e->profile), "restore_count", (unsigned long long)e->restore_count, "parent_dir", e->parent_dir,
                                "base_model", e->base_model, "dropped", ckp_list_entry_dropped(e));
    if (d != NULL && !(ckpy_set(d, "metrics", ckpy_metrics(next_metric, e)) && ckpy_set(d, "settings", ckpy_metrics(next_setting, e))))
        Py_CLEAR(d);
    const int stop = d != NULL && PyList_Append(user, d) == 0 ? 0 : -1;
    Py_XDECREF(d);
    PyGILState_Release(gil);
    return stop;
}

PyDoc_STRVAR(list_doc, "list_run(dir) -> [dict, ...]\n--\n\nThe checkpoints of a run in order of sequence.");

static PyObject *
list_run(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *dir_arg;
    ckpy_place place;
    if (!PyArg_ParseTuple(args, "O:list_run", &dir_arg) || !ckpy_place_from(&place, dir_arg))
        return NULL;
    PyObject *list = PyList_New(0);
    if (list != NULL) {
        ckp_error err = {0};
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_list_in(place.in, place.name, take_entry, list, &err);
        Py_END_ALLOW_THREADS
        if (st != CKP_OK) {
            Py_CLEAR(list);
            ckpy_raise(st, &err);
        }
    }
    ckpy_place_free(&place);
    return list;
}

/* ---- retention -------------------------------------------------------------------------------------------------------- */

bool
ckpy_rules_from(ckp_retention *r, PyObject *tuple)
{
    int is_max = 0;
    unsigned long long every, bytes;
    if (!PyArg_ParseTuple(tuple, "IIKzpK:rules", &r->keep_last, &r->keep_best, &every, &r->metric, &is_max, &bytes))
        return false;
    r->keep_every = every;
    r->best_is_max = is_max != 0;
    r->max_bytes = bytes;
    return true;
}

/* Inside ckp_run_prune, without the interpreter's lock. */
static void
take_fate(void *list, const ckp_list_entry *e, ckp_fate fate)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *row = PyErr_Occurred() == NULL ? Py_BuildValue("(KsKi)", (unsigned long long)e->step, e->dir, (unsigned long long)e->stored_bytes, (int)fate)
                                             : NULL;
    if (row != NULL)
        (void)PyList_Append(list, row);
    Py_XDECREF(row);
    PyGILState_Release(gil);
}

PyDoc_STRVAR(prune_doc, "prune(dir, rules, dry_run) -> dict\n--\n\nrules: as of Run.");

static PyObject *
prune(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *dir_arg, *rules_arg, *result = NULL;
    ckpy_place place;
    ckp_retention rules = CKP_RETENTION_INIT;
    ckp_pruned done = {.size = sizeof done};
    int dry = 0;
    if (!PyArg_ParseTuple(args, "OOp:prune", &dir_arg, &rules_arg, &dry) || !ckpy_place_from(&place, dir_arg))
        return NULL;
    PyObject *list = ckpy_rules_from(&rules, rules_arg) ? PyList_New(0) : NULL;
    if (list != NULL) {
        ckp_error err = {0};
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_prune_in(place.in, place.name, &rules, dry != 0, take_fate, list, &done, &err);
        Py_END_ALLOW_THREADS
        if (st != CKP_OK)
            ckpy_raise(st, &err);
        else if (PyErr_Occurred() == NULL)
            result = Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:O}", "kept", (unsigned long long)done.kept, "bases", (unsigned long long)done.bases, "deleted",
                                   (unsigned long long)done.deleted, "freed_bytes", (unsigned long long)done.freed_bytes, "left_bytes",
                                   (unsigned long long)done.left_bytes, "checkpoints", list);
    }
    Py_XDECREF(list);
    ckpy_place_free(&place);
    return result;
}

/* ---- copying ---------------------------------------------------------------------------------------------------------- */

/* Inside ckp_run_copy, without the interpreter's lock. */
static void
take_copied(void *list, const ckp_list_entry *e, ckp_copy_fate fate, const char *reason)
{
    (void)reason;
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *row = PyErr_Occurred() == NULL ? Py_BuildValue("(KsKi)", (unsigned long long)e->step, e->dir, (unsigned long long)e->stored_bytes, (int)fate)
                                             : NULL;
    if (row != NULL)
        (void)PyList_Append(list, row);
    Py_XDECREF(row);
    PyGILState_Release(gil);
}

/* Owned by the caller (PyMem_Free); NULL with an exception. */
static uint64_t *
steps_from(PyObject *tuple)
{
    const Py_ssize_t n = PyTuple_Size(tuple);
    uint64_t *step = n >= 0 ? PyMem_Malloc(((size_t)n + 1) * sizeof *step) : NULL;
    if (step == NULL)
        return n >= 0 ? (uint64_t *)PyErr_NoMemory() : NULL;
    for (Py_ssize_t i = 0; i < n; i++)
        step[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
    if (PyErr_Occurred() == NULL)
        return step;
    PyMem_Free(step);
    return NULL;
}

PyDoc_STRVAR(copy_run_doc, "copy_run(dir, dest, steps, newest, dry_run, progress) -> dict\n--\n\nsteps: a tuple; progress: None or as of encode.");

static PyObject *
copy_run(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *dir = NULL, *dest = NULL, *steps, *progress, *result = NULL;
    ckp_copy_opts opt = CKP_COPY_OPTS_INIT;
    ckp_copied done = {.size = sizeof done};
    int newest = 0, dry = 0;
    if (!PyArg_ParseTuple(args, "O&O&O!ppO:copy_run", PyUnicode_FSConverter, &dir, PyUnicode_FSConverter, &dest, &PyTuple_Type, &steps, &newest, &dry, &progress))
        goto done;
    PyObject *list = PyList_New(0);
    uint64_t *step = list != NULL ? steps_from(steps) : NULL;
    if (step != NULL) {
        ckp_error err = {0};
        ckp_status st;
        opt.step = step;
        opt.n_steps = (size_t)PyTuple_Size(steps);
        opt.newest = newest != 0;
        opt.dry_run = dry != 0;
        opt.told = take_copied;
        opt.told_user = list;
        opt.progress = ckpy_progress;
        opt.user = progress;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_copy(PyBytes_AsString(dir), PyBytes_AsString(dest), &opt, &done, &err);
        Py_END_ALLOW_THREADS
        if (PyErr_Occurred() == NULL && st != CKP_OK)
            ckpy_raise(st, &err);
        else if (PyErr_Occurred() == NULL)
            result = Py_BuildValue("{s:K,s:K,s:K,s:K,s:O}", "copied", (unsigned long long)done.copied, "there", (unsigned long long)done.there, "bytes",
                                   (unsigned long long)done.bytes, "models_outside", (unsigned long long)done.models_outside, "checkpoints", list);
    }
    PyMem_Free(step);
    Py_XDECREF(list);
done:
    Py_XDECREF(dest);
    Py_XDECREF(dir);
    return result;
}

PyDoc_STRVAR(bits_doc, "dtype_bits(name) -> int\n--\n\nStorage bits of one element.");

static PyObject *
dtype_bits(PyObject *module, PyObject *args)
{
    (void)module;
    const char *name;
    if (!PyArg_ParseTuple(args, "s:dtype_bits", &name))
        return NULL;
    const ckp_dtype dt = ckpy_dtype_from(name);
    return dt != (ckp_dtype)0 ? PyLong_FromUnsignedLong(ckp_dtype_bits(dt)) : NULL;
}

PyDoc_STRVAR(status_doc, "status_name(status) -> str\n--\n\nShort English name of a status.");

static PyObject *
status_name(PyObject *module, PyObject *args)
{
    (void)module;
    int status;
    return PyArg_ParseTuple(args, "i:status_name", &status) ? PyUnicode_FromString(ckp_status_name((ckp_status)status)) : NULL;
}

PyDoc_STRVAR(plan_doc, "plan(state or path, coding, target, value, scores, encodes, progress) -> dict\n--\n\nSteps for a budget: run_plan.h.");

PyMethodDef ckpy_file_functions[] = {
    {"open_run", open_run, METH_VARARGS, open_run_doc},
    {"open_file", open_file, METH_VARARGS, open_file_doc},
    {"save", file_save, METH_VARARGS, save_doc},
    {"compress", file_compress, METH_VARARGS, compress_doc},
    {"decompress", file_decompress, METH_VARARGS, decompress_doc},
    {"plan", ckpy_plan, METH_VARARGS, plan_doc},
    {"export", file_export, METH_VARARGS, export_doc},
    {"verify", file_verify, METH_VARARGS, verify_doc},
    {"salvage", file_salvage, METH_VARARGS, salvage_doc},
    {"list_run", list_run, METH_VARARGS, list_doc},
    {"prune", prune, METH_VARARGS, prune_doc},
    {"copy_run", copy_run, METH_VARARGS, copy_run_doc},
    {"dtype_bits", dtype_bits, METH_VARARGS, bits_doc},
    {"status_name", status_name, METH_VARARGS, status_doc},
    {NULL, NULL, 0, NULL},
};
