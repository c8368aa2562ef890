/* SPDX-License-Identifier: Apache-2.0 */
/* The step, element by element (element.h). */
#include "base/float.h"
#include "optim/kern.h"
#include "optim/pack.h"

CKPI_NO_CONTRACT

ckpi_o_seen
ckpi_o_step_ref(size_t n, const ckpi_o_par *par, const ckpi_o_row *r)
{
    ckpi_o_seen seen = {0, 0};
    for (size_t i = 0; i < n; i++) {
        const uint32_t e22 = (r->row << 22) + r->col[i], z = r->z + (uint32_t)i * CKPI_O_WALK;
        const uint32_t raw = ckpi_o_element(par, e22, z, r->v[i], r->g[i], &r->p[i], &r->m[i], &seen.unusable);
        r->raw[i] = (uint16_t)raw;
        r->v[i] = (uint8_t)raw;
        seen.raw_max = seen.raw_max > raw ? seen.raw_max : raw;
    }
    return seen;
}

/* A group: its codes out, and in again. */
static ckpi_o_seen
group4(const ckpi_o_par *par, const ckpi_o_row4 *r)
{
    const ckpi_o_packer *pk = ckpi_o_pack_pick(0);
    int8_t m[CKPI_O_GROUP];
    uint8_t v[CKPI_O_GROUP];
    uint16_t raw[CKPI_O_GROUP];
    pk->unpack_signed(m, r->m, CKPI_O_GROUP, 4);
    pk->unpack(v, r->v, CKPI_O_GROUP, 4);
    const ckpi_o_row all = {r->row, r->col, r->z, r->p, r->g, m, v, raw};
    const ckpi_o_seen seen = ckpi_o_step_ref(CKPI_O_GROUP, par, &all);
    for (size_t i = 0; i < CKPI_O_GROUP; i++)
        r->raw[ckpi_o_raw4_at(i)] = v[i];
    pk->pack(r->m, (const uint8_t *)m, CKPI_O_GROUP, 4);
    pk->pack(r->v, v, CKPI_O_GROUP, 4);
    return seen;
}

ckpi_o_seen
ckpi_o_step4_ref(size_t n, const ckpi_o_par *par, const ckpi_o_row4 *r)
{
    ckpi_o_seen all = {0, 0};
    for (size_t i = 0; i < n; i += CKPI_O_GROUP) {
        const ckpi_o_row4 one = {r->row, r->col + i, r->z + (uint32_t)i * CKPI_O_WALK, r->p + i, r->g + i, r->m + i / 2, r->v + i / 2, r->raw + i};
        const ckpi_o_seen seen = group4(par, &one);
        all.raw_max = all.raw_max > seen.raw_max ? all.raw_max : seen.raw_max;
        all.unusable += seen.unusable;
    }
    return all;
}

uint32_t
ckpi_o_move_ref(size_t n, const ckpi_o_mpar *par, const ckpi_o_mrow *r, float s, float *fresh, uint32_t *max)
{
    uint32_t unusable = 0;
    for (size_t i = 0; i < n; i++) {
        fresh[i] = ckpi_o_momentum_element(par, r->m[i], s, r->g[i], &r->p[i], &unusable);
        const uint32_t size = ckpi_f32_bits(fresh[i]) & 0x7fffffffu;
        *max = *max > size ? *max : size;
    }
    return unusable;
}

void
ckpi_o_code_ref(size_t n, const ckpi_mgrid *g, const float *fresh, float per_s, uint32_t z, int8_t *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = ckpi_o_m_code(g, fresh[i], per_s, ckpi_o_random(z + (uint32_t)i * CKPI_O_WALK));
}

ckpi_o_mseen
ckpi_o_momentum_ref(size_t n, const ckpi_o_mpar *par, const ckpi_o_mrow *r)
{
    ckpi_o_mseen seen = {0, 0};
    float fresh[CKPI_O_BLOCK];
    for (size_t at = 0; at < n; at += CKPI_O_BLOCK) {
        const size_t len = n - at < CKPI_O_BLOCK ? n - at : CKPI_O_BLOCK;
        const ckpi_o_mrow b = {.p = r->p + at, .g = r->g + at, .m = r->m + at};
        uint8_t *const f = &r->factor[at / CKPI_O_BLOCK];
        uint32_t max = 0;
        seen.unusable += ckpi_o_move_ref(len, par, &b, ckpi_f32_from_bits(ckpi_o_factor_bits(*f)), fresh, &max);
        *f = ckpi_o_factor_after(&par->m, max, *f, &seen);
        ckpi_o_code_ref(len, &par->m, fresh, ckpi_f32_from_bits(ckpi_o_per_factor_bits(*f)), r->z + (uint32_t)at * CKPI_O_WALK, b.m);
    }
    return seen;
}
