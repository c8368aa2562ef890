/* SPDX-License-Identifier: Apache-2.0 */
/* Building a state: names, views and Adam's constants. Rows are appended and never move in meaning; look-ups go through hash indexes. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"
#include "state/lookup.h"
#include "state/utf8.h"
#include "state/view.h"

ckp_status
ckp_state_new(ckp_state **out, ckp_error *err)
{
    if (out == NULL)
        return ckpi_fail(err, CKP_EINVAL, "state_new: NULL argument");
    *out = NULL;
    ckp_state *s = ckpi_calloc(1, sizeof *s);
    ckpi_lookup *lookup = ckpi_calloc(1, sizeof *lookup);
    if (s == NULL || lookup == NULL) {
        free(s);
        free(lookup);
        return ckpi_fail(err, CKP_ENOMEM, "state_new: out of memory");
    }
    s->by_name = lookup;
    *out = s;
    return CKP_OK;
}

static void
tensor_free(ckpi_tensor *t)
{
    free(t->name);
    free(t->owner_name);
    ckpi_view_free(t);
}

void
ckp_state_free(ckp_state *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n; i++)
        tensor_free(&s->t[i]);
    free(s->t);
    free(s->adam);
    ckpi_buf_free(&s->tree);
    ckpi_lookup_free(s->by_name);
    free(s);
}

static ckp_status
name_ok(const char *what, const char *name, ckp_error *err)
{
    const size_t len = name != NULL ? strlen(name) : 0;
    if (len == 0 || len > CKPI_MAX_NAME)
        return ckpi_fail(err, CKP_EINVAL, "%s: %s", what, name == NULL ? "NULL" : len == 0 ? "empty" : "longer than 4096 bytes");
    if (!ckpi_utf8_ok(name, len, false))
        return ckpi_fail(err, CKP_EINVAL, "%s: not UTF-8", what);
    return CKP_OK;
}

/* The array with room for one more row; NULL on lack of memory, and the array is as before. */
static void *
with_room(void *rows, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return rows;
    const size_t more = *cap == 0 ? 16 : *cap * 2;
    void *p = ckpi_realloc(rows, more, size);
    if (p != NULL)
        *cap = more;
    return p;
}

ckp_status
ckp_state_add_tensor(ckp_state *s, const char *name, ckp_role role, const char *owner, const ckp_tensor *t, uint32_t *index, ckp_error *err)
{
    ckp_status st;
    ckpi_tensor row = {.role = role, .owner = CKPI_NO_TENSOR, .alias_of = CKPI_NO_TENSOR};

    if (s == NULL || t == NULL)
        return ckpi_fail(err, CKP_EINVAL, "add_tensor: NULL argument");
    if ((st = name_ok("tensor name", name, err)) != CKP_OK || (owner != NULL && (st = name_ok("owner's name", owner, err)) != CKP_OK))
        return st;
    if ((unsigned)role >= CKP_ROLE_COUNT_)
        return ckpi_fail(err, CKP_EINVAL, "%s: role %d does not exist", name, (int)role);
    if (ckpi_state_find(s, name) != CKPI_NO_TENSOR)
        return ckpi_fail(err, CKP_EINVAL, "%s: a tensor of this name was added already", name);
    if (s->n >= CKPI_MAX_TENSORS)
        return ckpi_fail(err, CKP_ELIMIT, "%s: more than %u tensors", name, CKPI_MAX_TENSORS);
    if ((st = ckpi_view_init(&row, name, t, err)) != CKP_OK)
        goto done;

    row.name = ckpi_strdup(name);
    row.owner_name = owner != NULL ? ckpi_strdup(owner) : NULL;
    ckpi_tensor *rows = with_room(s->t, &s->cap, s->n, sizeof *s->t);
    if (rows != NULL)
        s->t = rows;
    if (row.name == NULL || (owner != NULL && row.owner_name == NULL) || rows == NULL || !ckpi_lookup_add(s, &row)) {
        st = ckpi_fail(err, CKP_ENOMEM, "%s: out of memory", name);
        goto done;
    }
    if (index != NULL)
        *index = (uint32_t)s->n;
    s->t[s->n++] = row;
    row = (ckpi_tensor){0};       /* moved */
done:
    tensor_free(&row);
    return st;
}

