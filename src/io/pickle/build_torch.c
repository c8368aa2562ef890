/* SPDX-License-Identifier: Apache-2.0 */
/* torch's ways to write a tensor, as descriptions: which storage, from where, in which shape. Every view is proved to lie in its storage. */
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/limits.h"
#include "io/pickle/pickle.h"
#include "io/source.h"

static ckp_status
give(ckpi_pickle *p, ckpi_pv *v, ckpi_pv **out)
{
    *out = v;
    return v != NULL ? CKP_OK : ckpi_pickle_no_memory(p);
}

/* ---- storages ---- */

ckpi_pstorage *
ckpi_pickle_storage(const ckpi_pickle *p, const uint8_t *key, size_t len)
{
    const uint64_t hash = ckpi_hash64(key, len);
    uint32_t row;
    for (size_t at = 0; (row = ckpi_hindex_next(&p->by_key, hash, &at)) != CKPI_HINDEX_NONE;) {
        ckpi_pstorage *s = row < p->n_storage ? p->storage[row] : NULL;
        if (s != NULL && s->key_len == len && memcmp(s->key, key, len) == 0)
            return s;
    }
    return NULL;
}

static ckp_status
add_storage(ckpi_pickle *p, const ckpi_pstorage *s, ckpi_pstorage **out)
{
    if (p->n_storage == p->cap_storage) {
        const size_t cap = p->cap_storage == 0 ? 64 : p->cap_storage * 2;
        ckpi_pstorage **more = ckpi_realloc(p->storage, cap, sizeof *more);
        if (more == NULL)
            return ckpi_pickle_no_memory(p);
        p->storage = more;
        p->cap_storage = cap;
    }
    ckpi_pstorage *mine = ckpi_pickle_get(p, 1, sizeof *mine);
    if (mine == NULL || !ckpi_hindex_put(&p->by_key, ckpi_hash64(s->key, s->key_len), (uint32_t)p->n_storage))
        return ckpi_pickle_no_memory(p);
    *mine = *s;
    p->storage[p->n_storage++] = mine;
    *out = mine;
    return CKP_OK;
}

static bool
storage_from(const ckpi_pv *type, const ckpi_pv *key, const ckpi_pv *numel, ckpi_pstorage *s)
{
    if (type->kind != PV_GLOBAL || (type->u.g.id != G_STORAGE && type->u.g.id != G_UNTYPED) || (key->kind != PV_STR && key->kind != PV_STR2) ||
        !ckpi_pv_u64(numel, &s->numel))
        return false;
    s->key = key->u.s.p;
    s->key_len = key->u.s.n;
    s->dtype = type->u.g.id == G_STORAGE ? type->u.g.row : NULL;
    return ckpi_dtype_bytes(s->dtype != NULL ? s->dtype->dt : CKP_U8, s->numel, &s->bytes);
}

/* ("storage", type, key, location, numel) and, in legacy files, a view that torch has not written since 0.4. */
ckp_status
ckpi_pickle_persistent(ckpi_pickle *p, const ckpi_pv *id, ckpi_pv **out)
{
    ckpi_pstorage s = {0};
    if (id->kind != PV_TUPLE || id->u.c.n < 5 || id->u.c.n > 6 || !ckpi_pv_is_text(id->u.c.v[0], "storage"))
        return ckpi_pickle_bad(p, CKP_EUNSAFE, "a persistent id that is no storage");
    if (id->u.c.n == 6 && id->u.c.v[5]->kind != PV_NONE)
        return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "a view of a storage, as torch wrote them before 0.4");
    if (!storage_from(id->u.c.v[1], id->u.c.v[2], id->u.c.v[4], &s))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a storage without type, key or size");
    ckpi_pstorage *mine = ckpi_pickle_storage(p, s.key, s.key_len);
    if (mine == NULL) {
        const ckp_status st = add_storage(p, &s, &mine);
        if (st != CKP_OK)
            return st;
    } else if (mine->dtype != s.dtype || mine->numel != s.numel) {
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "storage '%.*s' comes with two types or sizes", (int)(s.key_len < 64 ? s.key_len : 64),
                               (const char *)s.key);
    }
    ckpi_pv *v = ckpi_pickle_new(p, PV_STORAGE);
    if (v != NULL)
        v->u.storage = mine;
    return give(p, v, out);
}

/* ---- shapes ---- */

