/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "run/steps.h"

ckp_status
ckpi_steps_check(const ckp_coding *c, ckp_error *err)
{
    if (c->n_steps == 0)
        return CKP_OK;
    if (c->steps == NULL)
        return ckpi_fail(err, CKP_EINVAL, "%zu steps at NULL", c->n_steps);
    if (c->profile == CKP_PROFILE_LOSSLESS)
        return ckpi_fail(err, CKP_EINVAL, "steps for %zu tensors, but the profile lossless has none", c->n_steps);
    for (size_t i = 0; i < c->n_steps; i++) {
        const ckp_tensor_step *s = &c->steps[i];
        if (s->name == NULL)
            return ckpi_fail(err, CKP_EINVAL, "step %zu has no name", i);
        const bool fits = s->step == 0.0 || (s->step >= CKP_STEP_MIN && s->step <= CKP_STEP_MAX);
        if (fits && (s->step == 0.0 || c->dynaquant == NULL))
            continue;
        const ckp_status st = fits ? ckpi_fail(err, CKP_EINVAL, "a step of %g, but DynaQuant's codebooks have none", s->step)
                                   : ckpi_fail(err, CKP_EINVAL, "a step of %g is neither 0 nor between %g and %g", s->step, CKP_STEP_MIN, CKP_STEP_MAX);
        ckpi_fail_tensor(err, s->name);
        return st;
    }
    return CKP_OK;
}

ckp_status
ckpi_steps_copy(ckp_tensor_step **out, const ckp_coding *c, ckp_error *err)
{
    *out = NULL;
    if (c->n_steps == 0)
        return CKP_OK;
    ckp_tensor_step *s = ckpi_calloc(c->n_steps, sizeof *s);
    bool ok = s != NULL;
    for (size_t i = 0; ok && i < c->n_steps; i++) {
        s[i] = (ckp_tensor_step){ckpi_strdup(c->steps[i].name), c->steps[i].step};
        ok = s[i].name != NULL;
    }
    if (!ok) {
        ckpi_steps_free(s, c->n_steps);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for the steps of %zu tensors", c->n_steps);
    }
    *out = s;
    return CKP_OK;
}

void
ckpi_steps_free(ckp_tensor_step *steps, size_t n)
{
    for (size_t i = 0; steps != NULL && i < n; i++)
        free((char *)(uintptr_t)steps[i].name);
    free(steps);
}

/* The tensor that holds the named one's values. */
static ckp_status
find_holder(const ckp_state *s, const char *name, uint32_t *out, ckp_error *err)
{
    const uint32_t t = ckpi_state_find(s, name);
    if (t == CKPI_NO_TENSOR) {
        const ckp_status st = ckpi_fail(err, CKP_EINVAL, "a step for a tensor that the state does not have");
        ckpi_fail_tensor(err, name);
        return st;
    }
    *out = s->t[t].alias_of != CKPI_NO_TENSOR ? s->t[t].alias_of : t;
    return CKP_OK;
}

static ckp_status
never_lossy(bool *no_loss, const ckp_state *s, const ckp_coding *c, ckp_error *err)
{
    for (size_t i = 0; i < s->n; i++)
        no_loss[i] = s->t[i].lossless;
    for (size_t i = 0; i < c->n_steps; i++) {
        uint32_t t = 0;
        const ckp_status st = find_holder(s, c->steps[i].name, &t, err);
        if (st != CKP_OK)
            return st;
        no_loss[t] = no_loss[t] || c->steps[i].step == 0.0;
    }
    return CKP_OK;
}

ckp_status
ckpi_lay_out(ckpi_table **table, ckpi_layout **layout, const ckp_state *s, const ckpi_settings *set, const ckp_coding *c, ckpi_packing packing,
             const ckpi_copies *copies, ckp_error *err)
{
    bool *no_loss = ckpi_calloc(s->n + 1, sizeof *no_loss);

    *table = NULL;
    *layout = NULL;
    ckp_status st = no_loss != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", s->n);
    if (st == CKP_OK)
        st = never_lossy(no_loss, s, c, err);
    if (st == CKP_OK)
        st = ckpi_table_from_state(table, s, err);
    if (st == CKP_OK)
        st = ckpi_copies_link(*table, s, copies, err);
    for (size_t i = 0; st == CKP_OK && i < s->n; i++)
        no_loss[i] = no_loss[i] || ckpi_copies_strayed(*table, s, i);
    for (size_t i = 0; st == CKP_OK && i < s->n; i++)
        if (no_loss[i] && (*table)->rec[i].copy_of != CKPI_NO_TENSOR)
            no_loss[(*table)->rec[i].copy_of] = true;
    if (st == CKP_OK)
        st = ckpi_layout_new(layout, *table, set->lossy, ckpi_settings_alone(set), no_loss, packing, err);
    free(no_loss);
    if (st != CKP_OK) {
        ckpi_table_free(*table);
        *table = NULL;
    }
    return st;
}

static void
mark_lossy(bool *lossy, const ckpi_layout *l)
{
    for (size_t g = 0; g < l->n; g++)
        for (size_t k = 0; l->g[g].lossy && k < l->g[g].n_pieces; k++)
            lossy[l->g[g].piece[k].tensor] = true;
}

static ckp_status
set_step(ckpi_pred *pred, const bool *lossy, uint32_t t, double step, ckp_error *err)
{
    if (step == 0.0)
        return CKP_OK;           /* the layout has it */
    if (!lossy[t])
        return ckpi_fail(err, CKP_EINVAL, "a step for what this profile stores losslessly");
    if (pred->step[t] != 0.0 && pred->step[t] != step)
        return ckpi_fail(err, CKP_EINVAL, "two steps, %g and %g, for the same values", pred->step[t], step);
    pred->step[t] = step;
    return CKP_OK;
}

ckp_status
ckpi_steps_set(ckpi_pred *pred, const ckp_state *s, const ckp_coding *c, ckp_error *err)
{
    if (c->n_steps == 0)
        return CKP_OK;
    bool *lossy = ckpi_calloc(s->n + 1, sizeof *lossy);
    ckp_status st = lossy != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", s->n);
    if (st == CKP_OK)
        mark_lossy(lossy, pred->layout);
    for (size_t i = 0; st == CKP_OK && i < c->n_steps; i++) {
        uint32_t t = 0;
        st = find_holder(s, c->steps[i].name, &t, err);
        if (st == CKP_OK && pred->table->rec[t].numel == 0)
            continue;            /* in a group: another rank's */
        if (st == CKP_OK && pred->table->rec[t].copy_of != CKPI_NO_TENSOR)
            t = pred->table->rec[t].copy_of;
        if (st == CKP_OK)
            st = set_step(pred, lossy, t, c->steps[i].step, err);
        if (st != CKP_OK)
            ckpi_fail_tensor(err, c->steps[i].name);
    }
    free(lossy);
    return st;
}
