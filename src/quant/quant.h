/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quant room: floats to codes and back (DESIGN section 3). Kernels work on a piece: a run of n elements of one owner, seen as a
 * matrix of `cols` columns whose last row may be short. Inputs are contiguous fp32; the engine converts other dtypes.
 *
 * Every step is integer or a single, exactly rounded IEEE operation in a stated order, so that each ISA gives the same bits.
 * The decoder's arithmetic is the format (docs/format.md, "quantizers"); the encoder's is only required to be deterministic.
 *
 * Scale field. For element (i, j) with v-code c (absolute, not the difference):
 *     S(k)  = ckpi_exp2_fixed(k)            2^(k/512)
 * (row stands for row + lift throughout)
 *     s     = (S(2*row[i]) * S(2*c*vstep)) * S(2*col[j])      about sqrt(v);  v^ = s * s
 *     rq    = (S(-row[i]) * S(-c*vstep)) * S(-col[j])         about v^(-1/4)
 * row, col in 1/256 octave of sqrt(v). Without col factors S(..col..) is 1; without row factors S(..row..) is 1; without codes c is 0.
 * Code CKPI_VCODE_ZERO: v^ = +0, s = 0, q = qhi. Products are f32, rounded after each *, in the order written.
 *     q     = min(max(qmul * rq, qlo), qhi)
 *     w^    = the base's bits where the code is 0, else round_to_dtype(base + (float)code * q): three roundings
 *     m^    = +0 where the code is 0, else ((float)code * mg) * s
 *             along directions (low.h): ((float)code * mg + y) * s, a zero being +0
 * Escapes replace the result at their index by exact bits; the scale field of that element still comes from its code.
 * A NaN before escapes are applied (a NaN in the base, or hostile codes and factors) is a NaN everywhere, but its bits are not promised:
 * compilers and machines differ there. In a valid file each of them is replaced by an escape.
 */
#ifndef CKPI_QUANT_H
#define CKPI_QUANT_H
#include <stdbool.h>
#include "base/alloc.h"

#define CKPI_VCODE_ZERO (-128)

/* Factors are kept within these (1/256 octave), so that no partial product of the scale field of a v can overflow. FORMAT: decoders
   accept any int16; encoders refuse others for v. */
#define CKPI_VROW_MIN (-76 * 256)
#define CKPI_VROW_MAX (66 * 256)
#define CKPI_VCOL_MAX (44 * 256)    /* of either sign */

/* Wire ids of quantizers: pinned for ever. */
typedef enum ckpi_quant_id {
    CKPI_QUANT_NONE = 0,
    CKPI_QUANT_V = 1,      /* log grid against row and column factors */
    CKPI_QUANT_M = 2,      /* code * mg * s : three values or a uniform grid relative to sqrt(v^) */
    CKPI_QUANT_W = 3,      /* base + code * q, Fisher steps */
    CKPI_QUANT_INDEX = 4,  /* indices into codebooks, pruned and protected among them (codebook.h) */
    CKPI_QUANT_CLUSTER = 5 /* moments by themselves: clusters, and 8 bits within them or none (clusters.h) */
} ckpi_quant_id;

/* The piece as a matrix. cols 128 and col NULL: one factor per 128 elements (1-D tensors). */
typedef struct ckpi_grid {
    size_t n, cols, rows;        /* rows = ceil(n / cols) */
    const int16_t *row;          /* rows factors */
    const int16_t *col;          /* cols factors, or NULL */
    int32_t vstep;               /* 1/256 octave; a power of two from 1 to 4096 */
    int32_t lift;                /* added to every row factor in the scale field (not where c is found): -128 to 127 */
    bool has_v;                  /* false: no codes; c = 0 everywhere (momentum with factors, or row = NULL: s = 1, rq = 1) */
} ckpi_grid;

/* Weight steps. Finite, qmul > 0, 0 < qlo <= qhi: both directions check it (CKP_EINVAL encoding, CKP_ECORRUPT decoding). */
typedef struct ckpi_wstep { float qmul, qlo, qhi; } ckpi_wstep;