ckp_status
ckpi_pickle_shape(ckpi_pickle *p, const ckpi_pv *v, const uint64_t **shape, unsigned *ndim)
{
    if (v->kind != PV_TUPLE && v->kind != PV_LIST && v->kind != PV_SIZE)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a shape that is no tuple");
    if (v->u.c.n > CKPI_MAX_DIMS)
        return ckpi_pickle_bad(p, CKP_ELIMIT, "a shape of %u dimensions", (unsigned)v->u.c.n);
    uint64_t *d = ckpi_pickle_get(p, v->u.c.n + 1, sizeof *d);
    if (d == NULL)
        return ckpi_pickle_no_memory(p);
    for (uint32_t i = 0; i < v->u.c.n; i++)
        if (!ckpi_pv_u64(v->u.c.v[i], &d[i]))
            return ckpi_pickle_bad(p, CKP_ECORRUPT, "a shape or stride that is no non-negative integer");
    *shape = d;
    *ndim = v->u.c.n;
    return CKP_OK;
}

/* Strides are below 2^63, as ckpi_pv_u64 gives no more, so the same words serve as signed ones. */
static ckp_status
strides_of(ckpi_pickle *p, const ckpi_pv *v, ckpi_ptensor *t)
{
    const uint64_t *d;
    unsigned ndim;
    const ckp_status st = ckpi_pickle_shape(p, v, &d, &ndim);
    if (st != CKP_OK)
        return st;
    if (ndim != t->ndim)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "%u strides for %u dimensions", ndim, t->ndim);
    int64_t *s = ckpi_pickle_get(p, ndim + 1u, sizeof *s);
    if (s == NULL)
        return ckpi_pickle_no_memory(p);
    for (unsigned i = 0; i < ndim; i++)
        s[i] = (int64_t)d[i];
    t->strides = s;
    return CKP_OK;
}

static ckp_status
check_view(ckpi_pickle *p, const ckpi_ptensor *t)
{
    uint64_t numel, reach, end, bytes;
    if (!ckpi_shape_numel(t->shape, t->ndim, &numel) || numel > INT64_MAX)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a shape of more than 2^63 elements");
    if (!ckpi_source_reach(t->shape, t->strides, t->ndim, &reach) || !ckpi_add_u64(reach, t->first, &end) ||
        !ckpi_dtype_bytes(t->dtype->dt, end, &bytes))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a view of more than 2^64 bytes");
    if (reach != 0 && bytes > t->storage->bytes)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a view that ends at byte %llu of a storage of %llu", (unsigned long long)bytes,
                               (unsigned long long)t->storage->bytes);
    return CKP_OK;
}

/* ---- tensors ---- */

static ckpi_pv *
tensor_pv(ckpi_pickle *p, const ckpi_ptensor *t)
{
    ckpi_pv *v = ckpi_pickle_new(p, PV_TENSOR);
    ckpi_ptensor *mine = ckpi_pickle_get(p, 1, sizeof *mine);
    if (v == NULL || mine == NULL)
        return NULL;
    *mine = *t;
    v->u.t = mine;
    return v;
}

/* storage, first, size, stride: a[0] to a[3] */
static ckp_status
view_of(ckpi_pickle *p, ckpi_pv *const *a, const ckpi_torch_dtype *dtype, ckpi_ptensor *t)
{
    if (a[0]->kind != PV_STORAGE || !ckpi_pv_u64(a[1], &t->first))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a tensor without storage or offset");
    t->storage = a[0]->u.storage;
    t->dtype = dtype != NULL ? dtype : t->storage->dtype != NULL ? t->storage->dtype : ckpi_torch_dtype_of(CKP_U8);
    ckp_status st = ckpi_pickle_shape(p, a[2], &t->shape, &t->ndim);
    if (st == CKP_OK)
        st = strides_of(p, a[3], t);
    return st == CKP_OK ? check_view(p, t) : st;
}

static bool
no_hooks(const ckpi_pv *v)
{
    return v->kind == PV_NONE || ((v->kind == PV_ODICT || v->kind == PV_DICT || v->kind == PV_TUPLE) && v->u.c.n == 0);
}

/* {"conj": True, "neg": True}: bits that torch sets instead of writing other values. */
static ckp_status
metadata(ckpi_pickle *p, const ckpi_pv *v, ckpi_ptensor *t)
{
    if (v->kind == PV_NONE)
        return CKP_OK;
    if (v->kind != PV_DICT)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a tensor's metadata that is no dict");
    for (uint32_t i = 0; i + 1 < v->u.c.n; i += 2) {
        bool on;
        if (!ckpi_pv_bool(v->u.c.v[i + 1], &on))
            return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "metadata of a tensor that is neither conj nor neg");
        if (ckpi_pv_is_text(v->u.c.v[i], "conj"))
            t->conj = on;
        else if (ckpi_pv_is_text(v->u.c.v[i], "neg"))
            t->neg = on;
        else
            return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "metadata of a tensor that is neither conj nor neg");
    }
    const ckpi_dtype_info *info = ckpi_dtype_get(t->dtype->dt);
    if ((t->conj && info->kind != CKPI_KIND_COMPLEX) || (t->neg && info->kind != CKPI_KIND_COMPLEX && info->kind != CKPI_KIND_FLOAT))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a conj or neg bit on %s", t->dtype->name);
    return CKP_OK;
}

