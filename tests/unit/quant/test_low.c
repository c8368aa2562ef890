/* SPDX-License-Identifier: Apache-2.0 */
/* Directions are found where there are any, cost nothing where there are none, and three values keep the projection of what they leave. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "harness/check.h"
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "quant/low_kern.h"

/* u = sum of `rank` outer products, the first of `size` in RMS and each next one half as large, in noise of 12. */
static int8_t *
matrix(test_rng *r, size_t n, size_t cols, unsigned rank, double size)
{
    const size_t rows = (n + cols - 1) / cols;
    int8_t *u = (int8_t *)guard_alloc(n);
    double *a = malloc((rank * rows + 1) * sizeof *a), *b = malloc((rank * cols + 1) * sizeof *b);
    assert_true(a != NULL && b != NULL);
    for (size_t i = 0; i < rank * rows; i++)
        a[i] = test_normal(r);
    for (size_t j = 0; j < rank * cols; j++)
        b[j] = test_normal(r);
    for (size_t i = 0; i < n; i++) {
        double x = 12.0 * test_normal(r);
        for (unsigned k = 0; k < rank; k++)
            x += ldexp(size, -(int)k) * a[k * rows + i / cols] * b[k * cols + i % cols];
        u[i] = (int8_t)lrint(fmin(fmax(x, -127.0), 127.0));
    }
    free(a);
    free(b);
    return u;
}

/* Mean square. */
static double
squares(const int8_t *u, size_t n)
{
    double all = 0.0;
    for (size_t i = 0; i < n; i++)
        all += (double)u[i] * (double)u[i];
    return all / (double)n;
}

static double
left_by(const int8_t *u, size_t n, const ckpi_low *low)
{
    float *y = malloc(n * sizeof *y);
    double rest = 0.0;
    assert_non_null(y);
    ckpi_low_values(low, n, y, ckpi_cpu());
    for (size_t i = 0; i < n; i++)
        rest += ((double)u[i] - (double)y[i]) * ((double)u[i] - (double)y[i]);
    free(y);
    return rest / (double)n / squares(u, n);
}

static void
directions_are_found(void **state)
{
    /* of four, as many as there is room for, two rounds may miss the last: a sixty-fourth of the first's energy */
    static const struct { size_t rows, cols; unsigned rank, found; } cases[] = {
        {300, 400, 1, 1}, {512, 256, 2, 2}, {128, 2000, 2, 2}, {2000, 128, 3, 3}, {700, 700, 4, 3}};
    (void)state;
    test_rng r = test_rng_new("low");
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t k = 0; k < CHECK_COUNT(cases); k++) {
        const size_t n = cases[k].rows * cases[k].cols;
        int8_t *u = matrix(&r, n, cases[k].cols, cases[k].rank, 24.0);
        ckpi_low low;
        assert_ok(ckpi_low_fit(&low, u, n, cases[k].cols, 0.5, ws, ckpi_cpu(), NULL));
        assert_true(low.rank >= cases[k].found && low.rank <= CKPI_LOW_MAX);
        /* the noise stays, and a twentieth of the signal by rounding, clamps and what has not been found */
        const double noise = 12.0 * 12.0, all = squares(u, n);
        assert_true(left_by(u, n, &low) * all < noise + (all - noise) / 20.0);
        guard_free(u);
        ckpi_scratch_reset(ws);
    }
    ckpi_scratch_free(ws);
}

/* Noise has directions that hold a little more than others: they do not pay. Nor do any in a small matrix, a thin one, or at a small share. */
static void
none_where_none_pay(void **state)
{
    static const struct { size_t n, cols; double size, share; } cases[] = {
        {400 * 400, 400, 0.0, 0.03}, {16 * 16, 16, 24.0, 0.03}, {60000, 1, 24.0, 0.03}, {60000, 60000, 24.0, 0.03}, {300 * 200, 200, 24.0, 1e-4}, {0, 7, 0.0, 0.1}};
    (void)state;
    test_rng r = test_rng_new("none pay");
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t k = 0; k < CHECK_COUNT(cases); k++) {
        int8_t *u = matrix(&r, cases[k].n, cases[k].cols, 1, cases[k].size);
        ckpi_low low;
        assert_ok(ckpi_low_fit(&low, u, cases[k].n, cases[k].cols, cases[k].share, ws, ckpi_cpu(), NULL));
        assert_int_equal(low.rank, 0);
        guard_free(u);
    }
    int8_t *zero = calloc(200, 300);
    ckpi_low low;
    assert_non_null(zero);
    assert_ok(ckpi_low_fit(&low, zero, 60000, 300, 0.1, ws, ckpi_cpu(), NULL));
    assert_int_equal(low.rank, 0);
    free(zero);
    ckpi_scratch_free(ws);
}

static uint32_t
masks(size_t i)
{
    const uint32_t all[] = {0, CKPI_CPU_AVX2, CKPI_CPU_AVX2 | CKPI_CPU_AVX512};
    return all[i] & ckpi_cpu();
}

