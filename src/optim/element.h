/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of one element: what the reference (step_ref.c, row.c, half.c) and the kernel for GPUs (cuda/) both run, so that it is written
 * once. Every operation is rounded as IEEE 754 asks, and fused where it says fmaf, nowhere else.
 */
#ifndef CKPI_OPTIM_ELEMENT_H
#define CKPI_OPTIM_ELEMENT_H
#include <math.h>
#include <string.h>
#include "base/float.h"
#include "optim/fn.h"
#include "optim/kern.h"

CKPI_NO_CONTRACT

/* base has them as functions of the library, which a GPU can't call. */
CKPI_O_FN uint32_t
ckpi_o_bits(float f)
{
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    return b;
}

CKPI_O_FN float
ckpi_o_float(uint32_t b)
{
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}

CKPI_O_FN uint32_t
ckpi_o_random(uint32_t z)
{
    return (z ^ z >> 16) * CKPI_O_MUL;
}

/* s and 1.03 / s, where v's bits have the exponent f (biased, as f << 22). */
CKPI_O_FN uint32_t
ckpi_o_root_bits(uint32_t f22)
{
    return f22 + CKPI_O_HALF + CKPI_O_ROOT;
}

CKPI_O_FN uint32_t
ckpi_o_per_root_bits(uint32_t f22)
{
    return CKPI_O_PER - f22;
}

/* v's code above code 0 of exponent e, its bits as e23; rounded by x; 0 for v = 0 alone. */
CKPI_O_FN uint32_t
ckpi_o_v_code(uint32_t vbits, uint32_t x, uint32_t e23, unsigned mant)
{
    const unsigned shift = 23 - mant;
    const int32_t above = (int32_t)(vbits + (x & ((1u << shift) - 1u)) - e23);
    const int32_t code = above < 0 ? 0 : above >> shift;
    return vbits == 0 ? 0 : (uint32_t)(code < 1 ? 1 : code);
}

/* What a factor stands for, 0 for none yet, and the inverse of that. */
CKPI_O_FN uint32_t
ckpi_o_factor_bits(uint32_t factor)
{
    return (factor != 0 ? factor : CKPI_O_ROW_MIN) << 23;
}

CKPI_O_FN uint32_t
ckpi_o_per_factor_bits(uint32_t factor)
{
    return (254u - factor) << 23;
}

/* sign(k) * y(|k|) * a, rounded once */
CKPI_O_FN float
ckpi_mgrid_times(const ckpi_mgrid *g, int k, float a)
{
    const uint32_t size = (uint32_t)(k < 0 ? -k : k);
    const float y = ckpi_o_float((size << (23 - g->mant)) + 0x3f800000u);
    return k < 0 ? -fmaf(y, a, -a) : fmaf(y, a, -a);
}

CKPI_O_FN float
ckpi_mgrid_value(const ckpi_mgrid *g, int k)
{
    return ckpi_mgrid_times(g, k, 1.0f);
}

/* Code of m where the grid's unit is 1 / per_s (with v: m in units of h, and 1.03 / s), rounded by the low bits of y. */
CKPI_O_FN int8_t
ckpi_o_m_code(const ckpi_mgrid *g, float m, float per_s, uint32_t y)
{
    const unsigned shift = 23 - g->mant;
    const uint32_t t = ckpi_o_bits(fmaf(fabsf(m), per_s, 1.0f)) + (y & ((1u << shift) - 1u));
    const int32_t size = (int32_t)(t >> shift) - (int32_t)(127u << g->mant);
    const int32_t k = size < (int32_t)g->top ? size : (int32_t)g->top;
    return (int8_t)(m < 0 ? -k : k);
}

/* ---- with v ---- */

CKPI_O_FN bool
ckpi_o_usable(float g)
{
    return (ckpi_o_bits(g) & 0x7fffffffu) < CKPI_O_GRAD_END;
}

