/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/clusters.h"
#include <math.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "quant/num.h"

CKPI_NO_CONTRACT

/* ---- histogram ------------------------------------------------------------------------------------------------------------ */

/* 64 buckets an octave: sign, exponent and six bits of the significand, in the order of the values. */
#define SHIFT 17
#define HALF (1u << (31 - SHIFT))
#define BUCKETS (2 * HALF)
#define NO_LABEL UINT16_MAX

static inline uint32_t
bucket_of(uint32_t bits)
{
    const uint32_t size = (bits & 0x7fffffffU) >> SHIFT;
    return bits >> 31 != 0 ? HALF - 1 - size : HALF + size;
}

static inline bool
is_finite(uint32_t bits)
{
    return (bits & 0x7f800000U) != 0x7f800000U;
}

/* The value of a bucket on its side nearer to zero, and on the other. */
static float
inner_edge(uint32_t size)
{
    return ckpi_f32_from_bits(size << SHIFT);
}

static float
outer_edge(uint32_t size)
{
    return ckpi_f32_from_bits(((size + 1) << SHIFT) - 1);
}

/*
 * Occupied buckets as points: what cells.inc needs of them, as running sums. Of centres: of counts, values and squares, outwards from zero, so that no square of an outlier is in
 * sums of cells inside of it. Of affine clusters: of count / middle^2, inwards on either side of zero, since it is the small ones whose terms are large.
 */
typedef struct points {
    ckpi_clusters_kind kind;
    size_t n, zero;              /* zero: the first positive one */
    uint32_t *bucket;
    double *low, *high;          /* edges */
    double *sum[3];
} points;

/* Sum of count / middle^2 over [i, j). */
static inline double
inverse_squares(const points *p, size_t i, size_t j)
{
    const double *s = p->sum[0], *t = p->sum[1];
    if (j <= p->zero)
        return s[j] - s[i];
    return i >= p->zero ? t[i] - t[j] : (s[p->zero] - s[i]) + (t[p->zero] - t[j]);
}

/* Squared relative error of an even grid over [i, j), but for a factor; or squared error around the mean. Both satisfy the quadrangle inequality. */
static inline double
cost(const points *p, size_t i, size_t j)
{
    if (p->kind == CKPI_CLUSTERS_AFFINE) {
        const double range = p->high[j - 1] - p->low[i];
        return range * range * inverse_squares(p, i, j);
    }
    const double w = p->sum[0][j] - p->sum[0][i], x = p->sum[1][j] - p->sum[1][i], xx = p->sum[2][j] - p->sum[2][i];
    const double e = xx - x * x / w;
    return e > 0 ? e : 0;
}

#define CELLS_OF points
#include "quant/cells.inc"

static ckp_status
no_memory(size_t n, ckp_error *err)
{
    return ckpi_fail(err, CKP_ENOMEM, "clusters: no memory for %zu values", n);
}

static void
sum_up(points *p, const uint32_t *count, const double *sum)
{
    const size_t n = p->n, z = p->zero;

    if (p->kind == CKPI_CLUSTERS_AFFINE) {
        p->sum[0][0] = p->sum[1][n] = 0;
        for (size_t i = 0; i < z; i++) {
            const double mid = 0.5 * (p->low[i] + p->high[i]);
            p->sum[0][i + 1] = p->sum[0][i] + (double)count[p->bucket[i]] / (mid * mid);
        }
        for (size_t i = n; i-- > z;) {
            const double mid = 0.5 * (p->low[i] + p->high[i]);
            p->sum[1][i] = p->sum[1][i + 1] + (double)count[p->bucket[i]] / (mid * mid);
        }
        return;
    }
    for (unsigned k = 0; k < 3; k++)
        p->sum[k][z] = 0;
    for (size_t i = z; i < n; i++) {
        const double w = (double)count[p->bucket[i]], x = sum[p->bucket[i]];
        p->sum[0][i + 1] = p->sum[0][i] + w;
        p->sum[1][i + 1] = p->sum[1][i] + x;
        p->sum[2][i + 1] = p->sum[2][i] + x * (x / w);
    }
    for (size_t i = z; i-- > 0;) {
        const double w = (double)count[p->bucket[i]], x = sum[p->bucket[i]];
        p->sum[0][i] = p->sum[0][i + 1] - w;
        p->sum[1][i] = p->sum[1][i + 1] - x;
        p->sum[2][i] = p->sum[2][i + 1] - x * (x / w);
    }
}

