/* SPDX-License-Identifier: Apache-2.0 */
/* Column factors of parameters in parts. */
#include <stdlib.h>
#include "harness/check.h"
#include "harness/failalloc.h"
#include "optim/kern.h"
#include "unit/optim/param.h"

enum { ROWS = 37, COLS = 50, N = ROWS * COLS, PARTS = 3 };

static const ckp_adamw plain = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .seed = 5};

/* Columns whose sizes drift apart as steps go on, and two rows whose v is at the end of what factors reach. */
static void
drifting(const param *x, uint64_t step)
{
    test_rng r = {step * 1000003};
    float *g = (float *)(uintptr_t)x->t.g;
    for (uint64_t i = 0; i < x->t.numel; i++) {
        const uint64_t row = i / x->t.cols, col = i % x->t.cols;
        const double size = row == 3 || row == 30 ? 0x1p-55 : 1e-3;
        g[i] = (float)(size * exp2((double)col * (double)(step % 12) / 40.0) * test_normal(&r));
    }
}

/* Rows [from, to) of x, with sums of their own. */
static ckp_optim_tensor
part_of(const param *x, size_t from, size_t to, int8_t *col, int64_t *sums)
{
    ckp_optim_tensor t = x->t;
    t.first = from * COLS;
    t.numel = (to - from) * COLS;
    t.p = (float *)t.p + from * COLS;
    t.g = (const float *)t.g + from * COLS;
    t.m += ckp_optim_state_bytes(from * COLS, COLS, t.m_bits);
    t.v += ckp_optim_state_bytes(from * COLS, COLS, t.v_bits);
    t.row += from;
    t.col = col;
    t.sums = sums;
    return t;
}

/* A step of all parts, each on a handle of its own as on a rank of its own. */
static void
step_in_parts(ckp_optim *const o[PARTS], param *x, const size_t cut[PARTS + 1], int8_t col[PARTS][COLS], uint64_t step)
{
    static int64_t sums[PARTS][2 * COLS];
    ckp_optim_tensor part[PARTS];
    ckp_error err;
    int due = 0;
    x->t.step = step;
    for (int k = 0; k < PARTS; k++) {
        part[k] = part_of(x, cut[k], cut[k + 1], col[k], sums[k]);
        due += ckp_optim_sums_due(&part[k], N);
        if (due != 0)
            assert_ok(ckp_optim_sums(o[k], &part[k], 1, &err));
    }
    assert_int_equal(due, (step & (step - 1)) == 0 ? PARTS : 0);
    for (int j = 0; due != 0 && j < 2 * COLS; j++) {
        for (int k = 1; k < PARTS; k++)
            sums[0][j] += sums[k][j];
        for (int k = 1; k < PARTS; k++)
            sums[k][j] = sums[0][j];
    }
    for (int k = 0; k < PARTS; k++) {
        part[k].sums = due != 0 ? sums[k] : NULL;
        assert_ok(ckp_optim_adamw(o[k], &part[k], 1, &err));
    }
    x->t.m_corr = part[0].m_corr;
    x->t.v_corr = part[0].v_corr;
    assert_true(part[0].v_corr == part[PARTS - 1].v_corr);
}

/* However rows are shared out, what comes out is what a step of them all gives: uneven parts, empty ones, low rows. */
static void
parts_give_what_the_whole_gives(void **state)
{
    static const size_t cuts[][PARTS + 1] = {{0, 19, 37, 37}, {0, 13, 26, 37}, {0, 1, 31, 37}, {0, 0, 37, 37}, {0, 0, 0, 37}};
    static const unsigned bits[][2] = {{4, 4}, {8, 8}, {2, 3}, {5, 6}};
    ckp_optim *one, *o[PARTS];
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&one, 1, &err));
    for (unsigned k = 0; k < PARTS; k++)
        assert_ok(ckp_optim_new(&o[k], k + 1, &err));
    for (size_t c = 0; c < CHECK_COUNT(cuts) * CHECK_COUNT(bits); c++) {
        const unsigned *const b = bits[c % CHECK_COUNT(bits)];
        param x = make(&plain, N, COLS, true, b[0], b[1]), y = make(&plain, N, COLS, true, b[0], b[1]);
        static int8_t col[PARTS][COLS];
        memset(col, 0, sizeof col);
        int fitted = 0;
        for (uint64_t step = 1; step <= 33; step++) {
            int8_t before[COLS];
            memcpy(before, x.t.col, sizeof before);
            drifting(&x, step);
            drifting(&y, step);
            x.t.step = step;
            assert_ok(ckp_optim_adamw(one, &x.t, 1, &err));
            step_in_parts(o, &y, cuts[c / CHECK_COUNT(bits)], col, step);
            same_state(&x, &y);
            for (int k = 0; k < PARTS; k++)
                assert_memory_equal(x.t.col, col[k], COLS);
            fitted += memcmp(before, x.t.col, sizeof before) != 0;
        }
        assert_true(fitted >= 4);
        drop(&x);
        drop(&y);
    }
    for (int k = 0; k < PARTS; k++)
        ckp_optim_free(o[k]);
    ckp_optim_free(one);
}

