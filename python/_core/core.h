/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpress._core: the public C API as Python objects, and nothing more. What a model or an optimizer is, is known in
 * python/ckpress.
 *
 * Rules here: the interpreter lock is released around every call that reads, codes or writes; no tensor is copied (buffers and data
 * pointers go straight to the library); every failure becomes the exception class of its status (python/ckpress/errors.py).
 */
#ifndef CKPY_CORE_H
#define CKPY_CORE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <ckpress/ckpress.h>

/** State of the module: its types. */
typedef struct ckpy_types {
    PyTypeObject *state, *run, *checkpoint, *search, *bytes, *optim, *policy;
} ckpy_types;

/** What belongs to the type of `self`, one of ours; never NULL for such an object. */
ckpy_types *ckpy_types_of(PyObject *self);

/* ---- convert.c ---- */

/** Sets the exception of `st`; an exception that is already set (a cancelled progress callback) stays. Always NULL. */
PyObject *ckpy_raise(ckp_status st, const ckp_error *err);

/** Extents of a tensor. Owned by the caller: ckpy_shape_free. */
typedef struct ckpy_shape {
    unsigned ndim;
    uint64_t *extent;        /* NULL if ndim is 0 */
    int64_t *stride;         /* elements; NULL: contiguous */
} ckpy_shape;
#define CKPY_SHAPE_INIT {0, NULL, NULL}
/** From a tuple of ints and a tuple of as many or None. false with an exception set; *out is then empty. */
bool ckpy_shape_from(ckpy_shape *out, PyObject *shape, PyObject *strides);
void ckpy_shape_free(ckpy_shape *s);
/** Tuple of n ints. */
PyObject *ckpy_tuple_u64(const uint64_t *v, size_t n);

/** The dtype of that name (ckp_dtype_name), or 0 with ValueError set. */
ckp_dtype ckpy_dtype_from(const char *name);

/**
 * From (profile, quality, threads, effort, memory_budget, steps); steps: a dict of floats by name, or None. false with an exception set.
 * Its steps are the caller's (ckpy_coding_free), their names the dict's.
 */
bool ckpy_coding_from(ckp_coding *out, PyObject *tuple);
/* Rules of retention: (keep_last, keep_best, keep_every, metric, best_is_max, max_bytes); the metric lives as long as the tuple. */
bool ckpy_rules_from(ckp_retention *r, PyObject *tuple);
void ckpy_coding_free(ckp_coding *c);

/** Names of files: UTF-8 pointers into a sequence that stays alive with `owner`. */
typedef struct ckpy_paths {
    PyObject *owner;         /* tuple of bytes objects */
    const char **path;
    size_t n;
} ckpy_paths;
#define CKPY_PATHS_INIT {NULL, NULL, 0}
bool ckpy_paths_from(ckpy_paths *out, PyObject *sequence);
void ckpy_paths_free(ckpy_paths *p);

/** Around Python code that a thread of the library runs: the interpreter lock; what was raised before is put aside. */
typedef struct ckpy_entry {
    PyGILState_STATE gil;
    PyObject *type, *value, *trace;
} ckpy_entry;
void ckpy_enter_python(ckpy_entry *e);
void ckpy_leave_python(ckpy_entry *e);
/** Takes the exception that is set, as a status and a text. */
ckp_status ckpy_failed_python(ckp_error *err);

/**
 * A group from None or an object (ckpress._group.Talk) with rank, world, seconds, join_seconds and exchange(bytes, seconds) -> bytes of all ranks. Whatever
 * is opened with it must keep a reference to it. *given: out, or NULL for None. false with an exception set.
 */
bool ckpy_group_from(ckp_group *out, const ckp_group **given, PyObject *obj);

/** Where a run lies: a path, or an object store (python/ckpress/_url.py). The struct must not move while `in` is in use. */
typedef struct ckpy_place {
    PyObject *path, *stage;      /* bytes */
    PyObject *store;             /* whatever is opened with it must keep a reference; NULL: a path */
    ckp_objects table;
    const ckp_objects *in;       /* &table, or NULL for a path */
    const char *name;
} ckpy_place;
/** false with an exception set; *out is then empty. */
bool ckpy_place_from(ckpy_place *out, PyObject *arg);
void ckpy_place_free(ckpy_place *p);

