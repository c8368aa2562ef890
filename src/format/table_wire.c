/* SPDX-License-Identifier: Apache-2.0 */
/* The table's bytes (docs/format.md, "Table"). References are distances, which repeat from row to row and so pack well. */
#include <string.h>
#include "base/cursor.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"
#include "format/table.h"
#include "format/wire.h"
#include "state/utf8.h"

#define MIN_ROW 9u             /* bytes: length and one letter of a name, role, dtype, three references, place, ndim */

enum { PLACE_WHOLE = 0, PLACE_BOX = 1, PLACE_FLAT = 2 };

/* 0: none. No row refers to itself, so no distance is 0. */
static void
put_ref(ckpi_buf *b, uint32_t to, size_t from)
{
    ckpi_buf_varint(b, to == CKPI_NO_TENSOR ? 0 : ckpi_zigzag((int64_t)to - (int64_t)from));
}

static void
put_dims(ckpi_buf *b, const uint64_t *dims, unsigned ndim)
{
    for (unsigned i = 0; i < ndim; i++)
        ckpi_buf_varint(b, dims[i]);
}

void
ckpi_table_encode(const ckpi_table *t, ckpi_buf *b)
{
    ckpi_buf_varint(b, t->n);
    for (size_t i = 0; i < t->n; i++) {
        const ckpi_rec *r = &t->rec[i];
        ckpi_buf_str(b, r->name, strlen(r->name));
        ckpi_buf_u8(b, (uint8_t)r->role);
        ckpi_buf_u8(b, (uint8_t)r->dtype);
        put_ref(b, r->owner, i);
        put_ref(b, r->alias_of, i);
        put_ref(b, r->copy_of, i);
        ckpi_buf_u8(b, r->flat ? PLACE_FLAT : r->box_first != NULL ? PLACE_BOX : PLACE_WHOLE);
        ckpi_buf_varint(b, r->ndim);
        put_dims(b, r->shape, r->ndim);
        if (r->flat) {
            ckpi_buf_varint(b, r->flat_first);
            ckpi_buf_varint(b, r->numel);
        } else if (r->box_first != NULL) {
            put_dims(b, r->box_first, r->ndim);
            put_dims(b, r->box_shape, r->ndim);
        }
    }
}

static uint32_t
get_ref(ckpi_rd *rd, size_t from)
{
    const uint64_t z = ckpi_rd_varint(rd, 2 * (uint64_t)CKPI_MAX_TENSORS);
    if (z == 0)
        return CKPI_NO_TENSOR;
    const int64_t to = (int64_t)from + ckpi_unzigzag(z);
    if (to < 0 || to >= (int64_t)CKPI_MAX_TENSORS) {
        ckpi_rd_fail(rd, "a reference inside the table");
        return CKPI_NO_TENSOR;
    }
    return (uint32_t)to;
}

/* NULL when the cursor failed or on lack of memory; the caller tells them apart by the cursor. */
static const uint64_t *
get_dims(ckpi_rd *rd, ckpi_table *t, unsigned ndim)
{
    uint64_t *dims = ckpi_table_dims(t, ndim);
    for (unsigned i = 0; dims != NULL && i < ndim; i++)
        dims[i] = ckpi_rd_varint(rd, UINT64_MAX);
    return dims;
}

static const char *
get_name(ckpi_rd *rd, ckpi_table *t)
{
    size_t len;
    const uint8_t *p = ckpi_rd_str(rd, CKPI_MAX_NAME, &len);
    if (p == NULL)
        return NULL;
    if (len == 0 || memchr(p, 0, len) != NULL || !ckpi_utf8_ok(p, len, false)) {
        ckpi_rd_fail(rd, "a name of UTF-8 without NUL");
        return NULL;
    }
    return ckpi_table_name(t, p, len);
}

static bool
get_place(ckpi_rd *rd, ckpi_table *t, ckpi_rec *r, unsigned place)
{
    if (place == PLACE_FLAT) {
        r->flat = true;
        r->flat_first = ckpi_rd_varint(rd, UINT64_MAX);
        r->numel = ckpi_rd_varint(rd, UINT64_MAX);
    } else if (place == PLACE_BOX) {
        r->box_first = get_dims(rd, t, r->ndim);
        r->box_shape = get_dims(rd, t, r->ndim);
        return r->box_first != NULL && r->box_shape != NULL;
    } else if (place != PLACE_WHOLE) {
        ckpi_rd_fail(rd, "whole, box or range");
    }
    return true;
}

/* CKP_ECORRUPT is left to the caller, who asks the cursor. */
static ckp_status
get_row(ckpi_rd *rd, ckpi_table *t, size_t i, ckp_error *err)
{
    ckpi_rec *r = &t->rec[i];
    r->name = get_name(rd, t);
    const unsigned role = ckpi_rd_u8(rd);
    const unsigned dtype = ckpi_rd_u8(rd);
    r->role = (ckp_role)role;
    r->dtype = (ckp_dtype)dtype;
    r->owner = get_ref(rd, i);
    r->alias_of = get_ref(rd, i);
    r->copy_of = get_ref(rd, i);
    const unsigned place = ckpi_rd_u8(rd);
    r->ndim = (unsigned)ckpi_rd_varint(rd, CKPI_MAX_DIMS);
    r->shape = get_dims(rd, t, r->ndim);
    const bool placed = get_place(rd, t, r, place);
    if (!ckpi_rd_ok(rd))
        return CKP_OK;
    if (role >= CKP_ROLE_COUNT_ || ckpi_dtype_get(r->dtype) == NULL)
        return ckpi_fail(err, CKP_EUNSUPPORTED, "%s: %s %u, which this version does not know", r->name != NULL ? r->name : "tensor table",
                         role >= CKP_ROLE_COUNT_ ? "role" : "dtype", role >= CKP_ROLE_COUNT_ ? role : dtype);
    if (r->name == NULL || r->shape == NULL || !placed)
        return ckpi_fail(err, CKP_ENOMEM, "tensor table: out of memory");
    return CKP_OK;
}

ckp_status
ckpi_table_decode(ckpi_table **out, const void *raw, size_t len, ckp_error *err)
{
    ckp_status st = CKP_OK;
    ckpi_rd rd = ckpi_rd_init(raw, len, 0);
    const uint64_t n = ckpi_rd_varint(&rd, CKPI_MAX_TENSORS);
    *out = NULL;
    if (n > ckpi_rd_left(&rd) / MIN_ROW)
        ckpi_rd_fail(&rd, "as many rows as the count says");
    if (!ckpi_rd_ok(&rd))
        return ckpi_rd_error(&rd, err, "tensor table, unpacked");
    ckpi_table *t = ckpi_table_alloc((size_t)n);
    if (t == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "tensor table: out of memory for %llu rows", (unsigned long long)n);
    for (size_t i = 0; i < n && st == CKP_OK && ckpi_rd_ok(&rd); i++)
        st = get_row(&rd, t, i, err);
    if (st == CKP_OK && !ckpi_rd_done(&rd))
        st = ckpi_rd_error(&rd, err, "tensor table, unpacked");
    if (st == CKP_OK)
        st = ckpi_table_check(t, err);
    if (st == CKP_OK) {
        t->id = ckpi_hash128(raw, len);
        *out = t;
        t = NULL;
    }
    ckpi_table_free(t);
    return st;
}
