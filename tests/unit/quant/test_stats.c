/* SPDX-License-Identifier: Apache-2.0 */
/* Factors and statistics: against doubles, against each other's ISA, and whatever the order. */
#include "mill.h"
#include <math.h>
#include <stdlib.h>

static void
same_on_each_isa(test_rng *r, const mill_piece *p, const mill_setting *s, ckpi_scratch *ws)
{
    uint32_t cpus[8];
    const size_t levels = mill_cpus(cpus, CHECK_COUNT(cpus));
    int16_t *row[2], *col[2];
    (void)r;
    for (size_t k = 0; k < 2; k++) {
        row[k] = (int16_t *)guard_alloc(p->rows * sizeof(int16_t));
        col[k] = (int16_t *)guard_alloc(p->cols * sizeof(int16_t));
    }
    ckpi_wstats st[2] = {0};
    for (size_t i = 0; i < levels; i++) {
        const size_t k = i != 0;
        st[k] = (ckpi_wstats){0};
        assert_ok(ckpi_quant_factors(s->key ? p->m : p->v, s->key, p->n, p->cols, row[k], s->cols ? col[k] : NULL, ws, cpus[i], NULL));
        ckpi_quant_wmax(p->w, p->n, &st[k], cpus[i]);
        ckpi_quant_wsq(p->w, p->n, ckpi_quant_sq_exp(st[k].max_bits), &st[k], cpus[i]);
        if (k == 0)
            continue;
        assert_memory_equal(row[0], row[1], p->rows * sizeof(int16_t));
        if (s->cols)
            assert_memory_equal(col[0], col[1], p->cols * sizeof(int16_t));
        assert_true(st[0].max_bits == st[1].max_bits && st[0].n_finite == st[1].n_finite && st[0].sum_sq == st[1].sum_sq);
    }
    for (size_t k = 0; k < 2; k++) {
        guard_free(row[k]);
        guard_free(col[k]);
    }
}

static void
test_isa(void **state)
{
    (void)state;
    mill_each("stats isa", same_on_each_isa);
}

/* v = r_i * c_j exactly: the factors give it back within the logarithm's error. */
static void
test_rank_one(void **state)
{
    enum { ROWS = 40, COLS = 130 };
    static float v[ROWS * COLS];
    int16_t row[ROWS], col[COLS];
    test_rng r = test_rng_new("rank one");
    ckpi_scratch *ws = ckpi_scratch_new();
    double a[ROWS], b[COLS], mean = 0;
    (void)state;
    for (size_t i = 0; i < ROWS; i++)
        a[i] = -10 + 3 * test_normal(&r);
    for (size_t j = 0; j < COLS; j++) {
        b[j] = 2 * test_normal(&r);
        mean += b[j] / COLS;
    }
    for (size_t i = 0; i < ROWS * COLS; i++)
        v[i] = (float)exp2(2 * (a[i / COLS] + b[i % COLS]));
    assert_ok(ckpi_quant_factors(v, false, ROWS * COLS, COLS, row, col, ws, ckpi_cpu(), NULL));
    for (size_t i = 0; i < ROWS; i++)
        assert_true(fabs(row[i] - 256 * (a[i] + mean)) < 2);
    for (size_t j = 0; j < COLS; j++)
        assert_true(fabs(col[j] - 256 * (b[j] - mean)) < 3);
    ckpi_scratch_free(ws);
}

/* Zeros and strangers do not count; a row or column of nothing else has factor 0; extremes are clamped. */
static void
test_left_out(void **state)
{
    enum { ROWS = 4, COLS = 33 };
    float v[ROWS * COLS];
    int16_t row[ROWS], col[COLS];
    ckpi_scratch *ws = ckpi_scratch_new();
    (void)state;
    for (size_t i = 0; i < ROWS * COLS; i++)
        v[i] = i / COLS == 0 ? 16.0f : i / COLS == 1 ? 0.0f : i / COLS == 2 ? NAN : 1e-45f;
    for (size_t i = 0; i < ROWS; i++)
        v[i * COLS + 5] = i % 2 ? -1.0f : INFINITY;
    assert_ok(ckpi_quant_factors(v, false, ROWS * COLS, COLS, row, col, ws, ckpi_cpu(), NULL));
    assert_true(abs(row[0] - 2 * 256) < 2);
    assert_int_equal(row[1], 0);
    assert_int_equal(row[2], 0);
    assert_true(abs(row[3] + 74 * 256 + 128) < 2);
    assert_int_equal(col[5], 0);
    for (size_t j = 0; j < COLS; j++)
        assert_true(j == 5 || abs(col[j]) < 2);
    for (size_t i = 0; i < ROWS * COLS; i++)
        v[i] = i % 2 ? 1e-45f : 3e38f;
    assert_ok(ckpi_quant_factors(v, false, ROWS * COLS, 2, (int16_t[ROWS * COLS / 2]){0}, col, ws, ckpi_cpu(), NULL));
    assert_int_equal(col[0], CKPI_VCOL_MAX);
    assert_int_equal(col[1], -CKPI_VCOL_MAX);
    ckpi_scratch_free(ws);
}

