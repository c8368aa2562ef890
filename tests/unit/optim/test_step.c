/* SPDX-License-Identifier: Apache-2.0 */
/* Every ISA gives the reference's bits; rounding is unbiased; what a gradient of no use leaves alone. */
#include <math.h>
#include <stdlib.h>
#include "base/cpu.h"
#include "base/float.h"
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "optim/kern.h"
#include "optim/pack.h"

/* v is below 2^80 in any column, at any width. */
enum { ROWS = 80 + 127 - 31 - 15 - CKPI_O_ROW_MIN + 1 };

static const unsigned widths[] = {2, 3, 4, 5, 6, 8};

static ckpi_o_par
parameters(unsigned m_bits, unsigned v_bits, double beta2)
{
    ckpi_o_par p = {.gs = (float)sqrt(1.0 - beta2), .am = 0.9f, .av = (float)beta2, .decay = 0.999f, .plain = true};
    p.m = ckpi_mgrid_of(m_bits);
    p.vmant = ckpi_vgrid_of(v_bits).mant;
    p.vtop = ckpi_vgrid_of(v_bits).top;
    p.bm = 0.1f / p.gs / p.m.h;
    p.root = 1000.0f / p.m.h;
    p.add = 1e-5f / p.m.h;
    ckpi_o_par_tables(&p);
    return p;
}

/* Data of one row, each array flush against an unmapped page. */
typedef struct data {
    size_t n;
    float *p, *g;
    int8_t *m;
    uint8_t *v;
    uint16_t *raw;
    uint32_t *col;
} data;

static data
make(test_rng *r, size_t n, unsigned m_bits, unsigned v_bits, bool strange)
{
    static const uint32_t odd[] = {0, 0x80000000u, 1, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x53800000u, 0x537fffffu, 0x00800000u, 0x1e3ce508u, 0x49000000u};
    data d = {n, (float *)guard_alloc(4 * n), (float *)guard_alloc(4 * n), (int8_t *)guard_alloc(n), guard_alloc(n), (uint16_t *)guard_alloc(2 * n),
              (uint32_t *)guard_alloc(4 * n)};
    const int top = (1 << (m_bits - 1)) - 1;
    for (size_t i = 0; i < n; i++) {
        d.p[i] = (float)test_normal(r);
        d.g[i] = ldexpf((float)test_normal(r), (int)test_below(r, 24) - 20);
        if (strange && test_below(r, 3) == 0)
            d.g[i] = ckpi_f32_from_bits(odd[test_below(r, CHECK_COUNT(odd))]);
        d.v[i] = (uint8_t)test_below(r, 1u << v_bits);
        d.m[i] = d.v[i] == 0 ? 0 : (int8_t)((int)test_below(r, 2u * (unsigned)top + 1u) - top);
        d.col[i] = (uint32_t)((int)test_below(r, 32) - 16) << 22;
    }
    return d;
}

static data
copy_of(const data *d)
{
    return (data){d->n, (float *)guard_copy(d->p, 4 * d->n), (float *)guard_copy(d->g, 4 * d->n), (int8_t *)guard_copy(d->m, d->n), guard_copy(d->v, d->n),
                  (uint16_t *)guard_alloc(2 * d->n), (uint32_t *)guard_copy(d->col, 4 * d->n)};
}

static void
drop(const data *d)
{
    guard_free(d->p);
    guard_free(d->g);
    guard_free(d->m);
    guard_free(d->v);
    guard_free(d->raw);
    guard_free(d->col);
}

static ckpi_o_seen
run(const ckpi_o_ops *ops, const data *d, const ckpi_o_par *par, uint32_t row, uint32_t z)
{
    const ckpi_o_row r = {row, d->col, z, d->p, d->g, d->m, d->v, d->raw};
    return ops->step(d->n, par, &r);
}

/* Settings of a round: rates that differ, lr 0, Adam. */
static ckpi_o_par
some_parameters(int round, unsigned m_bits, unsigned v_bits)
{
    ckpi_o_par par = parameters(m_bits, v_bits, round % 2 ? 0.95 : 0.999);
    if (round % 7 == 0) {
        par.root = 0.0f;
        par.add = INFINITY;
    }
    if (round % 3 == 1)
        par.l2 = 0.01f;
    par.plain = round % 11 != 0;
    return par;
}

static void
same_step(ckpi_o_seen s, const data *got, ckpi_o_seen seen, const data *ref)
{
    assert_int_equal(s.raw_max, seen.raw_max);
    assert_int_equal(s.unusable, seen.unusable);
    assert_memory_equal(got->p, ref->p, 4 * ref->n);
    assert_memory_equal(got->m, ref->m, ref->n);
}

/* Raw codes are in v where the grid has room for all, else in raw. */
static void
same_codes(uint32_t top, uint32_t raw_max, const data *got, const data *ref)
{
    assert_memory_equal(got->v, ref->v, ref->n);
    if (raw_max > top)
        assert_memory_equal(got->raw, ref->raw, 2 * ref->n);
    for (size_t i = 0; i < ref->n; i++)
        assert_int_equal(ref->v[i], (uint8_t)ref->raw[i]);
}

