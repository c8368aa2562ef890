/* SPDX-License-Identifier: Apache-2.0 */
/* What a visit sees, and what a policy makes of it. */
#include <ckpress/optim_policy.h>
#include <math.h>
#include <stdlib.h>
#include "harness/check.h"
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "optim/look.h"

static const ckp_adamw how = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .seed = 5};

enum { COLS = 70, N = 40 * COLS - 9, MANY = 400 * COLS };

typedef struct param {
    ckp_optim_tensor t;
    float p[MANY], g[MANY], m[MANY], v[MANY];
    uint8_t m_code[MANY], v_code[MANY], row[400];
    int8_t col[COLS];
} param;

static param *
make(uint64_t numel, unsigned m_bits, unsigned v_bits, test_rng *r)
{
    static param x;
    ckp_error err;
    memset(&x, 0, sizeof x);
    x.t = (ckp_optim_tensor){.name = "w", .how = &how, .step = 7, .numel = numel, .cols = COLS, .p_dtype = CKP_F32, .g_dtype = CKP_F32, .p = x.p, .g = x.g,
                             .m_bits = m_bits, .v_bits = v_bits, .m = x.m_code, .v = x.v_code, .row = x.row, .col = x.col, .m_corr = 1, .v_corr = 1};
    for (uint64_t i = 0; i < numel; i++) {
        x.p[i] = (float)(0.02 * test_normal(r));
        x.g[i] = i % 11 == 0 ? 0.0f : (float)(1e-3 * test_normal(r));
        x.v[i] = (float)(1e-6 * exp2(test_normal(r)));
        x.m[i] = (float)(2e-4 * test_normal(r));
    }
    assert_ok(ckp_optim_write(&x.t, x.m, x.v, &err));
    return &x;
}

static bool
near_log2(int32_t factor, double x, double limit)
{
    return fabs(factor / 256.0 - log2(x)) < limit;
}

/* A tensor of no more than 16 runs is looked at whole: factors are those of its elements. */
static void
factors_are_what_they_say(void **state)
{
    test_rng r = test_rng_new("factors_are_what_they_say");
    param *x = make(8 * COLS - 3, 8, 8, &r);
    ckp_optim_stats s;
    ckp_error err;
    int32_t f[CKP_POLICY_FACTORS];
    (void)state;
    assert_ok(ckp_optim_look(&x->t, x->t.numel, &s, &err));
    assert_int_equal(s.sum[CKPI_LOOK_N], x->t.numel);
    assert_true(ckp_policy_factors(&s, 1e-3, 8, f));
    double gg = 0, g = 0, pp = 0, mm = 0, e = 0, ee = 0;
    const double n = (double)x->t.numel;
    assert_ok(ckp_optim_read(&x->t, x->m, x->v, &err));
    for (uint64_t i = 0; i < x->t.numel; i++) {
        int exponent;
        (void)frexp((double)x->v[i], &exponent);
        gg += (double)x->g[i] * (double)x->g[i];
        g += fabs((double)x->g[i]);
        pp += (double)x->p[i] * (double)x->p[i];
        mm += fabs((double)x->m[i]) / sqrt((double)x->v[i]);
        e += exponent - 1;
        ee += (exponent - 1.0) * (exponent - 1.0);
    }
    const double size_m = mm / n;
    assert_true(near_log2(f[0], sqrt(gg / n), 0.02));
    assert_true(near_log2(f[1], sqrt(n * gg) / g, 0.02));
    assert_true(fabs(f[2] / 256.0 - e / n) < 0.02);
    assert_true(fabs(f[3] / 256.0 - sqrt(ee / n - e / n * (e / n))) < 0.02);
    assert_true(near_log2(f[6], size_m, 0.4));      /* m's scale is sqrt(v) rounded to halves of octaves */
    assert_true(fabs(f[7] / 256.0 - (f[6] / 256.0 + log2(1e-3 / sqrt(pp / n)))) < 0.03);
    assert_int_equal(f[8], 3 * 256);
}