/* v1: four arguments; v2: requires_grad, hooks, metadata too; v3: dtype before the metadata. */
static ckp_status
rebuild(ckpi_pickle *p, const ckpi_pv *args, unsigned version, ckpi_pv **out)
{
    ckpi_pv *const *a = args->u.c.v;
    const uint32_t n = args->u.c.n, fixed = version == 1 ? 4 : version == 2 ? 6 : 7;
    ckpi_ptensor t = {.as = CKP_AS_TORCH};
    bool grad = false;
    if (n < fixed || n > fixed + (version == 1 ? 0 : 1) || (version > 1 && (!ckpi_pv_bool(a[4], &grad) || !no_hooks(a[5]))))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "arguments that _rebuild_tensor does not take");
    if (version == 3 && (a[6]->kind != PV_GLOBAL || a[6]->u.g.id != G_DTYPE))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a tensor without a dtype");
    ckp_status st = view_of(p, a, version == 3 ? a[6]->u.g.row : NULL, &t);
    if (st == CKP_OK && n > fixed)
        st = metadata(p, a[fixed], &t);
    if (st != CKP_OK)
        return st;
    t.as = grad ? CKP_AS_TORCH_REQUIRES_GRAD : CKP_AS_TORCH;
    return give(p, tensor_pv(p, &t), out);
}

/* A copy that is something else: the one that was given may be referred to elsewhere. */
static ckpi_pv *
tensor_as(ckpi_pickle *p, const ckpi_pv *v, ckp_tensor_as as)
{
    ckpi_ptensor t = *v->u.t;
    t.as = as;
    return tensor_pv(p, &t);
}

static bool
is_tensor(const ckpi_pv *v)
{
    return v->kind == PV_TENSOR || (v->kind == PV_NAMED && strncmp(v->u.named.name, "torch.", 6) == 0);
}

/* Parameter(data, requires_grad): frozen ones are kept under their name. Sparse and quantized data stay what they are. */
static ckp_status
parameter(ckpi_pickle *p, ckpi_pv *data, bool grad, ckpi_pv **out)
{
    if (!is_tensor(data))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a Parameter of something that is no tensor");
    if (data->kind != PV_TENSOR)
        return give(p, grad ? data : ckpi_pickle_named(p, "torch.nn.Parameter", data), out);
    ckpi_pv *t = tensor_as(p, data, grad ? CKP_AS_TORCH_PARAMETER : CKP_AS_TORCH);
    return give(p, grad ? t : ckpi_pickle_named(p, "torch.nn.Parameter", t), out);
}

static ckp_status
rebuild_parameter(ckpi_pickle *p, const ckpi_pv *args, uint32_t n_min, uint32_t n_max, ckpi_pv **out)
{
    bool grad = true;
    if (args->u.c.n < n_min || args->u.c.n > n_max || (args->u.c.n > 1 && !ckpi_pv_bool(args->u.c.v[1], &grad)) ||
        (args->u.c.n > 2 && !no_hooks(args->u.c.v[2])))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "arguments that a Parameter does not take");
    return parameter(p, args->u.c.v[0], grad, out);
}

/* A tensor with attributes of its own: (tensor, class, attributes). An empty set of attributes is none. */
static ckp_status
with_attributes(ckpi_pickle *p, ckpi_pv *tensor, const char *cls, ckpi_pv *state, ckpi_pv **out)
{
    if (state->kind == PV_NONE || (ckpi_pv_is_dict(state) && state->u.c.n == 0))
        return give(p, tensor, out);
    ckpi_pv *items[3] = {tensor, ckpi_pickle_text(p, PV_STR, cls, strlen(cls)), state};
    if (items[1] == NULL)
        return ckpi_pickle_no_memory(p);
    return give(p, ckpi_pickle_named(p, "torch.attributes", ckpi_pickle_tuple(p, items, 3)), out);
}