/* More rows than a column's partial sum holds before it is flushed. */
static void
test_many_rows(void **state)
{
    const size_t rows = 70000;
    float *v = malloc(rows * 2 * sizeof *v);
    int16_t *row = malloc(rows * sizeof *row), col[2];
    ckpi_scratch *ws = ckpi_scratch_new();
    (void)state;
    for (size_t i = 0; i < rows * 2; i++)
        v[i] = i % 2 ? 0x1p-140f : 0x1p-100f;
    assert_ok(ckpi_quant_factors(v, false, rows * 2, 2, row, col, ws, ckpi_cpu(), NULL));
    assert_true(abs(row[rows - 1] + 60 * 256) < 2);
    assert_true(abs(col[0] - 10 * 256) < 2 && abs(col[1] + 10 * 256) < 2);
    free(v);
    free(row);
    ckpi_scratch_free(ws);
}

static void
test_squares(void **state)
{
    float w[1000];
    test_rng r = test_rng_new("squares");
    double want = 0;
    ckpi_wstats st = {0};
    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        w[i] = (float)(0.02 * test_normal(&r));
        want += (double)w[i] * (double)w[i];
    }
    w[17] = NAN;
    w[18] = INFINITY;
    want -= 0;
    ckpi_quant_wmax(w, 1000, &st, ckpi_cpu());
    assert_int_equal(st.n_finite, 998);
    const int e = ckpi_quant_sq_exp(st.max_bits);
    assert_int_equal(e % 2, 0);
    ckpi_quant_wsq(w, 1000, e, &st, ckpi_cpu());
    assert_true(fabs(ldexp((double)st.sum_sq, -e) / want - 1) < 0.02);
    /* Every max from a denormal to the largest float gives a usable scale. */
    for (uint32_t b = 1; b < 0x7f800000u; b += 0x00123457u)
        assert_true(abs(ckpi_quant_sq_exp(b)) <= 252);
}

/* A sample in its place has the factors that a copy of it has; rows are the same whether columns are asked for or not. */
static void
test_apart(void **state)
{
    enum { ROWS = 30, COLS = 70, STRIDE = 190 };
    static float v[ROWS * STRIDE], copy[ROWS * COLS];
    int16_t row[3][ROWS], col[2][COLS];
    test_rng r = test_rng_new("apart");
    ckpi_scratch *ws = ckpi_scratch_new();
    (void)state;
    for (size_t i = 0; i < CHECK_COUNT(v); i++)
        v[i] = test_below(&r, 9) == 0 ? 0.0f : ldexpf((float)test_unit(&r), (int)test_below(&r, 40) - 60);
    for (size_t i = 0; i < CHECK_COUNT(copy); i++)
        copy[i] = v[i / COLS * STRIDE + i % COLS];
    assert_ok(ckpi_quant_factors(copy, false, CHECK_COUNT(copy), COLS, row[0], col[0], ws, ckpi_cpu(), NULL));
    assert_ok(ckpi_quant_factors_apart(v, STRIDE, false, CHECK_COUNT(copy), COLS, row[1], col[1], ws, ckpi_cpu(), NULL));
    assert_ok(ckpi_quant_factors_apart(v, STRIDE, false, CHECK_COUNT(copy), COLS, row[2], NULL, ws, ckpi_cpu(), NULL));
    assert_memory_equal(row[0], row[1], sizeof row[0]);
    assert_memory_equal(row[0], row[2], sizeof row[0]);
    assert_memory_equal(col[0], col[1], sizeof col[0]);
    ckpi_scratch_free(ws);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_isa),       cmocka_unit_test(test_rank_one), cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_many_rows), cmocka_unit_test(test_apart), cmocka_unit_test(test_squares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
