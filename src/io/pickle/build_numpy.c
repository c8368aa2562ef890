/* SPDX-License-Identifier: Apache-2.0 */
/* numpy's ways to write dtypes, arrays and scalars. Data stay in the pickle; objects and records are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/checked.h"
#include "base/dtype.h"
#include "io/pickle/pickle.h"

static ckp_status
give(ckpi_pickle *p, ckpi_pv *v, ckpi_pv **out)
{
    *out = v;
    return v != NULL ? CKP_OK : ckpi_pickle_no_memory(p);
}

static ckp_status
bad(ckpi_pickle *p, const char *what)
{
    return ckpi_pickle_bad(p, CKP_ECORRUPT, "numpy: %s", what);
}

/* ---- dtypes ---- */

/* "f4", "S5", "U3", "V2", "M8": a letter and a size. The size of a U counts characters of four bytes. */
static ckp_status
parse_code(ckpi_pickle *p, ckpi_pnpdtype *d)
{
    static const char letters[] = "biufcSUVMmOa";
    char *end;
    const char kind = d->code[0];
    if (kind == 0 || strchr(letters, kind) == NULL)
        return bad(p, "a dtype of unknown kind");
    if (kind == 'O')
        return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "numpy: an array of Python objects");
    if (d->code[1] < '0' || d->code[1] > '9')
        return bad(p, "a dtype without a size");
    const unsigned long size = strtoul(d->code + 1, &end, 10);
    if (*end != 0 || size == 0 || size > (1u << 28))
        return bad(p, "a dtype of an impossible size");
    d->itemsize = size * (kind == 'U' ? 4u : 1u);
    d->time = kind == 'M' || kind == 'm';
    d->row = ckpi_numpy_dtype_by_code(d->code, strlen(d->code));
    if ((d->time && size != 8) || (strchr("biufc", kind) != NULL && d->row == NULL))
        return bad(p, "a dtype of an impossible size");
    return CKP_OK;
}

