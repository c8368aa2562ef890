/* SPDX-License-Identifier: Apache-2.0 */
/* Run: a run that is open for writing. Used by one thread at a time, which the object itself enforces. */
#include <string.h>
#include "_core/core.h"

typedef struct run_object {
    PyObject_HEAD
    ckp_run *run;            /* NULL when closed */
    bool entered;            /* a call without the interpreter lock is in it */
    PyObject *store, *adopted;   /* object stores that it, and the checkpoint that it went on from, lie in; or NULL */
    PyObject *group;             /* whose rank it is, or NULL */
    ckp_save_stats last;         /* as it was closed */
} run_object;

static bool
enter(run_object *self)
{
    if (self->run == NULL)
        PyErr_SetString(PyExc_ValueError, "the run is closed");
    else if (self->entered)
        PyErr_SetString(PyExc_RuntimeError, "the run is in use by another thread");
    else
        self->entered = true;
    return self->entered && PyErr_Occurred() == NULL;
}

static void
leave(run_object *self)
{
    self->entered = false;
}

PyDoc_STRVAR(run_doc, "Run(dir, coding, key_every, rules, skip_when_busy, lock_seconds, base, target_bits=0, group=None, memory=-1)\n--\n\n"
                      "A run directory, open for writing and locked. coding: (profile, quality, threads, effort, memory_budget, steps[, optimizer_states]); base: path of a base model or None;\n"
                      "rules: (keep_last, keep_best, keep_every, metric, best_is_max, max_bytes); memory: bytes of shared memory for the newest checkpoint, -1: the default.");

static PyObject *
run_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *dir_arg, *base = NULL, *coding, *base_arg, *group_arg = NULL;
    ckp_group group;
    ckpy_place place;
    int skip = 0;
    long long memory = -1;
    ckp_run_options opt = CKP_RUN_OPTIONS_INIT;
    ckp_retention rules = CKP_RETENTION_INIT;
    PyObject *rules_arg;
    if (kwargs != NULL && PyDict_Size(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "Run() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOIOpIO|dOL:Run", &dir_arg, &coding, &opt.key_every, &rules_arg, &skip, &opt.lock_seconds, &base_arg,
                          &opt.target_bits, &group_arg, &memory) ||
        !ckpy_group_from(&group, &opt.group, group_arg) ||
        !ckpy_place_from(&place, dir_arg))
        return NULL;
    opt.objects = place.in;
    opt.memory = memory < 0 ? CKP_MEMORY_DEFAULT : (uint64_t)memory;
    opt.busy = skip ? CKP_BUSY_SKIP : CKP_BUSY_WAIT;
    run_object *self = NULL;
    if ((base_arg != Py_None && !PyUnicode_FSConverter(base_arg, &base)) || !ckpy_rules_from(&rules, rules_arg) ||
        !ckpy_coding_from(&opt.coding, coding))
        goto done;
    opt.retention = &rules;
    opt.base_model = base != NULL ? PyBytes_AsString(base) : NULL;
    const allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    self = (run_object *)alloc(type, 0);
    if (self == NULL)
        goto done;
    ckp_error err = {0};
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_run_open(&self->run, place.name, &opt, &err);
    Py_END_ALLOW_THREADS
    if (st != CKP_OK) {
        self->run = NULL;
        Py_CLEAR(self);
        ckpy_raise(st, &err);
    } else {
        self->store = Py_XNewRef(place.store);
        self->group = opt.group != NULL ? Py_NewRef(group_arg) : NULL;
    }
done:
    ckpy_coding_free(&opt.coding);
    ckpy_place_free(&place);
    Py_XDECREF(base);
    return (PyObject *)self;
}

