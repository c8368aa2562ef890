/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the weights are still of the size that the steps were made for. A delta's steps come from the last save's RMS; weights that
 * were zero then (a warm-up from lr = 0, the B of a LoRA) or that were put in anew would get steps that have nothing to do with them.
 */
#include <math.h>
#include "base/bytes.h"
#include "engine/stage.h"
#include "engine/values.h"

/* A few elements of each tensor, always the same ones, so that training alone hardly changes their RMS. */
enum { PROBES = 32 };

static double
probe(const ckpi_tensor *t, uint64_t numel)
{
    const uint64_t n = CKPI_MIN(numel, (uint64_t)PROBES);
    double sum = 0.0;

    for (uint64_t i = 0; i < n; i++) {
        uint8_t raw[8] = {0};
        float x = 0.0F;
        /* spread over the tensor, and not along a column */
        const uint64_t at = numel / n * i + (i * 7) % (numel / n);
        if (ckpi_tensor_copy_out(t, at, 1, raw, NULL) != CKP_OK)
            return 0.0;
        ckpi_floats_from(t->dtype, &x, raw, 1);
        sum += isfinite(x) ? (double)x * (double)x : 0.0;
    }
    return sqrt(sum / (double)n);
}

bool
ckpi_pass_rescaled(const ckpi_pass *p)
{
    const ckpi_layout *l = p->pred->layout;
    bool changed = false;

    if (ckpi_state_pulls(p->state))
        return false;
    for (size_t g = 0; g < l->n; g++) {
        for (size_t k = 0; l->g[g].lossy && k < l->g[g].n_pieces; k++) {
            const ckpi_piece *pc = &l->g[g].piece[k];
            if (pc->first != 0 || pc->count == 0)
                continue;
            const double now = probe(&p->state->t[pc->tensor], p->pred->table->rec[pc->tensor].numel);
            const double then = p->pred->probe[pc->tensor];
            changed = changed || now > 2.0 * then || now < 0.5 * then;
            p->pred->probe[pc->tensor] = now;
        }
    }
    return changed;
}
