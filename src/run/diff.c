/* SPDX-License-Identifier: Apache-2.0 */
/* Two states, tensor by tensor and value by value. Tensors are read in stretches from both, so that memory does not grow with them. */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/float.h"
#include "run/diff_numbers.h"
#include "run/diff_source.h"
#include "run/diff_tree.h"
#include "state/state.h"

/* Elements of a stretch: some hundred kilobytes, and a multiple of 8 for packed types. Chunks are longer, and decoded once all the same. */
#define STRETCH (UINT64_C(1) << 16)

typedef struct diff {
    ckpi_diff_source a, b;
    const ckp_diff_options *opt;
    uint8_t *x, *y;              /* a stretch of each */
    size_t room;
    uint64_t done, total;        /* bytes of elements, of both */
} diff;

static bool
same_layout(const ckpi_diff_item *x, const ckpi_diff_item *y)
{
    return x->dtype == y->dtype && x->ndim == y->ndim && (x->ndim == 0 || memcmp(x->shape, y->shape, x->ndim * sizeof *x->shape) == 0);
}

static uint64_t
bytes_of(const ckpi_diff_item *t, uint64_t n)
{
    uint64_t bytes = 0;
    (void)ckpi_dtype_bytes(t->dtype, n, &bytes);     /* checked when it was opened */
    return bytes;
}

