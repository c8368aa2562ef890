/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "base/fail.h"
#include "io/dtypes.h"
#include "io/foreign.h"
#include "io/torch/pt_write.h"
#include "state/state.h"

uint32_t
ckpi_pt_root(const ckpi_pt *p, uint32_t i)
{
    return p->t[i].alias_of != UINT32_MAX ? p->t[i].alias_of : i;
}

/* safetensors counts halves of a byte, torch bytes. */
static bool
f4(const ckpi_out_tensor *t)
{
    return t->dtype == CKP_F4_PACKED && t->ndim != 0 && t->shape[t->ndim - 1] % 2 == 0;
}

static ckp_status
need_storage(ckpi_pt *p, uint32_t i, ckp_error *err)
{
    if (ckpi_torch_dtype_of(p->t[i].dtype) == NULL && !f4(&p->t[i])) {
        const ckp_status st = ckpi_fail(err, CKP_EUNSUPPORTED, "torch has no tensors of dtype %s", ckp_dtype_name(p->t[i].dtype));
        ckpi_fail_tensor(err, p->t[i].name);
        return st;
    }
    p->use[ckpi_pt_root(p, i)] |= CKPI_PT_STORAGE;
    return CKP_OK;
}

static ckp_status
need(ckpi_pt *p, const ckp_tree_node *node, ckp_error *err)
{
    if (node->tensor >= p->n || ckpi_pt_root(p, node->tensor) >= p->n)
        return ckpi_fail(err, CKP_ECORRUPT, "state tree: tensor %u of a table of %zu", node->tensor, p->n);
    if (node->as != CKP_AS_NUMPY && node->as != CKP_AS_PYTHON_BYTES && node->as != CKP_AS_PYTHON_INTS)
        return need_storage(p, node->tensor, err);
    p->use[ckpi_pt_root(p, node->tensor)] |= CKPI_PT_INLINE;
    return CKP_OK;
}

static ckp_status
plan_tree(ckpi_pt *p, ckp_error *err)
{
    ckp_tree_reader r;
    ckp_tree_node node;
    ckp_status st;
    ckp_tree_reader_init(&r, p->tree, p->tree_len);
    while ((st = ckp_tree_next(&r, &node, err)) == CKP_OK)
        if (node.type == CKP_TREE_TENSOR && (st = need(p, &node, err)) != CKP_OK)
            return st;
    return st == CKP_ENOTFOUND ? CKP_OK : st;
}

ckp_status
ckpi_pt_plan(ckpi_pt *p, ckp_error *err)
{
    const void *header;
    size_t len;
    ckp_status st = p->tree_len != 0 ? ckpi_tree_st_header(p->tree, p->tree_len, &header, &len, err) : CKP_ENOTFOUND;
    if (st == CKP_OK)
        p->tree_len = 0;        /* a safetensors file is a plain dict of tensors */
    else if (st != CKP_ENOTFOUND)
        return st;
    if (p->tree_len != 0)
        return plan_tree(p, err);
    st = CKP_OK;
    for (uint32_t i = 0; i < p->n && st == CKP_OK; i++)
        st = ckpi_pt_root(p, i) < p->n ? need_storage(p, i, err) : ckpi_fail(err, CKP_EINVAL, "an alias of no tensor");
    return st;
}
