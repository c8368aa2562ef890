/* SPDX-License-Identifier: Apache-2.0 */
/* Taking tensors out of a state again: rows close up, and what refers to them by number follows. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "state/lookup.h"
#include "state/view.h"

/* A payload that goes leaves it to its first alias that stays: every row has a view of its own. heir: CKPI_NO_TENSOR for each row. */
static void
pass_payloads_on(ckp_state *s, const uint32_t *to, uint32_t *heir)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t payload = s->t[i].alias_of;
        if (to[i] == CKPI_NO_TENSOR || payload == CKPI_NO_TENSOR || to[payload] != CKPI_NO_TENSOR)
            continue;
        s->t[i].alias_of = heir[payload];
        if (heir[payload] == CKPI_NO_TENSOR)
            heir[payload] = i;
    }
}

static void
close_up(ckp_state *s, const uint32_t *to)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++) {
        ckpi_tensor *t = &s->t[i];
        if (to[i] == CKPI_NO_TENSOR) {
            free(t->name);
            free(t->owner_name);
            ckpi_view_free(t);
            continue;
        }
        t->alias_of = t->alias_of != CKPI_NO_TENSOR ? to[t->alias_of] : CKPI_NO_TENSOR;
        s->t[n++] = *t;
    }
    s->n = n;
}

ckp_status
ckpi_state_drop(ckp_state *s, const uint32_t *to, ckp_error *err)
{
    if (s->n_adam != 0)
        return ckpi_fail(err, CKP_EINVAL, "state_drop: Adam's constants refer to tensors by number already");
    ckpi_lookup *fresh = ckpi_calloc(1, sizeof *fresh);
    uint32_t *heir = ckpi_malloc(s->n + 1, sizeof *heir);
    bool ok = fresh != NULL && heir != NULL;

    if (ok) {
        memset(heir, 0xff, (s->n + 1) * sizeof *heir);
        pass_payloads_on(s, to, heir);
        ok = ckpi_lookup_renumber(fresh, s, to);
    }
    if (ok) {
        close_up(s, to);
        ckpi_lookup_free(s->by_name);
        s->by_name = fresh;
        fresh = NULL;
    }
    ckpi_lookup_free(fresh);
    free(heir);
    return ok ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", s->n);
}
