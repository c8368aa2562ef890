/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tensors of a file are to a training. A lossless file of a .pt stores no roles: it needs none. For a reader of listings they are
 * found as they would be for a lossy profile, from the names, shapes and the tree; nothing is decoded.
 */
#include <string.h>
#include "base/dtype.h"
#include "base/fail.h"
#include "io/io.h"
#include "run/checkpoint.h"
#include "state/state.h"

/* Matching may ask for a step counter: it is not needed for a role. */
static ckp_status
no_elements(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    const ckpi_rec *r = user;
    uint64_t n = 0;

    (void)first;
    (void)err;
    if (ckpi_dtype_bytes(r->dtype, count, &n))
        (void)memset(dst, 0, (size_t)n);
    return CKP_OK;
}

static ckp_status
add(ckp_state *s, ckpi_rec *r, ckp_error *err)
{
    ckp_tensor t = CKP_TENSOR_INIT;
    uint32_t at = 0;

    t.dtype = r->dtype;
    t.ndim = r->ndim;
    t.shape = r->shape;
    t.pull = no_elements;
    t.pull_user = r;
    const ckp_status st = ckp_state_add_tensor(s, r->name, CKP_ROLE_OTHER, NULL, &t, &at, err);
    if (st == CKP_OK)
        s->t[at].alias_of = r->alias_of;
    return st;
}

static ckp_status
match(const ckp_checkpoint *ck, ckp_role *role, ckp_error *err)
{
    const ckpi_table *t = ck->lin->table;
    ckp_state *s = NULL;
    size_t len = 0;

    const void *tree = ckp_checkpoint_tree(ck, &len);
    ckp_status st = ckp_state_new(&s, err);
    for (size_t i = 0; st == CKP_OK && i < t->n; i++)
        st = add(s, &t->rec[i], err);
    if (st == CKP_OK) {
        ckpi_buf_put(&s->tree, tree, len);
        st = ckpi_buf_status(&s->tree, err, "state tree");
    }
    if (st == CKP_OK)
        st = ckpi_match_state(s, NULL, NULL, err);
    for (size_t i = 0; st == CKP_OK && i < t->n; i++)
        role[i] = s->t[i].role;
    ckp_state_free(s);
    return st;
}

ckp_status
ckp_checkpoint_roles(const ckp_checkpoint *ck, ckp_role *role, size_t n, bool *matched, ckp_error *err)
{
    ckp_status st = ckpi_checkpoint_check(ck, err);
    if (st != CKP_OK)
        return st;
    const ckpi_table *t = ck->lin->table;
    if (role == NULL || matched == NULL || n != t->n)
        return ckpi_fail(err, CKP_EINVAL, "checkpoint_roles: NULL argument, or not a role a tensor");
    *matched = !ckpi_table_has_roles(t);
    if (*matched)
        st = match(ck, role, err);
    for (size_t i = 0; st == CKP_OK && i < n; i++)
        if (!*matched || t->rec[i].role != CKP_ROLE_OTHER)
            role[i] = t->rec[i].role;
    return st;
}