/* A save in flight is finished, not lost: closing waits for it. */
static void
run_dealloc(run_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    ckp_run *run = self->run;
    self->run = NULL;
    if (run != NULL) {
        ckp_run_keep_memory(run);    /* nobody has said that the training has ended */
        Py_BEGIN_ALLOW_THREADS
        (void)ckp_run_close(run, NULL);
        Py_END_ALLOW_THREADS
    }
    Py_CLEAR(self->store);
    Py_CLEAR(self->adopted);
    Py_CLEAR(self->group);
    const freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Owned by the caller (PyMem_Free); names point into the dict's keys, which live as long as it does. */
static bool
metrics_from(ckp_metric **out, size_t *n, PyObject *dict)
{
    *out = NULL;
    *n = 0;
    if (dict == Py_None)
        return true;
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "metrics must be a dict");
        return false;
    }
    ckp_metric *m = PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof *m);
    if (m == NULL) {
        PyErr_NoMemory();
        return false;
    }
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (PyDict_Next(dict, &pos, &key, &value)) {
        m[*n].name = PyUnicode_AsUTF8AndSize(key, NULL);
        m[*n].value = m[*n].name != NULL ? PyFloat_AsDouble(value) : 0;
        if (PyErr_Occurred() != NULL) {
            PyMem_Free(m);
            return false;
        }
        (*n)++;
    }
    *out = m;
    return true;
}

PyDoc_STRVAR(save_doc, "save(step, state, final=False, key=False, wait=False, metrics=None, quality=0, dynaquant=None, alike=0) -> bool\n--\n\n"
                       "Returns when the live tensors may change; False when it was skipped.");

static PyObject *
run_save(run_object *self, PyObject *args)
{
    unsigned long long step;
    PyObject *state_arg, *metrics = Py_None, *config = Py_None, *result = NULL;
    int final = 0, key = 0, wait = 0;
    ckp_save_options opt = CKP_SAVE_OPTIONS_INIT;
    ckp_metric *list = NULL;
    unsigned long long alike = 0;
    ckpy_dynaquant dq;
    if (!PyArg_ParseTuple(args, "KO|pppOdOK:save", &step, &state_arg, &final, &key, &wait, &metrics, &opt.quality, &config, &alike) ||
        !ckpy_dynaquant_from(&dq, config))
        return NULL;
    opt.dynaquant = dq.given;
    if (!metrics_from(&list, &opt.n_metrics, metrics))
        goto done;
    opt.final = final != 0;
    opt.key = key != 0;
    opt.wait = wait != 0;
    opt.alike = alike;
    opt.metrics = list;
    ckp_state *state = ckpy_state_take(state_arg, ckpy_types_of((PyObject *)self));
    if (state == NULL)
        goto done;
    if (enter(self)) {
        ckp_error err = {0};
        bool taken = true;
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_save(self->run, step, state, &opt, &taken, &err);
        Py_END_ALLOW_THREADS
        leave(self);
        result = st == CKP_OK ? PyBool_FromLong(taken) : ckpy_raise(st, &err);
    }
    ckpy_state_give_back(state_arg);
done:
    PyMem_Free(list);
    ckpy_dynaquant_free(&dq);
    return result;
}

/* ---- saves that are held ---------------------------------------------------------------------------------------- */

PyDoc_STRVAR(stage_doc, "stage(step, state, key=False, metrics=None, quality=0, dynaquant=None) -> bool | None\n--\n\n"
                        "As save(), but held: nothing is written before commit(). Whether it is a key; None when it was skipped.");