/* e22: the exponents of row and column, << 22; c: v's code; g' is of use. The raw code of v'. */
CKPI_O_FN uint32_t
ckpi_o_moved(const ckpi_o_par *par, uint32_t e22, uint32_t z, uint32_t c, float g, float *p, int8_t *k)
{
    const unsigned shift = 23 - par->vmant;
    const uint32_t e23 = e22 << 1, x = ckpi_o_random(z), was = c != 0 ? (c << shift) + e23 : 0;
    const float s = ckpi_o_float(ckpi_o_root_bits((c >> par->vmant << 22) + e22));
    const float m = fmaf(par->bm, g, ckpi_mgrid_times(&par->m, *k, par->am) * s);
    const float v = fmaf(g, g, par->av * ckpi_o_float(was));
    *p = fmaf(*p, par->decay, -(m / fmaf(sqrtf(v), par->root, par->add)));

    const uint32_t raw = ckpi_o_v_code(ckpi_o_bits(v), x, e23, par->vmant);
    *k = ckpi_o_m_code(&par->m, m, ckpi_o_float(ckpi_o_per_root_bits((raw >> par->vmant << 22) + e22)), x ^ z);
    return raw;
}

/* The same with any gradient; one of no use changes nothing and is counted. */
CKPI_O_FN uint32_t
ckpi_o_element(const ckpi_o_par *par, uint32_t e22, uint32_t z, uint32_t c, float gradient, float *p, int8_t *k, uint32_t *unusable)
{
    const float g = par->l2 != 0.0f ? gradient + par->l2 * *p : gradient;
    if (ckpi_o_usable(g))
        return ckpi_o_moved(par, e22, z, c, par->gs * g, p, k);
    ++*unusable;
    return c;
}

/* Whether codes up to the grid's top stand for values that vector kernels may work with, in any column. */
CKPI_O_FN bool
ckpi_o_room_is_plain(const ckpi_o_par *par, uint32_t row)
{
    return row + CKPI_O_COL - 1 + ((par->vtop + 1) >> par->vmant) <= ckpi_o_bits(CKPI_O_V_PLAIN) >> 23;
}

/* Octaves to add to a row's factor. */
CKPI_O_FN int
ckpi_o_octaves(const ckpi_vgrid *vg, uint32_t raw_max, uint32_t row)
{
    if (raw_max > vg->top)
        return (int)((raw_max - vg->top + (1u << vg->mant) - 1) >> vg->mant);
    return raw_max != 0 && raw_max + (2u << vg->mant) <= vg->top && row > CKPI_O_ROW_MIN ? -1 : 0;
}

/* m's code where v is `was` under the old factor and code 1 under one that is `up` octaves higher. */
CKPI_O_FN int8_t
ckpi_o_follow(const ckpi_mgrid *mg, unsigned mant, int8_t k, uint32_t was, int up, uint32_t x)
{
    /* Any exponent does that keeps all in range: only the ratio matters. */
    const uint32_t f = 100;
    const float s = ckpi_o_float(ckpi_o_root_bits(f << 22));
    const uint32_t now = f + (1u >> mant) + (uint32_t)up - (was >> mant);
    const float m = ckpi_mgrid_value(mg, k) * CKPI_O_AGAIN * s;
    return ckpi_o_m_code(mg, m, ckpi_o_float(ckpi_o_per_root_bits(now << 22)), x);
}

/* v's code under a factor that is `up` octaves higher; m's follows it, drawn from z. */
CKPI_O_FN uint8_t
ckpi_o_raised(const ckpi_mgrid *mg, unsigned mant, uint32_t raw, int up, uint32_t z, int8_t *k)
{
    const int c = (int)raw - up * (1 << mant);
    if (raw != 0 && c < 1 && *k != 0)
        *k = ckpi_o_follow(mg, mant, *k, raw, up, ckpi_o_random(z));
    return (uint8_t)(raw == 0 ? 0 : c < 1 ? 1 : c);
}

/* ---- a momentum alone ---- */

/* p's new value, and m'. */
CKPI_O_FN float
ckpi_o_move(const ckpi_o_mpar *par, float *p, float m, float g)
{
    const float now = par->am * m + par->bm * g, u = par->cm * (par->lion ? m : now) + par->cg * g;
    const float by = !par->lion ? par->lr * u : u > 0.0f ? par->lr : u < 0.0f ? -par->lr : 0.0f;
    *p = *p * par->decay - by;
    return now;
}