/* Short last rows, sides that no vector fits, extremes: the same directions, codes and values from each instruction set. */
static void
every_isa_agrees(void **state)
{
    static const struct { size_t n, cols; } cases[] = {{64 * 64, 64}, {5000, 97}, {33 * 1031 + 500, 1031}, {3 * 2000, 2000}, {999, 3}};
    (void)state;
    test_rng r = test_rng_new("low, ISAs");
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t k = 0; k < 2 * CHECK_COUNT(cases); k++) {
        const size_t n = cases[k / 2].n, cols = cases[k / 2].cols;
        int8_t *u = matrix(&r, n, cols, 4, 40.0), *code[2] = {malloc(n), (int8_t *)guard_alloc(n)};
        float *y[2] = {malloc(n * sizeof(float)), (float *)guard_alloc(n * sizeof(float))};
        assert_true(code[0] != NULL && y[0] != NULL);
        if (k % 2 != 0)
            for (size_t i = 0; i < n; i++)
                u[i] = (int8_t)(u[i] < 0 ? -127 : 127);
        ckpi_low low[2];
        ckpi_three three[2];
        for (size_t i = 0; i < 3; i++) {
            const size_t to = i != 0;
            assert_ok(ckpi_low_fit(&low[to], u, n, cols, 0.5, ws, masks(i), NULL));
            assert_ok(ckpi_three_code(&three[to], u, n, &low[to], 0.02, 32.0, code[to], ws, masks(i), NULL));
            ckpi_low_values(&low[to], n, y[to], masks(i));
            assert_true(low[to].rank == low[0].rank && low[to].gain == low[0].gain);
            if (low[0].rank != 0) {
                assert_memory_equal(low[to].a, low[0].a, low[0].rank * low[0].rows);
                assert_memory_equal(low[to].b, low[0].b, low[0].rank * cols);
            }
            assert_true(three[to].size == three[0].size && three[to].kept == three[0].kept && three[to].left == three[0].left);
            assert_memory_equal(code[to], code[0], n);
            assert_memory_equal(y[to], y[0], n * sizeof(float));
        }
        guard_free(u);
        guard_free(code[1]);
        guard_free(y[1]);
        free(code[0]);
        free(y[0]);
        ckpi_scratch_reset(ws);
    }
    ckpi_scratch_free(ws);
}

/* Values as low.h says, by the book. */
static void
values_are_the_sums(void **state)
{
    enum { ROWS = 7, COLS = 45, N = ROWS * COLS - 5 };
    (void)state;
    test_rng r = test_rng_new("values");
    int8_t a[CKPI_LOW_MAX * ROWS], b[CKPI_LOW_MAX * COLS];
    float y[N];
    for (unsigned rank = 0; rank <= CKPI_LOW_MAX; rank++) {
        test_bytes(&r, a, sizeof a);
        test_bytes(&r, b, sizeof b);
        const ckpi_low low = {ROWS, COLS, rank, 0.3F, a, b};
        ckpi_low_values(&low, N, y, ckpi_cpu());
        for (size_t i = 0; i < N; i++) {
            int32_t sum = 0;
            for (unsigned k = 0; k < rank; k++)
                sum += a[k * ROWS + i / COLS] * b[k * COLS + i % COLS];
            assert_true(y[i] == (float)sum * 0.3F);
        }
    }
}

static void
three_values_keep_the_projection(void **state)
{
    static const size_t sizes[] = {500, 60000, 400 * 600};
    (void)state;
    test_rng r = test_rng_new("three");
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t k = 0; k < 2 * CHECK_COUNT(sizes); k++) {
        const size_t n = sizes[k / 2], cols = k / 2 == 2 ? 600 : 100;
        int8_t *u = matrix(&r, n, cols, k % 2 != 0 ? 2 : 0, 24.0), *code = malloc(n);
        float *y = calloc(n, sizeof *y);
        ckpi_low low = {.rows = n / cols, .cols = cols};
        ckpi_three t;
        assert_true(code != NULL && y != NULL);
        if (k % 2 != 0)
            assert_ok(ckpi_low_fit(&low, u, n, cols, 0.2, ws, ckpi_cpu(), NULL));
        assert_ok(ckpi_three_code(&t, u, n, &low, 0.05, 32.0, code, ws, ckpi_cpu(), NULL));
        ckpi_low_values(&low, n, y, ckpi_cpu());
        double rest = 0.0, coded = 0.0, smallest = 1e9, largest = 0.0;
        uint64_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            const double x = (double)u[i] - (double)y[i];
            rest += x * x;
            coded += x * code[i] * t.size;
            kept += code[i] != 0;
            if (code[i] != 0)
                smallest = fmin(smallest, fabs(x));
            else
                largest = fmax(largest, fabs(x));
        }
        assert_int_equal(kept, t.kept);
        assert_true(fabs(coded / rest - 1.0) < 0.01);
        assert_true(largest <= smallest + 0.26);                                          /* the largest are kept, to a quarter of a step */
        assert_true(fabs((double)kept / ((double)n * 0.05 * sqrt(t.left)) - 1.0) < 0.25); /* sizes are whole steps */
        guard_free(u);
        free(code);
        free(y);
    }
    ckpi_scratch_free(ws);
}