/* "[D]", "[25s]": letters and digits in brackets, to the end. */
static bool
unit_ok(const char *s, size_t n)
{
    for (size_t i = 1; i + 1 < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z')))
            return false;
    return n > 2 && n < 20 && s[0] == '[' && s[n - 1] == ']';
}

/* A whole description, as numpy's dtype.str gives it: "f4", "<f4", ">f4", "|S2", "<M8[D]". */
static ckp_status
parse_text(ckpi_pickle *p, ckpi_pnpdtype *d, const char *s, size_t n)
{
    const char order = n != 0 && memchr("<>|=", s[0], 4) != NULL ? s[0] : '=';
    const size_t skip = order != '=' || (n != 0 && s[0] == '=') ? 1 : 0;
    const char *unit = n != 0 ? memchr(s, '[', n) : NULL;
    const size_t code = (unit != NULL ? (size_t)(unit - s) : n) - skip;
    if (n <= skip || code == 0 || code >= sizeof d->code || (unit != NULL && !unit_ok(unit, n - (size_t)(unit - s))))
        return bad(p, "a dtype that is no short text");
    memcpy(d->code, s + skip, code);
    const ckp_status st = parse_code(p, d);
    if (st != CKP_OK)
        return st;
    if (unit != NULL && !d->time)
        return bad(p, "a unit of something that is no time");
    d->native = order != '>' || d->itemsize == 1;
    const char shown = !d->native ? '>' : d->itemsize > 1 && d->code[0] != 'S' && d->code[0] != 'V' ? '<' : '|';
    (void)snprintf(d->text, sizeof d->text, "%c%s%.*s", shown, d->code, unit != NULL ? (int)(n - (size_t)(unit - s)) : 0, unit != NULL ? unit : "");
    return CKP_OK;
}

/* dtype("f4", False, True), or of a type of ml_dtypes. What is missing comes with the state. */
static ckp_status
dtype_of(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    ckpi_pnpdtype *d = ckpi_pickle_get(p, 1, sizeof *d);
    ckpi_pv *v = ckpi_pickle_new(p, PV_NPDTYPE);
    if (d == NULL || v == NULL)
        return ckpi_pickle_no_memory(p);
    *d = (ckpi_pnpdtype){.native = true};
    v->u.nd = d;
    const ckpi_pv *what = args->u.c.n != 0 ? args->u.c.v[0] : NULL;
    if (what == NULL || args->u.c.n > 3)
        return bad(p, "arguments that dtype does not take");
    if (what->kind == PV_GLOBAL && what->u.g.id == G_NP_TYPE) {
        d->row = what->u.g.row;
        d->itemsize = ckp_dtype_bits(d->row->dt) / 8;
        (void)snprintf(d->code, sizeof d->code, "%s", d->row->code);
        (void)snprintf(d->text, sizeof d->text, "%c%s", d->itemsize > 1 ? '<' : '|', d->code);
        return give(p, v, out);
    }
    if (what->kind != PV_STR && what->kind != PV_STR2)
        return bad(p, "a dtype that is no text");
    const ckp_status st = parse_text(p, d, (const char *)what->u.s.p, what->u.s.n);
    return st == CKP_OK ? give(p, v, out) : st;
}

/* (metadata, (unit, count, 1, 1)) of datetime64: "[D]", "[25s]"; generic ones have none. */
static ckp_status
time_unit(ckpi_pickle *p, const ckpi_pv *meta, ckpi_pnpdtype *d)
{
    const ckpi_pv *u = meta->kind == PV_TUPLE && meta->u.c.n == 2 ? meta->u.c.v[1] : NULL;
    const uint8_t *unit;
    size_t n;
    uint64_t count, denominator;
    if (u == NULL || u->kind != PV_TUPLE || u->u.c.n < 3 || !ckpi_pv_u64(u->u.c.v[1], &count) || !ckpi_pv_u64(u->u.c.v[2], &denominator))
        return bad(p, "a datetime64 without its unit");
    const bool text = u->u.c.v[0]->kind == PV_STR;
    if (text) {
        unit = u->u.c.v[0]->u.s.p;
        n = u->u.c.v[0]->u.s.n;
    } else if (!ckpi_pv_bytes(u->u.c.v[0], &unit, &n)) {
        return bad(p, "a datetime64 without its unit");
    }
    for (size_t i = 0; i < n; i++)
        if (!((unit[i] >= 'a' && unit[i] <= 'z') || (unit[i] >= 'A' && unit[i] <= 'Z')))
            return bad(p, "a datetime64 of unknown unit");
    if (n == 0 || n > 8 || denominator != 1 || count == 0 || count > 1000000000)
        return bad(p, "a datetime64 of unknown unit");
    if (n == 7 && memcmp(unit, "generic", 7) == 0)
        return CKP_OK;
    const size_t at = strcspn(d->text, "[");
    d->text[at] = 0;
    char num[16] = "";
    if (count != 1)
        (void)snprintf(num, sizeof num, "%u", (unsigned)count);
    (void)snprintf(d->text + at, sizeof d->text - at, "[%s%.*s]", num, (int)n, (const char *)unit);
    return CKP_OK;
}

/* (version, byte order, subarray, names, fields, size, alignment, flags[, metadata]) */
static ckp_status
dtype_state(ckpi_pickle *p, ckpi_pnpdtype *d, const ckpi_pv *state)
{
    ckpi_pv *const *a = state->u.c.v;
    if (state->kind != PV_TUPLE || state->u.c.n < 8 || state->u.c.n > 9 || a[1]->kind != PV_STR || a[1]->u.s.n != 1)
        return bad(p, "a dtype's state that is none");
    if (a[2]->kind != PV_NONE || a[3]->kind != PV_NONE || a[4]->kind != PV_NONE)
        return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "numpy: an array of records");
    const char order = (char)a[1]->u.s.p[0];
    if (strchr("<>|=", order) == NULL)
        return bad(p, "an unknown byte order");
    d->native = order != '>' || d->itemsize == 1;
    if (!d->native && d->row != NULL && ckpi_numpy_is_ml(d->row))
        return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "numpy: big-endian %s", d->row->name);
    if (d->text[0] == '<' || order == '>')
        d->text[0] = d->native ? '<' : '>';
    return d->time && state->u.c.n == 9 ? time_unit(p, a[8], d) : CKP_OK;
}

/* ---- arrays and scalars ---- */