/* Parts by rows add up to the whole, whatever widths and however large it is; nothing is allocated. */
static void
parts_add_up(void **state)
{
    static const unsigned widths[] = {2, 3, 4, 5, 6, 8};
    test_rng r = test_rng_new("parts_add_up");
    ckp_error err;
    (void)state;
    for (size_t k = 0; k < 36; k++) {
        const uint64_t numel = k % 2 ? MANY - 3 : N, cut = (1 + test_below(&r, 38)) * COLS;
        param *x = make(numel, widths[k % 6], widths[k / 6], &r);
        ckp_optim_stats whole, part[2];
        failalloc_begin(0);
        assert_ok(ckp_optim_look(&x->t, numel, &whole, &err));
        assert_int_equal(failalloc_count(), 0);
        failalloc_end(NULL, NULL);
        for (int i = 0; i < 2; i++) {
            ckp_optim_tensor t = x->t;
            t.first = i == 0 ? 0 : cut;
            t.numel = i == 0 ? cut : numel - cut;
            t.p = x->p + t.first;
            t.g = x->g + t.first;
            t.m += ckp_optim_state_bytes(t.first, COLS, t.m_bits);
            t.v += ckp_optim_state_bytes(t.first, COLS, t.v_bits);
            t.row += t.first / COLS;
            assert_ok(ckp_optim_look(&t, numel, &part[i], &err));
        }
        for (int i = 0; i < CKP_OPTIM_STATS; i++)
            assert_int_equal(whole.sum[i], part[0].sum[i] + part[1].sum[i]);
        assert_in_range(whole.sum[CKPI_LOOK_N], 16 * (COLS - 64), 1024);
    }
}

/* The same sums, and so the same decisions, on every CPU: the suite runs once for each set of instructions. */
static void
sums_are_known(void **state)
{
    test_rng r = {20260102}, codes = {20260103};
    param *x = make(MANY - 7, 6, 5, &r);
    ckp_optim_stats s;
    ckp_error err;
    int32_t f[CKP_POLICY_FACTORS];
    (void)state;
    for (size_t i = 0; i < MANY - 7; i++) {
        x->g[i] = (float)((test_unit(&codes) - 0.5) / (double)(1u << i % 23));
        x->p[i] = (float)(test_unit(&codes) - 0.3);
    }
    for (size_t i = 0; i < sizeof x->m_code; i++) {
        x->m_code[i] = (uint8_t)(test_u64(&codes) & 0x77);
        x->v_code[i] = (uint8_t)test_u64(&codes);
    }
    for (size_t i = 0; i < sizeof x->row; i++)
        x->row[i] = (uint8_t)(90 + test_below(&codes, 30));
    for (size_t i = 0; i < COLS; i++)
        x->col[i] = (int8_t)((int)test_below(&codes, 9) - 4);
    assert_ok(ckp_optim_look(&x->t, x->t.numel, &s, &err));
    uint64_t h = 1;
    for (int i = 0; i < CKP_OPTIM_STATS; i++)
        h = (h ^ (uint64_t)s.sum[i]) * UINT64_C(1099511628211);
    assert_true(ckp_policy_factors(&s, 3e-4, 1000, f));
    for (int i = 0; i < CKP_POLICY_FACTORS; i++)
        h = (h ^ (uint64_t)(int64_t)f[i]) * UINT64_C(1099511628211);
    assert_int_equal(h, UINT64_C(0xadc909969fae4805));
}

static void
strange_numbers_are_left_out(void **state)
{
    test_rng r = test_rng_new("strange_numbers_are_left_out");
    param *x = make(N, 4, 4, &r);
    ckp_optim_stats s, clean;
    ckp_error err;
    int32_t f[CKP_POLICY_FACTORS];
    (void)state;
    for (size_t i = 0; i < 50; i++)
        x->g[i] = x->p[i] = 0;
    assert_ok(ckp_optim_look(&x->t, N, &clean, &err));
    static const float strange[] = {NAN, INFINITY, -INFINITY, 0x1p40f, -0x1p127f, 0x1p-140f, -0.0f};
    for (size_t i = 0; i < 50; i++)
        x->g[i] = x->p[i] = strange[i % 7];
    assert_ok(ckp_optim_look(&x->t, N, &s, &err));
    assert_memory_equal(&s, &clean, sizeof s);
    for (size_t i = 0; i < N; i++)
        x->g[i] = 0x1.fffffep39f * (i % 2 ? 1.0f : -1.0f);
    assert_ok(ckp_optim_look(&x->t, N, &s, &err));
    assert_true(ckp_policy_factors(&s, 0, 1, f));
    assert_true(abs(f[0] - 40 * 256) < 2 && f[1] == 0);
    for (size_t i = 0; i < N; i++)
        x->g[i] = 0;
    assert_ok(ckp_optim_look(&x->t, N, &s, &err));
    assert_false(ckp_policy_factors(&s, 1e-3, 1, f));
    assert_status(ckp_optim_look(NULL, N, &s, &err), CKP_EINVAL);
    assert_status(ckp_optim_look(&x->t, N - 1, &s, &err), CKP_EINVAL);
    x->t.first = 1;
    assert_status(ckp_optim_look(&x->t, N + 1, &s, &err), CKP_EINVAL);
}

