/* SPDX-License-Identifier: Apache-2.0 */
#include "state/view.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"

void
ckpi_view_free(ckpi_tensor *row)
{
    free(row->shape);      /* the one block that holds all dims */
    row->shape = NULL;
}

/* A newer caller may know more fields; those it set are refused, not ignored. */
static bool
size_ok(const ckp_tensor *t)
{
    const uint8_t *tail = (const uint8_t *)t + sizeof *t;
    if (t->size < sizeof *t)
        return false;
    for (size_t i = 0; i < t->size - sizeof *t; i++)
        if (tail[i] != 0)
            return false;
    return true;
}

/* Row-major strides; dimensions of one element may say anything. An empty tensor is contiguous. */
static bool
is_contiguous(const ckp_tensor *t, uint64_t numel)
{
    uint64_t step = 1;
    if (t->strides == NULL || numel == 0)
        return true;
    for (unsigned i = t->ndim; i-- > 0;) {
        if (t->shape[i] != 1 && (t->strides[i] < 0 || (uint64_t)t->strides[i] != step))
            return false;
        step *= t->shape[i];
    }
    return true;
}

/* The farthest element must be reachable with pointer arithmetic: every |stride| * (extent - 1) in bytes, and their sum. */
static bool
reach_ok(const ckp_tensor *t, uint64_t elem_bytes)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < t->ndim; i++) {
        const uint64_t steps = t->strides[i] < 0 ? 0 - (uint64_t)t->strides[i] : (uint64_t)t->strides[i];
        uint64_t reach;
        /* times the extent, not extent - 1: the walker compares such products */
        if (t->shape[i] == 1)
            continue;
        if (!ckpi_mul_u64(steps, t->shape[i], &reach) || !ckpi_mul_u64(reach, elem_bytes, &reach) || !ckpi_add_u64(sum, reach, &sum))
            return false;
    }
    return sum <= PTRDIFF_MAX;
}

/* What this process holds must lie inside the global tensor. */
static const char *
place_fault(const ckp_tensor *t, uint64_t numel)
{
    uint64_t whole;
    if (t->global_shape == NULL)
        return t->box_first != NULL || t->flat ? "a box or flat range without a global shape" : NULL;
    if (!ckpi_shape_numel(t->global_shape, t->ndim, &whole))
        return "a global shape of more than 2^64 elements";
    if (t->flat) {
        if (t->box_first != NULL)
            return "both a box and a flat range";
        return t->flat_first > whole || numel > whole - t->flat_first ? "a flat range that leaves the global tensor" : NULL;
    }
    for (unsigned i = 0; i < t->ndim; i++) {
        const uint64_t first = t->box_first != NULL ? t->box_first[i] : 0;
        if (first > t->global_shape[i] || t->shape[i] > t->global_shape[i] - first)
            return "a box that leaves the global tensor";
    }
    return NULL;
}

static const char *
view_fault(const ckp_tensor *t, const ckpi_dtype_info *info, uint64_t *numel, uint64_t *bytes)
{
    if (!size_ok(t))
        return "ckp_tensor of another version: initialise it with CKP_TENSOR_INIT";
    if (info == NULL)
        return "a dtype that does not exist";
    if (t->ndim > CKPI_MAX_DIMS || (t->ndim != 0 && t->shape == NULL))
        return "more than 64 dimensions, or no shape";
    if (!ckpi_shape_numel(t->shape, t->ndim, numel) || *numel > INT64_MAX)
        return "a shape of more than 2^63 elements";
    if (!ckpi_dtype_bytes(t->dtype, *numel, bytes) || *bytes > PTRDIFF_MAX)
        return "more bytes than memory has, or packed elements that do not end on a byte";
    if (*numel != 0 && t->data == NULL && t->pull == NULL)
        return "a null data pointer";
    if (t->pull == NULL && !is_contiguous(t, *numel)) {
        if (info->bits % 8 != 0)
            return "packed elements with strides";
        if (!reach_ok(t, info->bits / 8))
            return "strides that leave the address space";
    }
    return place_fault(t, *numel);
}

/* One block for all that is ndim long; optional parts become pointers into it. */
static bool
copy_dims(ckpi_tensor *row, const ckp_tensor *t, bool with_strides)
{
    const size_t n = t->ndim;
    const size_t bytes = n * sizeof *row->shape;
    uint64_t *at = ckpi_calloc(n * 4 + 1, sizeof *at);
    if (at == NULL)
        return false;
    row->shape = at;
    if (n == 0)
        return true;
    memcpy(row->shape, t->shape, bytes);
    if (with_strides)
        row->strides = memcpy(at + n, t->strides, bytes);
    if (t->global_shape != NULL)
        row->global_shape = memcpy(at + 2 * n, t->global_shape, bytes);
    if (t->box_first != NULL)
        row->box_first = memcpy(at + 3 * n, t->box_first, bytes);
    return true;
}

ckp_status
ckpi_view_init(ckpi_tensor *row, const char *name, const ckp_tensor *t, ckp_error *err)
{
    const char *fault = view_fault(t, ckpi_dtype_get(t->dtype), &row->numel, &row->bytes);
    if (fault != NULL) {
        const ckp_status st = ckpi_fail(err, CKP_EINVAL, "%s: %s", name, fault);
        ckpi_fail_tensor(err, name);
        return st;
    }
    if (!copy_dims(row, t, t->pull == NULL && !is_contiguous(t, row->numel)))
        return ckpi_fail(err, CKP_ENOMEM, "%s: out of memory", name);
    row->dtype = t->dtype;
    row->ndim = t->ndim;
    row->flat = t->flat;
    row->flat_first = t->flat ? t->flat_first : 0;
    row->lossless = t->lossless;
    row->data = t->data;
    row->pull = t->pull;
    row->pull_user = t->pull_user;
    row->shared_pull = t->shared_pull;
    return CKP_OK;
}

static bool
same_dims(const void *a, const void *b, unsigned ndim)
{
    if (a == NULL || b == NULL)
        return a == b;
    return memcmp(a, b, ndim * sizeof(uint64_t)) == 0;
}

bool
ckpi_view_same_shape(const ckpi_tensor *a, const ckpi_tensor *b)
{
    return a->ndim == b->ndim && a->flat == b->flat && a->flat_first == b->flat_first && same_dims(a->shape, b->shape, a->ndim) &&
           same_dims(a->global_shape, b->global_shape, a->ndim) && same_dims(a->box_first, b->box_first, a->ndim);
}

bool
ckpi_view_same_payload(const ckpi_tensor *a, const ckpi_tensor *b)
{
    return a->data == b->data && a->pull == NULL && b->pull == NULL && a->dtype == b->dtype && a->ndim == b->ndim &&
           same_dims(a->shape, b->shape, a->ndim) && same_dims(a->strides, b->strides, a->ndim);
}

uint64_t
ckpi_view_payload_hash(const ckpi_tensor *t)
{
    /* Shape and address tell nearly all views apart; the rest is left to the comparison. */
    uint64_t key[CKPI_MAX_DIMS + 2] = {(uint64_t)(uintptr_t)t->data, (uint64_t)t->dtype << 8 | t->ndim};
    memcpy(key + 2, t->shape, t->ndim * sizeof *key);
    return ckpi_hash64(key, (t->ndim + 2u) * sizeof *key);
}
