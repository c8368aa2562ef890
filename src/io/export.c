/* SPDX-License-Identifier: Apache-2.0 */
#include "io/export.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/fail.h"

ckp_status
ckpi_export_new(ckpi_export **out, ckpi_writer *w, const ckpi_out_tensor *t, size_t n, ckp_error *err)
{
    *out = NULL;
    if (w == NULL || (n != 0 && t == NULL) || n >= UINT32_MAX)
        return ckpi_fail(err, CKP_EINVAL, "export: NULL or too many tensors");
    ckpi_export *e = ckpi_calloc(1, sizeof *e);
    if (e != NULL) {
        e->order = ckpi_malloc(n, sizeof *e->order);
        e->fed = ckpi_calloc(n, 1);
    }
    if (e == NULL || e->order == NULL || e->fed == NULL) {
        ckpi_export_free(e);
        return ckpi_fail(err, CKP_ENOMEM, "export: out of memory");
    }
    e->w = w;
    e->t = t;
    e->n = n;
    e->now = UINT32_MAX;
    *out = e;
    return CKP_OK;
}

uint32_t
ckpi_export_next(const ckpi_export *e)
{
    size_t at = e->at;
    while (at < e->n_order && e->fed[e->order[at]])
        at++;
    return at < e->n_order ? e->order[at] : UINT32_MAX;
}

const uint32_t *
ckpi_export_order(const ckpi_export *e, size_t *n)
{
    *n = e->n_order;
    return e->order;
}

static ckp_status
end(ckpi_export *e, ckp_error *err)
{
    const uint32_t i = e->now;
    e->now = UINT32_MAX;
    e->n_fed++;
    while (e->at < e->n_order && e->fed[e->order[e->at]])
        e->at++;
    return e->ops->end != NULL ? e->ops->end(e, i, err) : CKP_OK;
}

bool
ckpi_export_wants(const ckpi_export *e, uint32_t i)
{
    if (i >= e->n || e->fed[i] || e->now != UINT32_MAX)
        return false;
    if (e->fixed)
        return ckpi_export_next(e) == i;
    return e->t[i].alias_of == UINT32_MAX;
}

ckp_status
ckpi_export_begin(ckpi_export *e, uint32_t i, ckp_error *err)
{
    if (e->now != UINT32_MAX)
        return ckpi_fail(err, CKP_ESTATE, "export: '%s' is not complete, %llu bytes are missing", e->t[e->now].name,
                         (unsigned long long)e->left);
    if (!ckpi_export_wants(e, i))
        return ckpi_fail(err, CKP_ESTATE, "export: '%s' is not what comes next", i < e->n ? e->t[i].name : "?");
    e->fed[i] = 1;
    e->now = i;
    e->left = e->t[i].bytes;
    const ckp_status st = e->ops->begin != NULL ? e->ops->begin(e, i, err) : CKP_OK;
    return st == CKP_OK && e->left == 0 ? end(e, err) : st;
}

ckp_status
ckpi_export_skip_empty(ckpi_export *e, ckp_error *err)
{
    for (uint32_t i = ckpi_export_next(e); i != UINT32_MAX && e->t[i].bytes == 0; i = ckpi_export_next(e)) {
        const ckp_status st = ckpi_export_begin(e, i, err);
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

ckp_status
ckpi_export_put(ckpi_export *e, const void *p, size_t n, ckp_error *err)
{
    if (n == 0)
        return CKP_OK;
    if (e->now == UINT32_MAX || n > e->left)
        return ckpi_fail(err, CKP_EINVAL, "export: %zu bytes that no tensor has room for", n);
    const ckp_status st = e->ops->data != NULL ? e->ops->data(e, p, n, err) : ckpi_writer_put(e->w, p, n, err);
    if (st != CKP_OK)
        return st;
    e->left -= n;
    return e->left == 0 ? end(e, err) : CKP_OK;
}

ckp_status
ckpi_export_finish(ckpi_export *e, ckp_error *err)
{
    if (e->finished || e->now != UINT32_MAX || e->n_fed != e->n_order)
        return ckpi_fail(err, CKP_ESTATE, "export: finished twice, or only %zu of %zu tensors were written", e->n_fed, e->n_order);
    e->finished = true;
    return e->ops->finish != NULL ? e->ops->finish(e, err) : CKP_OK;
}

void
ckpi_export_free(ckpi_export *e)
{
    if (e == NULL)
        return;
    if (e->ops != NULL && e->ops->free != NULL)
        e->ops->free(e);
    free(e->order);
    free(e->fed);
    free(e);
}