enum { TENSORS = 40 };

/* Tensors of many sizes; all but every ninth follow. */
static uint64_t
items_of(ckp_policy_item *item, test_rng *r)
{
    uint64_t numel = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        item[i] = (ckp_policy_item){.numel = 512 * (1 + test_below(r, 64)), .cols = 512, .fixed = 600, .bits = {3, 3}, .follows = i % 9 != 4};
        if (!item[i].follows)
            item[i].bits[0] = item[i].bits[1] = 8;
        numel += item[i].numel;
    }
    return numel;
}

static uint64_t
bytes_used(const ckp_policy_item *item)
{
    uint64_t used = 0;
    for (size_t i = 0; i < TENSORS; i++)
        used += item[i].fixed + ckp_optim_state_bytes(item[i].numel, item[i].cols, item[i].bits[0]) + ckp_optim_state_bytes(item[i].numel, item[i].cols, item[i].bits[1]);
    return used;
}

/* Statistics of a tensor whose gradients have this size. */
static ckp_optim_stats
stats_of(double size)
{
    ckp_optim_stats s = {{0}};
    const double g = size * 0x1p75, gg = size * size * 0x1p150;
    int e;
    (void)frexp(g, &e);
    const int w = e > 16 ? (e - 16) / 16 : 0;
    s.sum[CKPI_LOOK_N] = s.sum[CKPI_LOOK_V] = 1;
    s.sum[CKPI_LOOK_G + w] = (int64_t)ldexp(g, -16 * w);
    (void)frexp(gg, &e);
    const int w2 = e > 32 ? (e - 32) / 16 : 0;
    s.sum[CKPI_LOOK_GG + w2] = (int64_t)ldexp(gg, -16 * w2);
    s.sum[CKPI_LOOK_E] = 127 - 20;
    s.sum[CKPI_LOOK_EE] = (127 - 20) * (127 - 20);
    return s;
}

static void
visit_at(ckp_policy *p, ckp_policy_item *t, double size, double lr, uint64_t step)
{
    const ckp_optim_stats s = stats_of(size);
    unsigned bits[2];
    const uint8_t m = t->bits[0], v = t->bits[1];
    if (ckp_policy_visit(p, t, &s, lr, ckp_policy_rate(lr, 1e-3), step, bits)) {
        assert_true(abs((int)bits[0] - m) <= 2 && abs((int)bits[1] - v) <= 2);   /* 6 and 8 are neighbours */
        ckp_policy_moved(p, t, bits);
    }
}

static void
visit(ckp_policy *p, ckp_policy_item *t, double size, uint64_t step)
{
    visit_at(p, t, size, 1e-3, step);
}

static void
rates_are_octaves(void **state)
{
    (void)state;
    assert_int_equal(ckp_policy_rate(1e-3, 1e-3), 0);
    assert_int_equal(ckp_policy_rate(0x1p-9, 0x1p-12), 3 * 256);
    assert_int_equal(ckp_policy_rate(0x1p-12, 0x1p-9), -3 * 256);
    assert_in_range(ckp_policy_rate(1e-3, 1e-4), 849, 852);
    assert_int_equal(ckp_policy_rate(0.0, 1e-3), -8 * 256);
    assert_int_equal(ckp_policy_rate(1e-30, 1e-3), -8 * 256);
    assert_int_equal(ckp_policy_rate(1e30, 1e-3), 8 * 256);
    assert_int_equal(ckp_policy_rate(-1e-3, 1e-3), 0);
    assert_int_equal(ckp_policy_rate(1e-3, 0.0), 0);
    assert_int_equal(ckp_policy_rate(INFINITY, 1e-3), 0);
    assert_int_equal(ckp_policy_rate(NAN, 1e-3), 0);
    assert_int_equal(ckp_policy_lead(-1000), 0);
    assert_int_equal(ckp_policy_lead(100), 0);                  /* less than half a level */
    assert_int_equal(ckp_policy_lead(850), 3);
    unsigned bits[2];
    ckp_policy_led((const unsigned[2]){3, 3}, 0, bits);
    assert_true(bits[0] == 3 && bits[1] == 3);
    ckp_policy_led((const unsigned[2]){3, 3}, 2, bits);
    assert_true(bits[0] == 5 && bits[1] == 6);
    ckp_policy_led((const unsigned[2]){3, 3}, ckp_policy_lead(INT32_MAX / 4), bits);
    assert_true(bits[0] == 8 && bits[1] == 8);
}

