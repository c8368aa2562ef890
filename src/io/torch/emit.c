/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values to a state: the tree in depth-first order, each tensor added where it is met. References unfold: what is referred to twice comes
 * twice (tensors as aliases). A budget tied to the pickle's length keeps a small file from unfolding to a huge tree.
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/limits.h"
#include "io/torch/torch.h"
#include "state/utf8.h"

#define VIEWS_MAX ((uint64_t)64 << 30)           /* a minute's work */
#define DEPTH_MAX (CKPI_MAX_TREE_DEPTH - 8)      /* named values nest a little deeper than the pickle does */

typedef struct emitter {
    ckpi_foreign *f;
    ckp_state *s;
    ckpi_path path;
    uint64_t budget;           /* bytes of tree and of names that may still be written */
    uint64_t beyond;           /* bytes that views may still have beyond what their storages hold */
    ckpi_hindex views;         /* hash of a source -> state index, to find aliases */
    unsigned depth;
    ckp_error *err;
} emitter;

static ckp_status value(emitter *e, ckpi_pv *v);

static ckp_status
pay(emitter *e, uint64_t cost)
{
    if (cost > e->budget)
        return ckpi_fail(e->err, CKP_ELIMIT, "pickle: its repeated references unfold to far more than it holds");
    e->budget -= cost;
    return CKP_OK;
}

static ckp_status
put(emitter *e, const ckp_tree_node *node)
{
    const ckp_status st = pay(e, 16 + node->len + node->name_len);
    return st == CKP_OK ? ckp_state_tree_put(e->s, node, e->err) : st;
}

static ckp_status
put_type(emitter *e, ckp_tree_type type)
{
    const ckp_tree_node node = {.type = type};
    return put(e, &node);
}

static ckp_status
put_count(emitter *e, ckp_tree_type type, uint64_t count)
{
    const ckp_tree_node node = {.type = type, .count = count};
    return put(e, &node);
}

static ckp_status
put_bytes(emitter *e, ckp_tree_type type, const void *p, size_t n)
{
    const ckp_tree_node node = {.type = type, .data = p, .len = n};
    return put(e, &node);
}

static ckp_status
put_text(emitter *e, ckp_tree_type type, const char *text)
{
    return put_bytes(e, type, text, strlen(text));
}

/* NAMED over a text. */
static ckp_status
put_named_text(emitter *e, const char *name, const void *p, size_t n)
{
    const ckp_status st = put_text(e, CKP_TREE_NAMED, name);
    return st == CKP_OK ? put_bytes(e, CKP_TREE_STR, p, n) : st;
}

/* NAMED over a pair. */
static ckp_status
put_named_pair(emitter *e, const char *name, uint64_t n)
{
    const ckp_status st = put_text(e, CKP_TREE_NAMED, name);
    return st == CKP_OK ? put_count(e, CKP_TREE_TUPLE, n) : st;
}

/* ---- tensors ---- */

static ckp_status
put_tensor(emitter *e, uint32_t index, ckp_tensor_as as)
{
    const ckp_tree_node node = {.type = CKP_TREE_TENSOR, .tensor = index, .as = as};
    return put(e, &node);
}

static uint64_t
source_hash(const ckpi_source *s)
{
    uint64_t key[CKPI_MAX_DIMS + 2] = {s->offset, (uint64_t)s->dtype << 8 | s->ndim};
    memcpy(key + 2, s->shape, s->ndim * sizeof *key);
    return ckpi_hash64(key, (s->ndim + 2u) * sizeof *key);
}

static bool
same_source(const ckpi_source *a, const ckpi_source *b)
{
    const size_t dims = a->ndim * sizeof *a->shape;
    return a->offset == b->offset && a->dtype == b->dtype && a->ndim == b->ndim && memcmp(a->shape, b->shape, dims) == 0 &&
           (a->strides == NULL) == (b->strides == NULL) && (a->strides == NULL || memcmp(a->strides, b->strides, dims) == 0) &&
           a->flip_even == b->flip_even && a->flip_odd == b->flip_odd;
}

static uint32_t
find_alias(const emitter *e, const ckpi_source *src, uint64_t hash)
{
    uint32_t row;
    for (size_t at = 0; (row = ckpi_hindex_next(&e->views, hash, &at)) != CKPI_HINDEX_NONE;)
        if (row < e->s->n && e->s->t[row].pull == ckpi_source_pull && same_source(e->s->t[row].pull_user, src))
            return row;
    return CKPI_NO_TENSOR;
}

