/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "quant/escape.h"

void
ckpi_escapes_free(ckpi_escapes *e)
{
    if (e == NULL)
        return;
    free(e->at);
    *e = (ckpi_escapes){0};
}

ckp_status
ckpi_q_escapes_add(ckpi_escapes *e, size_t first, const uint16_t *at, size_t n, const float *x, ckp_error *err)
{
    if (n > e->cap - e->n) {
        const size_t cap = CKPI_MAX(e->n + n, CKPI_MAX(2 * e->cap, (size_t)64));
        ckpi_escape *p = ckpi_realloc(e->at, cap, sizeof *p);
        if (p == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "quantizer: no memory for %zu escapes", cap);
        e->at = p;
        e->cap = cap;
    }
    for (size_t k = 0; k < n; k++) {
        ckpi_escape *to = &e->at[e->n++];
        to->index = (uint32_t)(first + at[k]);
        memcpy(&to->bits, x + at[k], sizeof to->bits);
    }
    return CKP_OK;
}

void
ckpi_escapes_apply(const ckpi_escape *e, size_t n, float *x)
{
    for (size_t k = 0; k < n; k++)
        memcpy(x + e[k].index, &e[k].bits, sizeof e[k].bits);
}