static void
isas_agree(void **state)
{
    static const uint32_t words[] = {CKPI_CPU_AVX2, CKPI_CPU_AVX2 | CKPI_CPU_AVX512, CKPI_CPU_NEON};
    test_rng r = test_rng_new("isas_agree");
    size_t large = 0;                    /* rounds in which a row's codes are made anew from raw */
    (void)state;
    for (int round = 0; round < 600; round++) {
        const unsigned mb = widths[test_below(&r, 6)], vb = widths[test_below(&r, 6)];
        const bool top = round % 6 == 0;         /* codes have room for what a gradient of no use makes of v */
        const uint32_t row = CKPI_O_ROW_MIN + (top ? ROWS - 1 : (uint32_t)test_below(&r, ROWS)), z = (uint32_t)test_u64(&r);
        const ckpi_o_par par = some_parameters(round, mb, vb);
        data ref = make(&r, (size_t)test_below(&r, 100), mb, vb, round % 3 == 0);
        for (size_t i = 0; i < ref.n && top; i++)
            ref.col[i] = 15u << 22;
        const data start = copy_of(&ref);
        const ckpi_o_seen seen = run(ckpi_o_pick(0), &ref, &par, row, z);
        for (size_t w = 0; w < CHECK_COUNT(words); w++) {
            if ((ckpi_cpu() & words[w]) != words[w])
                continue;
            data fast = copy_of(&start);
            same_step(run(ckpi_o_pick(words[w]), &fast, &par, row, z), &fast, seen, &ref);
            same_codes(par.vtop, seen.raw_max, &fast, &ref);
            large += seen.raw_max > par.vtop;
            drop(&fast);
        }
        drop(&ref);
        drop(&start);
    }
    assert_true((ckpi_cpu() & (CKPI_CPU_AVX2 | CKPI_CPU_NEON)) == 0 || large > 100);
}

/* d's codes packed, stepped by step4, and taken apart again. */
static ckpi_o_seen
run_packed(const ckpi_o_ops *ops, data *d, const ckpi_o_par *par, uint32_t row, uint32_t z)
{
    const ckpi_o_packer *pk = ckpi_o_pack_pick(0);
    uint8_t *m = guard_alloc(d->n / 2), *v = guard_alloc(d->n / 2), *raw = guard_alloc(d->n);
    pk->pack(m, (const uint8_t *)d->m, d->n, 4);
    pk->pack(v, d->v, d->n, 4);
    const ckpi_o_row4 r = {row, d->col, z, d->p, d->g, m, v, raw};
    const ckpi_o_seen seen = ops->step4(d->n, par, &r);
    pk->unpack_signed(d->m, m, d->n, 4);
    pk->unpack(d->v, v, d->n, 4);
    for (size_t i = 0; i < d->n; i++)
        d->raw[i] = raw[i / CKPI_O_GROUP * CKPI_O_GROUP + ckpi_o_raw4_at(i % CKPI_O_GROUP)];
    guard_free(m);
    guard_free(v);
    guard_free(raw);
    return seen;
}

/* What the reference does of codes a byte each, every ISA does of packed ones. */
static void
packed_agrees(void **state)
{
    static const uint32_t words[] = {0, CKPI_CPU_AVX2, CKPI_CPU_AVX2 | CKPI_CPU_AVX512, CKPI_CPU_NEON};
    test_rng r = test_rng_new("packed_agrees");
    (void)state;
    for (int round = 0; round < 400; round++) {
        const uint32_t row = CKPI_O_ROW_MIN + (uint32_t)test_below(&r, ROWS), z = (uint32_t)test_u64(&r);
        const ckpi_o_par par = some_parameters(round, 4, 4);
        data ref = make(&r, CKPI_O_GROUP * (size_t)test_below(&r, 5), 4, 4, round % 3 == 0);
        const data start = copy_of(&ref);
        const ckpi_o_seen seen = run(ckpi_o_pick(0), &ref, &par, row, z);
        for (size_t w = 0; w < CHECK_COUNT(words); w++) {
            if ((ckpi_cpu() & words[w]) != words[w])
                continue;
            data fast = copy_of(&start);
            same_step(run_packed(ckpi_o_pick(words[w]), &fast, &par, row, z), &fast, seen, &ref);
            assert_memory_equal(fast.raw, ref.raw, 2 * ref.n);
            for (size_t i = 0; i < ref.n; i++)
                assert_int_equal(fast.v[i], ref.raw[i] & 15);
            drop(&fast);
        }
        drop(&ref);
        drop(&start);
    }
}

