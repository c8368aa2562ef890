/* SPDX-License-Identifier: Apache-2.0 */
/* The table in memory: from a state, checked, shared, looked up. Its bytes are table_wire.c's. */
#include "format/table.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"

ckpi_table *
ckpi_table_alloc(size_t n)
{
    ckpi_table *t = ckpi_calloc(1, sizeof *t);
    ckpi_table_priv *priv = ckpi_calloc(1, sizeof *priv);
    ckpi_rec *rec = ckpi_calloc(n, sizeof *rec);
    if (t == NULL || priv == NULL || rec == NULL) {
        free(t);
        free(priv);
        free(rec);
        return NULL;
    }
    atomic_init(&priv->refs, 1);
    *t = (ckpi_table){.rec = rec, .n = n, .arena = priv};
    return t;
}

ckpi_table *
ckpi_table_share(ckpi_table *t)
{
    ckpi_table_priv *priv = t->arena;
    atomic_fetch_add_explicit(&priv->refs, 1, memory_order_relaxed);
    return t;
}

void
ckpi_table_free(ckpi_table *t)
{
    if (t == NULL)
        return;
    ckpi_table_priv *priv = t->arena;
    if (atomic_fetch_sub_explicit(&priv->refs, 1, memory_order_acq_rel) != 1)
        return;
    ckpi_arena_free(&priv->arena);
    ckpi_hindex_free(&priv->names);
    free(priv);
    free(t->rec);
    free(t);
}

uint64_t *
ckpi_table_dims(ckpi_table *t, size_t n)
{
    return ckpi_arena_get(&((ckpi_table_priv *)t->arena)->arena, n * sizeof(uint64_t));
}

char *
ckpi_table_name(ckpi_table *t, const void *p, size_t n)
{
    char *name = ckpi_arena_get(&((ckpi_table_priv *)t->arena)->arena, n + 1);
    if (name != NULL) {
        memcpy(name, p, n);
        name[n] = 0;
    }
    return name;
}

uint32_t
ckpi_table_find(const ckpi_table *t, const char *name)
{
    const ckpi_table_priv *priv = t->arena;
    const uint64_t hash = ckpi_hash64(name, strlen(name));
    uint32_t row;
    for (size_t at = 0; (row = ckpi_hindex_next(&priv->names, hash, &at)) != CKPI_HINDEX_NONE;)
        if (strcmp(t->rec[row].name, name) == 0)
            return row;
    return CKPI_NO_TENSOR;
}

/* ---- from a state ---- */

static bool
copy_dims(ckpi_table *t, const uint64_t **to, const uint64_t *from, unsigned ndim)
{
    uint64_t *dims = ckpi_table_dims(t, ndim);
    if (dims == NULL)
        return false;
    if (ndim != 0)
        memcpy(dims, from, ndim * sizeof *dims);
    *to = dims;
    return true;
}

static bool
row_from(ckpi_table *table, ckpi_rec *r, const ckpi_tensor *t)
{
    static const uint64_t origin[CKPI_MAX_DIMS] = {0};
    *r = (ckpi_rec){.role = t->role, .dtype = t->dtype, .owner = t->owner, .alias_of = t->alias_of, .copy_of = CKPI_NO_TENSOR,
                    .ndim = t->ndim, .flat = t->flat, .flat_first = t->flat_first, .numel = t->numel, .bytes = t->bytes};
    r->name = ckpi_table_name(table, t->name, strlen(t->name));
    if (r->name == NULL || !copy_dims(table, &r->shape, t->global_shape != NULL ? t->global_shape : t->shape, t->ndim))
        return false;
    if (t->global_shape == NULL || t->flat)
        return true;
    return copy_dims(table, &r->box_first, t->box_first != NULL ? t->box_first : origin, t->ndim) &&
           copy_dims(table, &r->box_shape, t->shape, t->ndim);
}

ckp_status
ckpi_table_link_copies(ckpi_table *t, const uint32_t *master, ckp_error *err)
{
    for (size_t i = 0; i < t->n; i++) {
        if (master[i] == CKPI_NO_TENSOR)
            continue;
        t->rec[i].role = CKP_ROLE_COPY;
        t->rec[i].copy_of = master[i];
        if (t->rec[master[i]].role == CKP_ROLE_OTHER)
            t->rec[master[i]].role = CKP_ROLE_MASTER;
    }
    return ckpi_table_rehash(t, err);
}

bool
ckpi_rec_whole(const ckpi_rec *r)
{
    uint64_t whole = 1;
    for (unsigned i = 0; i < r->ndim; i++)
        whole *= r->shape[i];    /* the table was checked: it does not overflow */
    return r->numel == whole;
}

bool
ckpi_table_has_copies(const ckpi_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->rec[i].copy_of != CKPI_NO_TENSOR)
            return true;
    return false;
}

bool
ckpi_table_has_roles(const ckpi_table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const ckpi_rec *r = &t->rec[i];
        const bool given = r->role != CKP_ROLE_OTHER && r->role != CKP_ROLE_MASTER && r->copy_of == CKPI_NO_TENSOR;
        if (given || r->owner != CKPI_NO_TENSOR)
            return true;
    }
    return false;
}

uint32_t
ckpi_table_holder(const ckpi_table *t, uint32_t i)
{
    const uint32_t payload = t->rec[i].alias_of != CKPI_NO_TENSOR ? t->rec[i].alias_of : i;
    return t->rec[payload].copy_of != CKPI_NO_TENSOR ? t->rec[payload].copy_of : payload;
}

