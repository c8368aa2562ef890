/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/sketch.h"
#include <stdlib.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "quant/num.h"
#include "quant/sketch_kern.h"

CKPI_NO_CONTRACT

/*
 * Counters of one call: four for each slot, side by side, so that equal values in a row do not wait for the store before them,
 * and the few kilobytes that a tensor's values touch stay in the first cache. 32 bits: a call is cut into parts below that.
 */
enum { LANES = 4, MANY = 16384 };
#define PART ((size_t)1 << 31)

enum { NOT_FINITE = CKPI_SKETCH_BUCKETS, SIGN = CKPI_SKETCH_SLOTS / 2 };

ckpi_sketch *
ckpi_sketch_new(void)
{
    return ckpi_calloc(1, sizeof(ckpi_sketch));
}

void
ckpi_sketch_free(ckpi_sketch *s)
{
    free(s);
}

void
ckpi_sketch_clear(ckpi_sketch *s)
{
    memset(s, 0, sizeof *s);
}

void
ckpi_sketch_merge(ckpi_sketch *s, const ckpi_sketch *other)
{
    s->zero += other->zero;
    s->not_finite += other->not_finite;
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < CKPI_SKETCH_BUCKETS; i++)
            s->count[k][i] += other->count[k][i];
    }
}

/* ---- adding ------------------------------------------------------------------------------------------------------------ */

static void
count_slots(uint32_t *lanes, const uint16_t *slot, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes[(size_t)slot[i] * LANES]++;
        lanes[(size_t)slot[i + 1] * LANES + 1]++;
        lanes[(size_t)slot[i + 2] * LANES + 2]++;
        lanes[(size_t)slot[i + 3] * LANES + 3]++;
    }
    for (; i < n; i++)
        lanes[(size_t)slot[i] * LANES]++;
}

static void
count_directly(ckpi_sketch *s, const uint16_t *slot, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t at = slot[i] & (SIGN - 1);
        if (at < NOT_FINITE)
            s->count[slot[i] / SIGN][at]++;
        else
            s->not_finite++;
    }
}

static void
take_lanes(ckpi_sketch *s, const uint32_t *lanes)
{
    for (size_t k = 0; k < 2; k++) {
        const uint32_t *p = lanes + k * SIGN * LANES;
        for (size_t i = 0; i < SIGN; i++, p += LANES) {
            const uint64_t sum = (uint64_t)p[0] + p[1] + p[2] + p[3];
            if (i < NOT_FINITE)
                s->count[k][i] += sum;
            else
                s->not_finite += sum;
        }
    }
}

/* Zeros fell into the first bucket of their sign, among the smallest denormals, whose sign is not kept for that reason. */
static void
part_zeros(ckpi_sketch *s, size_t zeros)
{
    s->count[0][0] += s->count[1][0];
    s->count[0][0] -= zeros;
    s->count[1][0] = 0;
    s->zero += zeros;
}

/* One part, by its own counters (lanes) or, where there are none, straight into the sketch. */
static void
add_part(ckpi_sketch *s, uint32_t *lanes, const float *x, const float *y, size_t n, ckpi_sketch_slots_fn *slots)
{
    uint16_t slot[CKPI_SKETCH_BLOCK];
    size_t zeros = 0;
    if (lanes != NULL)
        memset(lanes, 0, (size_t)CKPI_SKETCH_SLOTS * LANES * sizeof *lanes);
    for (size_t at = 0; at < n; at += CKPI_SKETCH_BLOCK) {
        const size_t count = CKPI_MIN((size_t)CKPI_SKETCH_BLOCK, n - at);
        zeros += slots(slot, x + at, y != NULL ? y + at : NULL, count);
        if (lanes != NULL)
            count_slots(lanes, slot, count);
        else
            count_directly(s, slot, count);
    }
    if (lanes != NULL)
        take_lanes(s, lanes);
    part_zeros(s, zeros);
}

