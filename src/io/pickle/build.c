/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the standard library applied to arguments: each is a known way to write a plain value. */
#include <string.h>
#include "io/pickle/pickle.h"

static ckp_status
give(ckpi_pickle *p, ckpi_pv *v, ckpi_pv **out)
{
    *out = v;
    return v != NULL ? CKP_OK : ckpi_pickle_no_memory(p);
}

static ckp_status
bad_args(ckpi_pickle *p, const char *what)
{
    return ckpi_pickle_bad(p, CKP_ECORRUPT, "arguments that %s does not take", what);
}

/* ---- containers ---- */

/* set([..]), frozenset([..]), deque((..), n), OrderedDict([[k, v], ..]) and each without arguments. */
static ckp_status
from_items(ckpi_pickle *p, ckpi_pv_kind kind, const ckpi_pv *args, size_t max_args, ckpi_pv **out)
{
    ckpi_pv *v = ckpi_pickle_new(p, kind);
    if (args->u.c.n > max_args)
        return bad_args(p, "a container");
    if (v == NULL || args->u.c.n == 0)
        return give(p, v, out);
    const ckpi_pv *items = args->u.c.v[0];
    if (items->kind != PV_LIST && items->kind != PV_TUPLE && items->kind != PV_SET)
        return bad_args(p, "a container");
    return give(p, ckpi_pickle_add(p, v, items->u.c.v, items->u.c.n) ? v : NULL, out);
}

static ckp_status
ordered_dict(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    ckpi_pv *v = ckpi_pickle_new(p, PV_ODICT);
    if (v == NULL || args->u.c.n == 0)
        return give(p, v, out);
    const ckpi_pv *pairs = args->u.c.v[0];
    if (args->u.c.n != 1 || (pairs->kind != PV_LIST && pairs->kind != PV_TUPLE))
        return bad_args(p, "OrderedDict");
    for (uint32_t i = 0; i < pairs->u.c.n; i++) {
        const ckpi_pv *pair = pairs->u.c.v[i];
        if ((pair->kind != PV_LIST && pair->kind != PV_TUPLE) || pair->u.c.n != 2)
            return bad_args(p, "OrderedDict");
        if (!ckpi_pickle_add(p, v, pair->u.c.v, 2))
            return ckpi_pickle_no_memory(p);
    }
    return give(p, v, out);
}

static ckp_status
counter(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    ckpi_pv *v = ckpi_pickle_new(p, PV_COUNTER);
    if (v == NULL || args->u.c.n == 0)
        return give(p, v, out);
    const ckpi_pv *from = args->u.c.v[0];
    if (args->u.c.n != 1 || from->kind != PV_DICT)
        return bad_args(p, "Counter");
    return give(p, ckpi_pickle_add(p, v, from->u.c.v, from->u.c.n) ? v : NULL, out);
}

static ckp_status
default_dict(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    ckpi_pv *factory = args->u.c.n != 0 ? args->u.c.v[0] : ckpi_pickle_const(p, PV_NONE);
    const bool ok = factory->kind == PV_NONE || (factory->kind == PV_GLOBAL && (factory->u.g.id == G_TYPE || factory->u.g.id == G_SET));
    if (args->u.c.n > 1 || !ok)
        return ckpi_pickle_bad(p, CKP_EUNSAFE, "a defaultdict whose factory is not a plain type");
    ckpi_pv *v = ckpi_pickle_new(p, PV_DEFAULTDICT);
    if (v != NULL)
        v->u.c.extra = factory;
    return give(p, v, out);
}

static ckp_status
deque(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    const ckp_status st = from_items(p, PV_DEQUE, args, 2, out);
    if (st != CKP_OK || args->u.c.n < 2)
        return st;
    ckpi_pv *maxlen = args->u.c.v[1];
    if (maxlen->kind != PV_NONE && maxlen->kind != PV_INT)
        return bad_args(p, "deque");
    (*out)->u.c.extra = maxlen;
    return CKP_OK;
}

/* ---- bytes ---- */

/* Latin-1 of a text: how protocol 2 writes bytes. */
static ckp_status
latin1(ckpi_pickle *p, const ckpi_pv *text, ckpi_pv_kind kind, ckpi_pv **out)
{
    const uint8_t *s = text->u.s.p;
    const size_t n = text->u.s.n;
    uint8_t *d = ckpi_pickle_get(p, n + 1, 1);
    size_t len = 0;
    if (d == NULL)
        return ckpi_pickle_no_memory(p);
    for (size_t i = 0; i < n; i++) {
        if (s[i] < 0x80) {
            d[len++] = s[i];
        } else if ((s[i] == 0xc2 || s[i] == 0xc3) && i + 1 < n && (s[i + 1] & 0xc0) == 0x80) {
            d[len++] = (uint8_t)(s[i] << 6 | (s[i + 1] & 0x3f));
            i++;
        } else {
            return ckpi_pickle_bad(p, CKP_ECORRUPT, "bytes written as a text that is not Latin-1");
        }
    }
    return give(p, ckpi_pickle_text(p, kind, d, len), out);
}