static PyObject *
run_stage(run_object *self, PyObject *args)
{
    unsigned long long step;
    PyObject *state_arg, *metrics = Py_None, *config = Py_None, *result = NULL;
    int key = 0;
    ckp_save_options opt = CKP_SAVE_OPTIONS_INIT;
    ckp_metric *list = NULL;
    ckpy_dynaquant dq;
    if (!PyArg_ParseTuple(args, "KO|pOdO:stage", &step, &state_arg, &key, &metrics, &opt.quality, &config) || !ckpy_dynaquant_from(&dq, config))
        return NULL;
    opt.dynaquant = dq.given;
    if (!metrics_from(&list, &opt.n_metrics, metrics))
        goto done;
    opt.key = key != 0;
    opt.metrics = list;
    ckp_state *state = ckpy_state_take(state_arg, ckpy_types_of((PyObject *)self));
    if (state == NULL)
        goto done;
    if (enter(self)) {
        ckp_error err = {0};
        bool staged = false;
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_stage(self->run, step, state, &opt, &staged, &err);
        Py_END_ALLOW_THREADS
        leave(self);
        result = st != CKP_OK ? ckpy_raise(st, &err) : staged ? PyBool_FromLong(ckp_run_staged_key(self->run)) : Py_NewRef(Py_None);
    }
    ckpy_state_give_back(state_arg);
done:
    PyMem_Free(list);
    ckpy_dynaquant_free(&dq);
    return result;
}

PyDoc_STRVAR(restage_doc, "restage(state, quality)\n--\n\nStages the same state again, as a key, with another quality.");

static PyObject *
run_restage(run_object *self, PyObject *args)
{
    PyObject *state_arg, *result = NULL;
    double quality;
    if (!PyArg_ParseTuple(args, "Od:restage", &state_arg, &quality))
        return NULL;
    ckp_state *state = ckpy_state_take(state_arg, ckpy_types_of((PyObject *)self));
    if (state == NULL)
        return NULL;
    if (enter(self)) {
        ckp_error err = {0};
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_restage(self->run, state, quality, &err);
        Py_END_ALLOW_THREADS
        leave(self);
        result = st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
    }
    ckpy_state_give_back(state_arg);
    return result;
}

PyDoc_STRVAR(restage_dynaquant_doc, "restage_dynaquant(state, dynaquant)\n--\n\nCodes the weights of the staged save again by another configuration:\n"
                                    "(bins, bins_embedding, prune, prune_by, protect, embeddings, sensitivity).");

static PyObject *
run_restage_dynaquant(run_object *self, PyObject *args)
{
    PyObject *state_arg, *config, *result = NULL;
    ckpy_dynaquant dq;
    if (!PyArg_ParseTuple(args, "OO:restage_dynaquant", &state_arg, &config) || !ckpy_dynaquant_from(&dq, config))
        return NULL;
    ckp_state *state = ckpy_state_take(state_arg, ckpy_types_of((PyObject *)self));
    if (state != NULL && enter(self)) {
        ckp_error err = {0};
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_restage_dynaquant(self->run, state, dq.given, &err);
        Py_END_ALLOW_THREADS
        leave(self);
        result = st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
    }
    if (state != NULL)
        ckpy_state_give_back(state_arg);
    ckpy_dynaquant_free(&dq);
    return result;
}

PyDoc_STRVAR(staged_bytes_doc, "staged_bytes(role) -> int\n--\n\nBytes that the staged save's tensors of a role will take, without heads of frames.");

