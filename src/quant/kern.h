/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of the quant room. A kernel takes one run, allocates nothing, cannot fail, and gives the bits that the reference
 * (enc_ref.c, dec_ref.c) gives: those two files are the contract, the vector ones are checked against them.
 *
 * Run: up to CKPI_Q_RUN elements under one row factor, or several short rows put side by side, with one entry of frow and
 * krow per element (`spread`). The tile carries what the v kernel finds to the m and w kernels of the same run.
 *
 * The encoder's own arithmetic (no decoder needs it), all f32, rounded after each operation:
 *     log2   v = 2^ge * g, g in [1, 2):  x = (ge*S + krow) + (A2*g + A1)*g     A: minimax quadratic of log2, error below 0.005
 *            S = 128/vstep, A1 and A2 scaled by S, krow = A0*S - row/vstep     so x counts steps above the row factor
 *     code   c = the base's code while |x - pcol - c| <= stay, else rint(x - pcol); pcol = col/vstep
 *     u      (m * (rq*rq)) * t, t = kc/mt; code = rint(u)
 *     phase  p in [0, 1): top 23 bits of ((z ^ z >> 13) * 0xc2b2ae35), z = key + index * 0x9e3779b9
 *            (one round instead of ckpi_mix32's two: a save's stall pays for it. Measured over 2^21 draws: lag correlations
 *            below 0.02, row and column sums of matrices within 10 % of the variance of independent draws)
 *     w      t = (w - base) / q;  code = floor(t + p) or rint(t)
 */
#ifndef CKPI_QUANT_KERN_H
#define CKPI_QUANT_KERN_H
#include "quant/quant.h"

#define CKPI_Q_RUN 512
#define CKPI_Q_PAD 64               /* arrays of a tile may be written this far beyond a run */

#define CKPI_Q_A0 -0x1.acc2bap+0f
#define CKPI_Q_A1 0x1.032762p+1f
#define CKPI_Q_A2 -0x1.611f16p-2f
#define CKPI_Q_PHASE_STEP 0x9e3779b9u
#define CKPI_Q_PHASE_MUL 0xc2b2ae35u
#define CKPI_Q_ERR_MAX 5792.0f      /* its square is below the next */
#define CKPI_Q_SQ_MAX 0x1p25f       /* 64 vectors of a run fit a u32 lane */

typedef struct ckpi_q_run {
    size_t n;
    bool spread;           /* frow, krow, prow have n entries, else 1 */
    const float *frow;     /* S(-row) encoding and for w; S(2*row) for v and m */
    const float *krow;     /* encoding v only, as are the next two */
    const float *prow;     /* row/vstep */
    const float *fcol;     /* n entries: S(-col) or S(2*col) */
    const float *pcol;     /* n entries: col/vstep */
} ckpi_q_run;

typedef struct ckpi_q_tile {
    float rq[CKPI_Q_RUN + CKPI_Q_PAD];       /* +Inf where v has code ZERO, which makes q = qhi */
    bool any_dead;                           /* false: the next are all 0 */
    uint8_t dead[CKPI_Q_RUN + CKPI_Q_PAD];   /* 1: v is ZERO or escaped: m must be +0 or escape */
    uint16_t esc[CKPI_Q_RUN];                /* elements that escape, ascending; written by the kernel that just ran */
    size_t n_esc;
} ckpi_q_tile;

typedef struct ckpi_q_vpar {
    const float *table;    /* 256 entries by (uint8_t)code: S(-c*vstep); +Inf at ZERO */
    float s, a1, a2;       /* S and the scaled A1, A2 */
    float vstep;
    float stay;            /* in steps, 0 to 1: how far x may be from the base's code and keep it */
    float cmax;            /* largest |code| that does not escape: 127 or 124 octaves, whichever is less */
    uint32_t bits_lo, bits_hi;   /* positive v within these have v^ in 2^-148 .. 2^127 whenever |code| <= cmax */
} ckpi_q_vpar;

typedef struct ckpi_q_mpar {
    ckpi_mkind kind;
    float t;               /* kc / mt */
} ckpi_q_mpar;

typedef struct ckpi_q_wpar {
    ckpi_wstep step;
    ckp_dtype dtype;
    bool key, phase;
    uint32_t z;            /* phase_key + first * PHASE_STEP of the run's first element */
    float err_unit;        /* a power of two: |err| * it is at most 2^12 for |err| <= qhi */
    float sq_unit;         /* 2^(wsq_exp / 2) */
} ckpi_q_wpar;

/* Sums over a piece; kernels add. */
typedef struct ckpi_q_acc {
    int64_t csum;          /* codes of positive finite v */
    uint64_t not_pos;      /* elements whose v is not positive and finite ... */
    int64_t not_pos_p;     /* ... and the sum of their row + col */
    float step_max;        /* largest |x - pcol - c| of unescaped codes, by sign: v^ below v */
    float step_min;        /* most negative: v^ above v */
    int64_t err2, sq;
    uint64_t not_finite;   /* w */
    uint32_t max_bits;
    float max_err;
} ckpi_q_acc;