/* encode(text, "latin1"), bytes(), bytearray(bytes) and bytearray(text, "latin1"). */
static ckp_status
bytes_of(ckpi_pickle *p, ckpi_pv_kind kind, const ckpi_pv *args, ckpi_pv **out)
{
    const uint8_t *s;
    size_t n;
    if (args->u.c.n == 0)
        return give(p, ckpi_pickle_text(p, kind, p->data, 0), out);
    ckpi_pv *const *a = args->u.c.v;
    if (args->u.c.n == 2 && a[0]->kind == PV_STR && (ckpi_pv_is_text(a[1], "latin1") || ckpi_pv_is_text(a[1], "latin-1")))
        return latin1(p, a[0], kind, out);
    if (args->u.c.n == 1 && ckpi_pv_bytes(a[0], &s, &n))
        return give(p, ckpi_pickle_text(p, kind, s, n), out);
    return bad_args(p, "bytes");
}

static ckp_status
complex_of(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    if (args->u.c.n != 2 || args->u.c.v[0]->kind != PV_FLOAT || args->u.c.v[1]->kind != PV_FLOAT)
        return bad_args(p, "complex");
    ckpi_pv *v = ckpi_pickle_new(p, PV_COMPLEX);
    if (v != NULL) {
        v->u.z.re = args->u.c.v[0]->u.f;
        v->u.z.im = args->u.c.v[1]->u.f;
    }
    return give(p, v, out);
}

static ckp_status
three_values(ckpi_pickle *p, const char *name, const ckpi_pv *args, ckpi_pv **out)
{
    if (args->u.c.n == 0 || args->u.c.n > 3)
        return bad_args(p, name);
    return give(p, ckpi_pickle_named(p, name, ckpi_pickle_tuple(p, args->u.c.v, args->u.c.n)), out);
}

ckp_status
ckpi_pickle_reduce(ckpi_pickle *p, const ckpi_pv *callee, const ckpi_pv *args, ckpi_pv **out)
{
    switch ((ckpi_global_id)callee->u.g.id) {
    case G_ORDERED_DICT: return ordered_dict(p, args, out);
    case G_COUNTER: return counter(p, args, out);
    case G_DEFAULTDICT: return default_dict(p, args, out);
    case G_DEQUE: return deque(p, args, out);
    case G_SET: return from_items(p, PV_SET, args, 1, out);
    case G_FROZENSET: return from_items(p, PV_FROZENSET, args, 1, out);
    case G_BYTEARRAY: return bytes_of(p, PV_BYTEARRAY, args, out);
    case G_BYTES:
    case G_ENCODE: return bytes_of(p, PV_BYTES, args, out);
    case G_BYTESIO: return bytes_of(p, PV_BYTESIO, args, out);
    case G_COMPLEX: return complex_of(p, args, out);
    case G_SLICE: return three_values(p, "builtins.slice", args, out);
    case G_RANGE: return three_values(p, "builtins.range", args, out);
    case G_NP_DTYPE:
    case G_NP_NDARRAY:
    case G_NP_RECONSTRUCT:
    case G_NP_SCALAR:
    case G_NP_FROMBUFFER: return ckpi_pickle_reduce_numpy(p, callee, args, out);
    default: return ckpi_pickle_reduce_torch(p, callee, args, out);
    }
}

/* ---- states ---- */

/* (contents, position, attributes) */
static ckp_status
bytesio_state(ckpi_pickle *p, ckpi_pv *obj, const ckpi_pv *state)
{
    if (state->kind != PV_TUPLE || state->u.c.n < 2 || !ckpi_pv_bytes(state->u.c.v[0], &obj->u.s.p, &obj->u.s.n))
        return bad_args(p, "BytesIO");
    return CKP_OK;
}

ckp_status
ckpi_pickle_build(ckpi_pickle *p, ckpi_pv *obj, ckpi_pv *state)
{
    switch (obj->kind) {
    case PV_ODICT:      /* torch keeps the versions of modules in an attribute of a state_dict */
        if (state->kind != PV_DICT)
            return bad_args(p, "the state of an OrderedDict");
        obj->u.c.extra = state;
        return CKP_OK;
    case PV_BYTESIO: return bytesio_state(p, obj, state);
    case PV_NPDTYPE:
    case PV_NDARRAY: return ckpi_pickle_build_numpy(p, obj, state);
    default: return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "a state for an object that keeps none");
    }
}