static ckp_status
no_memory(emitter *e)
{
    return ckpi_fail(e->err, CKP_ENOMEM, "pickle: out of memory");
}

/* Same bytes, same view: one payload. */
static ckp_status
note_alias(emitter *e, const ckpi_source *src, uint32_t index)
{
    const uint64_t hash = source_hash(src);
    if (src->numel == 0)
        return CKP_OK;
    e->s->t[index].alias_of = find_alias(e, src, hash);
    if (e->s->t[index].alias_of != CKPI_NO_TENSOR)
        return CKP_OK;
    return ckpi_hindex_put(&e->views, hash, index) ? CKP_OK : no_memory(e);
}

/* The name of the tensor at hand, in *name. Names that were taken are paid for: each was looked for. */
static ckp_status
name_of(emitter *e, char **name)
{
    unsigned tried = 0;
    *name = ckpi_path_name(&e->path, e->s, &e->f->arena, &tried);
    return *name != NULL ? pay(e, (1 + (uint64_t)tried) * strlen(*name)) : no_memory(e);
}

/* A view that repeats elements is coded with all of them. */
static ckp_status
pay_view(emitter *e, const ckpi_source *src)
{
    uint64_t bytes = 0;
    if (!ckpi_dtype_bytes(src->dtype, src->numel, &bytes) || (bytes > src->span_bytes && bytes - src->span_bytes > e->beyond))
        return ckpi_fail(e->err, CKP_ELIMIT, "pickle: views that repeat the elements of their storages come to more than %llu GiB", (unsigned long long)(VIEWS_MAX >> 30));
    e->beyond -= bytes > src->span_bytes ? bytes - src->span_bytes : 0;
    return CKP_OK;
}

static ckpi_source *
source_of(emitter *e, const ckpi_ptensor *t, const char *name)
{
    ckpi_source *src = ckpi_io_arena_get(&e->f->arena, 1, sizeof *src);
    uint64_t before = 0, reach = 0, numel = 0, span = 0;
    if (src == NULL)
        return NULL;
    /* All checked when the tensor was described. */
    (void)ckpi_dtype_bytes(t->dtype->dt, t->first, &before);
    (void)ckpi_shape_numel(t->shape, t->ndim, &numel);
    (void)ckpi_source_reach(t->shape, t->strides, t->ndim, &reach);
    (void)ckpi_dtype_bytes(t->dtype->dt, reach, &span);
    const bool dense = ckpi_source_contiguous(t->shape, t->strides, t->ndim);
    const bool complex = ckpi_dtype_get(t->dtype->dt)->kind == CKPI_KIND_COMPLEX;
    *src = (ckpi_source){.file = &e->f->file, .name = name, .offset = t->storage->offset + before, .dtype = t->dtype->dt, .ndim = t->ndim,
                         .shape = t->shape, .strides = dense ? NULL : t->strides, .numel = numel, .span_bytes = span,
                         .flip_even = t->neg, .flip_odd = complex && t->neg != t->conj};
    return src;
}

static ckp_status
add(emitter *e, const char *name, const ckp_tensor *t, uint32_t *index)
{
    return ckp_state_add_tensor(e->s, name, CKP_ROLE_OTHER, NULL, t, index, e->err);
}

static ckp_status
torch_tensor(emitter *e, const ckpi_ptensor *t)
{
    uint32_t index;
    char *name = NULL;
    ckp_status st = name_of(e, &name);
    ckpi_source *src = st == CKP_OK ? source_of(e, t, name) : NULL;
    if (st == CKP_OK && src == NULL)
        st = no_memory(e);
    if (st != CKP_OK)
        return st;
    ckp_tensor view = CKP_TENSOR_INIT;
    view.dtype = t->dtype->dt;
    view.ndim = t->ndim;
    view.shape = t->shape;
    view.pull = ckpi_source_pull;
    view.pull_user = src;
    st = add(e, name, &view, &index);
    if (st == CKP_OK)
        st = note_alias(e, src, index);
    if (st == CKP_OK && e->s->t[index].alias_of == CKPI_NO_TENSOR)
        st = pay_view(e, src);
    if (st == CKP_OK && t->dtype->opaque) {
        char text[32] = "torch.";
        st = put_named_pair(e, "torch.dtype", 2);
        memcpy(text + 6, t->dtype->name, strlen(t->dtype->name) + 1);
        if (st == CKP_OK)
            st = put_text(e, CKP_TREE_DTYPE, text);
    }
    return st == CKP_OK ? put_tensor(e, index, t->as) : st;
}