static ckp_status
grow(diff *d, uint64_t bytes, ckp_error *err)
{
    if (bytes <= d->room)
        return CKP_OK;
    free(d->x);
    free(d->y);
    d->room = 0;
    d->x = ckpi_malloc((size_t)bytes, 1);
    d->y = ckpi_malloc((size_t)bytes, 1);
    if (d->x == NULL || d->y == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for two stretches of %llu bytes", (unsigned long long)bytes);
    d->room = (size_t)bytes;
    return CKP_OK;
}

static ckp_status
progress(diff *d, uint64_t bytes, ckp_error *err)
{
    d->done += bytes;
    if (d->opt->progress != NULL && d->opt->progress(d->opt->progress_user, d->done, d->total) != 0)
        return ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
    return CKP_OK;
}

static ckp_status
compare(diff *d, uint32_t i, uint32_t k, ckpi_diff_sums *sums, ckp_error *err)
{
    const ckpi_diff_item *t = &d->a.item[i];

    ckp_status st = grow(d, bytes_of(t, CKPI_MIN(t->numel, STRETCH)), err);
    for (uint64_t at = 0; st == CKP_OK && at < t->numel; at += STRETCH) {
        const uint64_t n = CKPI_MIN(STRETCH, t->numel - at);
        st = ckpi_diff_source_read(&d->a, i, at, n, d->x, err);
        if (st == CKP_OK)
            st = ckpi_diff_source_read(&d->b, k, at, n, d->y, err);
        if (st != CKP_OK)
            return st;
        const ckpi_fpenv env = ckpi_fp_enter();
        ckpi_diff_add(sums, t->dtype, d->x, d->y, (size_t)n);
        ckpi_fp_leave(env);
        st = progress(d, 2 * bytes_of(t, n), err);
    }
    return st;
}

/* In both, another name for a tensor that has one name in both. */
static bool
is_alias(const diff *d, uint32_t i, uint32_t k)
{
    const uint32_t p = d->a.item[i].payload, q = d->b.item[k].payload;
    return p != i && q != k && !d->a.item[p].left_out && !d->b.item[q].left_out && strcmp(d->a.item[p].name, d->b.item[q].name) == 0;
}

static ckp_status
tell(const diff *d, const ckp_diff_tensor *t, ckp_error *err)
{
    if (d->opt->tensor == NULL || d->opt->tensor(d->opt->user, t) == 0)
        return CKP_OK;
    return ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
}

static ckp_status
diff_pair(diff *d, uint32_t i, uint32_t k, ckp_error *err)
{
    const ckpi_diff_item *x = &d->a.item[i], *y = &d->b.item[k];
    ckp_diff_tensor t = {.name = x->name, .kind = CKP_DIFF_LAYOUT, .role = x->role != CKP_ROLE_OTHER ? x->role : y->role, .dtype_a = x->dtype,
                         .dtype_b = y->dtype, .ndim_a = x->ndim, .ndim_b = y->ndim, .shape_a = x->shape, .shape_b = y->shape, .numel = x->numel,
                         .alias = is_alias(d, i, k)};
    ckpi_diff_sums sums = {0};

    if (same_layout(x, y)) {
        const ckp_status st = compare(d, i, k, &sums, err);
        if (st != CKP_OK)
            return st;
        t.kind = sums.differ != 0 ? CKP_DIFF_VALUES : CKP_DIFF_SAME;
        t.differ = sums.differ;
        t.numbers = ckpi_diff_has_numbers(x->dtype);
        t.not_finite = sums.not_finite;
        t.max_abs = sums.max_abs;
        t.rms = ckpi_squares_rms(&sums.d, x->numel);
        t.rms_a = ckpi_squares_rms(&sums.a, x->numel);
    }
    return tell(d, &t, err);
}

static ckp_status
tell_alone(const diff *d, const ckpi_diff_item *x, bool of_a, ckp_error *err)
{
    ckp_diff_tensor t = {.name = x->name, .kind = of_a ? CKP_DIFF_ONLY_A : CKP_DIFF_ONLY_B, .role = x->role, .numel = x->numel};

    *(of_a ? &t.dtype_a : &t.dtype_b) = x->dtype;
    *(of_a ? &t.ndim_a : &t.ndim_b) = x->ndim;
    *(of_a ? &t.shape_a : &t.shape_b) = x->shape;
    return tell(d, &t, err);
}

static void
count_bytes(diff *d)
{
    for (uint32_t i = 0; i < d->a.n; i++) {
        const uint32_t k = d->a.item[i].left_out ? CKPI_NO_TENSOR : ckpi_diff_source_find(&d->b, d->a.item[i].name);
        if (k != CKPI_NO_TENSOR && same_layout(&d->a.item[i], &d->b.item[k]))
            d->total += 2 * bytes_of(&d->a.item[i], d->a.item[i].numel);
    }
}

static ckp_status
diff_tensors(diff *d, ckp_error *err)
{
    ckp_status st = CKP_OK;

    count_bytes(d);
    for (uint32_t i = 0; st == CKP_OK && i < d->a.n; i++) {
        if (d->a.item[i].left_out)
            continue;
        const uint32_t k = ckpi_diff_source_find(&d->b, d->a.item[i].name);
        st = k != CKPI_NO_TENSOR ? diff_pair(d, i, k, err) : tell_alone(d, &d->a.item[i], true, err);
    }
    for (uint32_t k = 0; st == CKP_OK && k < d->b.n; k++)
        if (!d->b.item[k].left_out && ckpi_diff_source_find(&d->a, d->b.item[k].name) == CKPI_NO_TENSOR)
            st = tell_alone(d, &d->b.item[k], false, err);
    return st;
}

static ckp_status
check(const ckp_diff_side *a, const ckp_diff_side *b, const ckp_diff_options *opt, ckp_error *err)
{
    const ckp_diff_side *const side[] = {a, b};

    if (opt == NULL || opt->size != sizeof *opt)
        return ckpi_fail(err, CKP_EINVAL, "diff: no options, or options of another version");
    for (int i = 0; i < 2; i++)
        if (side[i] == NULL || (side[i]->ck == NULL && side[i]->path == NULL) || (side[i]->n_bases != 0 && side[i]->bases == NULL))
            return ckpi_fail(err, CKP_EINVAL, "diff: NULL argument");
    return CKP_OK;
}

ckp_status
ckp_diff(const ckp_diff_side *a, const ckp_diff_side *b, const ckp_diff_options *opt, ckp_error *err)
{
    diff d = {.opt = opt};

    ckp_status st = check(a, b, opt, err);
    if (st == CKP_OK)
        st = ckpi_diff_source_open(&d.a, a, opt->only, err);
    if (st == CKP_OK)
        st = ckpi_diff_source_open(&d.b, b, opt->only, err);
    if (st == CKP_OK && opt->only != NULL && !d.a.has_object && !d.b.has_object)
        st = ckpi_fail(err, CKP_ENOTFOUND, "there is no tensor '%.200s/...' in either", opt->only);
    if (st == CKP_OK && opt->tensor != NULL)
        st = diff_tensors(&d, err);
    if (st == CKP_OK && opt->value != NULL && opt->only == NULL)
        st = ckpi_diff_trees(d.a.tree, d.a.tree_len, d.b.tree, d.b.tree_len, opt->value, opt->user, err);
    ckpi_diff_source_close(&d.a);
    ckpi_diff_source_close(&d.b);
    free(d.x);
    free(d.y);
    return st;
}
