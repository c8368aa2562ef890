/* SPDX-License-Identifier: Apache-2.0 */
/* Every input, setting and shape: the same bits on every ISA, and a decoder that gets what the encoder kept. */
#include "mill.h"
#include <math.h>
#include <stdlib.h>

static void
isa_equality(test_rng *r, const mill_piece *p, const mill_setting *s, ckpi_scratch *ws)
{
    uint32_t cpus[8];
    const size_t n = mill_cpus(cpus, CHECK_COUNT(cpus));
    (void)r;
    (void)s;
    mill_coded want = mill_encode(p, ws, cpus[0]);
    for (size_t i = 1; i < n; i++) {
        mill_coded got = mill_encode(p, ws, cpus[i]);
        mill_assert_same(p, &want, &got);
        mill_coded_free(&got);
    }
    mill_coded_free(&want);
}

static bool
is_escaped(const ckpi_escapes *e, size_t i)
{
    for (size_t k = 0; k < e->n; k++)
        if (e->at[k].index == i)
            return true;
    return false;
}

static void
check_v(const mill_piece *p, const mill_coded *c, const float *v)
{
    size_t k = 0;
    for (size_t i = 0; i < p->n; i++) {
        const bool escaped = k < c->out.vesc.n && c->out.vesc.at[k].index == i;
        k += escaped;
        if (escaped || p->v[i] == 0) {
            assert_memory_equal(&v[i], &p->v[i], sizeof v[i]);
            continue;
        }
        assert_true(v[i] > 0 && isfinite(v[i]));
        assert_true(fabs((double)v[i] - (double)p->v[i]) <= (c->out.v_max_err * (1 + 1e-6) + 1e-6) * (double)p->v[i] + 1.5e-45);
    }
}

static void
check_m(const mill_piece *p, const mill_coded *c, const float *m)
{
    for (size_t i = 0; i < p->n; i++) {
        if (is_escaped(&c->out.mesc, i)) {
            assert_int_equal(c->out.mcode[i], 0);
            assert_memory_equal(&m[i], &p->m[i], sizeof m[i]);
            continue;
        }
        assert_true(isfinite(p->m[i]));
        if (c->out.mcode[i] == 0)
            assert_int_equal(ckpi_f32_bits(m[i]), 0);
        else
            assert_true(m[i] == 0 || (m[i] < 0) == (p->m[i] < 0));
    }
}

static void
check_w(const mill_piece *p, const mill_coded *c, const float *w)
{
    assert_memory_equal(w, c->wrec, p->n * sizeof *w);
    for (size_t i = 0; i < p->n; i++) {
        if (is_escaped(&c->out.wesc, i))
            assert_memory_equal(&w[i], &p->w[i], sizeof w[i]);
        else
            assert_true(isfinite(w[i]) && fabs((double)p->w[i] - (double)w[i]) <= c->out.w_max_err * (1 + 1e-6));
    }
}

static void
round_trip(test_rng *r, const mill_piece *p, const mill_setting *s, ckpi_scratch *ws)
{
    uint32_t cpus[8];
    const size_t n = mill_cpus(cpus, CHECK_COUNT(cpus));
    (void)r;
    (void)s;
    mill_coded c = mill_encode(p, ws, cpus[n - 1]);
    float *x[3][2];
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < 3; k++)
            x[k][i != 0] = (float *)guard_alloc(p->n * sizeof(float));
        mill_decode(p, &c, ws, cpus[i], x[0][i != 0], x[1][i != 0], x[2][i != 0]);
        if (i == 0)
            continue;
        for (size_t k = 0; k < 3; k++) {
            assert_memory_equal(x[k][0], x[k][1], p->n * sizeof(float));
            guard_free(x[k][1]);
        }
    }
    if (p->in.v != NULL)
        check_v(p, &c, x[2][0]);
    if (p->in.m != NULL)
        check_m(p, &c, x[1][0]);
    if (p->in.w != NULL)
        check_w(p, &c, x[0][0]);
    for (size_t k = 0; k < 3; k++)
        guard_free(x[k][0]);
    mill_coded_free(&c);
}

/* Bit for bit, but for what a NaN is made of. */
static void
assert_same_floats(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isnan(a[i]) || !isnan(b[i]))
            assert_memory_equal(&a[i], &b[i], sizeof a[i]);
}

/* Codes, factors and base of a hostile file: no ISA differs, nothing is read beyond its end. */
static void
hostile_codes(test_rng *r, const mill_piece *p, const mill_setting *s, ckpi_scratch *ws)
{
    uint32_t cpus[8];
    const size_t n = mill_cpus(cpus, CHECK_COUNT(cpus));
    const bool along = test_below(r, 2) == 0;
    (void)s;
    mill_coded c = mill_encode(p, ws, 0);
    c.mg = (float)(1e10 * test_normal(r));
    test_bytes(r, c.out.vcode, p->n);
    test_bytes(r, c.out.wcode, p->n);
    test_bytes(r, c.out.mcode, p->n);
    test_bytes(r, p->row, p->rows * sizeof *p->row);
    if (p->col != NULL)
        test_bytes(r, p->col, p->cols * sizeof *p->col);
    float *x[2][3];
    for (size_t i = 0; i < n; i++) {
        float **y = x[i != 0];
        for (size_t k = 0; k < 3; k++)
            y[k] = (float *)guard_copy(p->base, p->n * sizeof(float));
        assert_ok(ckpi_quant_decode_v(&p->in.grid, c.out.vcode, y[0], ws, cpus[i], NULL));
        assert_ok(ckpi_quant_decode_m(&p->in.grid, c.out.vcode, c.out.mcode, c.mg, along, y[1], ws, cpus[i], NULL));
        assert_ok(ckpi_quant_decode_w(&p->in.grid, c.out.vcode, c.out.wcode, &p->in.wstep, p->in.w_dtype, p->in.key, y[2], ws, cpus[i], NULL));
        for (size_t k = 0; k < 3 && i != 0; k++) {
            assert_same_floats(x[0][k], y[k], p->n);
            guard_free(y[k]);
        }
    }
    for (size_t k = 0; k < 3; k++)
        guard_free(x[0][k]);
    mill_coded_free(&c);
}

static void
test_isa_equality(void **state)
{
    (void)state;
    mill_each("isa", isa_equality);
}

static void
test_round_trip(void **state)
{
    (void)state;
    mill_each("round trip", round_trip);
}

static void
test_hostile_codes(void **state)
{
    (void)state;
    mill_each("hostile", hostile_codes);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_isa_equality),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_hostile_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