/* A storage by itself: (class, its elements). */
static ckp_status
storage(emitter *e, const ckpi_pstorage *s)
{
    static const int64_t one = 1;
    const ckpi_torch_dtype *dtype = s->dtype != NULL ? s->dtype : ckpi_torch_dtype_of(CKP_U8);
    const ckpi_ptensor t = {.storage = s, .dtype = dtype, .ndim = 1, .shape = &s->numel, .strides = &one, .as = CKP_AS_TORCH};
    ckp_status st = put_named_pair(e, "torch.storage", 2);
    if (st == CKP_OK)
        st = put_text(e, CKP_TREE_STR, s->dtype != NULL ? s->dtype->storage : "UntypedStorage");
    return st == CKP_OK ? torch_tensor(e, &t) : st;
}

/* ---- numpy ---- */

static ckp_status
memory_tensor(emitter *e, const ckpi_parray *a, ckp_dtype dt, unsigned ndim, const uint64_t *shape, const int64_t *strides)
{
    uint32_t index;
    char *name = NULL;
    ckp_status st = name_of(e, &name);
    if (st != CKP_OK)
        return st;
    ckp_tensor view = CKP_TENSOR_INIT;
    view.dtype = dt;
    view.ndim = ndim;
    view.shape = shape;
    view.strides = strides;
    view.data = a->data;
    st = add(e, name, &view, &index);
    return st == CKP_OK ? put_tensor(e, index, CKP_AS_NUMPY) : st;
}

/* In words without a sign: where an array is empty its other extents may have any product. */
static void
fortran_strides(const ckpi_parray *a, int64_t strides[CKPI_MAX_DIMS])
{
    uint64_t step = 1;
    for (unsigned i = 0; i < a->ndim; i++) {
        strides[i] = (int64_t)step;
        step *= CKPI_MAX(a->shape[i], 1u);
    }
}

static ckp_status
put_shape(emitter *e, const ckpi_parray *a)
{
    ckp_status st = put_count(e, CKP_TREE_TUPLE, a->ndim);
    for (unsigned i = 0; i < a->ndim && st == CKP_OK; i++) {
        const ckp_tree_node node = {.type = CKP_TREE_INT, .i = (int64_t)a->shape[i]};
        st = put(e, &node);
    }
    return st;
}

static ckp_status
ndarray(emitter *e, const ckpi_parray *a)
{
    int64_t strides[CKPI_MAX_DIMS];
    if (a->dtype == NULL)
        return ckpi_fail(e->err, CKP_ECORRUPT, "pickle: a numpy array that was never given its data");
    const ckpi_pnpdtype *d = a->dtype;
    const bool own = d->native && (d->row != NULL || d->time);
    const ckp_dtype dt = d->time ? (d->code[0] == 'M' ? CKP_DATETIME64 : CKP_TIMEDELTA64) : d->row != NULL ? d->row->dt : CKP_U8;
    fortran_strides(a, strides);
    const int64_t *order = a->fortran && a->ndim > 1 ? strides : NULL;
    if (own && !d->time)
        return memory_tensor(e, a, dt, a->ndim, a->shape, order);
    if (!own && order != NULL)
        return ckpi_fail(e->err, CKP_EUNSUPPORTED, "pickle: a numpy array of dtype %s in Fortran order", d->text);
    /* (dtype, shape, data): what the dtype ids do not tell. */
    ckp_status st = put_named_pair(e, "numpy.ndarray", 3);
    if (st == CKP_OK)
        st = put_text(e, CKP_TREE_STR, d->text);
    if (st == CKP_OK)
        st = put_shape(e, a);
    if (st != CKP_OK)
        return st;
    const uint64_t len = a->len;
    return own ? memory_tensor(e, a, dt, a->ndim, a->shape, order) : memory_tensor(e, a, CKP_U8, 1, &len, NULL);
}

