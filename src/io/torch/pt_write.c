/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zip .pt as a stream: a few small entries, then storages as their tensors come, data.pkl last, because arrays and long byte strings stand
 * in it. torch finds entries by the archive's directory, so their order is free.
 */
#include "io/torch/pt_write.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"

static ckp_status
add_entry(const ckpi_pt *p, const char *name, const void *data, size_t n, ckp_error *err)
{
    char path[CKPI_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", p->name, name);
    return ckpi_zip_add(p->z, path, data, n, err);
}

static ckp_status
begin(ckpi_export *e, uint32_t i, ckp_error *err)
{
    const ckpi_pt *p = e->more;
    char path[CKPI_PATH_MAX];
    if ((p->use[i] & CKPI_PT_STORAGE) == 0)
        return CKP_OK;
    (void)snprintf(path, sizeof path, "%s/data/%" PRIu32, p->name, i);
    return ckpi_zip_begin(p->z, path, p->t[i].bytes, err);
}

static ckp_status
data(ckpi_export *e, const void *src, size_t n, ckp_error *err)
{
    ckpi_pt *p = e->more;
    const uint32_t i = e->now;
    if ((p->use[i] & CKPI_PT_INLINE) != 0) {
        ckpi_buf_put(&p->data[i], src, n);
        const ckp_status st = ckpi_buf_status(&p->data[i], err, p->t[i].name);
        if (st != CKP_OK)
            return st;
    }
    return (p->use[i] & CKPI_PT_STORAGE) != 0 ? ckpi_zip_put(p->z, src, n, err) : CKP_OK;
}

static ckp_status
end(ckpi_export *e, uint32_t i, ckp_error *err)
{
    const ckpi_pt *p = e->more;
    return (p->use[i] & CKPI_PT_STORAGE) != 0 ? ckpi_zip_end(p->z, err) : CKP_OK;
}

static ckp_status
finish(ckpi_export *e, ckp_error *err)
{
    ckpi_pt *p = e->more;
    ckp_status st = ckpi_pt_pickle(p, err);
    if (st == CKP_OK)
        st = add_entry(p, "data.pkl", p->pkl.b.data, p->pkl.b.len, err);
    return st == CKP_OK ? ckpi_zip_finish(p->z, err) : st;
}

static void
free_more(ckpi_export *e)
{
    ckpi_pt *p = e->more;
    if (p == NULL)
        return;
    for (size_t i = 0; p->data != NULL && i < p->n; i++)
        ckpi_buf_free(&p->data[i]);
    free(p->data);
    free(p->use);
    ckpi_buf_free(&p->pkl.b);
    ckpi_zip_writer_free(p->z);
    free(p);
}

static const ckpi_export_ops pt_ops = {.begin = begin, .data = data, .end = end, .finish = finish, .free = free_more};

static ckp_status
pt_new(ckpi_pt **out, const char *name, const ckpi_out_tensor *t, size_t n, const void *tree, size_t tree_len, ckp_error *err)
{
    ckpi_pt *p = ckpi_calloc(1, sizeof *p);
    *out = p;
    if (p == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "export: out of memory");
    p->name = name;
    p->t = t;
    p->n = n;
    p->tree = tree;
    p->tree_len = tree != NULL ? tree_len : 0;
    p->use = ckpi_calloc(n, 1);
    p->data = ckpi_calloc(n, sizeof *p->data);
    return p->use != NULL && p->data != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "export: out of memory");
}

/* What torch's reader wants to find besides the pickle and the storages. */
static ckp_status
add_heads(ckpi_pt *p, ckpi_writer *w, ckp_error *err)
{
    ckp_status st = ckpi_zip_writer_new(&p->z, w, err);
    if (st == CKP_OK)
        st = add_entry(p, "version", "3\n", 2, err);
    if (st == CKP_OK)
        st = add_entry(p, "byteorder", "little", 6, err);
    return st == CKP_OK ? add_entry(p, ".storage_alignment", "64", 2, err) : st;
}

ckp_status
ckpi_export_pt(ckpi_export **out, ckpi_writer *w, const char *archive_name, const ckpi_out_tensor *t, size_t n, const void *tree, size_t tree_len,
               ckp_error *err)
{
    ckpi_export *e = NULL;
    ckpi_pt *p = NULL;
    *out = NULL;
    if (archive_name == NULL || archive_name[0] == 0 || strlen(archive_name) > 200 || strchr(archive_name, '/') != NULL)
        return ckpi_fail(err, CKP_EINVAL, "export: a bad name for the archive's folder");
    ckp_status st = ckpi_path_ok(archive_name, err);
    if (st == CKP_OK)
        st = ckpi_export_new(&e, w, t, n, err);
    if (st != CKP_OK)
        return st;
    e->ops = &pt_ops;
    st = pt_new(&p, archive_name, t, n, tree, tree_len, err);
    e->more = p;
    if (st == CKP_OK)
        st = ckpi_pt_plan(p, err);
    for (uint32_t i = 0; i < n; i++)
        if (t[i].alias_of == UINT32_MAX)
            e->order[e->n_order++] = i;
    if (st == CKP_OK)
        st = add_heads(p, w, err);
    if (st != CKP_OK) {
        ckpi_export_free(e);
        return st;
    }
    *out = e;
    return CKP_OK;
}