ckp_status
ckp_state_set_adam(ckp_state *s, const char *owner, double beta1, double beta2, uint64_t step, ckp_error *err)
{
    if (s == NULL || owner == NULL)
        return ckpi_fail(err, CKP_EINVAL, "set_adam: NULL argument");
    const uint32_t row = ckpi_state_find(s, owner);
    if (row == CKPI_NO_TENSOR)
        return ckpi_fail(err, CKP_EINVAL, "set_adam: there is no tensor '%s'", owner);
    /* Written so that NaN fails too. */
    if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1) || step == 0)
        return ckpi_fail(err, CKP_EINVAL, "%s: betas must be in [0, 1) and step at least 1: %g, %g, %llu", owner, beta1, beta2,
                         (unsigned long long)step);
    const ckpi_adam adam = {row, beta1, beta2, step};
    const size_t at = ckpi_lookup_adam(s, row);
    if (at != SIZE_MAX) {
        s->adam[at] = adam;
        return CKP_OK;
    }
    ckpi_adam *rows = with_room(s->adam, &s->cap_adam, s->n_adam, sizeof *s->adam);
    if (rows != NULL)
        s->adam = rows;
    if (rows == NULL || !ckpi_lookup_add_adam(s, row))
        return ckpi_fail(err, CKP_ENOMEM, "%s: out of memory", owner);
    s->adam[s->n_adam++] = adam;
    return CKP_OK;
}

const ckpi_adam *
ckpi_state_adam(const ckp_state *s, uint32_t owner)
{
    const size_t at = ckpi_lookup_adam(s, owner);
    return at != SIZE_MAX ? &s->adam[at] : NULL;
}

size_t
ckp_state_count(const ckp_state *s)
{
    return s != NULL ? s->n : 0;
}

const char *
ckp_state_name(const ckp_state *s, size_t index)
{
    return s != NULL && index < s->n ? s->t[index].name : NULL;
}

static bool
follows_owner(ckp_role role)
{
    return role == CKP_ROLE_M || role == CKP_ROLE_V || role == CKP_ROLE_MOMENTUM || role == CKP_ROLE_MASTER || role == CKP_ROLE_COPY;
}

static ckp_status
resolve_owner(const ckp_state *s, ckpi_tensor *t, uint32_t self, ckp_error *err)
{
    if (t->owner_name == NULL)
        return CKP_OK;
    const uint32_t owner = ckpi_state_find(s, t->owner_name);
    if (owner == CKPI_NO_TENSOR)
        return ckpi_fail(err, CKP_EINVAL, "%s: its owner '%s' was not added", t->name, t->owner_name);
    if (owner == self)
        return ckpi_fail(err, CKP_EINVAL, "%s: owns itself", t->name);
    if (follows_owner(t->role) && !ckpi_view_same_shape(t, &s->t[owner]))
        return ckpi_fail(err, CKP_EINVAL, "%s: its shape is not that of its owner '%s'", t->name, t->owner_name);
    t->owner = owner;
    return CKP_OK;
}

ckp_status
ckpi_state_seal(ckp_state *s, ckp_error *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const ckp_status st = resolve_owner(s, &s->t[i], (uint32_t)i, err);
        if (st != CKP_OK) {
            ckpi_fail_tensor(err, s->t[i].name);
            return st;
        }
    }
    if (s->tree_started && (s->tree_depth != 0 || s->tree_left[0] != 0))
        return ckpi_fail(err, CKP_EINVAL, "state tree: it ends before its last container is full");
    const ckp_status st = ckpi_tree_check(s->tree.data, s->tree.len, (uint32_t)s->n, err);
    /* The caller built this tree: what would be damage in a file is misuse here. */
    if (st == CKP_ECORRUPT && err != NULL)
        err->code = CKP_EINVAL;
    return st == CKP_ECORRUPT ? CKP_EINVAL : st;
}
