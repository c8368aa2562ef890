/* SPDX-License-Identifier: Apache-2.0 */
#include "io_help.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"

ckp_status
help_open(ckpi_foreign **f, ckpi_reader **r, const void *p, size_t n, ckp_error *err)
{
    *f = NULL;
    *r = NULL;
    const ckp_status st = ckpi_reader_mem(r, p, n, "file under test", err);
    return st == CKP_OK ? ckpi_foreign_open(f, *r, NULL, err) : st;
}

static ckp_status
pull_all(const ckp_state *s, ckp_error *err)
{
    ckp_status st = CKP_OK;
    for (size_t i = 0; i < s->n && st == CKP_OK; i++) {
        const uint64_t most = s->t[i].numel < 4096 ? s->t[i].numel : 4096;
        uint64_t bytes = 0;
        if (!ckpi_dtype_bytes(s->t[i].dtype, most, &bytes))
            continue;
        uint8_t *p = ckpi_malloc((size_t)bytes, 1);
        st = p == NULL ? ckpi_fail(err, CKP_ENOMEM, "out of memory") : ckpi_tensor_copy_out(&s->t[i], 0, most, p, err);
        free(p);
    }
    return st;
}

ckp_status
help_read_all(const void *p, size_t n, ckp_error *err)
{
    ckpi_foreign *f;
    ckpi_reader *r;
    ckp_status st = help_open(&f, &r, p, n, err);
    if (st == CKP_OK)
        st = ckpi_state_seal(ckpi_foreign_state(f), err);
    if (st == CKP_OK)
        st = pull_all(ckpi_foreign_state(f), err);
    ckpi_foreign_close(f);
    ckpi_reader_free(r);
    return st;
}

void
help_safetensors(ckpi_buf *b, const char *json, const void *data, size_t n)
{
    ckpi_buf_u64(b, strlen(json));
    ckpi_buf_put(b, json, strlen(json));
    ckpi_buf_put(b, data, n);
}

ckpi_out_tensor *
help_rows(const ckp_state *s)
{
    ckpi_out_tensor *t = ckpi_calloc(s->n, sizeof *t);
    for (size_t i = 0; t != NULL && i < s->n; i++)
        t[i] = (ckpi_out_tensor){s->t[i].name, s->t[i].dtype, s->t[i].ndim, s->t[i].shape, s->t[i].bytes, s->t[i].alias_of};
    return t;
}

static ckp_status
feed_one(ckpi_export *e, const ckpi_tensor *t, uint64_t step, ckp_error *err)
{
    ckp_status st = CKP_OK;
    for (uint64_t at = 0; at < t->numel && st == CKP_OK; at += step) {
        const uint64_t n = CKPI_MIN(step, t->numel - at);
        uint64_t bytes = 0;
        if (!ckpi_dtype_bytes(t->dtype, n, &bytes))
            return ckpi_fail(err, CKP_EINVAL, "step splits a byte");
        uint8_t *p = ckpi_malloc((size_t)bytes, 1);
        st = p == NULL ? ckpi_fail(err, CKP_ENOMEM, "out of memory") : ckpi_tensor_copy_out(t, at, n, p, err);
        if (st == CKP_OK)
            st = ckpi_export_put(e, p, (size_t)bytes, err);
        free(p);
    }
    return st;
}

ckp_status
help_feed(ckpi_export *e, const ckp_state *s, uint64_t step, ckp_error *err)
{
    uint32_t i;
    while ((i = ckpi_export_next(e)) != UINT32_MAX) {
        ckp_status st = ckpi_export_begin(e, i, err);
        if (st == CKP_OK)
            st = feed_one(e, &s->t[i], step, err);
        if (st != CKP_OK)
            return st;
    }
    return ckpi_export_finish(e, err);
}