/** A ckp_progress_fn: user is a callable (done, total) or None. Signals are looked at too, so Ctrl-C stops a long call. */
int ckpy_progress(void *user, uint64_t done, uint64_t total);

/** Memory of a tensor: an int (data pointer) or an object with the buffer protocol. */
typedef struct ckpy_memory {
    void *data;
    Py_ssize_t len;          /* -1: a data pointer, whose length is the caller's promise */
    Py_buffer view;
    bool has_view;
} ckpy_memory;
bool ckpy_memory_from(ckpy_memory *out, PyObject *obj, bool writable);
void ckpy_memory_free(ckpy_memory *m);

/** Everything that the targets of one read point into. Starts from {0}; owned by the caller: ckpy_targets_free. */
typedef struct ckpy_targets {
    ckp_target *t;
    ckpy_shape *shape;
    ckpy_memory *memory;
    size_t n;                /* filled so far */
} ckpy_targets;
/** From a list of (index, dtype, shape, strides or None, data pointer or writable buffer). false with an exception set. */
bool ckpy_targets_from(ckpy_targets *all, PyObject *list);
void ckpy_targets_free(ckpy_targets *all);

/** A configuration with what it points into: names of the tuple's strings, which must outlive it. */
typedef struct ckpy_dynaquant {
    ckp_dynaquant config;
    const ckp_dynaquant *given;  /* &config, or NULL for None: the struct must not move */
    const char **name;
    ckp_sensitivity *score;
    ckpy_memory *memory;
    size_t n_memory;
} ckpy_dynaquant;
/** From None or (bins, bins_embedding, prune, prune_by, protect, (embedding name, ...), ((name, data pointer or buffer, count), ...)). false with an
    exception set; *out is then empty. */
bool ckpy_dynaquant_from(ckpy_dynaquant *out, PyObject *tuple);
void ckpy_dynaquant_free(ckpy_dynaquant *d);

/** A text of the library: names and paths in it come from outside, and a long one may be cut inside of a character. Never fails on a byte. */
PyObject *ckpy_text(const char *text);
/** Sets dict[key] and gives up `value` (NULL: an exception is set). */
bool ckpy_set(PyObject *dict, const char *key, PyObject *value);
/** {role name: n} of the roles with n > 0. */
PyObject *ckpy_by_role(const uint64_t *n);
PyObject *ckpy_doubles_by_role(const double *x);

/** {name: value} of the metrics that `next` gives for `of`, counted from 0; NULL with an exception set. */
PyObject *ckpy_metrics(bool (*next)(const void *of, size_t index, ckp_metric *out), const void *of);

/* ---- state.c, tree.c, run.c, checkpoint.c, search.c, optim.c, policy.c, files.c, objects.c ---- */

/* optim.c: state of a parameter from the tuple that Optim.read() takes; what it points to is the caller's. */
bool ckpy_optim_state_from(ckp_optim_tensor *t, PyObject *tuple);

extern PyType_Spec ckpy_state_spec, ckpy_run_spec, ckpy_checkpoint_spec, ckpy_search_spec, ckpy_bytes_spec, ckpy_optim_spec, ckpy_policy_spec;

/** The state in `obj`, marked as in use by a long call so that other threads cannot change it; NULL with an exception set. */
ckp_state *ckpy_state_take(PyObject *obj, const ckpy_types *types);
void ckpy_state_give_back(PyObject *obj);

/** Nodes of an encoded tree as a list of tuples (type, ...). */
PyObject *ckpy_tree_list(const void *data, size_t len);

/** Wraps an open checkpoint, which it takes; NULL with an exception set (then it is closed). store: where it was opened, or NULL. */
PyObject *ckpy_checkpoint_wrap(const ckpy_types *types, ckp_checkpoint *ck, PyObject *store);
/** A new reference to that, or NULL. */
PyObject *ckpy_checkpoint_store(PyObject *obj);
/** The checkpoint in `obj`, kept open until given back; NULL with an exception set. */
ckp_checkpoint *ckpy_checkpoint_take(PyObject *obj, const ckpy_types *types);
void ckpy_checkpoint_give_back(PyObject *obj);

extern PyMethodDef ckpy_file_functions[];
extern PyMethodDef ckpy_upkeep_functions[];

/* ---- plan.c ---- */

PyObject *ckpy_plan(PyObject *module, PyObject *args);
#endif
