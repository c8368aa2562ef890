/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step of one row, and the grids of its codes. step_ref.c is the contract: what each ISA gives bit for bit.
 *
 * Moments are kept with torch's bias correction in them: m is m_t / (1 - b1^t), v likewise. So m is never far above sqrt(v), and v has
 * its final size from the first step on. A step takes corrected moments to corrected moments.
 *
 * v     code c > 0 is the float whose bits are (c << 23 - mant) + (e << 23), e = row + col: a minifloat without a sign. Code 0 is v = 0 alone.
 *       Random bits are added below those that are kept, so that rounding is unbiased.
 * m     code k is sign(k) * y(|k|) * h * s / 1.03, 1 + y the float whose bits are (|k| << 23 - mant) + bits(1): even steps up to 1, twice as large ones
 *       from there to 3, and so on. Rounded as v is. s stands for sqrt(v): 1.2071 * 2^(x/2) where v's code has the exponent x.
 *       So m needs no scales of its own. Encoding multiplies by 1.03 / s, whose bits are a constant less half of v's exponent, as those of s are
 *       one and half of it: mantissas 1 + a and 1.5 + a, 1.5 + a and 1 + a, whose product is the same for even and odd exponents; a is
 *       chosen so that odd ones are sqrt(2).
 *
 * A momentum without v (SGD, Lion) has the same codes with more room, and factors of its own, one for CKPI_O_BLOCK elements of a row: code k is
 * sign(k) * y(|k|) * 2^(factor - 127). A factor is the smallest under which the block's largest element fits: all of the block is known before it is coded.
 *
 * raw   v's new codes before the row's factor follows them (row.c): may be above the grid's top, never below 1 where v > 0.
 *
 * Random numbers: x of z = key + index * CKPI_O_WALK, index that of the element in the whole parameter. v takes x's low bits, m those of x ^ z.
 * (One round of ckpi_mix32's two: over 2^16 elements means are unbiased, and neighbours', columns' and steps' draws do not correlate: test_step.c.)
 */
#ifndef CKPI_OPTIM_KERN_H
#define CKPI_OPTIM_KERN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPI_O_WALK 0x9e3779b9u
#define CKPI_O_MUL 0x7feb352du
#define CKPI_O_WIDE 32u              /* width of moments that are floats */
#define CKPI_O_BLOCK 64u             /* elements under a factor of a momentum's; docs/decisions/0021 */
#define CKPI_O_FACTOR_MAX 200u       /* such a factor is 0, before there is any, or CKPI_O_ROW_MIN up to this: 2^73 and more */
/* Row factors are 17 to 239, columns' -16 to 15, and v is below 2^80: e is 1 to 254, and every code a normal float. */
#define CKPI_O_ROW_MIN 17u
#define CKPI_O_ROW_MAX 239u
#define CKPI_O_COL 16
#define CKPI_O_GRAD_END 0x53800000u  /* bits of 2^40: from there on, Inf and NaN included, a gradient is no use */
#define CKPI_O_V_PLAIN 0x1p44f       /* vector kernels leave larger v, NaN included, to the reference */
#define CKPI_O_G2_MIN 0x1p-36f       /* of gs * gs where they may work: a gradient of no use makes v that large */
#define CKPI_O_HALF 0x1fc00000u      /* 127 << 22: makes half an exponent an exponent */
#define CKPI_O_ROOT 0x001a827au      /* 0.2071: mantissas 1.2071 and, half an exponent on, 1.7071, which is sqrt(2) times as much */
#define CKPI_O_PER (0x7f000000u - CKPI_O_HALF + CKPI_O_ROOT - 0x00400000u)
#define CKPI_O_UNIT 1.17157288f      /* 1.2071 / 1.03: h times it is a step beside the root of v's power of two */
#define CKPI_O_AGAIN 0.970562748f    /* 1 over what s and its reciprocal multiply to: 1.2071 * 1.7071 / 2 */

typedef struct ckpi_mgrid {
    unsigned mant;                   /* mantissa bits of 1 + y */
    unsigned top;                    /* largest |k| */
    float h;                         /* h * s / 1.03 is where steps double first */
    bool narrow;                     /* |k| < 8 */
} ckpi_mgrid;

typedef struct ckpi_vgrid {
    unsigned mant;                   /* mantissa bits */
    unsigned top;                    /* largest code */
    float noise;                     /* mean of 1/sqrt(v) with rounding over that without: sqrt(v) is multiplied by it */
} ckpi_vgrid;

/* Grids of a width that ckpi_o_pack_known. */
ckpi_mgrid ckpi_mgrid_of(unsigned bits);
ckpi_vgrid ckpi_vgrid_of(unsigned bits);
/* The grid of a momentum that has no v beside it: h is 1. */
ckpi_mgrid ckpi_momentum_grid_of(unsigned bits);

/* m in units of h. */
typedef struct ckpi_o_par {
    float gs, l2;                    /* g' = gs * (g + l2 * p) */
    /* am includes 1 / 1.03; the last + or - of each, and sqrt(v) * root + add, is one operation with the last product before it (fmaf) */
    float am, bm;                    /* m = am * m + bm * g' */
    float av;                        /* v = av * v + g' * g' */
    float decay, root, add;          /* p = p * decay - m / (sqrt(v) * root + add) */
    bool plain;                      /* root, add and gs are ordinary numbers: vector kernels may work */
    ckpi_mgrid m;
    unsigned vmant, vtop;            /* of v's grid */
    float m_by_code[16];             /* am * value, by the low bits of k: where m is narrow */
    float v_by_code[16];             /* av * 2^code, 0 for 0: where v has no mantissa bits */
    float root_by_code[16];          /* there: s, less what e adds to its bits */
} ckpi_o_par;