static ckp_status
parameter_with_state(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    ckpi_pv *t = NULL;
    bool grad;
    if (args->u.c.n != 4 || !ckpi_pv_bool(args->u.c.v[1], &grad) || !no_hooks(args->u.c.v[2]))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "arguments that a Parameter with state does not take");
    const ckp_status st = parameter(p, args->u.c.v[0], grad, &t);
    return st == CKP_OK ? with_attributes(p, t, "torch.nn.Parameter", args->u.c.v[3], out) : st;
}

/* (function, type, arguments, state) */
static ckp_status
from_type(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    ckpi_pv *const *a = args->u.c.v;
    ckpi_pv *t = NULL;
    if (args->u.c.n != 4 || a[0]->kind != PV_GLOBAL || a[1]->kind != PV_GLOBAL || a[2]->kind != PV_TUPLE ||
        (a[1]->u.g.id != G_TENSOR && a[1]->u.g.id != G_PARAMETER))
        return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "a tensor subclass");
    const unsigned f = a[0]->u.g.id;
    if (f != G_REBUILD_V2 && f != G_REBUILD_V3 && f != G_REBUILD_PARAMETER)
        return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "a tensor with attributes made in an unusual way");
    const ckp_status st = ckpi_pickle_reduce_torch(p, a[0], a[2], &t);
    return st == CKP_OK ? with_attributes(p, t, "torch.Tensor", a[3], out) : st;
}

/* ---- layouts of several tensors ---- */

static const struct { const char *layout, *name; const char *part[3]; } sparse[] = {
    {"torch.sparse_coo", "torch.sparse_coo", {"indices", "values", NULL}},
    {"torch.sparse_csr", "torch.sparse_csr", {"crow_indices", "col_indices", "values"}},
    {"torch.sparse_bsr", "torch.sparse_bsr", {"crow_indices", "col_indices", "values"}},
    {"torch.sparse_csc", "torch.sparse_csc", {"ccol_indices", "row_indices", "values"}},
    {"torch.sparse_bsc", "torch.sparse_bsc", {"ccol_indices", "row_indices", "values"}},
};

static bool
put_pair(ckpi_pickle *p, ckpi_pv *dict, const char *key, ckpi_pv *value)
{
    ckpi_pv *pair[2] = {ckpi_pickle_text(p, PV_STR, key, strlen(key)), value};
    return pair[0] != NULL && value != NULL && ckpi_pickle_add(p, dict, pair, 2);
}

static ckp_status
put_parts(ckpi_pickle *p, size_t row, const ckpi_pv *data, ckpi_pv **out)
{
    const uint32_t parts = sparse[row].part[2] != NULL ? 3 : 2;
    ckpi_pv *dict = ckpi_pickle_new(p, PV_DICT);
    if (data->kind != PV_TUPLE || data->u.c.n < parts + 1 || data->u.c.n > parts + (parts == 2 ? 2u : 1u) || data->u.c.v[parts]->kind != PV_SIZE)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a sparse tensor without its parts");
    ckpi_pv *coalesced = data->u.c.n > parts + 1 ? data->u.c.v[parts + 1] : ckpi_pickle_const(p, PV_NONE);
    bool ok = dict != NULL && put_pair(p, dict, "size", data->u.c.v[parts]) && put_pair(p, dict, "coalesced", coalesced);
    for (uint32_t i = 0; i < parts && ok; i++) {
        if (data->u.c.v[i]->kind != PV_TENSOR)
            return ckpi_pickle_bad(p, CKP_ECORRUPT, "a sparse tensor without its parts");
        ok = put_pair(p, dict, sparse[row].part[i], tensor_as(p, data->u.c.v[i], CKP_AS_SPARSE_PART));
    }
    return give(p, ok ? ckpi_pickle_named(p, sparse[row].name, dict) : NULL, out);
}

static ckp_status
rebuild_sparse(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    if (args->u.c.n == 2 && args->u.c.v[0]->kind == PV_LAYOUT)
        for (size_t i = 0; i < sizeof sparse / sizeof *sparse; i++) {
            const ckpi_pv *l = args->u.c.v[0];
            if (strlen(sparse[i].layout) == l->u.s.n && memcmp(sparse[i].layout, l->u.s.p, l->u.s.n) == 0)
                return put_parts(p, i, args->u.c.v[1], out);
        }
    return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "a sparse tensor of unknown layout");
}