/* "numpy.float32", "ml_dtypes.bfloat16", "numpy.>f4", "numpy.<M8[D]" */
static size_t
numpy_name(const ckpi_pnpdtype *d, char name[80])
{
    const bool known = d->row != NULL && d->native;
    const char *module = known ? d->row->module : "numpy", *rest = known ? d->row->name : d->text;
    const size_t m = strlen(module), r = strlen(rest);
    memcpy(name, module, m);
    name[m] = '.';
    memcpy(name + m + 1, rest, r);
    return m + 1 + r;
}

static ckp_status
npscalar(emitter *e, const ckpi_pv *v)
{
    char name[80];
    const ckp_tree_node node = {.type = CKP_TREE_NUMPY_SCALAR, .name = name, .name_len = numpy_name(v->u.ns.nd, name), .data = v->u.ns.p,
                                .len = (size_t)v->u.ns.nd->itemsize};
    return put(e, &node);
}

/* ---- names by themselves ---- */

static ckp_status
global(emitter *e, const ckpi_pv *v)
{
    char text[80] = "torch.";
    switch ((ckpi_global_id)v->u.g.id) {
    case G_DTYPE: {
        const ckpi_torch_dtype *d = v->u.g.row;
        memcpy(text + 6, d->name, strlen(d->name) + 1);
        return put_text(e, CKP_TREE_DTYPE, text);
    }
    case G_NP_TYPE: {
        const ckpi_pnpdtype d = {.row = v->u.g.row, .native = true};
        return put_named_text(e, "numpy.type", text, numpy_name(&d, text));
    }
    case G_TYPE:
    case G_SET: return put_named_text(e, "builtins.type", v->u.g.name, strlen(v->u.g.name));
    case G_QSCHEME: return put_named_text(e, "torch.qscheme", v->u.g.name, strlen(v->u.g.name));
    case G_ELLIPSIS: {
        const ckp_status st = put_text(e, CKP_TREE_NAMED, "builtins.Ellipsis");
        return st == CKP_OK ? put_type(e, CKP_TREE_NONE) : st;
    }
    default: return ckpi_fail(e->err, CKP_EUNSUPPORTED, "pickle: a function or class (%s) as a value", v->u.g.name != NULL ? v->u.g.name : "?");
    }
}

/* ---- containers ---- */

static bool
same_key(const ckpi_pv *a, const ckpi_pv *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == PV_INT)
        return a->u.i == b->u.i;
    return a->u.s.n == b->u.s.n && memcmp(a->u.s.p, b->u.s.p, a->u.s.n) == 0;
}

/* Texts, bytes and integers: what keys are in practice. */
static bool
key_hash(const ckpi_pv *k, uint64_t *hash)
{
    if (k->kind == PV_INT)
        *hash = ckpi_hash64(&k->u.i, sizeof k->u.i);
    else if (k->kind == PV_STR || k->kind == PV_STR2 || k->kind == PV_BYTES)
        *hash = ckpi_hash64(k->u.s.p, k->u.s.n);
    else
        return false;
    return true;
}

/* `step` 2: keys of pairs; 1: members of a set. A key that comes twice would be lost silently. */
static ckp_status
check_keys(emitter *e, const ckpi_pv *c, uint32_t step)
{
    uint64_t hash;
    ckpi_hindex seen = {0};
    ckp_status st = CKP_OK;
    for (uint32_t i = 0; c->u.c.n > step && i < c->u.c.n && st == CKP_OK; i += step) {
        uint32_t row;
        if (!key_hash(c->u.c.v[i], &hash))
            continue;
        for (size_t at = 0; (row = ckpi_hindex_next(&seen, hash, &at)) != CKPI_HINDEX_NONE;)
            if (same_key(c->u.c.v[row], c->u.c.v[i]))
                st = ckpi_fail(e->err, CKP_ECORRUPT, "pickle: a dict or set that holds a key twice");
        if (st == CKP_OK && !ckpi_hindex_put(&seen, hash, i))
            st = no_memory(e);
    }
    ckpi_hindex_free(&seen);
    return st;
}

static ckp_status
items(emitter *e, const ckpi_pv *c)
{
    ckp_status st = CKP_OK;
    size_t mark;
    for (uint32_t i = 0; i < c->u.c.n && st == CKP_OK; i++) {
        ckpi_path_push_index(&e->path, i, &mark);
        st = value(e, c->u.c.v[i]);
        ckpi_path_pop(&e->path, mark);
    }
    return st;
}