typedef struct ckpi_o_mpar {
    float sign, l2;                  /* g' = sign * g + l2 * p */
    float am, bm;                    /* m' = am * m + bm * g' */
    float cm, cg;                    /* u = cm * m' + cg * g'; Lion: u = sign(cm * m + cg * g') */
    float decay, lr;                 /* p = p * decay - lr * u */
    bool lion;
    ckpi_mgrid m;
    float m_by_code[16];             /* as above, by the low bits of k: where m is narrow */
} ckpi_o_mpar;

/* Of AdamW and Adam with moments in f32 (wide.c). */
typedef struct ckpi_o_wpar {
    float sign, l2;                  /* g' = sign * g + l2 * p */
    float am, bm;                    /* m = am * m + bm * g' */
    float av, bv;                    /* v = av * v + bv * (g' * g') */
    float decay, size, root, add;    /* p = p * decay - size * m / (sqrt(v) * root + add) */
} ckpi_o_wpar;

typedef struct ckpi_o_mrow {
    uint8_t *factor;                 /* a block's each, in and out */
    uint32_t z;                      /* of the first element */
    float *p;
    const float *g;
    int8_t *m;                       /* k, in and out */
} ckpi_o_mrow;

typedef struct ckpi_o_mseen {
    uint32_t raised;                 /* factors that grew */
    uint32_t unusable;
} ckpi_o_mseen;

/* Part of a block: m' and the largest bits(|m'|), which go on from *max. Returns how many gradients are of no use. */
uint32_t ckpi_o_move_ref(size_t n, const ckpi_o_mpar *par, const ckpi_o_mrow *r, float s, float *fresh, uint32_t *max);
/* Codes of fresh, times per_s, rounded by the random numbers from z on. */
void ckpi_o_code_ref(size_t n, const ckpi_mgrid *g, const float *fresh, float per_s, uint32_t z, int8_t *to);

/* The tables, from the rest. */
void ckpi_o_par_tables(ckpi_o_par *p);
void ckpi_o_mpar_tables(ckpi_o_mpar *p);

typedef struct ckpi_o_row {
    uint32_t row;                    /* factor */
    const uint32_t *col;             /* n factors << 22 */
    uint32_t z;                      /* of the first element */
    float *p;
    const float *g;
    int8_t *m;                       /* k, in and out */
    uint8_t *v;                      /* in: codes; out: raw ones, their low 8 bits */
    uint16_t *raw;                   /* written where raw_max is above the grid's top; else any of it may be */
} ckpi_o_row;

typedef struct ckpi_o_seen {
    uint32_t raw_max;
    uint32_t unusable;               /* gradients that are not finite, or 2^40 and more: their element stays as it is */
} ckpi_o_seen;

/* Codes of 4 bits as they lie in memory, whole groups of CKPI_O_GROUP: the row keeps its factor, or its codes are made anew from raw. */
typedef struct ckpi_o_row4 {
    uint32_t row;
    const uint32_t *col;
    uint32_t z;
    float *p;
    const float *g;
    uint8_t *m, *v;                  /* packed (pack.h), in and out; v's are raw's low 4 bits */
    uint8_t *raw;                    /* a byte an element, in the order of ckpi_o_raw4_at */
} ckpi_o_row4;

/* Where a group's element i is in raw: what comes out of vectors of words without their bytes being put in order. */
static inline size_t
ckpi_o_raw4_at(size_t i)
{
    return 4 * (i % 16) + 2 * (i / 16 % 2) + i / 32;
}

typedef struct ckpi_o_ops {
    const char *name;
    uint32_t needs;
    ckpi_o_seen (*step)(size_t n, const ckpi_o_par *par, const ckpi_o_row *r);
    ckpi_o_seen (*step4)(size_t n, const ckpi_o_par *par, const ckpi_o_row4 *r);     /* the same, of whole groups */
    ckpi_o_mseen (*momentum)(size_t n, const ckpi_o_mpar *par, const ckpi_o_mrow *r);
} ckpi_o_ops;

#define CKPI_O_KERNELS(isa)                                                                 \
    ckpi_o_seen ckpi_o_step_##isa(size_t n, const ckpi_o_par *par, const ckpi_o_row *r);    \
    ckpi_o_seen ckpi_o_step4_##isa(size_t n, const ckpi_o_par *par, const ckpi_o_row4 *r);  \
    ckpi_o_mseen ckpi_o_momentum_##isa(size_t n, const ckpi_o_mpar *par, const ckpi_o_mrow *r)
CKPI_O_KERNELS(ref);
CKPI_O_KERNELS(avx2);
CKPI_O_KERNELS(avx512);
CKPI_O_KERNELS(neon);
#undef CKPI_O_KERNELS

/* Best that the CPU word allows; never NULL. */
const ckpi_o_ops *ckpi_o_pick(uint32_t cpu);

#include "optim/element.h"           /* the arithmetic that both need: functions of these types */
#endif