/* (storage, first, size, stride, (scheme, scale, zero point[, axis]), requires_grad, hooks) */
static ckp_status
rebuild_quantized(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    ckpi_ptensor t = {.as = CKP_AS_TORCH};
    if (args->u.c.n != 7 || args->u.c.v[4]->kind != PV_TUPLE || args->u.c.v[4]->u.c.n < 3 || args->u.c.v[4]->u.c.n > 4)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "arguments that a quantized tensor does not take");
    ckpi_pv *const *q = args->u.c.v[4]->u.c.v;
    const bool channels = args->u.c.v[4]->u.c.n == 4;
    if (q[0]->kind != PV_GLOBAL || q[0]->u.g.id != G_QSCHEME || strcmp(q[0]->u.g.name, channels ? "per_channel_affine" : "per_tensor_affine") != 0)
        return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "a quantized tensor of unknown scheme");
    const ckp_status st = view_of(p, args->u.c.v, NULL, &t);
    if (st != CKP_OK)
        return st;
    ckpi_pv *dict = ckpi_pickle_new(p, PV_DICT);
    if (dict == NULL || !put_pair(p, dict, "scale", q[1]) || !put_pair(p, dict, "zero_point", q[2]) ||
        (channels && !put_pair(p, dict, "axis", q[3])))
        return ckpi_pickle_no_memory(p);
    ckpi_pv *pair[2] = {dict, tensor_pv(p, &t)};
    return give(p, pair[1] != NULL ? ckpi_pickle_named(p, "torch.quantized", ckpi_pickle_tuple(p, pair, 2)) : NULL, out);
}

/* ---- values ---- */

static ckp_status
size_of(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    const uint64_t *shape;
    unsigned ndim;
    if (args->u.c.n != 1)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "arguments that torch.Size does not take");
    const ckp_status st = ckpi_pickle_shape(p, args->u.c.v[0], &shape, &ndim);
    if (st != CKP_OK)
        return st;
    ckpi_pv *v = ckpi_pickle_new(p, PV_SIZE);
    return give(p, v != NULL && ckpi_pickle_add(p, v, args->u.c.v[0]->u.c.v, ndim) ? v : NULL, out);
}

/* device("cuda", 1) or device("cpu"): its text, "cuda:1". */
static ckp_status
device_of(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    char text[80];
    const ckpi_pv *type = args->u.c.n != 0 ? args->u.c.v[0] : NULL;
    if (type == NULL || type->kind != PV_STR || type->u.s.n == 0 || type->u.s.n > 40 || args->u.c.n > 2 ||
        (args->u.c.n == 2 && args->u.c.v[1]->kind != PV_INT))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "arguments that torch.device does not take");
    int n = snprintf(text, sizeof text, "%.*s", (int)type->u.s.n, (const char *)type->u.s.p);
    if (args->u.c.n == 2)
        n += snprintf(text + n, sizeof text - (size_t)n, ":%lld", (long long)args->u.c.v[1]->u.i);
    const char *mine = ckpi_io_arena_copy(p->arena, text, (size_t)n);
    return give(p, mine != NULL ? ckpi_pickle_text(p, PV_DEVICE, mine, (size_t)n) : NULL, out);
}

static ckp_status
layout_of(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    if (args->u.c.n != 1 || args->u.c.v[0]->kind != PV_STR)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a layout that is no text");
    return give(p, ckpi_pickle_text(p, PV_LAYOUT, args->u.c.v[0]->u.s.p, args->u.c.v[0]->u.s.n), out);
}

ckp_status
ckpi_pickle_reduce_torch(ckpi_pickle *p, const ckpi_pv *callee, const ckpi_pv *args, ckpi_pv **out)
{
    switch ((ckpi_global_id)callee->u.g.id) {
    case G_REBUILD: return rebuild(p, args, 1, out);
    case G_REBUILD_V2: return rebuild(p, args, 2, out);
    case G_REBUILD_V3: return rebuild(p, args, 3, out);
    case G_REBUILD_PARAMETER: return rebuild_parameter(p, args, 3, 3, out);
    case G_PARAMETER: return rebuild_parameter(p, args, 1, 2, out);
    case G_REBUILD_PARAMETER_STATE: return parameter_with_state(p, args, out);
    case G_REBUILD_FROM_TYPE: return from_type(p, args, out);
    case G_REBUILD_SPARSE: return rebuild_sparse(p, args, out);
    case G_REBUILD_QTENSOR: return rebuild_quantized(p, args, out);
    case G_REBUILD_META: return give(p, ckpi_pickle_named(p, "torch.meta", ckpi_pickle_tuple(p, args->u.c.v, args->u.c.n)), out);
    case G_SIZE: return size_of(p, args, out);
    case G_DEVICE: return device_of(p, args, out);
    case G_LAYOUT: return layout_of(p, args, out);
    default: return ckpi_pickle_bad(p, CKP_EUNSAFE, "a call of a name that may only be mentioned");
    }
}