/* Tensors alike but for their learning rate: ten times as much is worth three levels, from the start on and later; a tenth has fewer than the others. */
static void
higher_rates_have_more_bits(void **state)
{
    static ckp_policy_item item[TENSORS];
    static const double lr[TENSORS] = {[7] = 1e-2, [8] = 1e-4};
    ckp_policy p = {0};
    unsigned start[2];
    (void)state;
    for (size_t i = 0; i < TENSORS; i++)
        item[i] = (ckp_policy_item){.numel = 5120, .cols = 512, .fixed = 600, .bits = {4, 3},
                                    .follows = (uint8_t)(1 + ckp_policy_lead(ckp_policy_rate(lr[i] > 0.0 ? lr[i] : 1e-3, 1e-3)))};
    p.budget = bytes_used(item) + 8000;
    assert_true(ckp_policy_start(&p, item, TENSORS, start));
    assert_true(start[0] == 4 && start[1] == 3);
    for (size_t i = 0; i < TENSORS; i++) {
        unsigned own[2];
        ckp_policy_led(start, (uint8_t)(item[i].follows - 1), own);
        assert_true(i == 7 ? own[0] == 8 && own[1] == 8 : own[0] == 4 && own[1] == 3);
        item[i].bits[0] = (uint8_t)own[0];
        item[i].bits[1] = (uint8_t)own[1];
    }
    assert_true(bytes_used(item) <= p.budget);
    for (int k = 0; k < 12; k++) {
        for (size_t i = 0; i < TENSORS; i++) {
            visit_at(&p, &item[i], 1e-3, lr[i] > 0.0 ? lr[i] : 1e-3, 100);
            assert_true(bytes_used(item) <= p.budget);
        }
        ckp_policy_plan(&p, item, TENSORS);
    }
    assert_true(item[7].bits[0] >= 6 && item[7].bits[1] >= 6);
    assert_true(item[8].bits[0] <= 3 && item[8].bits[1] <= 3);
    p.budget = 1;                        /* no rung fits, with leads or without */
    assert_false(ckp_policy_start(&p, item, TENSORS, start));
    assert_true(start[0] == 2 && start[1] == 2);
    for (size_t i = 0; i < TENSORS; i++)
        item[i].bits[0] = item[i].bits[1] = 2;
    p.budget = bytes_used(item);         /* the last rung fits, but without leads */
    assert_false(ckp_policy_start(&p, item, TENSORS, start));
    assert_true(start[0] == 2 && start[1] == 2);
}

/* By any budget that can be met: never above it, near it after some rounds, and then at rest; more bits where gradients are large. */
static void
budgets_are_kept(void **state)
{
    test_rng r = test_rng_new("budgets_are_kept");
    (void)state;
    for (int round = 0; round < 30; round++) {
        static ckp_policy_item item[TENSORS];
        ckp_policy p = {0};
        const uint64_t numel = items_of(item, &r), fixed = (uint64_t)TENSORS * 600;
        const double bits = 3.2 + 0.1 * (double)test_below(&r, 40);
        double size[TENSORS];
        unsigned start[2];
        p.budget = (uint64_t)(bits * (double)numel / 4) + fixed;
        ckp_policy_start(&p, item, TENSORS, start);
        for (size_t i = 0; i < TENSORS; i++) {
            size[i] = exp2(-12 + 3 * test_normal(&r));
            if (item[i].follows) {
                item[i].bits[0] = (uint8_t)start[0];
                item[i].bits[1] = (uint8_t)start[1];
            }
        }
        uint64_t moves = 0;
        for (int k = 0; k < 24; k++) {
            if (k == 16)
                moves = p.raised + p.lowered;
            for (size_t i = 0; i < TENSORS; i++) {
                visit(&p, &item[i], size[i], 100);
                assert_true(bytes_used(item) <= p.budget);
            }
            ckp_policy_plan(&p, item, TENSORS);
            assert_int_equal(p.used, bytes_used(item));
        }
        assert_true((double)p.used > 0.98 * (double)p.budget || start[0] == 8);
        assert_int_equal(p.raised + p.lowered, moves);
        size_t least = 0, most = 0;
        for (size_t i = 0; i < TENSORS; i++) {
            assert_true(item[i].follows || (item[i].bits[0] == 8 && item[i].bits[1] == 8));
            if (item[i].follows) {
                least = size[i] < size[least] ? i : least;
                most = size[i] > size[most] ? i : most;
            }
        }
        assert_true(item[most].bits[0] >= item[least].bits[0] && item[most].bits[1] >= item[least].bits[1]);
    }
}