static ckp_status
sequence(emitter *e, const ckpi_pv *c, ckp_tree_type type)
{
    ckp_status st = type == CKP_TREE_SET || type == CKP_TREE_FROZENSET ? check_keys(e, c, 1) : CKP_OK;
    if (st == CKP_OK)
        st = put_count(e, type, c->u.c.n);
    return st == CKP_OK ? items(e, c) : st;
}

static ckp_status
pairs(emitter *e, const ckpi_pv *c, ckp_tree_type type)
{
    size_t mark;
    ckp_status st = check_keys(e, c, 2);
    if (st == CKP_OK)
        st = put_count(e, type, c->u.c.n / 2);
    for (uint32_t i = 0; i + 1 < c->u.c.n && st == CKP_OK; i += 2) {
        ckpi_pv *key = c->u.c.v[i];
        if (key->kind == PV_TENSOR || key->kind == PV_NDARRAY || key->kind == PV_LIST || ckpi_pv_is_dict(key))
            return ckpi_fail(e->err, CKP_EUNSUPPORTED, "pickle: a dict whose key is a tensor or container");
        st = value(e, key);
        ckpi_path_push(&e->path, key, i / 2, &mark);
        if (st == CKP_OK)
            st = value(e, c->u.c.v[i + 1]);
        ckpi_path_pop(&e->path, mark);
    }
    return st;
}

/* An OrderedDict with attributes: (items, attributes). */
static ckp_status
ordered_dict(emitter *e, const ckpi_pv *c)
{
    size_t mark;
    if (c->u.c.extra == NULL || c->u.c.extra->u.c.n == 0)
        return pairs(e, c, CKP_TREE_ORDERED_DICT);
    ckp_status st = put_named_pair(e, "collections.OrderedDict", 2);
    if (st == CKP_OK)
        st = pairs(e, c, CKP_TREE_ORDERED_DICT);
    ckpi_path_push_text(&e->path, "__dict__", &mark);
    if (st == CKP_OK)
        st = value(e, c->u.c.extra);
    ckpi_path_pop(&e->path, mark);
    return st;
}

static ckp_status
default_dict(emitter *e, const ckpi_pv *c)
{
    const ckpi_pv *factory = c->u.c.extra;
    ckp_status st = put_named_pair(e, "collections.defaultdict", 2);
    if (st == CKP_OK)
        st = factory->kind == PV_NONE ? put_type(e, CKP_TREE_NONE) : put_text(e, CKP_TREE_STR, factory->u.g.name);
    return st == CKP_OK ? pairs(e, c, CKP_TREE_DICT) : st;
}

static ckp_status
counter(emitter *e, const ckpi_pv *c)
{
    const ckp_status st = put_text(e, CKP_TREE_NAMED, "collections.Counter");
    return st == CKP_OK ? pairs(e, c, CKP_TREE_DICT) : st;
}

static ckp_status
deque(emitter *e, const ckpi_pv *c)
{
    ckp_status st = put_named_pair(e, "collections.deque", 2);
    if (st == CKP_OK)
        st = c->u.c.extra != NULL ? value(e, c->u.c.extra) : put_type(e, CKP_TREE_NONE);
    return st == CKP_OK ? sequence(e, c, CKP_TREE_LIST) : st;
}

static ckp_status
container(emitter *e, const ckpi_pv *v)
{
    switch (v->kind) {
    case PV_LIST: return sequence(e, v, CKP_TREE_LIST);
    case PV_TUPLE: return sequence(e, v, CKP_TREE_TUPLE);
    case PV_SIZE: return sequence(e, v, CKP_TREE_TORCH_SIZE);
    case PV_SET: return sequence(e, v, CKP_TREE_SET);
    case PV_FROZENSET: return sequence(e, v, CKP_TREE_FROZENSET);
    case PV_DEQUE: return deque(e, v);
    case PV_DICT: return pairs(e, v, CKP_TREE_DICT);
    case PV_ODICT: return ordered_dict(e, v);
    case PV_DEFAULTDICT: return default_dict(e, v);
    default: return counter(e, v);
    }
}

/* ---- plain values ---- */

