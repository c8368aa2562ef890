/* SPDX-License-Identifier: Apache-2.0 */
/* Finding directions: subspace iteration on integers, principal axes, and small integers again. */
#include <math.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "base/rng.h"
#include "quant/low_kern.h"

CKPI_NO_CONTRACT

enum {
    R = CKPI_LOW_MAX,
    ROUNDS = 2,                     /* a third one finds no more that counts */
    LEVEL = 9                       /* of a and b: about 5 in RMS where they are normal, which is 4 bits and half a percent of error */
};
/* What a number of a or b takes, and what a kept value, its place told: bits. */
#define FACTOR_BITS 4.2
#define KEPT_BITS 8.0

typedef struct fit {
    const int8_t *u;
    size_t rows, cols;
    const ckpi_low_ops *ops;
    double *side;                   /* R runs of max(rows, cols) */
    double *b;                      /* R runs of cols: orthonormal */
    int32_t *sum;                   /* R * max(rows, cols) */
    int16_t *narrow;                /* likewise */
} fit;

/* The largest integers whose products with u, n of them, still add up in 32 bits. */
static double
widest(size_t n)
{
    return fmin(32767.0, floor(2147483647.0 / 127.0 / (double)n));
}

static double
dot(const double *x, const double *y, size_t n)
{
    double s = 0.0;
    for (size_t i = 0; i < n; i++)
        s += x[i] * y[i];
    return s;
}

/* Modified Gram-Schmidt; a direction that the earlier ones hold becomes zero. */
static void
orthonormalize(double *x, size_t n)
{
    for (size_t k = 0; k < R; k++) {
        double *xk = x + k * n;
        const double before = dot(xk, xk, n);
        for (size_t l = 0; l < k; l++) {
            const double d = dot(x + l * n, xk, n);
            for (size_t i = 0; i < n; i++)
                xk[i] -= d * x[l * n + i];
        }
        const double after = dot(xk, xk, n), scale = after > before * 1e-12 ? 1.0 / sqrt(after) : 0.0;
        for (size_t i = 0; i < n; i++)
            xk[i] *= scale;
    }
}

static double
largest(const double *x, size_t n)
{
    double m = 0.0;
    for (size_t i = 0; i < n; i++)
        m = fmax(m, fabs(x[i]));
    return m;
}

/* side = u b, exactly but for b's rounding to 15 bits. */
static void
project_rows(fit *f)
{
    double scale[R];
    for (size_t k = 0; k < R; k++) {
        const double m = largest(f->b + k * f->cols, f->cols), top = widest(f->cols);
        scale[k] = m > 0.0 ? top / m : 0.0;
        for (size_t j = 0; j < f->cols; j++)
            f->narrow[k * f->cols + j] = (int16_t)lrint(f->b[k * f->cols + j] * scale[k]);
    }
    f->ops->rows_by(f->u, f->rows, f->cols, f->narrow, f->cols, f->sum);
    for (size_t k = 0; k < R; k++)
        for (size_t i = 0; i < f->rows; i++)
            f->side[k * f->rows + i] = scale[k] > 0.0 ? (double)f->sum[R * i + k] / scale[k] : 0.0;
}

/* b = orthonormal basis of u^T side. */
static void
project_cols(fit *f)
{
    for (size_t k = 0; k < R; k++) {
        const double m = largest(f->side + k * f->rows, f->rows), scale = m > 0.0 ? widest(f->rows) / m : 0.0;
        for (size_t i = 0; i < f->rows; i++)
            f->narrow[R * i + k] = (int16_t)lrint(f->side[k * f->rows + i] * scale);
    }
    f->ops->cols_by(f->u, f->rows, f->cols, f->narrow, f->cols, f->sum);
    for (size_t j = 0; j < R * f->cols; j++)
        f->b[j] = (double)f->sum[j];
    orthonormalize(f->b, f->cols);
}

/* Turns columns p and q of g (symmetric) and of v so that g[p][q] becomes 0. */
static void
turn(double g[R][R], double v[R][R], size_t p, size_t q)
{
    if (fabs(g[p][q]) <= 1e-15 * sqrt(fabs(g[p][p] * g[q][q])) || g[p][q] == 0.0)
        return;
    const double theta = (g[q][q] - g[p][p]) / (2.0 * g[p][q]);
    const double t = (theta >= 0.0 ? 1.0 : -1.0) / (fabs(theta) + sqrt(theta * theta + 1.0));
    const double c = 1.0 / sqrt(t * t + 1.0), s = t * c;
    for (size_t i = 0; i < R; i++) {
        const double x = g[i][p], y = g[i][q], vx = v[i][p], vy = v[i][q];
        g[i][p] = c * x - s * y;
        g[i][q] = s * x + c * y;
        v[i][p] = c * vx - s * vy;
        v[i][q] = s * vx + c * vy;
    }
    for (size_t i = 0; i < R; i++) {
        const double x = g[p][i], y = g[q][i];
        g[p][i] = c * x - s * y;
        g[q][i] = s * x + c * y;
    }
}

/* x, R runs of n, times column order[k] of v. */
static void
rotate(double *x, size_t n, double v[R][R], const size_t order[R])
{
    for (size_t i = 0; i < n; i++) {
        double y[R];
        for (size_t k = 0; k < R; k++) {
            y[k] = 0.0;
            for (size_t l = 0; l < R; l++)
                y[k] += x[l * n + i] * v[l][order[k]];
        }
        for (size_t k = 0; k < R; k++)
            x[k * n + i] = y[k];
    }
}