/* One tensor's gradients grow: it has more bits at its next visits. They fall: it keeps them for two. */
static void
up_at_once_and_down_after_two(void **state)
{
    static ckp_policy_item item[TENSORS];
    ckp_policy p = {0};
    double size[TENSORS];
    (void)state;
    for (size_t i = 0; i < TENSORS; i++) {
        item[i] = (ckp_policy_item){.numel = 5120, .cols = 512, .fixed = 600, .bits = {3, 3}, .follows = 1};
        size[i] = 1e-3;
    }
    p.budget = bytes_used(item) + 4000;
    for (int k = 0; k < 12; k++) {
        for (size_t i = 0; i < TENSORS; i++)
            visit(&p, &item[i], size[i], 100);
        ckp_policy_plan(&p, item, TENSORS);
    }
    item[5].bits[0] = item[5].bits[1] = 3;
    ckp_policy_plan(&p, item, TENSORS);
    p.budget = p.used + 4000;
    visit(&p, &item[5], 100 * size[5], 101);
    assert_true(item[5].bits[0] + item[5].bits[1] > 6);
    ckp_policy_plan(&p, item, TENSORS);
    for (int k = 0; k < 6; k++) {
        visit(&p, &item[5], 100 * size[5], 101);
        ckp_policy_plan(&p, item, TENSORS);
    }
    const unsigned high = item[5].bits[0];
    assert_true(high >= 4);
    unsigned last = high;
    for (int k = 0, since = 0; k < 20; k++) {
        visit(&p, &item[5], 1e-3 * size[5], 200);
        since = item[5].bits[0] != last ? 0 : since + 1;
        if (item[5].bits[0] != last)
            assert_true(item[5].bits[0] < last);
        last = item[5].bits[0];
        ckp_policy_plan(&p, item, TENSORS);
    }
    assert_true(last < high);
}

/* A lowering takes two visits in a row; a visit between them that wants the width forgets the first. */
static void
votes_are_in_a_row(void **state)
{
    ckp_policy p = {.plans = 1, .price = 1 << 20};
    ckp_policy_item t = {.numel = 5120, .cols = 512, .bits = {5, 5}, .wanted = {4, 5}, .follows = 1};
    (void)state;
    p.budget = 1 << 20;
    visit(&p, &t, 1e-3, 1);
    assert_int_equal(t.bits[0], 5);
    t.wanted[0] = 5;
    visit(&p, &t, 1e-3, 2);
    t.wanted[0] = 3;
    visit(&p, &t, 1e-3, 3);
    assert_int_equal(t.bits[0], 5);
    visit(&p, &t, 1e-3, 4);
    assert_int_equal(t.bits[0], 4);
    visit(&p, &t, 1e-3, 5);
    assert_int_equal(t.bits[0], 4);
    visit(&p, &t, 1e-3, 6);
    assert_int_equal(t.bits[0], 3);
    assert_int_equal(t.bits[1], 5);
    t.follows = 0;
    t.wanted[0] = 2;
    for (uint64_t k = 7; k < 10; k++)
        visit(&p, &t, 1e-3, k);
    assert_int_equal(t.bits[0], 3);
}

/* What is kept of a tensor does not depend on its size. */
static void
an_item_is_small(void **state)
{
    (void)state;
    assert_in_range(sizeof(ckp_policy_item), 1, 40);
    assert_in_range(sizeof(ckp_policy), 1, 256);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_what_they_say),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(sums_are_known),
        cmocka_unit_test(strange_numbers_are_left_out),
        cmocka_unit_test(rates_are_octaves),
        cmocka_unit_test(higher_rates_have_more_bits),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(up_at_once_and_down_after_two),
        cmocka_unit_test(votes_are_in_a_row),
        cmocka_unit_test(an_item_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