/* Every kernel against sums made one by one, at widths around those of its vectors, between pages that may not be touched. */
static void
sums_of_columns(void **state)
{
    static const size_t rows[] = {1, 2, 3, 8, 67}, cols[] = {1, 15, 16, 17, 31, 32, 33, 65, 600};
    static const uint32_t levels[] = {0, CKPI_CPU_AVX2, CKPI_CPU_AVX2 | CKPI_CPU_AVX512};
    (void)state;
    test_rng r = test_rng_new("columns");
    for (size_t k = 0; k < CHECK_COUNT(rows) * CHECK_COUNT(cols) * CHECK_COUNT(levels); k++) {
        const size_t n = rows[k % CHECK_COUNT(rows)], m = cols[k / CHECK_COUNT(rows) % CHECK_COUNT(cols)];
        const uint32_t cpu = levels[k / CHECK_COUNT(rows) / CHECK_COUNT(cols)] & ckpi_cpu();
        int8_t *u = (int8_t *)guard_alloc(n * m);
        int16_t *a = (int16_t *)(void *)guard_alloc(4 * n * sizeof *a);
        int32_t *c = (int32_t *)(void *)guard_alloc(4 * m * sizeof *c);
        for (size_t i = 0; i < n * m; i++)
            u[i] = (int8_t)(test_below(&r, 5) == 0 ? -127 : (int)test_below(&r, 255) - 127);
        for (size_t i = 0; i < 4 * n; i++)
            a[i] = (int16_t)((int)test_below(&r, 65535) - 32767);
        ckpi_low_pick(cpu)->cols_by(u, n, m, a, m, c);
        for (size_t j = 0; j < 4 * m; j++) {
            int32_t sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += u[i * m + j % m] * a[4 * i + j / m];
            assert_int_equal(c[j], sum);
        }
        guard_free(u);
        guard_free(a);
        guard_free(c);
    }
}

/* All zero, all of one size, one that is not zero, a distribution whose tail would make a blow. */
static void
odd_ones(void **state)
{
    enum { N = 1 << 18 };
    (void)state;
    ckpi_scratch *ws = ckpi_scratch_new();
    int8_t *u = calloc(N, 1), *code = malloc(N);
    const ckpi_low none = {.rows = N / 512, .cols = 512};
    ckpi_three t;
    assert_true(u != NULL && code != NULL);
    assert_ok(ckpi_three_code(&t, u, N, &none, 0.02, 32.0, code, ws, ckpi_cpu(), NULL));
    assert_true(t.kept == 0 && t.size == 0.0 && t.left == 1.0);
    u[777] = -3;                 /* not in the sample of sizes */
    assert_ok(ckpi_three_code(&t, u, N, &none, 0.02, 32.0, code, ws, ckpi_cpu(), NULL));
    assert_true(t.kept == 1 && t.size == 3.0 && code[777] == -1);
    for (size_t i = 0; i < N; i++)
        u[i] = i % 3 == 0 ? 5 : -5;
    assert_ok(ckpi_three_code(&t, u, N, &none, 0.02, 32.0, code, ws, ckpi_cpu(), NULL));
    assert_true(t.kept == N && t.size == 5.0);
    memset(u, 1, N);
    for (size_t i = 0; i < N; i += 1000)
        u[i] = 2;
    assert_ok(ckpi_three_code(&t, u, N, &none, 0.001, 32.0, code, ws, ckpi_cpu(), NULL));
    assert_true(t.size <= 32.0 * 2.0);
    free(u);
    free(code);
    ckpi_scratch_free(ws);
}

static ckp_status
fit_once(void *user)
{
    int8_t code[3000];
    ckpi_low low;
    ckpi_three t;
    ckpi_scratch *ws = ckpi_scratch_new();
    if (ws == NULL)
        return CKP_ENOMEM;
    ckp_status st = ckpi_low_fit(&low, user, 3000, 60, 0.5, ws, ckpi_cpu(), NULL);
    if (st == CKP_OK)
        st = ckpi_three_code(&t, user, 3000, &low, 0.02, 32.0, code, ws, ckpi_cpu(), NULL);
    ckpi_scratch_free(ws);
    return st;
}

static void
no_memory(void **state)
{
    (void)state;
    test_rng r = test_rng_new("low, no memory");
    int8_t *u = matrix(&r, 3000, 60, 2, 40.0);
    assert_true(failalloc_run(fit_once, u, 2, 1) >= 2);
    guard_free(u);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directions_are_found), cmocka_unit_test(none_where_none_pay),
        cmocka_unit_test(every_isa_agrees),     cmocka_unit_test(values_are_the_sums),
        cmocka_unit_test(three_values_keep_the_projection), cmocka_unit_test(odd_ones),
        cmocka_unit_test(sums_of_columns),      cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