static ckp_status
add(ckpi_sketch *s, const float *x, const float *y, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    uint32_t *lanes = NULL;
    if (n >= MANY && (lanes = ckpi_scratch_get(ws, (size_t)CKPI_SKETCH_SLOTS * LANES * sizeof *lanes)) == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "sketch: no memory for its counters");
    const ckpi_fpenv env = ckpi_fp_enter();
    for (size_t at = 0; at < n; at += PART)
        add_part(s, lanes, x + at, y != NULL ? y + at : NULL, CKPI_MIN(PART, n - at), ckpi_sketch_pick(cpu));
    ckpi_fp_leave(env);
    ckpi_scratch_release(ws, mark);
    return CKP_OK;
}

ckp_status
ckpi_sketch_add(ckpi_sketch *s, const float *x, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    return add(s, x, NULL, n, ws, cpu, err);
}

ckp_status
ckpi_sketch_add_score(ckpi_sketch *s, const float *g, const float *w, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    return add(s, g, w, n, ws, cpu, err);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

static float
edge(size_t i)
{
    return f32_of((uint32_t)i << CKPI_SKETCH_SHIFT); /* i = BUCKETS: +Inf */
}

float
ckpi_sketch_middle(size_t i)
{
    return f32_of((uint32_t)i << CKPI_SKETCH_SHIFT | 1u << (CKPI_SKETCH_SHIFT - 1));
}

static uint64_t
of_both(const ckpi_sketch *s, size_t i)
{
    return s->count[0][i] + s->count[1][i];
}

uint64_t
ckpi_sketch_total(const ckpi_sketch *s)
{
    uint64_t n = s->zero;
    for (size_t i = 0; i < CKPI_SKETCH_BUCKETS; i++)
        n += of_both(s, i);
    return n;
}

static float
quantile_of_magnitudes(const ckpi_sketch *s, uint64_t rank)
{
    uint64_t below = s->zero;
    if (rank < below)
        return 0;
    size_t i = 0;
    while (rank >= (below += of_both(s, i)))
        i++;
    return ckpi_sketch_middle(i);
}

static float
quantile_of_values(const ckpi_sketch *s, uint64_t rank)
{
    uint64_t below = 0;
    for (size_t i = CKPI_SKETCH_BUCKETS; i-- > 0;) {
        if (rank < (below += s->count[1][i]))
            return -ckpi_sketch_middle(i);
    }
    if (rank < (below += s->zero))
        return 0;
    size_t i = 0;
    while (rank >= (below += s->count[0][i]))
        i++;
    return ckpi_sketch_middle(i);
}

float
ckpi_sketch_quantile(const ckpi_sketch *s, double q, bool is_signed)
{
    const uint64_t total = ckpi_sketch_total(s);
    if (total == 0)
        return 0;
    const double place = (q > 0 ? q : 0) * (double)(total - 1);
    const uint64_t rank = place < (double)(total - 1) ? (uint64_t)place : total - 1;
    return is_signed ? quantile_of_values(s, rank) : quantile_of_magnitudes(s, rank);
}

float
ckpi_sketch_below(const ckpi_sketch *s, uint64_t most)
{
    uint64_t gone = s->zero;
    if (gone > most)
        return 0;
    for (size_t i = 0; i < CKPI_SKETCH_BUCKETS; i++) {
        gone += of_both(s, i);
        if (gone > most)
            return edge(i);
    }
    return edge(CKPI_SKETCH_BUCKETS);
}

float
ckpi_sketch_above(const ckpi_sketch *s, uint64_t most)
{
    uint64_t taken = 0;
    for (size_t i = CKPI_SKETCH_BUCKETS; i-- > 0;) {
        taken += of_both(s, i);
        if (taken > most)
            return edge(i + 1);
    }
    return taken + s->zero > most ? edge(1) : 0;
}

uint64_t
ckpi_sketch_from(const ckpi_sketch *s, float t)
{
    const uint32_t bits = f32_bits(t);
    uint64_t n = bits == 0 || bits >> 31 ? s->zero : 0;
    for (size_t i = bits >> 31 ? 0 : bits >> CKPI_SKETCH_SHIFT; i < CKPI_SKETCH_BUCKETS; i++)
        n += of_both(s, i);
    return n;
}