/* Principal axes of side b^T, largest first (Jacobi's method). energy: squares of u that each holds. */
static void
principal_axes(fit *f, double energy[R])
{
    double g[R][R], v[R][R] = {{0}};
    size_t order[R];

    for (size_t k = 0; k < R; k++) {
        v[k][k] = 1.0;
        order[k] = k;
        for (size_t l = 0; l <= k; l++)
            g[k][l] = g[l][k] = dot(f->side + k * f->rows, f->side + l * f->rows, f->rows);
    }
    for (int sweep = 0; sweep < 8; sweep++)
        for (size_t p = 0; p < R; p++)
            for (size_t q = p + 1; q < R; q++)
                turn(g, v, p, q);
    for (size_t k = 1; k < R; k++)
        for (size_t l = k; l > 0 && g[order[l]][order[l]] > g[order[l - 1]][order[l - 1]]; l--) {
            const size_t t = order[l];
            order[l] = order[l - 1];
            order[l - 1] = t;
        }
    for (size_t k = 0; k < R; k++)
        energy[k] = g[order[k]][order[k]];
    rotate(f->side, f->rows, v, order);
    rotate(f->b, f->cols, v, order);
}

/* The size of x where its energy is. */
static double
size_of(const double *x, size_t n)
{
    double two = 0.0, four = 0.0;
    for (size_t i = 0; i < n; i++) {
        two += x[i] * x[i];
        four += x[i] * x[i] * x[i] * x[i];
    }
    return two > 0.0 ? sqrt(four / two) : 0.0;
}

static void
to_int8(int8_t *to, const double *x, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (int8_t)lrint(fmin(fmax(x[i] * scale, -127.0), 127.0));
}

/* a b^T * gain is side b^T, rounded: all of a in steps of one size, so that each direction is as fine as it is large. */
static bool
round_factors(const fit *f, unsigned rank, int8_t *a, int8_t *b, float *gain)
{
    double to_a[R], most = 0.0;
    for (size_t k = 0; k < rank; k++) {
        const double s = LEVEL / size_of(f->b + k * f->cols, f->cols);
        to_int8(b + k * f->cols, f->b + k * f->cols, f->cols, s);
        to_a[k] = 1.0 / s;
        most = fmax(most, size_of(f->side + k * f->rows, f->rows) * to_a[k]);
    }
    *gain = (float)(most / LEVEL);
    if (!(*gain > 0.0f && isfinite(*gain)))
        return false;
    for (size_t k = 0; k < rank; k++)
        to_int8(a + k * f->rows, f->side + k * f->rows, f->rows, to_a[k] * LEVEL / most);
    return true;
}

/* A direction pays where keeping as much of u by more kept values would take more bits. */
static unsigned
paying(const fit *f, const double energy[R], double all, double share)
{
    const double cost = FACTOR_BITS * (double)(f->rows + f->cols), kept = KEPT_BITS * share * (double)f->rows * (double)f->cols;
    unsigned rank = 0;
    while (rank < R && all > 0.0 && energy[rank] / all * kept > cost)
        rank++;
    return rank;
}

static void
begin_anywhere(fit *f)
{
    for (size_t k = 0; k < R; k++)
        for (size_t j = 0; j < f->cols; j++)
            f->b[k * f->cols + j] = (double)(int32_t)ckpi_mix32((uint32_t)(R * j + k) * 0x9e3779b9u + 1u);
    orthonormalize(f->b, f->cols);
}

static unsigned
find(fit *f, double all, double share)
{
    double energy[R];

    begin_anywhere(f);
    project_rows(f);
    for (int round = 0; round < ROUNDS; round++) {
        project_cols(f);
        project_rows(f);
    }
    principal_axes(f, energy);
    return paying(f, energy, all, share);
}

ckp_status
ckpi_low_fit(ckpi_low *out, const int8_t *u, size_t n, size_t cols, double share, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    /* whole rows tell enough; a short one behind them has its share of a, 0 */
    const size_t whole = cols != 0 ? n / cols : 0, rows = cols != 0 ? (n + cols - 1) / cols : 0, side = CKPI_MAX(rows, cols);
    const double least[R] = {1.0};
    fit f = {.u = u, .rows = whole, .cols = cols, .ops = ckpi_low_pick(cpu)};

    *out = (ckpi_low){.rows = rows, .cols = cols};
    if (whole < 2 || cols < 2 || whole > CKPI_LOW_SIDE || cols > CKPI_LOW_SIDE || paying(&f, least, 1.0, share) == 0)
        return CKP_OK;
    int8_t *a = ckpi_scratch_get(ws, R * rows), *b = ckpi_scratch_get(ws, R * cols);
    const size_t mark = ckpi_scratch_mark(ws);
    f.side = ckpi_scratch_get(ws, R * whole * sizeof *f.side);
    f.b = ckpi_scratch_get(ws, R * cols * sizeof *f.b);
    f.sum = ckpi_scratch_get(ws, R * side * sizeof *f.sum);
    f.narrow = ckpi_scratch_get(ws, R * side * sizeof *f.narrow);
    if (a == NULL || b == NULL || f.side == NULL || f.b == NULL || f.sum == NULL || f.narrow == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for directions of %zu x %zu moments", rows, cols);
    const ckpi_fpenv env = ckpi_fp_enter();
    const unsigned rank = find(&f, (double)f.ops->squares(u, whole * cols), share);
    memset(a, 0, R * rows);
    if (rank != 0 && round_factors(&f, rank, a, b, &out->gain)) {
        out->rank = rank;
        out->a = a;
        out->b = b;
    }
    ckpi_fp_leave(env);
    ckpi_scratch_release(ws, mark);
    return CKP_OK;
}
