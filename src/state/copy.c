/* SPDX-License-Identifier: Apache-2.0 */
/* Logical (row-major) ranges of strided memory, out and in. Both directions walk the view in runs along its last dimension. */
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"
#include "state/state.h"

/* A view with as few dimensions as its strides allow, and a position in it. */
typedef struct walk {
    unsigned ndim;
    uint64_t shape[CKPI_MAX_DIMS];
    int64_t stride[CKPI_MAX_DIMS];
    uint64_t at[CKPI_MAX_DIMS];
} walk;

/* Drops dimensions of one element and joins neighbours that step like one: runs get longer, results do not change. */
static void
walk_init(walk *w, const uint64_t *shape, const int64_t *stride, unsigned ndim)
{
    w->ndim = 0;
    for (unsigned i = 0; i < ndim; i++) {
        if (shape[i] == 1)
            continue;
        const unsigned last = w->ndim - 1;
        if (w->ndim != 0 && w->stride[last] == stride[i] * (int64_t)shape[i]) {
            w->shape[last] *= shape[i];
            w->stride[last] = stride[i];
            continue;
        }
        w->shape[w->ndim] = shape[i];
        w->stride[w->ndim++] = stride[i];
    }
    if (w->ndim == 0) {
        w->shape[0] = 1;
        w->stride[0] = 0;
        w->ndim = 1;
    }
}

static void
walk_seek(walk *w, uint64_t first)
{
    for (unsigned i = w->ndim; i-- > 0;) {
        w->at[i] = first % w->shape[i];
        first /= w->shape[i];
    }
}

/* Elements from the view's first to the position. */
static int64_t
walk_offset(const walk *w)
{
    int64_t off = 0;
    for (unsigned i = 0; i < w->ndim; i++)
        off += (int64_t)w->at[i] * w->stride[i];
    return off;
}

static void
walk_skip_run(walk *w, uint64_t run)
{
    unsigned i = w->ndim - 1;
    w->at[i] += run;
    while (i > 0 && w->at[i] == w->shape[i]) {
        w->at[i] = 0;
        w->at[--i]++;
    }
}

/* n elements of `size` bytes; steps in bytes. A constant size lets the compiler turn memcpy into one load and one store. */
#define COPY_RUN(size)                                   \
    for (uint64_t i = 0; i < n; i++) {                   \
        memcpy(d, s, size);                              \
        d += dstep;                                      \
        s += sstep;                                      \
    }                                                    \
    break

static void
copy_run(uint8_t *d, int64_t dstep, const uint8_t *s, int64_t sstep, uint64_t n, size_t size)
{
    if (dstep == (int64_t)size && sstep == (int64_t)size) {
        memcpy(d, s, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1: COPY_RUN(1);
    case 2: COPY_RUN(2);
    case 4: COPY_RUN(4);
    case 8: COPY_RUN(8);
    case 16: COPY_RUN(16);
    default: COPY_RUN(size);
    }
}

/* One of the two sides is strided memory, the other contiguous: out says which. */
static void
copy_walk(walk *w, uint8_t *strided, uint8_t *dense, size_t size, uint64_t count, bool out)
{
    const unsigned last = w->ndim - 1;
    const int64_t step = w->stride[last] * (int64_t)size;
    while (count > 0) {
        const uint64_t run = CKPI_MIN(w->shape[last] - w->at[last], count);
        uint8_t *place = strided + walk_offset(w) * (int64_t)size;
        if (out)
            copy_run(dense, (int64_t)size, place, step, run, size);
        else
            copy_run(place, step, dense, (int64_t)size, run, size);
        dense += (size_t)run * size;
        count -= run;
        walk_skip_run(w, run);
    }
}

const void *
ckpi_tensor_direct(const ckpi_tensor *t, uint64_t first)
{
    const ckpi_dtype_info *info = ckpi_dtype_get(t->dtype);
    uint64_t off;
    if (t->data == NULL || t->pull != NULL || t->strides != NULL || info == NULL || !ckpi_dtype_bytes(t->dtype, first, &off))
        return NULL;
    return (const uint8_t *)t->data + off;
}

ckp_status
ckpi_tensor_copy_out(const ckpi_tensor *t, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    uint64_t before, bytes;
    if (first > t->numel || count > t->numel - first)
        return ckpi_fail(err, CKP_EINVAL, "%s: elements %llu to %llu asked for, it has %llu", t->name, (unsigned long long)first,
                         (unsigned long long)(first + count), (unsigned long long)t->numel);
    if (!ckpi_dtype_bytes(t->dtype, first, &before) || !ckpi_dtype_bytes(t->dtype, count, &bytes))
        return ckpi_fail(err, CKP_EINVAL, "%s: a range of packed elements must begin and end on a byte", t->name);
    if (count == 0)
        return CKP_OK;
    if (t->pull != NULL)
        return t->pull(t->pull_user, first, count, dst, err);
    if (t->strides == NULL) {
        memcpy(dst, (const uint8_t *)t->data + before, (size_t)bytes);
        return CKP_OK;
    }
    walk w;
    walk_init(&w, t->shape, t->strides, t->ndim);
    walk_seek(&w, first);
    /* The strided side is only read when out is true; the cast keeps one walker for both directions. */
    copy_walk(&w, (uint8_t *)(uintptr_t)t->data, dst, (size_t)(bytes / count), count, true);
    return CKP_OK;
}

void
ckpi_scatter(void *data, const uint64_t *shape, const int64_t *strides, unsigned ndim, size_t elem_bytes, uint64_t first, uint64_t count,
             const void *src)
{
    if (count == 0)
        return;
    if (strides == NULL) {
        memcpy((uint8_t *)data + (size_t)first * elem_bytes, src, (size_t)count * elem_bytes);
        return;
    }
    walk w;
    walk_init(&w, shape, strides, ndim);
    walk_seek(&w, first);
    copy_walk(&w, data, (uint8_t *)(uintptr_t)src, elem_bytes, count, false);
}
