/* SPDX-License-Identifier: Apache-2.0 */
/* The step, element by element. */
#include <math.h>
#include "base/float.h"
#include "optim/kern.h"

CKPI_NO_CONTRACT

static void
element(const ckpi_o_par *par, const ckpi_o_row *r, size_t i)
{
    const unsigned shift = 23 - par->vmant;
    const uint32_t e22 = (r->row << 22) + r->col[i], e23 = e22 << 1, z = r->z + (uint32_t)i * CKPI_O_WALK, x = ckpi_o_random(z);
    const uint32_t c = r->v[i], was = c != 0 ? (c << shift) + e23 : 0;
    const float s = ckpi_f32_from_bits(ckpi_o_root_bits((c >> par->vmant << 22) + e22));
    const float g = par->gs * r->g[i];
    const float m = fmaf(par->bm, g, ckpi_mgrid_times(&par->m, r->m[i], par->am) * s);
    const float v = fmaf(g, g, par->av * ckpi_f32_from_bits(was));
    r->p[i] = fmaf(r->p[i], par->decay, -(m / fmaf(sqrtf(v), par->root, par->add)));

    const uint32_t raw = ckpi_o_v_code(ckpi_f32_bits(v), x, e23, par->vmant);
    r->raw[i] = (uint16_t)raw;
    r->m[i] = ckpi_o_m_code(&par->m, m, ckpi_f32_from_bits(ckpi_o_per_root_bits((raw >> par->vmant << 22) + e22)), x ^ z);
}

ckpi_o_seen
ckpi_o_step_ref(size_t n, const ckpi_o_par *par, const ckpi_o_row *r)
{
    ckpi_o_seen seen = {0, 0};
    for (size_t i = 0; i < n; i++) {
        if ((ckpi_f32_bits(r->g[i]) & 0x7fffffffu) < CKPI_O_GRAD_END)
            element(par, r, i);
        else {
            r->raw[i] = r->v[i];
            seen.unusable++;
        }
        seen.raw_max = seen.raw_max > r->raw[i] ? seen.raw_max : r->raw[i];
    }
    return seen;
}