static ckp_status
make_points(points *p, const uint32_t *count, const double *sum, ckpi_scratch *ws, ckp_error *err)
{
    size_t n = 0;
    for (uint32_t b = 0; b < BUCKETS; b++)
        n += count[b] != 0;
    p->n = p->zero = 0;
    p->bucket = ckpi_scratch_get(ws, (n + 1) * sizeof *p->bucket);
    double *mem = ckpi_scratch_get(ws, 5 * (n + 1) * sizeof *mem);
    if (p->bucket == NULL || mem == NULL)
        return no_memory(n, err);
    p->low = mem;
    p->high = mem + n + 1;
    for (unsigned k = 0; k < 3; k++)
        p->sum[k] = mem + (2 + k) * (n + 1);
    for (uint32_t b = 0; b < BUCKETS; b++) {
        if (count[b] == 0)
            continue;
        const bool negative = b < HALF;
        const uint32_t size = negative ? HALF - 1 - b : b - HALF;
        const double in = (double)inner_edge(size), out = (double)outer_edge(size);
        const size_t i = p->n++;
        p->bucket[i] = b;
        p->low[i] = negative ? -out : in;
        p->high[i] = negative ? -in : out;
        p->zero += negative;
    }
    sum_up(p, count, sum);
    return CKP_OK;
}

/* ---- clusters ------------------------------------------------------------------------------------------------------------- */

typedef struct extent { float low, high; double sum; uint64_t n; } extent;

/* Labels of buckets: cells in rising order from `first` on. */
static ckp_status
label_buckets(const points *p, uint32_t first, uint32_t *k, uint16_t *label, ckpi_scratch *ws, ckp_error *err)
{
    const uint32_t most = (uint32_t)CKPI_MIN(p->n, (size_t)(CKPI_CLUSTERS_MAX - first));
    const size_t n = p->n;
    double total[CKPI_CLUSTERS_MAX + 1];

    *k = first + most;
    if (n == 0)
        return CKP_OK;
    uint16_t *cut = ckpi_scratch_get(ws, most * (n + 1) * sizeof *cut);
    double *rows = ckpi_scratch_get(ws, 2 * (n + 1) * sizeof *rows);
    if (cut == NULL || rows == NULL)
        return no_memory(n, err);
    fill_rows(p, n, most, cut, total, rows, rows + n + 1);
    for (uint32_t cell = most, end = (uint32_t)n; cell > 0; cell--) {
        const uint32_t begin = cut[(size_t)(cell - 1) * (n + 1) + end];
        for (uint32_t i = begin; i < end; i++)
            label[p->bucket[i]] = (uint16_t)(first + cell - 1);
        end = begin;
    }
    return CKP_OK;
}

static uint32_t
label_of(const uint16_t *label, uint32_t bits)
{
    return (bits & 0x7fffffffU) == 0 ? 0 : label[bucket_of(bits)];
}

/* The grid of a cluster's values. The rounded step may reach beyond the largest: never beyond what is finite. */
static void
set_grid(ckpi_clusters *c, uint32_t l, const extent *e)
{
    c->low[l] = 0;
    c->step[l] = 0;
    if (e->n == 0)
        return;
    if (c->kind == CKPI_CLUSTERS_CENTRES) {
        c->low[l] = (float)(e->sum / (double)e->n);
        return;
    }
    c->low[l] = e->low;
    c->step[l] = (float)(((double)e->high - (double)e->low) / 255.0);
    while (!isfinite(c->low[l] + 255.0F * c->step[l]))
        c->step[l] = ckpi_f32_from_bits(ckpi_f32_bits(c->step[l]) - 1);
}

static void
measure_clusters(ckpi_clusters *c, const uint16_t *label, const float *x, size_t n)
{
    extent e[CKPI_CLUSTERS_MAX];

    for (uint32_t l = 0; l < CKPI_CLUSTERS_MAX; l++)
        e[l] = (extent){.low = INFINITY, .high = -INFINITY};
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = ckpi_f32_bits(x[i]);
        if (!is_finite(bits))
            continue;
        extent *to = &e[label_of(label, bits)];
        to->low = x[i] < to->low ? x[i] : to->low;
        to->high = x[i] > to->high ? x[i] : to->high;
        to->sum += (double)x[i];
        to->n++;
    }
    for (uint32_t l = 0; l < c->k; l++)
        set_grid(c, l, &e[l]);
}

static float
value_of(const ckpi_clusters *c, uint16_t code)
{
    const float along = (float)(code >> 8) * c->step[code & 255];
    return c->low[code & 255] + along;
}