static void
codes(const param *x, uint8_t *m, uint8_t *v)
{
    ckp_error err;
    assert_ok(ckp_optim_unpack(m, x->t.m, N, COLS, x->t.m_bits, true, &err));
    assert_ok(ckp_optim_unpack(v, x->t.v, N, COLS, x->t.v_bits, false, &err));
}

/* A row that cannot go down as far as columns go up: it alone is coded lower, at code 1 at the least, and its m stays where it is beside sqrt(v). */
static void
a_low_row_takes_what_it_can(void **state)
{
    static uint8_t m[2][N], v[2][N];
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    param x = make(&plain, N, COLS, true, 5, 5);
    for (uint64_t step = 1; step <= 3; step++) {
        drifting(&x, step);
        x.t.step = step;
        assert_ok(ckp_optim_adamw(o, &x.t, 1, &err));
    }
    static int64_t sums[2 * COLS];
    x.t.step = 4;
    x.t.sums = sums;
    assert_ok(ckp_optim_sums(o, &x.t, 1, &err));
    for (int j = 0; j < COLS; j++)       /* every second column 6 octaves up, the others as many down */
        sums[2 * j] += (j % 2 ? 6 : -6) * sums[2 * j + 1];
    int8_t before[COLS];
    memcpy(before, x.t.col, sizeof before);
    static float exact[2][N];
    const double corr = x.t.v_corr;
    assert_true(x.t.row[3] >= CKPI_O_ROW_MIN && x.t.row[3] < CKPI_O_ROW_MIN + 5 && x.t.row[0] > CKPI_O_ROW_MIN + 20);
    assert_ok(ckp_optim_read(&x.t, NULL, exact[0], &err));
    codes(&x, m[0], v[0]);
    /* no gradient is of use: what a step changes is the fit alone */
    for (int i = 0; i < N; i++)
        ((float *)(uintptr_t)x.t.g)[i] = NAN;
    assert_ok(ckp_optim_adamw(o, &x.t, 1, &err));
    codes(&x, m[1], v[1]);
    assert_true(abs(x.t.col[1] - x.t.col[0] - (before[1] - before[0]) - 12) <= 2);
    assert_ok(ckp_optim_read(&x.t, NULL, exact[1], &err));
    for (int i = 0; i < COLS; i++)       /* other rows were coded for the new columns all the same, and lost nothing but what no code reaches */
        assert_true(v[1][i] <= 1 || fabs((double)exact[1][i] / x.t.v_corr / ((double)exact[0][i] / corr) - 1) < 1e-5);
    int at_one = 0;
    for (int i = 3 * COLS; i < 4 * COLS; i++) {
        assert_int_equal(v[0][i] != 0, v[1][i] != 0);
        at_one += v[1][i] == 1 && (i - 3 * COLS) % 2 == 1;
    }
    assert_true(at_one > 0);
    assert_int_equal(x.t.row[3], CKPI_O_ROW_MIN);
    assert_memory_equal(m[0] + 3 * COLS, m[1] + 3 * COLS, COLS);
    /* and the training goes on */
    x.t.sums = NULL;
    for (uint64_t step = 5; step <= 20; step++) {
        drifting(&x, step);
        x.t.step = step;
        assert_ok(ckp_optim_adamw(o, &x.t, 1, &err));
    }
    for (int i = 0; i < N; i++)
        assert_true(isfinite(((float *)x.t.p)[i]));
    drop(&x);
    ckp_optim_free(o);
}

/* Moments as floats become the same codes, whether all rows are here or some. */
static void
moments_in_parts_are_written_alike(void **state)
{
    static float m[N], v[N];
    static int64_t sums[2 * COLS];
    static int8_t col[PARTS][COLS];
    static const size_t cut[PARTS + 1] = {0, 1, 37, 37};
    ckp_error err;
    test_rng r = {7};
    (void)state;
    param x = make(&plain, N, COLS, true, 4, 5), y = make(&plain, N, COLS, true, 4, 5);
    memset(sums, 0, sizeof sums);
    for (int i = 0; i < N; i++) {
        m[i] = (float)(1e-3 * test_normal(&r));
        v[i] = i % 11 == 0 ? 0.0f : (float)(1e-6 * exp2((double)(i % COLS) / 4) * fabs(test_normal(&r)));
        int e;
        if (v[i] != 0.0f) {
            (void)frexp((double)v[i], &e);
            sums[2 * (i % COLS)] += e + 126;
            sums[2 * (i % COLS) + 1]++;
        }
    }
    x.t.step = y.t.step = 9;
    x.t.m_corr = x.t.v_corr = y.t.m_corr = y.t.v_corr = 0.5;
    assert_ok(ckp_optim_write(&x.t, m, v, &err));
    for (int k = 0; k < PARTS; k++) {
        ckp_optim_tensor part = part_of(&y, cut[k], cut[k + 1], col[k], sums);
        assert_ok(ckp_optim_write(&part, m + cut[k] * COLS, v + cut[k] * COLS, &err));
        assert_memory_equal(x.t.col, col[k], COLS);
    }
    same_state(&x, &y);
    assert_true(x.t.col[COLS - 1] - x.t.col[0] > 8);
    sums[0] = -1;
    x.t.sums = sums;
    assert_status(ckp_optim_write(&x.t, m, v, &err), CKP_EINVAL);
    same_state(&x, &y);
    drop(&x);
    drop(&y);
}