static ckpi_pv *
array_pv(ckpi_pickle *p)
{
    ckpi_pv *v = ckpi_pickle_new(p, PV_NDARRAY);
    ckpi_parray *a = ckpi_pickle_get(p, 1, sizeof *a);
    if (v == NULL || a == NULL)
        return NULL;
    *a = (ckpi_parray){0};
    v->u.a = a;
    return v;
}

static ckp_status
set_array(ckpi_pickle *p, ckpi_parray *a, const ckpi_pv *dtype, const ckpi_pv *shape, bool fortran, const ckpi_pv *data)
{
    uint64_t numel, bytes;
    if (dtype->kind != PV_NPDTYPE)
        return bad(p, "an array without a dtype");
    if (data->kind == PV_LIST)
        return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "numpy: an array of Python objects");
    const ckp_status st = ckpi_pickle_shape(p, shape, &a->shape, &a->ndim);
    if (st != CKP_OK)
        return st;
    a->dtype = dtype->u.nd;
    a->fortran = fortran;
    if (!ckpi_pv_bytes(data, &a->data, &a->len))
        return bad(p, "an array whose data are no bytes");
    if (!ckpi_shape_numel(a->shape, a->ndim, &numel) || !ckpi_mul_u64(numel, a->dtype->itemsize, &bytes) || bytes != a->len)
        return bad(p, "an array whose bytes are not what shape and dtype make");
    return CKP_OK;
}

/* (version, shape, dtype, fortran order, bytes) */
static ckp_status
array_state(ckpi_pickle *p, ckpi_parray *a, const ckpi_pv *state)
{
    bool fortran;
    if (state->kind != PV_TUPLE || state->u.c.n != 5 || !ckpi_pv_bool(state->u.c.v[3], &fortran))
        return bad(p, "an array's state that is none");
    return set_array(p, a, state->u.c.v[2], state->u.c.v[1], fortran, state->u.c.v[4]);
}

static ckp_status
from_buffer(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    if (args->u.c.n != 4 || args->u.c.v[3]->kind != PV_STR || args->u.c.v[3]->u.s.n != 1)
        return bad(p, "arguments that _frombuffer does not take");
    ckpi_pv *v = array_pv(p);
    if (v == NULL)
        return ckpi_pickle_no_memory(p);
    *out = v;
    return set_array(p, v->u.a, args->u.c.v[1], args->u.c.v[2], args->u.c.v[3]->u.s.p[0] == 'F', args->u.c.v[0]);
}

static ckp_status
scalar(ckpi_pickle *p, const ckpi_pv *args, ckpi_pv **out)
{
    const uint8_t *s;
    size_t n;
    if (args->u.c.n != 2 || args->u.c.v[0]->kind != PV_NPDTYPE || !ckpi_pv_bytes(args->u.c.v[1], &s, &n) ||
        n != args->u.c.v[0]->u.nd->itemsize)
        return bad(p, "a scalar whose bytes are not what its dtype makes");
    ckpi_pv *v = ckpi_pickle_new(p, PV_NPSCALAR);
    if (v != NULL) {
        v->u.ns.nd = args->u.c.v[0]->u.nd;
        v->u.ns.p = s;
    }
    return give(p, v, out);
}

ckp_status
ckpi_pickle_reduce_numpy(ckpi_pickle *p, const ckpi_pv *callee, const ckpi_pv *args, ckpi_pv **out)
{
    switch ((ckpi_global_id)callee->u.g.id) {
    case G_NP_DTYPE: return dtype_of(p, args, out);
    case G_NP_SCALAR: return scalar(p, args, out);
    case G_NP_FROMBUFFER: return from_buffer(p, args, out);
    case G_NP_RECONSTRUCT:
        if (args->u.c.n != 3 || args->u.c.v[0]->kind != PV_GLOBAL || args->u.c.v[0]->u.g.id != G_NP_NDARRAY)
            return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "numpy: an array of another class than ndarray");
        return give(p, array_pv(p), out);
    default: return ckpi_pickle_bad(p, CKP_EUNSAFE, "a call of a name that may only be mentioned");
    }
}

ckp_status
ckpi_pickle_build_numpy(ckpi_pickle *p, ckpi_pv *obj, const ckpi_pv *state)
{
    if (obj->kind == PV_NPDTYPE)
        return dtype_state(p, obj->u.nd, state);
    return array_state(p, obj->u.a, state);
}
