/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include "base/checked.h"
#include "base/fail.h"
#include "io/io.h"
#include "run/stored.h"

/* Elements of every tensor begin on a border that suits all dtypes. */
#define BORDER 64u

static ckp_status
measure(const ckpi_table *t, uint64_t max_bytes, size_t *bytes, ckp_error *err)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < t->n; i++) {
        const ckpi_rec *r = &t->rec[i];
        if (r->flat || r->box_shape != NULL) {
            const ckp_status st = ckpi_fail(err, CKP_EUNSUPPORTED, "a part of a tensor: one shard of several cannot be planned for");
            ckpi_fail_tensor(err, r->name);
            return st;
        }
        sum += r->alias_of == CKPI_NO_TENSOR ? r->bytes + BORDER : 0;
    }
    if (sum > max_bytes || sum > SIZE_MAX)
        return ckpi_fail(err, CKP_ELIMIT, "its tensors take %llu bytes, more than the memory budget of %llu", (unsigned long long)sum,
                         (unsigned long long)max_bytes);
    *bytes = (size_t)sum;
    return CKP_OK;
}

/* Targets for all that has elements of its own; data (by tensor) says where. */
static size_t
place(const ckpi_table *t, uint8_t *mem, ckp_target *target, uint8_t **data)
{
    size_t n = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        const ckpi_rec *r = &t->rec[i];
        if (r->alias_of != CKPI_NO_TENSOR)
            continue;
        data[i] = mem;
        mem += (r->bytes + BORDER - 1) / BORDER * BORDER;
        target[n++] = (ckp_target){.index = i, .dtype = r->dtype, .ndim = r->ndim, .shape = r->shape, .data = data[i]};
    }
    return n;
}

static ckp_status
add(ckp_state *s, const ckpi_table *t, uint32_t i, bool roles, const uint8_t *const *data, ckp_error *err)
{
    const ckpi_rec *r = &t->rec[i];
    ckp_tensor x = CKP_TENSOR_INIT;

    x.dtype = r->dtype;
    x.ndim = r->ndim;
    x.shape = r->shape;
    x.data = data[r->alias_of != CKPI_NO_TENSOR ? r->alias_of : i];
    return ckp_state_add_tensor(s, r->name, roles ? r->role : CKP_ROLE_OTHER, r->owner != CKPI_NO_TENSOR ? t->rec[r->owner].name : NULL, &x, NULL, err);
}

static bool
is_moment(ckp_role r)
{
    return r == CKP_ROLE_M || r == CKP_ROLE_V || r == CKP_ROLE_MOMENTUM;
}

/* Roles that the file has, or that its tree shows. */
static ckp_status
make_state(ckpi_stored *s, const ckp_checkpoint *ck, const uint8_t *const *data, bool no_moments, ckp_error *err)
{
    const ckpi_table *t = ck->lin->table;
    ckpi_dropped dropped;
    const bool roles = ckpi_table_has_roles(t);
    size_t len = 0;
    const void *tree = ckp_checkpoint_tree(ck, &len);

    ckp_status st = ckp_state_new(&s->state, err);
    for (uint32_t i = 0; st == CKP_OK && i < t->n; i++)
        if (!roles || !no_moments || !is_moment(t->rec[i].role))
            st = add(s->state, t, i, roles, data, err);
    if (st != CKP_OK || roles)
        return st;
    ckpi_buf_put(&s->state->tree, tree, len);
    st = ckpi_buf_status(&s->state->tree, err, "state tree");
    if (st == CKP_OK && no_moments)
        st = ckpi_drop_optimizers(s->state, &dropped, err);
    return st == CKP_OK ? ckpi_match_state(s->state, NULL, NULL, err) : st;
}

ckp_status
ckpi_stored_read(ckpi_stored *s, ckp_checkpoint *ck, bool no_moments, uint64_t max_bytes, unsigned threads, ckp_error *err)
{
    const ckpi_table *t = ck->lin->table;
    ckp_target *target = ckpi_calloc(t->n + 1, sizeof *target);
    uint8_t **data = ckpi_calloc(t->n + 1, sizeof *data);
    size_t bytes = 0;

    *s = (ckpi_stored){0};
    ckp_status st = target != NULL && data != NULL ? measure(t, max_bytes, &bytes, err) : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", t->n);
    if (st == CKP_OK) {
        s->mem = ckpi_aligned_alloc(bytes + BORDER);
        if (s->mem == NULL)
            st = ckpi_fail(err, CKP_ENOMEM, "no memory for %zu bytes of tensors", bytes);
    }
    if (st == CKP_OK)
        st = ckp_checkpoint_read(ck, target, place(t, s->mem, target, data), threads, err);
    if (st == CKP_OK)
        st = make_state(s, ck, (const uint8_t *const *)data, no_moments, err);
    free(target);
    free(data);
    return st;
}

void
ckpi_stored_free(ckpi_stored *s)
{
    ckp_state_free(s->state);
    ckpi_aligned_free(s->mem);
    *s = (ckpi_stored){0};
}