/* The nearest of the cluster's 256 values, as far as one division tells. */
static uint16_t
code_of(const ckpi_clusters *c, uint32_t l, float x)
{
    if (c->step[l] == 0)
        return (uint16_t)l;
    const double at = ((double)x - (double)c->low[l]) / (double)c->step[l] + 0.5;
    const uint32_t code = at >= 255.0 ? 255 : at > 0.0 ? (uint32_t)at : 0;
    return (uint16_t)(l | code << 8);
}

static void
add_loss(ckpi_clusters_loss *s, float x, float back)
{
    const double e = fabs((double)x - (double)back);

    s->err2 += e * e;
    s->sum2 += (double)x * (double)x;
    s->max_err = fmax(s->max_err, e);
    s->n++;
    if (x != 0) {
        s->rel += e / fabs((double)x);
        s->max_rel = fmax(s->max_rel, e / fabs((double)x));
        s->n_rel++;
    }
}

static ckp_status
code_values(const ckpi_clusters *c, const uint16_t *label, const float *x, size_t n, size_t at, uint16_t *code, ckpi_escapes *esc,
            ckpi_clusters_loss *loss, ckp_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = ckpi_f32_bits(x[i]);
        code[i] = 0;
        if (is_finite(bits)) {
            code[i] = code_of(c, label_of(label, bits), x[i]);
            add_loss(loss, x[i], value_of(c, code[i]));
            continue;
        }
        loss->n_nan += (bits & 0x7fffffU) != 0;
        loss->n_inf += (bits & 0x7fffffU) == 0;
        if (esc->n == esc->cap) {
            const size_t cap = esc->cap != 0 ? 2 * esc->cap : 64;
            ckpi_escape *grown = ckpi_realloc(esc->at, cap, sizeof *grown);
            if (grown == NULL)
                return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu escapes", cap);
            esc->at = grown;
            esc->cap = cap;
        }
        esc->at[esc->n++] = (ckpi_escape){.index = (uint32_t)(at + i), .bits = bits};
    }
    return CKP_OK;
}

ckp_status
ckpi_clusters_encode(ckpi_clusters *c, ckpi_clusters_kind kind, const float *x, size_t n, size_t at, uint16_t *code, ckpi_escapes *esc,
                     ckpi_clusters_loss *loss, ckpi_scratch *ws, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    uint32_t *count = ckpi_scratch_get(ws, BUCKETS * sizeof *count);
    double *sum = ckpi_scratch_get(ws, BUCKETS * sizeof *sum);
    uint16_t *label = ckpi_scratch_get(ws, BUCKETS * sizeof *label);
    points p = {.kind = kind};
    uint32_t zeros = 0;

    *c = (ckpi_clusters){.kind = kind};
    if (count == NULL || sum == NULL || label == NULL)
        return no_memory(n, err);
    (void)memset(count, 0, BUCKETS * sizeof *count);
    (void)memset(label, 0, BUCKETS * sizeof *label);
    for (size_t b = 0; b < BUCKETS; b++)
        sum[b] = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = ckpi_f32_bits(x[i]);
        if ((bits & 0x7fffffffU) == 0) {
            zeros = 1;
        } else if (is_finite(bits)) {
            count[bucket_of(bits)]++;
            sum[bucket_of(bits)] += (double)x[i];
        }
    }
    ckp_status st = make_points(&p, count, sum, ws, err);
    if (st == CKP_OK)
        st = label_buckets(&p, zeros, &c->k, label, ws, err);
    if (st == CKP_OK) {
        c->k = CKPI_MAX(c->k, 1u);
        measure_clusters(c, label, x, n);
        st = code_values(c, label, x, n, at, code, esc, loss, err);
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

ckp_status
ckpi_clusters_decode(const ckpi_clusters *c, const uint16_t *code, size_t n, float *x, ckp_error *err)
{
    uint32_t top = 0;

    for (size_t i = 0; i < n; i++) {
        top = CKPI_MAX(top, (uint32_t)(code[i] & 255));
        x[i] = value_of(c, code[i]);
    }
    return top < c->k ? CKP_OK : ckpi_fail(err, CKP_ECORRUPT, "a value of cluster %u, of %u", (unsigned)top, (unsigned)c->k);
}

bool
ckpi_clusters_valid(const ckpi_clusters *c)
{
    bool ok = c->k >= 1 && c->k <= CKPI_CLUSTERS_MAX && (c->kind == CKPI_CLUSTERS_AFFINE || c->kind == CKPI_CLUSTERS_CENTRES);

    for (uint32_t l = 0; ok && l < c->k; l++)
        ok = isfinite(c->low[l]) && c->step[l] >= 0 && isfinite(c->low[l] + 255.0F * c->step[l]);
    return ok;
}
