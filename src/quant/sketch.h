/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram of floats by size, from which quantiles, thresholds and codebooks are read: the quantile sketch of the planner.
 * Buckets are the exponent and the top six bits of the mantissa, two stores by sign, zeros and non-finite values apart. So the
 * bucket is a shift of the float's bits (no logarithm), a bucket is at most 1/64 of its lower edge wide, and its middle is within
 * 1/128 = 0.8 % of every value in it (the 1 % that is asked for would need 35 logarithmic buckets an octave; these are 64).
 * Below 2^-126 the error is 2^-133, absolute; below 2^-132 the sign is not kept.
 *
 * A sketch is nothing but counters: adding two, in any order, gives the sketch of both inputs. CKPI_SKETCH_WORDS numbers of 64
 * bits from &s->zero on may be summed over ranks as they are.
 */
#ifndef CKPI_QUANT_SKETCH_H
#define CKPI_QUANT_SKETCH_H
#include <stdbool.h>
#include "base/alloc.h"

#define CKPI_SKETCH_SHIFT 17                    /* bits of a float below its bucket */
#define CKPI_SKETCH_BUCKETS (255 * 64)          /* of one sign */
#define CKPI_SKETCH_WORDS (2 + 2 * CKPI_SKETCH_BUCKETS)

typedef struct ckpi_sketch {
    uint64_t zero;                              /* of either sign */
    uint64_t not_finite;                        /* NaN and infinities */
    uint64_t count[2][CKPI_SKETCH_BUCKETS];     /* positive, negative; rising magnitude */
} ckpi_sketch;

/* 255 KiB, all zero; NULL on lack of memory. Freed by ckpi_sketch_free (accepts NULL). */
ckpi_sketch *ckpi_sketch_new(void);
void ckpi_sketch_free(ckpi_sketch *s);
void ckpi_sketch_clear(ckpi_sketch *s);
void ckpi_sketch_merge(ckpi_sketch *s, const ckpi_sketch *other);

/**
 * Add n values; cost: 0.5 ns each (one core) and, from some thousands on, 60 us for the counters of the call.
 * @return CKP_OK; CKP_ENOMEM: nothing was added.
 */
CKP_MUST_USE ckp_status ckpi_sketch_add(ckpi_sketch *s, const float *x, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* The same for the scores |g[i] * w[i]| (one rounding), which are never negative. */
CKP_MUST_USE ckp_status ckpi_sketch_add_score(ckpi_sketch *s, const float *g, const float *w, size_t n, ckpi_scratch *ws, uint32_t cpu,
                                              ckp_error *err);

/* How many finite values there are, zeros among them. */
uint64_t ckpi_sketch_total(const ckpi_sketch *s);

/* The value of rank floor(q * (total - 1)), q in [0, 1], of the magnitudes or, with is_signed, of the values; within the error
   above (of a zero: exact). 0 when there is none. */
float ckpi_sketch_quantile(const ckpi_sketch *s, double q, bool is_signed);

/*
 * Thresholds are edges of buckets, so what they cut off is known exactly:
 *   below   the largest t such that at most `most` finite values have |x| < t; +Inf when all may go
 *   above   the smallest t such that at most `most` finite values have |x| >= t; +Inf when none may
 *   from    how many finite values have |x| >= t, t an edge (others are rounded down to one)
 */
float ckpi_sketch_below(const ckpi_sketch *s, uint64_t most);
float ckpi_sketch_above(const ckpi_sketch *s, uint64_t most);
uint64_t ckpi_sketch_from(const ckpi_sketch *s, float t);

/* The middle of bucket i: what stands for the values in it. */
float ckpi_sketch_middle(size_t i);
#endif