typedef enum ckpi_round { CKPI_ROUND_NEAREST = 0, CKPI_ROUND_PHASE = 1 } ckpi_round;
/* Both are a uniform grid of u; CLAMPED: what is beyond +-127 steps becomes that, for three.h to make something of. */
typedef enum ckpi_mkind { CKPI_M_NONE = 0, CKPI_M_CLAMPED = 1, CKPI_M_UNIFORM = 2 } ckpi_mkind;

/* A value that no code can carry: exact f32 bits at element index (of the piece). Applied after the codes are decoded.
   What escapes:
     v  anything but +0 and positive finite numbers; a code beyond +-127 (kept clamped); v^ outside 2^-148 .. 2^127. A v that is not
        positive has code ZERO.
     m  NaN, Inf; anything but +0 in an element whose v is ZERO or escaped; UNIFORM codes beyond +-127.
     w  w, base or w^ not finite; codes beyond +-127. Code 0, w^ = w.
   -0: v escapes; m and w may come back as +0 or, with code 0 and a base, as the base. */
typedef struct ckpi_escape { uint32_t index; uint32_t bits; } ckpi_escape;
typedef struct ckpi_escapes { ckpi_escape *at; size_t n, cap; } ckpi_escapes;   /* ascending index; start from {0}; ckpi_realloc, owned by the caller */
void ckpi_escapes_free(ckpi_escapes *e);

/* ---- encoder ---------------------------------------------------------------------------------------------------- */

/* Row and column factors of v (or of |m| when there is no v: pass m*m's source as `m`), by integer means of L over
   positive finite elements: row[i] = mean_j L; col[j] = mean_i L - mean L, means rounded down from + 1/2, then clamped (see above).
   Rows or columns without any: 0. One pass. L = log2 sqrt(x) in 1/256 octave, by a fixed quadratic: within 1 unit.
   from_m: x is momentum; L = log2 |x| in 1/256 octave, rows clamped to +-126 octaves. */