/* Means over many random numbers of what one element's codes stand for, against m and v before rounding. */
static void
rounding_is_unbiased(void **state)
{
    enum { N = 1 << 16 };
    test_rng r = test_rng_new("rounding_is_unbiased");
    (void)state;
    for (size_t k = 0; k < CHECK_COUNT(widths); k++) {
        const ckpi_mgrid mg = ckpi_mgrid_of(widths[k]);
        const ckpi_vgrid vg = ckpi_vgrid_of(widths[k]);
        const float v = (float)(0.5 + test_unit(&r)), m = (float)((0.1 + 0.3 * test_unit(&r)) / (double)mg.h);
        const uint32_t e23 = 125u << 23, z = (uint32_t)test_u64(&r);
        double v_sum = 0, m_sum = 0, m2 = 0, v2 = 0;
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t x = ckpi_o_random(z + i * CKPI_O_WALK);
            const double vq = (double)ckpi_f32_from_bits((ckpi_o_v_code(ckpi_f32_bits(v), x, e23, vg.mant) << (23 - vg.mant)) + e23);
            const double mq = (double)ckpi_mgrid_value(&mg, ckpi_o_m_code(&mg, -m, 1.0f, x ^ (z + i * CKPI_O_WALK)));
            v_sum += vq;
            m_sum += mq;
            v2 += vq * vq;
            m2 += mq * mq;
        }
        const double v_err = sqrt((v2 / N - v_sum / N * (v_sum / N)) / N), m_err = sqrt((m2 / N - m_sum / N * (m_sum / N)) / N);
        assert_true(fabs(v_sum / N - (double)v) < 5 * v_err + 1e-6);
        assert_true(fabs(m_sum / N + (double)m) < 5 * m_err + 1e-6);
    }
}

/* Draws of neighbours, of the rows of matrices and of consecutive steps do not go together: correlations over 2^16 pairs, sd 0.004. */
static void
draws_are_independent(void **state)
{
    enum { N = 1 << 16 };
    static const uint32_t lags[] = {0, 1, 2, 3, 16, 64, 127, 192, 256, 768, 1000, 1024, 2304, 3072, 4096, 50257};
    test_rng r = test_rng_new("draws_are_independent");
    (void)state;
    for (size_t k = 0; k <= CHECK_COUNT(lags); k++)      /* lag 0: m's bits against v's, of one element */
        for (int low = k == 0 ? 2 : 0; low < 3; low++) {          /* m's bits; v's; one of each */
            double both = 0;
            const uint32_t key = (uint32_t)test_u64(&r), other = (uint32_t)test_u64(&r);
            for (uint32_t i = 0; i < N; i++) {
                const uint32_t za = key + i * CKPI_O_WALK, zb = k == CHECK_COUNT(lags) ? other + i * CKPI_O_WALK : za + lags[k] * CKPI_O_WALK;
                const uint32_t a = ckpi_o_random(za), b = ckpi_o_random(zb);
                const double ua = low == 1 ? (a & 0x7fffff) * 0x1p-23 : ((a ^ za) & 0x1fffff) * 0x1p-21;
                const double ub = low != 0 ? (b & 0x7fffff) * 0x1p-23 : ((b ^ zb) & 0x1fffff) * 0x1p-21;
                both += (ua - 0.5) * (ub - 0.5) * 12;
            }
            assert_true(fabs(both / N) < 0.03);
        }
}

static void
roots_are_inverse(void **state)
{
    (void)state;
    for (uint32_t f = 1; f < 255; f++) {
        const double s = (double)ckpi_f32_from_bits(ckpi_o_root_bits(f << 22)), per = (double)ckpi_f32_from_bits(ckpi_o_per_root_bits(f << 22));
        assert_true(fabs(s * per * (double)CKPI_O_AGAIN - 1.0) < 2e-7);
        assert_true(fabs(s / exp2(((double)f - 127.0) / 2) - (0.5 + sqrt(0.5))) < 1e-6);
    }
}

/* Bad elements keep weight and codes; v never becomes 0; an idle m ends at 0. */
static void
single_elements(void **state)
{
    const ckpi_o_par par = parameters(4, 4, 0.999);
    float p[4] = {1, 2, 3, 4};
    const float g[4] = {NAN, INFINITY, 0x1p40f, 0.0f};
    int8_t m[4] = {3, -3, 7, 5};
    uint8_t v[4] = {4, 15, 1, 1};
    uint16_t raw[4];
    const uint32_t col[4] = {0};
    const ckpi_o_row r = {100, col, 7, p, g, m, v, raw};
    (void)state;
    assert_int_equal(ckpi_o_step_ref(4, &par, &r).unusable, 3);
    assert_true(p[0] == 1 && p[1] == 2 && p[2] == 3 && p[3] < 4);
    assert_true(m[0] == 3 && m[1] == -3 && m[2] == 7);
    assert_true(raw[0] == 4 && raw[1] == 15 && raw[2] == 1);
    for (uint32_t step = 0; step < 20000; step++) {
        const ckpi_o_row one = {100, col + 3, step * 77, p + 3, g + 3, m + 3, v + 3, raw + 3};
        (void)ckpi_o_step_ref(1, &par, &one);
        assert_int_equal(raw[3], 1);
    }
    assert_int_equal(m[3], 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isas_agree),
        cmocka_unit_test(packed_agrees),
        cmocka_unit_test(rounding_is_unbiased),
        cmocka_unit_test(draws_are_independent),
        cmocka_unit_test(roots_are_inverse),
        cmocka_unit_test(single_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
