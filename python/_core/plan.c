/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: what ckp_plan says, as a dict. */
#include "_core/core.h"

/* Owned by the caller (PyMem_Free); names point into the dict's keys. */
static bool
scores_from(ckp_plan_options *opt, PyObject *dict)
{
    if (dict == Py_None)
        return true;
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "scores must be a dict");
        return false;
    }
    ckp_tensor_score *s = PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof *s);
    if (s == NULL) {
        PyErr_NoMemory();
        return false;
    }
    opt->scores = s;
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (PyDict_Next(dict, &pos, &key, &value)) {
        s[opt->n_scores].name = PyUnicode_AsUTF8AndSize(key, NULL);
        s[opt->n_scores].score = s[opt->n_scores].name != NULL ? PyFloat_AsDouble(value) : 0;
        if (PyErr_Occurred() != NULL)
            return false;
        opt->n_scores++;
    }
    return true;
}

static PyObject *
rows_of(const ckp_plan *p)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < ckp_plan_count(p); i++) {
        ckp_plan_row r = {.size = sizeof r};
        ckp_plan_get_row(p, i, &r);
        PyObject *row = Py_BuildValue("{s:s,s:s,s:K,s:d,s:d,s:d,s:d,s:d,s:s}", "name", r.name, "role", ckp_role_name(r.role), "numel",
                                      (unsigned long long)r.numel, "step", r.step, "step_rms", r.step_rms, "bits", r.bits, "error", r.error, "loss",
                                      r.loss, "why", r.why);
        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *
steps_of(const ckp_plan *p)
{
    size_t n = 0;
    const ckp_tensor_step *s = ckp_plan_steps(p, &n);
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < n; i++)
        if (!ckpy_set(dict, s[i].name, PyFloat_FromDouble(s[i].step)))
            Py_CLEAR(dict);
    return dict;
}

static PyObject *
result_of(const ckp_plan *p)
{
    ckp_plan_info i = {.size = sizeof i};
    ckp_plan_get_info(p, &i);
    return Py_BuildValue("{s:N,s:N,s:N,s:K,s:K,s:K,s:d,s:d,s:d,s:d,s:d,s:I,s:d,s:d}", "table", rows_of(p), "steps", steps_of(p), "met",
                         PyBool_FromLong(i.met), "params", (unsigned long long)i.params, "raw_bytes", (unsigned long long)i.raw_bytes, "bytes",
                         (unsigned long long)i.bytes, "bits", i.bits, "bits_all", i.bits_all, "error", i.error, "loss", i.loss, "multiplier",
                         i.multiplier, "encodes", i.encodes, "cpu", i.cpu, "encode_cpu", i.encode_cpu);
}

/* Of a State, or of a file by its path. */
static ckp_status
plan(ckp_plan **out, ckp_state *state, PyObject *path, const ckp_plan_options *opt, ckp_error *err)
{
    ckp_status st;
    const char *name = path != NULL ? PyBytes_AsString(path) : NULL;
    Py_BEGIN_ALLOW_THREADS
    st = state != NULL ? ckp_plan_state(out, state, opt, err) : ckp_plan_file(out, name, opt, err);
    Py_END_ALLOW_THREADS
    return st;
}

PyObject *
ckpy_plan(PyObject *module, PyObject *args)
{
    const ckpy_types *types = PyModule_GetState(module);
    PyObject *source, *coding_arg, *scores, *progress, *path = NULL, *result = NULL;
    int target;
    ckp_plan_options opt = CKP_PLAN_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "OOidOIO:plan", &source, &coding_arg, &target, &opt.value, &scores, &opt.encodes, &progress))
        return NULL;
    const bool is_state = PyObject_TypeCheck(source, types->state);
    ckp_state *state = NULL;
    ckp_plan *p = NULL;
    if (!ckpy_coding_from(&opt.coding, coding_arg) || !scores_from(&opt, scores) ||
        (is_state ? (state = ckpy_state_take(source, types)) == NULL : PyUnicode_FSConverter(source, &path) == 0))
        goto done;
    opt.target = (ckp_plan_target)target;
    opt.coding.progress = ckpy_progress;
    opt.coding.progress_user = progress;
    ckp_error err = {0};
    const ckp_status st = plan(&p, state, path, &opt, &err);
    result = st == CKP_OK ? result_of(p) : ckpy_raise(st, &err);
done:
    if (state != NULL)
        ckpy_state_give_back(source);
    ckp_plan_free(p);
    PyMem_Free((ckp_tensor_score *)(uintptr_t)opt.scores);
    ckpy_coding_free(&opt.coding);
    Py_XDECREF(path);
    return result;
}