/* m' of an element with code k under a factor that stands for s; a gradient of no use changes nothing and is counted. */
CKPI_O_FN float
ckpi_o_momentum_element(const ckpi_o_mpar *par, int k, float s, float gradient, float *p, uint32_t *unusable)
{
    const float m = ckpi_mgrid_value(&par->m, k) * s, g = par->sign * gradient + par->l2 * *p;
    if (ckpi_o_usable(g))
        return ckpi_o_move(par, p, m, g);
    ++*unusable;
    return m;
}

/* The factor where the largest bits(|m'|) are max. */
CKPI_O_FN uint32_t
ckpi_o_factor_of(const ckpi_mgrid *g, uint32_t max)
{
    const int32_t above = (int32_t)max - (int32_t)ckpi_o_bits(ckpi_mgrid_value(g, (int)g->top)), octave = 1 << 23;
    const int32_t e = 127 + (above >= 0 ? (above + octave - 1) / octave : above / octave);
    return e < (int32_t)CKPI_O_ROW_MIN ? CKPI_O_ROW_MIN : e > (int32_t)CKPI_O_FACTOR_MAX ? CKPI_O_FACTOR_MAX : (uint32_t)e;
}

/* A block's factor after the step. */
CKPI_O_FN uint8_t
ckpi_o_factor_after(const ckpi_mgrid *g, uint32_t max, uint8_t was, ckpi_o_mseen *seen)
{
    const uint32_t now = ckpi_o_factor_of(g, max);
    seen->raised += was > CKPI_O_ROW_MIN && now > was;
    return (uint8_t)now;
}

/* ---- weights of 16 bits ---- */

/* bf16 of a float with these bits, rounded without bias. Infinities and NaN have nothing to round: adding to their bits would change what they are. */
CKPI_O_FN uint16_t
ckpi_o_bf16(uint32_t bits, uint32_t z)
{
    const uint32_t x = ckpi_o_random(z) >> 16, finite = (bits & 0x7f800000u) != 0x7f800000u;
    return (uint16_t)((bits + (finite ? x : 0)) >> 16 | (!finite && (bits & 0x007fffffu) != 0 ? 0x40u : 0));
}

#define CKPI_O_BF16_INF 0x7f80u          /* without its sign */

/* A master weight's bits, of bf16 and the rest, in units of its last bit. */
CKPI_O_FN uint32_t
ckpi_o_split_up(uint32_t high, int32_t rest)
{
    const uint32_t size = high & 0x7fffu;
    const bool alone = size >= CKPI_O_BF16_INF || (size == 0 && rest < 0);       /* high was changed since: no such pair is ever written */
    return (high << 16) + (alone ? 0 : (uint32_t)rest);
}

/* Bits of x that are kept: 24 of them rounded without bias, or all. */
CKPI_O_FN uint32_t
ckpi_o_kept(uint32_t bits, unsigned rest_bits, uint32_t z)
{
    const uint32_t size = bits & 0x7fffffffu, sign = bits & 0x80000000u;
    if (rest_bits == 16)
        return bits;
    const uint32_t rounded = (size + (ckpi_o_random(z) >> 24)) & ~0xffu;
    return sign | (rounded < 0x7f800000u ? rounded : 0x7f7fff00u);
}

/* The reverse: bf16, and the rest as it is stored. */
CKPI_O_FN uint16_t
ckpi_o_split_down(uint32_t bits, unsigned rest_bits, uint32_t z, int32_t *rest)
{
    uint32_t high = bits >> 16;
    int32_t r = 0;
    if ((high & CKPI_O_BF16_INF) == CKPI_O_BF16_INF)
        high |= (bits & 0x007fffffu) != 0 ? 0x40u : 0;
    else {
        const uint32_t all = ckpi_o_kept(bits, rest_bits, z);
        high = (all + 0x8000u) >> 16;
        high -= (high & 0x7fffu) == CKPI_O_BF16_INF;
        r = (int32_t)(all - (high << 16));
        r = r > 0x7fff ? (rest_bits == 8 ? 0x7f00 : 0x7fff) : r;
    }
    *rest = rest_bits == 8 ? r / 256 : r;
    return (uint16_t)high;
}
#endif