CKP_MUST_USE ckp_status ckpi_quant_factors(const float *x, bool from_m, size_t n, size_t cols, int16_t *row, int16_t *col /* NULL: blocks */,
                                           ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* The same of rows that begin `stride` elements from each other, cols or more: n, a multiple of cols where they are more, counts their elements alone. */
CKP_MUST_USE ckp_status ckpi_quant_factors_apart(const float *x, size_t stride, bool from_m, size_t n, size_t cols, int16_t *row, int16_t *col /* NULL: blocks */,
                                           ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* Sums that make model-wide numbers. All are integers, so that any order and any number of threads or ranks agree. */
typedef struct ckpi_wstats {
    uint32_t max_bits;     /* largest |w| among finite elements, as its bits (order like the values) */
    uint64_t n_finite;
    int64_t sum_sq;        /* sum over finite elements of rint(min((w * 2^(sq_exp/2))^2, 2^25)): at most 2^25 an element */
} ckpi_wstats;
/* The scale that suits a tensor (or model) whose largest |w| is max_bits: even; elements up to sqrt(2) times that are not clamped. */
int ckpi_quant_sq_exp(uint32_t max_bits);
/* 2 passes when the scale is not known: max first, then squares. Both add to *st; sq_exp even, clamped to +-252. */
void ckpi_quant_wmax(const float *w, size_t n, ckpi_wstats *st, uint32_t cpu);
void ckpi_quant_wsq(const float *w, size_t n, int sq_exp, ckpi_wstats *st, uint32_t cpu);

typedef struct ckpi_enc_in {
    ckpi_grid grid;
    const float *w, *m, *v;      /* NULL when absent */
    float *wrec;                 /* in: w^ of the base (for a key: ignored, taken as 0); out: w^ . dtype rounding: wrec_dtype */
    ckp_dtype w_dtype;           /* CKP_F32, CKP_BF16 or CKP_F16: w^ is rounded to it (nearest even) before it is kept */
    bool key;                    /* no base: w^_base = +0 and v base code = 0 */
    bool w_based;                /* of a key: its weights have a base all the same, in wrec (a base model) */
    float vstay;                 /* a v keeps its base's code while it is within so many steps of it: to 1; 0: nearest */
    ckpi_wstep wstep;
    ckpi_round round;
    uint32_t phase_key;          /* ckpi_rng_key of (run, restore count, tensor, high half of the index); phases: kern.h */
    uint32_t first;              /* element index (low 32 bits) of the piece's first element in its tensor */
    ckpi_mkind mkind;
    float kc;                    /* sqrt(1 - b2^t) / (1 - b1^t); u = (m * kc) * isv */
    float mt;                    /* step of u */
    int wsq_exp;                 /* scale of wstats.sum_sq below (ckpi_quant_sq_exp of the last save's maximum) */
} ckpi_enc_in;

typedef struct ckpi_enc_out {
    int8_t *wcode, *mcode;       /* n codes each; written where the input is there and kind is not NONE */
    int8_t *vdiff;               /* c minus the base's c, modulo 256 */
    int8_t *vcode;               /* in: the base's absolute codes (ignored for a key); out: this save's */
    ckpi_escapes wesc, mesc, vesc;
    /* Sums over the piece, written (not added to). Integers but for the last line: any split and order of pieces gives the same sum. */
    int64_t lsum; uint64_t lcount;   /* sum and count of row + col + c * vstep over positive finite v: mean log v^ (|lsum| < 2^20 an element) */
    ckpi_wstats wstats;          /* of w with wsq_exp: next save's RMS */
    double w_max_err, v_max_err; /* max |w - w^|; v: a bound on |v - v^| / v over unescaped positive v, at most 2^(1/128) above it */
    double w_sum_err2;           /* sum of squares in units of about (qhi/2^12)^2, made double: exact to that rounding; 0 without w */
    double w_sum_w2;             /* wstats.sum_sq * 2^-wsq_exp */
} ckpi_enc_out;

/* One fused pass over a piece: v, then m, then w of each element. Escape arrays are emptied, then grown as needed (CKP_ENOMEM: the
   outputs and wrec are then undefined). CKP_EINVAL: a grid, factor, step or kind outside the above; nothing is touched. */
CKP_MUST_USE ckp_status ckpi_quant_encode(const ckpi_enc_in *in, ckpi_enc_out *out, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* mg of a piece: mt / kc, what one step of u is worth to m beside s. double arithmetic, one rounding to f32. */
float ckpi_quant_mg(const ckpi_enc_in *in);

/* ---- decoder ---------------------------------------------------------------------------------------------------- */

/*
 * Codes of -1, 0 and 1 in two bits each, as many whole groups of four as hold no others; returns how many codes. two: (n + 3) / 4 bytes.
 * unpack: the reverse, up to the first group with a CKPI_PACK2_ELSEWHERE, which is none of the three.
 */
#define CKPI_PACK2_ELSEWHERE 2u
size_t ckpi_quant_pack2(const int8_t *code, size_t n, uint8_t *two, uint32_t cpu);
size_t ckpi_quant_unpack2(const uint8_t *two, size_t n, int8_t *code, uint32_t cpu);

/* c = base c + diff (mod 256), in place on vcode; key: vcode = diff. */
void ckpi_quant_vcode_apply(int8_t *vcode, const int8_t *diff, size_t n, bool key, uint32_t cpu);
/* v^ of each element (escapes are the caller's to patch). */
CKP_MUST_USE ckp_status ckpi_quant_decode_v(const ckpi_grid *g, const int8_t *vcode, float *v, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* m^: as above; mg finite. along: m holds y of each element (ckpi_low_values), else it is only written. */
CKP_MUST_USE ckp_status ckpi_quant_decode_m(const ckpi_grid *g, const int8_t *vcode, const int8_t *mcode, float mg, bool along, float *m,
                                            ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* w^: as above; in place on wrec (key: base +0, wrec is only written). A code of 0 leaves the element as it is: a tile of zeros may be skipped. */
CKP_MUST_USE ckp_status ckpi_quant_decode_w(const ckpi_grid *g, const int8_t *vcode, const int8_t *wcode, const ckpi_wstep *q, ckp_dtype w_dtype,
                                            bool key, float *wrec, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
void ckpi_escapes_apply(const ckpi_escape *e, size_t n, float *x);
#endif