static void
due_is_the_whole_parameters(void **state)
{
    param x = make(&plain, N, COLS, true, 4, 4);
    (void)state;
    for (uint64_t step = 1; step <= 70; step++) {
        x.t.step = step;
        x.t.v_corr = 0;
        assert_true(ckp_optim_sums_due(&x.t, N));
        x.t.v_corr = 0.5;
        assert_int_equal(ckp_optim_sums_due(&x.t, N), step == 1 || step == 2 || step == 4 || step == 8 || step == 16 || step == 32 || step == 64);
        x.t.numel = 0;                   /* a rank without elements */
        assert_int_equal(ckp_optim_sums_due(&x.t, N), step == 1 || step == 2 || step == 4 || step == 8 || step == 16 || step == 32 || step == 64);
        x.t.numel = N;
        assert_false(ckp_optim_sums_due(&x.t, COLS));
    }
    int8_t *col = x.t.col;
    x.t.col = NULL;
    assert_false(ckp_optim_sums_due(&x.t, N) || ckp_optim_sums_due(NULL, N));
    x.t.col = col;
    drop(&x);
}

static void
misuse_is_refused(void **state)
{
    static int64_t sums[2 * COLS];
    ckp_optim *o;
    ckp_error err;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    param x = make(&plain, N, COLS, true, 4, 4);
    drifting(&x, 1);
    x.t.step = 1;
    assert_status(ckp_optim_sums(NULL, &x.t, 1, &err), CKP_EINVAL);
    assert_status(ckp_optim_sums(o, NULL, 1, &err), CKP_EINVAL);
    assert_ok(ckp_optim_sums(o, NULL, 0, &err));
    assert_status(ckp_optim_sums(o, &x.t, 1, &err), CKP_EINVAL);
    assert_string_equal(err.tensor, "w");
    x.t.sums = sums;
    x.t.step = 0;
    assert_status(ckp_optim_sums(o, &x.t, 1, &err), CKP_EINVAL);
    x.t.step = 1;
    x.t.m_bits = 7;
    assert_status(ckp_optim_sums(o, &x.t, 1, &err), CKP_EINVAL);
    x.t.m_bits = 4;
    static const int64_t bad[][2] = {{-1, 0}, {0, -1}, {1, 0}, {513, 1}, {0, INT64_MAX}, {0, (INT64_C(1) << 44) + 1}, {INT64_MIN, INT64_MIN}};
    for (size_t k = 0; k < CHECK_COUNT(bad); k++) {
        assert_ok(ckp_optim_sums(o, &x.t, 1, &err));
        memcpy(sums + 2 * (COLS - 1), bad[k], sizeof bad[k]);
        assert_status(ckp_optim_adamw(o, &x.t, 1, &err), CKP_EINVAL);
        assert_string_equal(err.tensor, "w");
    }
    for (int j = 0; j < COLS; j++)       /* each alone would do */
        sums[2 * j + 1] = INT64_C(1) << 44;
    assert_status(ckp_optim_adamw(o, &x.t, 1, &err), CKP_EINVAL);
    for (int i = 0; i < N; i++)
        assert_true(((float *)x.t.p)[i] == 0.0f);
    memset(sums, 0, sizeof sums);        /* of no elements at all */
    assert_ok(ckp_optim_adamw(o, &x.t, 1, &err));
    for (int j = 0; j < COLS; j++)
        assert_int_equal(x.t.col[j], 0);
    drop(&x);
    ckp_optim_free(o);
}

static ckp_status
whole_use(void *user)
{
    param *x = user;
    ckp_optim *o;
    ckp_error err;
    ckp_status st = ckp_optim_new(&o, 2, &err);
    if (st != CKP_OK)
        return st;
    st = ckp_optim_sums(o, &x->t, 1, &err);
    ckp_optim_free(o);
    return st;
}

static void
allocations_may_fail(void **state)
{
    static int64_t sums[2 * COLS];
    param x = make(&plain, N, COLS, true, 5, 5);
    (void)state;
    drifting(&x, 1);
    x.t.step = 1;
    x.t.sums = sums;
    failalloc_run(whole_use, &x, 10, 1);
    drop(&x);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_what_the_whole_gives),
        cmocka_unit_test(a_low_row_takes_what_it_can),
        cmocka_unit_test(moments_in_parts_are_written_alike),
        cmocka_unit_test(due_is_the_whole_parameters),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