ckp_status
ckpi_table_from_state(ckpi_table **out, const ckp_state *s, ckp_error *err)
{
    *out = NULL;
    ckp_status st = CKP_OK;
    ckpi_table *t = ckpi_table_alloc(s->n);
    bool ok = t != NULL;
    for (size_t i = 0; ok && i < s->n; i++)
        ok = row_from(t, &t->rec[i], &s->t[i]);
    if (!ok)
        st = ckpi_fail(err, CKP_ENOMEM, "tensor table: out of memory");
    else
        st = ckpi_table_rehash(t, err);
    if (st == CKP_OK) {
        *out = t;
        t = NULL;
    }
    ckpi_table_free(t);
    return st;
}

ckp_status
ckpi_table_rehash(ckpi_table *t, ckp_error *err)
{
    ckpi_buf raw = CKPI_BUF_INIT_MAX(CKPI_MAX_TABLE);
    ckp_status st = ckpi_table_check(t, err);
    if (st == CKP_OK) {
        ckpi_table_encode(t, &raw);
        st = ckpi_buf_status(&raw, err, "tensor table");
    }
    if (st == CKP_OK)
        t->id = ckpi_hash128(raw.data, raw.len);
    ckpi_buf_free(&raw);
    return st;
}

/* ---- proof ---- */

static const char *
place_fault(const ckpi_rec *r, uint64_t whole, uint64_t *numel)
{
    if (r->flat) {
        *numel = r->numel;
        return r->flat_first > whole || r->numel > whole - r->flat_first ? "a range that leaves the tensor" : NULL;
    }
    *numel = whole;
    if (r->box_first == NULL)
        return NULL;
    for (unsigned i = 0; i < r->ndim; i++)
        if (r->box_first[i] > r->shape[i] || r->box_shape[i] > r->shape[i] - r->box_first[i])
            return "a box that leaves the tensor";
    return ckpi_shape_numel(r->box_shape, r->ndim, numel) ? NULL : "a box of more than 2^64 elements";
}

static const char *
row_fault(const ckpi_table *t, size_t i)
{
    ckpi_rec *r = &t->rec[i];
    uint64_t whole;
    if (!ckpi_shape_numel(r->shape, r->ndim, &whole))
        return "a shape of more than 2^64 elements";
    const char *fault = place_fault(r, whole, &r->numel);
    if (fault != NULL)
        return fault;
    if (!ckpi_dtype_bytes(r->dtype, r->numel, &r->bytes) || r->bytes > INT64_MAX)
        return "more than 2^63 bytes, or packed elements that do not end on a byte";
    if (r->owner != CKPI_NO_TENSOR && (r->owner >= t->n || r->owner == i))
        return "an owner that cannot be";
    if (r->alias_of != CKPI_NO_TENSOR) {
        const ckpi_rec *a = r->alias_of < i ? &t->rec[r->alias_of] : NULL;
        if (a == NULL || a->alias_of != CKPI_NO_TENSOR || a->dtype != r->dtype || a->numel != r->numel)
            return "an alias of a tensor that does not fit";
    }
    return NULL;
}

bool
ckpi_copy_dtypes(ckp_dtype master, ckp_dtype copy)
{
    return master == CKP_F32 && (copy == CKP_BF16 || copy == CKP_F16);
}

/* After all rows have their sizes: a copy may stand before its master. */
static const char *
copy_fault(const ckpi_table *t, size_t i)
{
    const ckpi_rec *r = &t->rec[i];
    if (r->copy_of == CKPI_NO_TENSOR)
        return NULL;
    const ckpi_rec *m = r->copy_of < t->n && r->copy_of != i ? &t->rec[r->copy_of] : NULL;
    if (m == NULL || r->role != CKP_ROLE_COPY || r->alias_of != CKPI_NO_TENSOR || m->alias_of != CKPI_NO_TENSOR ||
        m->copy_of != CKPI_NO_TENSOR || m->numel != r->numel || !ckpi_copy_dtypes(m->dtype, r->dtype))
        return "a copy of a tensor that does not fit";
    return NULL;
}

static ckp_status
row_error(const ckpi_table *t, size_t i, const char *fault, ckp_error *err)
{
    const ckp_status st = ckpi_fail(err, CKP_ECORRUPT, "row %zu of the tensor table: %s", i, fault);
    ckpi_fail_tensor(err, t->rec[i].name);
    return st;
}

ckp_status
ckpi_table_check(ckpi_table *t, ckp_error *err)
{
    ckpi_table_priv *priv = t->arena;
    ckpi_hindex_free(&priv->names);
    for (size_t i = 0; i < t->n; i++) {
        const char *fault = row_fault(t, i);
        if (fault == NULL && ckpi_table_find(t, t->rec[i].name) != CKPI_NO_TENSOR)
            fault = "a second tensor of this name";
        if (fault != NULL)
            return row_error(t, i, fault, err);
        if (!ckpi_hindex_put(&priv->names, ckpi_hash64(t->rec[i].name, strlen(t->rec[i].name)), (uint32_t)i))
            return ckpi_fail(err, CKP_ENOMEM, "tensor table: out of memory");
    }
    for (size_t i = 0; i < t->n; i++) {
        const char *fault = copy_fault(t, i);
        if (fault != NULL)
            return row_error(t, i, fault, err);
    }
    return CKP_OK;
}
