/* SPDX-License-Identifier: Apache-2.0 */
/* Steps for a budget, on curves that are known: against every combination there is, and at the ends. */
#include <math.h>
#include <stdlib.h>
#include "harness/check.h"
#include "harness/seed.h"
#include "plan/rd.h"

enum { UNITS = 3 };

typedef struct fixture { ckpi_rdplan rd; ckpi_rdplan_unit unit[UNITS]; uint32_t tensor[UNITS]; double anchor[UNITS]; } fixture;

/* Uniform quantization of something normal: a bit an octave, error of step^2 / 12, both flattening where hardly a code is left. */
static void
fill(fixture *f, const uint64_t n[UNITS], const double h[UNITS])
{
    *f = (fixture){.rd = {.n_units = UNITS, .n_tensors = UNITS}};
    f->rd.unit = f->unit;
    f->rd.anchor = f->anchor;
    for (uint32_t i = 0; i < UNITS; i++) {
        ckpi_rdplan_unit *u = &f->unit[i];
        f->tensor[i] = i;
        f->anchor[i] = 1.0;
        *u = (ckpi_rdplan_unit){.tensor = &f->tensor[i], .n_tensors = 1, .n = n[i]};
        for (int p = 0; p < CKPI_RD_POINTS; p++) {
            const double d = ldexp(1.0, p - CKPI_RD_ZERO);
            u->err2[p] = d * d / 12.0 / (1.0 + d * d / 12.0);
            u->cost[p] = u->loss[p] = 0.5 * h[i] * u->err2[p];
            u->bits[p] = 0.5 * log2(1.0 + 17.0 / (d * d));
        }
    }
}

/* The least loss of all combinations a quarter of an octave apart that keep to a number of bits. */
static double
least_loss(const fixture *f, double bits)
{
    enum { STEP = CKPI_RD_OCTAVE / 4 };
    double best = INFINITY;
    for (int a = CKPI_RD_LOWEST; a <= CKPI_RD_HIGHEST; a += STEP)
        for (int b = CKPI_RD_LOWEST; b <= CKPI_RD_HIGHEST; b += STEP)
            for (int c = CKPI_RD_LOWEST; c <= CKPI_RD_HIGHEST; c += STEP) {
                const ckpi_rdplan_sum s[UNITS] = {ckpi_rdplan_at(&f->unit[0], a), ckpi_rdplan_at(&f->unit[1], b), ckpi_rdplan_at(&f->unit[2], c)};
                double r = 0.0, d = 0.0;
                for (int i = 0; i < UNITS; i++) {
                    r += s[i].bits * s[i].n;
                    d += s[i].loss * s[i].n;
                }
                if (r <= bits)
                    best = fmin(best, d);
            }
    return best;
}

static void
no_combination_is_better(void **state)
{
    (void)state;
    test_rng r = test_rng_new("solve");
    for (int trial = 0; trial < 12; trial++) {
        fixture f;
        uint64_t n[UNITS];
        double h[UNITS], multiplier = 0.0, all = 0.0;
        bool met = false;
        for (int i = 0; i < UNITS; i++) {
            n[i] = 1000 + test_below(&r, 1000000);
            h[i] = ldexp(1.0 + (double)test_below(&r, 1000) / 1000.0, (int)test_below(&r, 7) - 3);
            all += (double)n[i];
        }
        fill(&f, n, h);
        const ckpi_rdplan_budget b = {.bits = all * (1.2 + (double)test_below(&r, 300) / 100.0)};
        assert_ok(ckpi_rdplan_solve(&f.rd, &b, &met, &multiplier, NULL));
        const ckpi_rdplan_sum s = ckpi_rdplan_total(&f.rd);
        assert_true(met && multiplier > 0.0);
        assert_true(s.bits <= b.bits && s.bits > 0.995 * b.bits);
        /* its positions are finer than the combinations': it must not lose to any of them */
        assert_true(s.loss <= 1.01 * least_loss(&f, b.bits));
    }
}

/* High rate: a weight that matters four times as much gets steps half as long. */
static void
steps_follow_the_square_root(void **state)
{
    (void)state;
    fixture f;
    double multiplier = 0.0;
    bool met = false;
    fill(&f, (const uint64_t[]){10000, 10000, 10000}, (const double[]){1.0, 4.0, 16.0});
    const ckpi_rdplan_budget b = {.bits = 30000 * 5.0};
    assert_ok(ckpi_rdplan_solve(&f.rd, &b, &met, &multiplier, NULL));
    assert_true(met);
    assert_true(abs(f.unit[0].at - f.unit[1].at - CKPI_RD_OCTAVE) <= CKPI_RD_OCTAVE / 8);
    assert_true(abs(f.unit[1].at - f.unit[2].at - CKPI_RD_OCTAVE) <= CKPI_RD_OCTAVE / 8);
    assert_true(ckpi_rdplan_step(&f.rd, &f.unit[0], 0) > ckpi_rdplan_step(&f.rd, &f.unit[1], 1));
}

static void
errors_and_losses_are_budgets_too(void **state)
{
    (void)state;
    fixture f;
    double multiplier = 0.0;
    bool met = false;
    fill(&f, (const uint64_t[]){1000, 50000, 200000}, (const double[]){8.0, 1.0, 0.1});
    const ckpi_rdplan_budget e = {.err = 0.1};
    assert_ok(ckpi_rdplan_solve(&f.rd, &e, &met, &multiplier, NULL));
    ckpi_rdplan_sum s = ckpi_rdplan_total(&f.rd);
    assert_true(met && sqrt(s.err2 / s.n) <= 0.1 && sqrt(s.err2 / s.n) > 0.099);
    const ckpi_rdplan_budget l = {.loss = 200.0};
    assert_ok(ckpi_rdplan_solve(&f.rd, &l, &met, &multiplier, NULL));
    s = ckpi_rdplan_total(&f.rd);
    assert_true(met && s.loss <= 200.0 && s.loss > 195.0);
}