static PyObject *
run_staged_bytes(run_object *self, PyObject *args)
{
    int role;
    if (!PyArg_ParseTuple(args, "i:staged_bytes", &role) || !enter(self))
        return NULL;
    ckp_error err = {0};
    uint64_t bytes = 0;
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_run_staged_bytes(self->run, (ckp_role)role, &bytes, &err);
    Py_END_ALLOW_THREADS
    leave(self);
    return st == CKP_OK ? PyLong_FromUnsignedLongLong(bytes) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(staged_read_doc, "staged_read(targets)\n--\n\nWeights of the staged save as a restore would give them. Targets as for\n"
                              "Checkpoint.read(), contiguous, by data pointer.");

static PyObject *
run_staged_read(run_object *self, PyObject *list)
{
    PyObject *result = NULL;
    ckpy_targets all = {0};
    if (!enter(self))
        return NULL;
    if (ckpy_targets_from(&all, list)) {
        ckp_error err = {0};
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_staged_read(self->run, all.t, all.n, &err);
        Py_END_ALLOW_THREADS
        result = st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
    }
    ckpy_targets_free(&all);
    leave(self);
    return result;
}

PyDoc_STRVAR(commit_doc, "commit(metrics=None)\n--\n\nThe staged save is written, in the background, with these metrics beside its own.");

static PyObject *
run_commit(run_object *self, PyObject *args)
{
    PyObject *metrics = Py_None, *result = NULL;
    ckp_metric *list = NULL;
    size_t n = 0;
    if (!PyArg_ParseTuple(args, "|O:commit", &metrics) || !metrics_from(&list, &n, metrics))
        return NULL;
    if (enter(self)) {
        ckp_error err = {0};
        const ckp_status st = ckp_run_commit(self->run, list, n, &err);
        leave(self);
        result = st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
    }
    PyMem_Free(list);
    return result;
}

PyDoc_STRVAR(unstage_doc, "unstage()\n--\n\nForgets the staged save, if there is one.");

static PyObject *
run_unstage(run_object *self, PyObject *unused)
{
    (void)unused;
    if (!enter(self))
        return NULL;
    ckp_run_unstage(self->run);
    leave(self);
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(wait_doc, "wait()\n--\n\nWaits for the save in flight; raises its failure.");

static PyObject *
run_wait(run_object *self, PyObject *unused)
{
    (void)unused;
    if (!enter(self))
        return NULL;
    ckp_error err = {0};
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_run_wait(self->run, &err);
    Py_END_ALLOW_THREADS
    leave(self);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

/* Its figures outlive it. */
static ckp_status
ended(ckp_run *run, ckp_save_stats *last, ckp_error *err)
{
    ckp_run_unstage(run);
    const ckp_status saved = ckp_run_wait(run, err);
    *last = (ckp_save_stats){.size = sizeof *last};
    ckp_run_stats(run, last);
    last->memory_bytes = 0;
    const ckp_status closed = ckp_run_close(run, saved == CKP_OK ? err : NULL);
    return saved == CKP_OK ? closed : saved;
}

PyDoc_STRVAR(close_doc, "close()\n--\n\nWaits, gives the lock back; raises the last save's failure. Closing twice is fine.");

static PyObject *
run_close(run_object *self, PyObject *unused)
{
    (void)unused;
    if (self->run == NULL)
        return Py_NewRef(Py_None);
    if (!enter(self))
        return NULL;
    ckp_run *run = self->run;
    self->run = NULL;
    ckp_error err = {0};
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ended(run, &self->last, &err);
    Py_END_ALLOW_THREADS
    leave(self);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(keep_memory_doc, "keep_memory()\n--\n\nThe copy in shared memory stays when the run is closed.");

static PyObject *
run_keep_memory(run_object *self, PyObject *unused)
{
    (void)unused;
    ckp_run_keep_memory(self->run);
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(refuse_doc, "refuse(step, status, text)\n--\n\nIn a group: this rank cannot save, and the others must hear why.");

static PyObject *
run_refuse(run_object *self, PyObject *args)
{
    unsigned long long step;
    int why;
    const char *text;
    if (!PyArg_ParseTuple(args, "Kis:refuse", &step, &why, &text) || !enter(self))
        return NULL;
    ckp_error err = {0};
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_run_refuse(self->run, step, (ckp_status)why, text, false, &err);
    Py_END_ALLOW_THREADS
    leave(self);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(agree_doc, "agree(status, text)\n--\n\nIn a group: raises the first failure of any rank, on all of them.");

static PyObject *
run_agree(run_object *self, PyObject *args)
{
    int mine;
    const char *text;
    if (!PyArg_ParseTuple(args, "is:agree", &mine, &text) || !enter(self))
        return NULL;
    ckp_error err = {0};
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = ckp_run_agree(self->run, (ckp_status)mine, text, &err);
    Py_END_ALLOW_THREADS
    leave(self);
    return st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(open_doc, "open(step, all=False) -> Checkpoint\n--\n\nA checkpoint to read; -1: the newest valid one. Waits for a save in flight. all: every shard of it.");

static PyObject *
run_open_checkpoint(run_object *self, PyObject *args)
{
    long long step;
    int all = 0;
    if (!PyArg_ParseTuple(args, "L|p:open", &step, &all) || !enter(self))
        return NULL;
    ckp_error err = {0};
    ckp_checkpoint *ck = NULL;
    ckp_status st;
    Py_BEGIN_ALLOW_THREADS
    st = (all ? ckp_checkpoint_open_all : ckp_checkpoint_open)(&ck, self->run, step, &err);
    Py_END_ALLOW_THREADS
    leave(self);
    return st == CKP_OK ? ckpy_checkpoint_wrap(ckpy_types_of((PyObject *)self), ck, self->store) : ckpy_raise(st, &err);
}

PyDoc_STRVAR(adopt_doc, "adopt(checkpoint)\n--\n\nTraining goes on from it: the next save is a delta against it.");

static PyObject *
run_adopt(run_object *self, PyObject *checkpoint)
{
    ckp_checkpoint *ck = ckpy_checkpoint_take(checkpoint, ckpy_types_of((PyObject *)self));
    if (ck == NULL)
        return NULL;
    PyObject *result = NULL;
    if (enter(self)) {
        ckp_error err = {0};
        ckp_status st;
        Py_BEGIN_ALLOW_THREADS
        st = ckp_run_adopt(self->run, ck, &err);
        Py_END_ALLOW_THREADS
        leave(self);
        /* the run keeps it open behind a handle of its own */
        if (st == CKP_OK) {
            PyObject *before = self->adopted;
            self->adopted = ckpy_checkpoint_store(checkpoint);
            Py_XDECREF(before);
        }
        result = st == CKP_OK ? Py_NewRef(Py_None) : ckpy_raise(st, &err);
    }
    ckpy_checkpoint_give_back(checkpoint);
    return result;
}

PyDoc_STRVAR(stats_doc, "stats() -> dict\n--\n\nFigures of the last save that ended; seconds and bytes. Of a closed run: as it was closed.");

static PyObject *
stats_dict(const ckp_save_stats *s)
{
    PyObject *d = Py_BuildValue(
        "{s:K,s:K,s:N,s:N,s:d,s:d,s:d,s:d,s:d,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "step", (unsigned long long)s->step, "sequence",
        (unsigned long long)s->sequence, "is_key", PyBool_FromLong(s->is_key), "committed", PyBool_FromLong(s->committed), "stall", s->stall,
        "encode", s->encode, "write", s->write, "total", s->total, "cpu", s->cpu, "raw_bytes", (unsigned long long)s->raw_bytes,
        "stored_bytes", (unsigned long long)s->stored_bytes, "overhead_bytes", (unsigned long long)s->overhead_bytes, "saves",
        (unsigned long long)s->saves, "failed", (unsigned long long)s->failed, "skipped", (unsigned long long)s->skipped, "memory_bytes",
        (unsigned long long)s->memory_bytes);
    if (d != NULL && !(ckpy_set(d, "memory_peak", PyLong_FromUnsignedLongLong(s->memory_peak)) &&
                       ckpy_set(d, "copy_bytes", PyLong_FromUnsignedLongLong(s->copy_bytes)) &&
                       ckpy_set(d, "copy_note", PyUnicode_DecodeUTF8(s->copy_note, (Py_ssize_t)strlen(s->copy_note), "replace")) &&
                       ckpy_set(d, "totals", Py_BuildValue("{s:d,s:d,s:d,s:K,s:K}", "stall", s->sum_stall, "encode", s->sum_encode, "write", s->sum_write,
                                                           "raw_bytes", (unsigned long long)s->sum_raw, "stored_bytes", (unsigned long long)s->sum_stored))))
        Py_CLEAR(d);
    if (d != NULL && !(ckpy_set(d, "raw_by_role", ckpy_by_role(s->raw_by_role)) && ckpy_set(d, "stored_by_role", ckpy_by_role(s->stored_by_role)) &&
                       ckpy_set(d, "params_by_role", ckpy_by_role(s->params_by_role)) &&
                       ckpy_set(d, "mse_by_role", ckpy_doubles_by_role(s->mse_by_role)) &&
                       ckpy_set(d, "mre_by_role", ckpy_doubles_by_role(s->mre_by_role)) &&
                       ckpy_set(d, "warning", PyUnicode_DecodeUTF8(s->warning, (Py_ssize_t)strlen(s->warning), "replace"))))
        Py_CLEAR(d);
    return d;
}

static PyObject *
run_stats(run_object *self, PyObject *unused)
{
    (void)unused;
    if (self->run == NULL && !self->entered)
        return stats_dict(&self->last);
    if (!enter(self))
        return NULL;
    ckp_save_stats s = {.size = sizeof s};
    ckp_run_stats(self->run, &s);
    leave(self);
    return stats_dict(&s);
}

static PyObject *
run_busy(run_object *self, void *closure)
{
    (void)closure;
    /* Readable while another thread waits in the run: that is what it is for. */
    return PyBool_FromLong(self->run != NULL && ckp_run_busy(self->run));
}

static PyObject *
run_closed(run_object *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(self->run == NULL);
}

static PyMethodDef methods[] = {
    {"save", (PyCFunction)(void (*)(void))run_save, METH_VARARGS, save_doc},
    {"stage", (PyCFunction)(void (*)(void))run_stage, METH_VARARGS, stage_doc},
    {"restage", (PyCFunction)(void (*)(void))run_restage, METH_VARARGS, restage_doc},
    {"restage_dynaquant", (PyCFunction)(void (*)(void))run_restage_dynaquant, METH_VARARGS, restage_dynaquant_doc},
    {"staged_bytes", (PyCFunction)(void (*)(void))run_staged_bytes, METH_VARARGS, staged_bytes_doc},
    {"staged_read", (PyCFunction)(void (*)(void))run_staged_read, METH_O, staged_read_doc},
    {"commit", (PyCFunction)(void (*)(void))run_commit, METH_VARARGS, commit_doc},
    {"unstage", (PyCFunction)(void (*)(void))run_unstage, METH_NOARGS, unstage_doc},
    {"wait", (PyCFunction)(void (*)(void))run_wait, METH_NOARGS, wait_doc},
    {"close", (PyCFunction)(void (*)(void))run_close, METH_NOARGS, close_doc},
    {"keep_memory", (PyCFunction)(void (*)(void))run_keep_memory, METH_NOARGS, keep_memory_doc},
    {"refuse", (PyCFunction)(void (*)(void))run_refuse, METH_VARARGS, refuse_doc},
    {"agree", (PyCFunction)(void (*)(void))run_agree, METH_VARARGS, agree_doc},
    {"open", (PyCFunction)(void (*)(void))run_open_checkpoint, METH_VARARGS, open_doc},
    {"adopt", (PyCFunction)(void (*)(void))run_adopt, METH_O, adopt_doc},
    {"stats", (PyCFunction)(void (*)(void))run_stats, METH_NOARGS, stats_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"busy", (getter)(uintptr_t)run_busy, NULL, "True while a save is in flight.", NULL},
    {"closed", (getter)(uintptr_t)run_closed, NULL, "True after close().", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)run_new},
    {Py_tp_dealloc, (void *)(uintptr_t)run_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_doc, (void *)(uintptr_t)run_doc},
    {0, NULL},
};

PyType_Spec ckpy_run_spec = {.name = "ckpress._core.Run", .basicsize = sizeof(run_object), .flags = Py_TPFLAGS_DEFAULT, .slots = slots};