/*
 * What an ISA implements, as name(isa):
 *   enc_v   absolute codes of v to `code` (n bytes); rq, dead and esc to the tile; base: the base's codes, NULL for a key
 *   enc_m   after enc_v of the same run: codes of m;  enc_w: codes of w, wrec in place
 *   dec_v, dec_m: table is S(2*c*vstep) by (uint8_t)code, 0 at ZERO; dec_w: S(-c*vstep), +Inf at ZERO. vcode NULL: c = 0
 *   diff    diff = code - base (key: code), then base = code, mod 256;  undiff: code += diff
 *   pack2   codes of -1, 0 and 1 in two bits, from the low ones on, as many whole groups of four as hold no others; returns how many codes
 *   unpack2 the reverse, up to the first group with a CKPI_PACK2_ELSEWHERE
 *   logs    L of each positive finite element (|x| if from_m) added to *rsum and csum[j], 1 to *rcnt and ccnt[j]; csum NULL: no columns
 */
#define CKPI_Q_KERNELS(isa)                                                                                                          \
    void ckpi_q_enc_v_##isa(const ckpi_q_run *r, const ckpi_q_vpar *p, const float *v, const int8_t *base, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a); \
    void ckpi_q_enc_m_##isa(size_t n, const ckpi_q_mpar *p, const float *m, int8_t *code, ckpi_q_tile *t);            \
    void ckpi_q_enc_w_##isa(size_t n, const ckpi_q_wpar *p, const float *w, float *wrec, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a); \
    void ckpi_q_dec_v_##isa(const ckpi_q_run *r, const float *table, const int8_t *vcode, float *v);                                 \
    void ckpi_q_dec_m_##isa(const ckpi_q_run *r, const float *table, const int8_t *vcode, const int8_t *mcode, float mg, bool along, float *m); \
    void ckpi_q_dec_w_##isa(const ckpi_q_run *r, const float *table, const int8_t *vcode, const int8_t *wcode,                       \
                            const ckpi_q_wpar *p, float *wrec);                                                                      \
    void ckpi_q_diff_##isa(size_t n, const int8_t *code, bool key, int8_t *diff, int8_t *base);                                      \
    void ckpi_q_undiff_##isa(size_t n, const int8_t *diff, int8_t *code);                                                            \
    size_t ckpi_q_pack2_##isa(size_t n, const int8_t *code, uint8_t *two);                                                           \
    size_t ckpi_q_unpack2_##isa(size_t n, const uint8_t *two, int8_t *code);                                                         \
    void ckpi_q_logs_##isa(size_t n, const float *x, bool from_m, int64_t *rsum, uint32_t *rcnt, int32_t *csum, uint32_t *ccnt);     \
    void ckpi_q_wmax_##isa(size_t n, const float *w, ckpi_wstats *st);                                                               \
    void ckpi_q_wsq_##isa(size_t n, const float *w, float unit, ckpi_wstats *st);

CKPI_Q_KERNELS(ref)
CKPI_Q_KERNELS(avx2)
CKPI_Q_KERNELS(avx512)
CKPI_Q_KERNELS(neon)

typedef struct ckpi_q_ops {
    const char *name;
    uint32_t needs;
    void (*enc_v)(const ckpi_q_run *r, const ckpi_q_vpar *p, const float *v, const int8_t *base, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a);
    void (*enc_m)(size_t n, const ckpi_q_mpar *p, const float *m, int8_t *code, ckpi_q_tile *t);
    void (*enc_w)(size_t n, const ckpi_q_wpar *p, const float *w, float *wrec, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a);
    void (*dec_v)(const ckpi_q_run *r, const float *table, const int8_t *vcode, float *v);
    void (*dec_m)(const ckpi_q_run *r, const float *table, const int8_t *vcode, const int8_t *mcode, float mg, bool along, float *m);
    void (*dec_w)(const ckpi_q_run *r, const float *table, const int8_t *vcode, const int8_t *wcode, const ckpi_q_wpar *p, float *wrec);
    void (*diff)(size_t n, const int8_t *code, bool key, int8_t *diff, int8_t *base);
    void (*undiff)(size_t n, const int8_t *diff, int8_t *code);
    size_t (*pack2)(size_t n, const int8_t *code, uint8_t *two);
    size_t (*unpack2)(size_t n, const uint8_t *two, int8_t *code);
    void (*logs)(size_t n, const float *x, bool from_m, int64_t *rsum, uint32_t *rcnt, int32_t *csum, uint32_t *ccnt);
    void (*wmax)(size_t n, const float *w, ckpi_wstats *st);
    void (*wsq)(size_t n, const float *w, float unit, ckpi_wstats *st);
} ckpi_q_ops;

/* Best that the CPU word allows; never NULL. */
const ckpi_q_ops *ckpi_q_pick(uint32_t cpu);

/* Before enc_v: no element is dead. */
void ckpi_q_tile_begin(ckpi_q_tile *t);

/* The reference on elements [at, at + n) of a run: what vector kernels call for tails and for groups with anything unusual in them. */
void ckpi_q_ref_v(const ckpi_q_run *r, const ckpi_q_vpar *p, const float *v, const int8_t *base, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a,
                  size_t at, size_t n);
void ckpi_q_ref_m(const ckpi_q_mpar *p, const float *m, int8_t *code, ckpi_q_tile *t, size_t at, size_t n);
void ckpi_q_ref_w(const ckpi_q_wpar *p, const float *w, float *wrec, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a, size_t at, size_t n);
#endif