static ckp_status
number(emitter *e, const ckpi_pv *v)
{
    ckp_tree_node node = {.type = CKP_TREE_INT, .i = v->u.i};
    if (v->kind == PV_FLOAT)
        node = (ckp_tree_node){.type = CKP_TREE_FLOAT, .re = v->u.f};
    else if (v->kind == PV_COMPLEX)
        node = (ckp_tree_node){.type = CKP_TREE_COMPLEX, .re = v->u.z.re, .im = v->u.z.im};
    return put(e, &node);
}

static ckp_status
named(emitter *e, const char *name, ckpi_pv *inner)
{
    const ckp_status st = put_text(e, CKP_TREE_NAMED, name);
    return st == CKP_OK ? value(e, inner) : st;
}

static ckp_status
text(emitter *e, const ckpi_pv *v)
{
    const bool utf8 = ckpi_utf8_ok(v->u.s.p, v->u.s.n, true);
    if (!utf8 && v->kind == PV_STR)
        return ckpi_fail(e->err, CKP_ECORRUPT, "pickle, byte %u of it: a text that is not UTF-8", (unsigned)v->at);
    return put_bytes(e, utf8 ? CKP_TREE_STR : CKP_TREE_BYTES, v->u.s.p, v->u.s.n);
}

static ckp_status
bytes_io(emitter *e, const ckpi_pv *v)
{
    const ckp_status st = put_text(e, CKP_TREE_NAMED, "io.BytesIO");
    return st == CKP_OK ? put_bytes(e, CKP_TREE_BYTES, v->u.s.p, v->u.s.n) : st;
}

static ckp_status
plain(emitter *e, ckpi_pv *v)
{
    char name[80];
    switch ((ckpi_pv_kind)v->kind) {
    case PV_NONE: return put_type(e, CKP_TREE_NONE);
    case PV_FALSE: return put_type(e, CKP_TREE_FALSE);
    case PV_TRUE: return put_type(e, CKP_TREE_TRUE);
    case PV_INT:
    case PV_FLOAT:
    case PV_COMPLEX: return number(e, v);
    case PV_BIGINT: return put_bytes(e, CKP_TREE_BIGINT, v->u.s.p, v->u.s.n);
    case PV_STR:
    case PV_STR2: return text(e, v);
    case PV_BYTES: return put_bytes(e, CKP_TREE_BYTES, v->u.s.p, v->u.s.n);
    case PV_BYTEARRAY: return put_bytes(e, CKP_TREE_BYTEARRAY, v->u.s.p, v->u.s.n);
    case PV_BYTESIO: return bytes_io(e, v);
    case PV_GLOBAL: return global(e, v);
    case PV_DEVICE: return put_bytes(e, CKP_TREE_DEVICE, v->u.s.p, v->u.s.n);
    case PV_LAYOUT: return put_named_text(e, "torch.layout", v->u.s.p, v->u.s.n);
    case PV_STORAGE: return storage(e, v->u.storage);
    case PV_TENSOR: return torch_tensor(e, v->u.t);
    case PV_NPDTYPE: return put_bytes(e, CKP_TREE_DTYPE, name, numpy_name(v->u.nd, name));
    case PV_NDARRAY: return ndarray(e, v->u.a);
    case PV_NPSCALAR: return npscalar(e, v);
    case PV_NAMED: return named(e, v->u.named.name, v->u.named.v);
    default: return container(e, v);
    }
}

static ckp_status
value(emitter *e, ckpi_pv *v)
{
    const bool nests = ckpi_pv_is_container(v) || v->kind == PV_NAMED;
    if (!nests)
        return plain(e, v);
    if (v->open)
        return ckpi_fail(e->err, CKP_EUNSUPPORTED, "pickle, byte %u of it: a value that holds itself", (unsigned)v->at);
    if (e->depth >= DEPTH_MAX)
        return ckpi_fail(e->err, CKP_ELIMIT, "pickle: values nested deeper than %d", DEPTH_MAX);
    v->open = true;
    e->depth++;
    const ckp_status st = plain(e, v);
    e->depth--;
    v->open = false;
    return st;
}

ckp_status
ckpi_pt_emit(ckpi_foreign *f, const ckpi_pickle *p, ckpi_pv *root, ckp_error *err)
{
    emitter e = {.f = f, .s = f->state, .budget = ((uint64_t)1 << 20) + 64 * (uint64_t)p->len, .beyond = VIEWS_MAX, .err = err};
    const ckp_status st = value(&e, root);
    ckpi_buf_free(&e.path.text);
    ckpi_hindex_free(&e.views);
    return st;
}