static void
what_cannot_be_met_is_said(void **state)
{
    (void)state;
    fixture f;
    double multiplier = 0.0;
    bool met = true;
    fill(&f, (const uint64_t[]){1000, 50000, 200000}, (const double[]){8.0, 1.0, 0.1});
    const ckpi_rdplan_budget few = {.bits = 1.0}, many = {.bits = 1e12}, exact = {.err = 1e-9}, any = {.err = 1e9};
    assert_ok(ckpi_rdplan_solve(&f.rd, &few, &met, &multiplier, NULL));
    assert_false(met);
    for (int i = 0; i < UNITS; i++)
        assert_int_equal(f.unit[i].at, CKPI_RD_HIGHEST);
    assert_ok(ckpi_rdplan_solve(&f.rd, &many, &met, &multiplier, NULL));
    assert_true(met);
    for (int i = 0; i < UNITS; i++)
        assert_int_equal(f.unit[i].at, CKPI_RD_LOWEST);
    assert_ok(ckpi_rdplan_solve(&f.rd, &exact, &met, &multiplier, NULL));
    assert_false(met);
    for (int i = 0; i < UNITS; i++)
        assert_int_equal(f.unit[i].at, CKPI_RD_LOWEST);
    assert_ok(ckpi_rdplan_solve(&f.rd, &any, &met, &multiplier, NULL));
    assert_true(met);
    for (int i = 0; i < UNITS; i++)
        assert_int_equal(f.unit[i].at, CKPI_RD_HIGHEST);
}

static void
given_steps_stay(void **state)
{
    (void)state;
    fixture f;
    double multiplier = 0.0;
    bool met = false;
    fill(&f, (const uint64_t[]){100000, 50000, 200000}, (const double[]){1.0, 1.0, 1.0});
    f.unit[1].fixed = true;
    f.anchor[1] = 0.3;
    const ckpi_rdplan_budget b = {.bits = 350000 * 3.5};
    assert_ok(ckpi_rdplan_solve(&f.rd, &b, &met, &multiplier, NULL));
    assert_true(met);
    assert_int_equal(f.unit[1].at, 0);
    assert_true(ckpi_rdplan_step(&f.rd, &f.unit[1], 1) == 0.3);
    assert_true(f.unit[0].at < 0 && f.unit[2].at < 0);
}

/* Flat curves (a tensor of zeros) and none at all decide nothing and divide by nothing. */
static void
nothing_to_choose(void **state)
{
    (void)state;
    fixture f;
    double multiplier = 0.0;
    bool met = false;
    fill(&f, (const uint64_t[]){1000, 1000, 1000}, (const double[]){1.0, 1.0, 1.0});
    for (int i = 0; i < UNITS; i++)
        for (int p = 0; p < CKPI_RD_POINTS; p++)
            f.unit[i].bits[p] = f.unit[i].err2[p] = f.unit[i].cost[p] = f.unit[i].loss[p] = 0.0;
    const ckpi_rdplan_budget b = {.bits = 10.0}, e = {.err = 0.1};
    assert_ok(ckpi_rdplan_solve(&f.rd, &b, &met, &multiplier, NULL));
    assert_true(met && isfinite(multiplier));
    assert_ok(ckpi_rdplan_solve(&f.rd, &e, &met, &multiplier, NULL));
    assert_true(met && isfinite(multiplier));
    f.rd.n_units = 0;
    assert_ok(ckpi_rdplan_solve(&f.rd, &b, &met, &multiplier, NULL));
    assert_true(met);
}

/* The points themselves, and never a step back between them. */
static void
interpolation_is_monotonic(void **state)
{
    (void)state;
    fixture f;
    fill(&f, (const uint64_t[]){1, 1, 1}, (const double[]){1.0, 1.0, 1.0});
    const ckpi_rdplan_unit *u = &f.unit[0];
    for (int p = 0; p < CKPI_RD_POINTS; p++) {
        const ckpi_rdplan_sum s = ckpi_rdplan_at(u, CKPI_RD_LOWEST + p * CKPI_RD_OCTAVE);
        assert_true(fabs(s.bits - u->bits[p]) < 1e-12 && fabs(s.err2 - u->err2[p]) < 1e-12 && fabs(s.loss - u->loss[p]) < 1e-12);
    }
    for (int at = CKPI_RD_LOWEST; at < CKPI_RD_HIGHEST; at++) {
        const ckpi_rdplan_sum a = ckpi_rdplan_at(u, at), b = ckpi_rdplan_at(u, at + 1);
        assert_true(b.bits <= a.bits + 1e-9 && b.err2 >= a.err2 - 1e-9);
        const double d = ldexp(1.0, 0) * exp2((double)at / CKPI_RD_OCTAVE), bits = 0.5 * log2(1.0 + 17.0 / (d * d));
        assert_true(fabs(a.bits - bits) < 0.03);      /* what is between is about what was measured there */
        assert_true(fabs(a.err2 / (d * d / 12.0 / (1.0 + d * d / 12.0)) - 1.0) < 0.04);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_combination_is_better),     cmocka_unit_test(steps_follow_the_square_root),
        cmocka_unit_test(errors_and_losses_are_budgets_too), cmocka_unit_test(what_cannot_be_met_is_said),
        cmocka_unit_test(given_steps_stay),             cmocka_unit_test(nothing_to_choose),
        cmocka_unit_test(interpolation_is_monotonic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
