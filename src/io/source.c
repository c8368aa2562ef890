/* SPDX-License-Identifier: Apache-2.0 */
#include "io/source.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/fail.h"

/* A view that spans more is gathered by single reads: slow, but no file can ask for more memory than this. */
#define SPAN_MAX ((uint64_t)128 << 20)

bool
ckpi_source_reach(const uint64_t *shape, const int64_t *strides, unsigned ndim, uint64_t *elems)
{
    uint64_t last = 0;
    *elems = 0;
    for (unsigned i = 0; i < ndim; i++)
        if (shape[i] == 0)
            return true;
    for (unsigned i = 0; i < ndim; i++) {
        uint64_t steps;
        if (strides[i] < 0 || !ckpi_mul_u64((uint64_t)strides[i], shape[i] - 1, &steps) || !ckpi_add_u64(last, steps, &last))
            return false;
    }
    return ckpi_add_u64(last, 1, elems);
}

bool
ckpi_source_contiguous(const uint64_t *shape, const int64_t *strides, unsigned ndim)
{
    uint64_t step = 1;
    for (unsigned i = 0; i < ndim; i++)
        if (shape[i] == 0)
            return true;
    for (unsigned i = ndim; i-- > 0;) {
        if (shape[i] == 1)
            continue;
        if (strides[i] < 0 || (uint64_t)strides[i] != step || !ckpi_mul_u64(step, shape[i], &step))
            return false;
    }
    return true;
}

static ckp_status
load_span(const ckpi_source *s, ckp_error *err)
{
    ckpi_source_file *f = s->file;
    if (f->span_of == s)
        return CKP_OK;
    free(f->span);
    f->span_of = NULL;
    f->span = ckpi_malloc((size_t)s->span_bytes, 1);
    if (f->span == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a strided tensor of %llu bytes", (unsigned long long)s->span_bytes);
    const ckp_status st = ckpi_reader_read(f->r, s->offset, f->span, (size_t)s->span_bytes, err);
    if (st == CKP_OK)
        f->span_of = s;
    return st;
}

/* The state room walks strided memory; the span is such memory. */
static ckp_status
gather_memory(const ckpi_source *s, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    const ckp_status st = load_span(s, err);
    if (st != CKP_OK)
        return st;
    uint64_t shape[64];
    int64_t strides[64];
    memcpy(shape, s->shape, s->ndim * sizeof *shape);
    memcpy(strides, s->strides, s->ndim * sizeof *strides);
    char name[] = "view";
    const ckpi_tensor t = {.name = name, .dtype = s->dtype, .ndim = s->ndim, .shape = shape, .strides = strides, .data = s->file->span,
                           .numel = s->numel};
    return ckpi_tensor_copy_out(&t, first, count, dst, err);
}

/* Element `i` in logical order: its place in elements from the view's first; *run: how many follow it side by side in the file. */
static uint64_t
place_of(const ckpi_source *s, uint64_t i, uint64_t *run)
{
    uint64_t at = 0;
    *run = 1;
    for (unsigned d = s->ndim; d-- > 0;) {
        const uint64_t k = i % s->shape[d];
        if (d == s->ndim - 1 && s->strides[d] == 1)
            *run = s->shape[d] - k;
        at += k * (uint64_t)s->strides[d];
        i /= s->shape[d];
    }
    return at;
}

static ckp_status
gather_reads(const ckpi_source *s, uint64_t first, uint64_t count, uint8_t *dst, size_t elem, ckp_error *err)
{
    while (count > 0) {
        uint64_t run;
        const uint64_t at = place_of(s, first, &run);
        const size_t n = (size_t)CKPI_MIN(run, count);
        const ckp_status st = ckpi_reader_read(s->file->r, s->offset + at * elem, dst, n * elem, err);
        if (st != CKP_OK)
            return st;
        dst += n * elem;
        first += n;
        count -= n;
    }
    return CKP_OK;
}

/* Sign bits of the numbers that elements are made of: of every other one for a conjugate. */
static void
flip(const ckpi_source *s, uint8_t *p, uint64_t bytes)
{
    const ckpi_dtype_info *info = ckpi_dtype_get(s->dtype);
    const size_t part = info->part_bytes;
    const bool pairs = info->kind == CKPI_KIND_COMPLEX;
    for (uint64_t i = 0; i < bytes / part; i++)
        if (pairs && i % 2 != 0 ? s->flip_odd : s->flip_even)
            p[i * part + part - 1] ^= 0x80;
}

static ckp_status
read_elements(const ckpi_source *s, uint64_t first, uint64_t before, uint64_t count, uint64_t bytes, void *dst, ckp_error *err)
{
    if (s->strides == NULL)
        return ckpi_reader_read(s->file->r, s->offset + before, dst, (size_t)bytes, err);
    if (s->span_bytes <= SPAN_MAX)
        return gather_memory(s, first, count, dst, err);
    return gather_reads(s, first, count, dst, (size_t)(bytes / count), err);
}

static ckp_status
pull(const ckpi_source *s, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    uint64_t before, bytes;
    if (first > s->numel || count > s->numel - first || !ckpi_dtype_bytes(s->dtype, first, &before) ||
        !ckpi_dtype_bytes(s->dtype, count, &bytes))
        return ckpi_fail(err, CKP_EINVAL, "elements %llu and %llu more were asked for, it has %llu", (unsigned long long)first,
                         (unsigned long long)count, (unsigned long long)s->numel);
    if (count == 0)
        return CKP_OK;
    const ckp_status st = read_elements(s, first, before, count, bytes, dst, err);
    if (st == CKP_OK && (s->flip_even || s->flip_odd))
        flip(s, dst, bytes);
    return st;
}

ckp_status
ckpi_source_pull(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    const ckpi_source *s = user;
    const ckp_status st = pull(s, first, count, dst, err);
    if (st != CKP_OK)
        ckpi_fail_tensor(err, s->name);
    return st;
}

void
ckpi_source_file_free(ckpi_source_file *f)
{
    free(f->span);
    f->span = NULL;
    f->span_of = NULL;
}
