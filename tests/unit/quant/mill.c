/* SPDX-License-Identifier: Apache-2.0 */
#include "mill.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static float
any_bits(test_rng *r)
{
    return ckpi_f32_from_bits((uint32_t)test_u64(r));
}

static void
training(test_rng *r, size_t n, size_t cols, float *w, float *m, float *v, float *base)
{
    for (size_t i = 0; i < n; i++) {
        const double s = 1e-4 * exp(0.7 * test_normal(r) + 0.5 * sin((double)(i % cols)) + 0.3 * cos((double)(i / cols)));
        v[i] = (float)(s * s);
        m[i] = (float)(0.25 * s * test_normal(r));
        w[i] = (float)(0.02 * test_normal(r));
        base[i] = w[i] + (float)(0.005 * test_normal(r));
    }
}

static void
random_bits(test_rng *r, size_t n, size_t cols, float *w, float *m, float *v, float *base)
{
    (void)cols;
    for (size_t i = 0; i < n; i++) {
        w[i] = any_bits(r);
        m[i] = any_bits(r);
        v[i] = any_bits(r);
        base[i] = any_bits(r);
    }
}

/* Ordinary numbers with single strangers, so that vector groups see one odd lane. */
static void
strangers(test_rng *r, size_t n, size_t cols, float *w, float *m, float *v, float *base)
{
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e30f, -1e30f, 3.4e38f, -3.4e38f, 1e-45f, -1e-45f, 1e-39f, 1e38f, -1.0f};
    float *to[] = {w, m, v, base};
    training(r, n, cols, w, m, v, base);
    for (size_t k = 0; k < 1 + n / 9; k++) {
        const float x = test_below(r, 4) == 0 ? any_bits(r) : odd[test_below(r, CHECK_COUNT(odd))];
        memcpy(to[test_below(r, 4)] + test_below(r, n), &x, sizeof x);
    }
}

/* Rows that never got a gradient, and rows whose v has decayed to denormals. */
static void
dead_rows(test_rng *r, size_t n, size_t cols, float *w, float *m, float *v, float *base)
{
    training(r, n, cols, w, m, v, base);
    for (size_t i = 0; i < n; i++) {
        const size_t row = i / cols;
        if (row % 3 == 1)
            m[i] = v[i] = 0.0f;
        if (row % 5 == 2) {
            v[i] = ckpi_f32_from_bits((uint32_t)(400 + test_below(r, 200)));
            m[i] = ckpi_f32_from_bits((uint32_t)test_below(r, 5));
        }
    }
}

static void
all_zero(test_rng *r, size_t n, size_t cols, float *w, float *m, float *v, float *base)
{
    (void)r;
    (void)cols;
    for (size_t i = 0; i < n; i++)
        w[i] = m[i] = v[i] = base[i] = 0.0f;
}

/* v over seventy decades, m and w over ten. */
static void
decades(test_rng *r, size_t n, size_t cols, float *w, float *m, float *v, float *base)
{
    (void)cols;
    for (size_t i = 0; i < n; i++) {
        v[i] = (float)pow(10, 76 * test_unit(r) - 38);
        m[i] = (float)(pow(10, 10 * test_unit(r) - 5) * sqrt((double)v[i]) * (test_below(r, 2) ? 1 : -1));
        w[i] = (float)(pow(10, 10 * test_unit(r) - 8) * (test_below(r, 2) ? 1 : -1));
        base[i] = w[i] * (float)(1 + 0.01 * test_normal(r));
    }
}

/* Steps of nearly the size of what they code; halves that test the tie rule. */
static void
ties(test_rng *r, size_t n, size_t cols, float *w, float *m, float *v, float *base)
{
    (void)cols;
    for (size_t i = 0; i < n; i++) {
        v[i] = ldexpf(1, (int)test_below(r, 9) - 4);
        m[i] = (float)((int)test_below(r, 9) - 4) * 0.25f;
        base[i] = (float)((int)test_below(r, 9) - 4);
        w[i] = base[i] + (float)((int)test_below(r, 1100) - 550) * 0.5f;
    }
}

static const mill_input inputs[] = {
    {"training", training}, {"strangers", strangers}, {"dead rows", dead_rows}, {"zeros", all_zero},
    {"decades", decades},   {"ties", ties},           {"random bits", random_bits},
};

static const mill_setting settings[] = {
    {"delta, phase, clamped", true, true, true, false, true, 512, CKPI_ROUND_PHASE, CKPI_M_CLAMPED, 0.05f, CKP_F32, 0.024f},
    {"key, nearest, clamped", true, true, true, true, true, 512, CKPI_ROUND_NEAREST, CKPI_M_CLAMPED, 0.004f, CKP_F32, 0.024f},
    {"bf16, phase", true, true, true, false, true, 256, CKPI_ROUND_PHASE, CKPI_M_CLAMPED, 0.05f, CKP_BF16, 0.002f},
    {"f16, key, uniform", true, true, true, true, true, 64, CKPI_ROUND_NEAREST, CKPI_M_UNIFORM, 0.05f, CKP_F16, 0.001f},
    {"f16, delta", true, true, true, false, false, 128, CKPI_ROUND_PHASE, CKPI_M_UNIFORM, 0.5f, CKP_F16, 1.0f},
    {"fine steps", true, true, true, false, true, 1, CKPI_ROUND_PHASE, CKPI_M_UNIFORM, 0.01f, CKP_F32, 0.0001f},
    {"coarsest v", true, true, true, false, true, 4096, CKPI_ROUND_NEAREST, CKPI_M_CLAMPED, 3.0f, CKP_F32, 1.0f},
    {"blocks", true, true, true, false, false, 32, CKPI_ROUND_PHASE, CKPI_M_UNIFORM, 0.25f, CKP_F32, 0.01f},
    {"v alone", false, false, true, false, true, 512, CKPI_ROUND_PHASE, CKPI_M_NONE, 0.5f, CKP_F32, 0.01f},
    {"w alone", true, false, false, false, false, 0, CKPI_ROUND_PHASE, CKPI_M_NONE, 0.5f, CKP_BF16, 0.01f},
    {"momentum", true, true, false, false, true, 0, CKPI_ROUND_PHASE, CKPI_M_UNIFORM, 0.5f, CKP_F32, 0.01f},
};

static const mill_shape shapes[] = {
    {1, 1}, {5, 1}, {37, 3}, {16, 16}, {200, 15}, {640, 64}, {777, 100}, {1000, 128}, {1300, 513}, {4133, 1030}, {40, 4096}, {SIZE_MAX, 0},
};

const mill_input *
mill_input_at(size_t i)
{
    return i < CHECK_COUNT(inputs) ? &inputs[i] : NULL;
}

const mill_setting *
mill_setting_at(size_t i)
{
    return i < CHECK_COUNT(settings) ? &settings[i] : NULL;
}

const mill_shape *
mill_shape_at(size_t i)
{
    return &shapes[i];
}

size_t
mill_cpus(uint32_t *words, size_t cap)
{
    const uint32_t levels[] = {0, CKPI_CPU_AVX2, CKPI_CPU_AVX2 | CKPI_CPU_AVX512, CKPI_CPU_NEON};
    size_t n = 0;
    for (size_t i = 0; i < CHECK_COUNT(levels) && n < cap; i++)
        if ((levels[i] & ckpi_cpu()) == levels[i])
            words[n++] = levels[i];
    return n;
}

static void
set_factors(test_rng *r, mill_piece *p, const mill_setting *s)
{
    ckpi_scratch *ws = ckpi_scratch_new();
    p->row = calloc(p->rows, sizeof *p->row);
    p->col = s->cols ? calloc(p->cols, sizeof *p->col) : NULL;
    assert_ok(ckpi_quant_factors(s->v ? p->v : p->m, !s->v, p->n, p->cols, p->row, p->col, ws, 0, NULL));
    ckpi_scratch_free(ws);
    /* As if they were of the save before. */
    for (size_t i = 0; i < p->rows; i++)
        if (p->row[i] > CKPI_VROW_MIN + 300 && p->row[i] < CKPI_VROW_MAX - 300)
            p->row[i] = (int16_t)(p->row[i] + (int)test_below(r, 600) - 300);
}

static void
round_to_dtype(ckp_dtype dt, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (dt == CKP_BF16)
            x[i] = ckpi_bf16_to_f32(ckpi_f32_to_bf16(x[i]));
        else if (dt == CKP_F16)
            x[i] = ckpi_f16_to_f32(ckpi_f32_to_f16(x[i]));
}

/* Half of the base's codes near those of now, as in training: only there can a code stay. */
static void
near_codes(test_rng *r, mill_piece *p)
{
    ckpi_scratch *ws = ckpi_scratch_new();
    ckpi_enc_in in = p->in;
    ckpi_enc_out out = {.vcode = malloc(p->n + 1), .vdiff = malloc(p->n + 1)};
    in.w = in.m = NULL;
    in.mkind = CKPI_M_NONE;
    in.key = true;
    assert_ok(ckpi_quant_encode(&in, &out, ws, 0, NULL));
    for (size_t i = 0; i < p->n; i++)
        if (test_below(r, 2) == 0)
            p->vbase[i] = (int8_t)(out.vcode[i] + (int)test_below(r, 3) - 1);
    ckpi_escapes_free(&out.vesc);
    free(out.vcode);
    free(out.vdiff);
    ckpi_scratch_free(ws);
}

mill_piece
mill_piece_new(test_rng *r, const mill_input *in, const mill_setting *s, size_t n, size_t cols)
{
    mill_piece p = {.n = n, .cols = cols, .rows = (n + cols - 1) / cols};
    float **floats[] = {&p.w, &p.m, &p.v, &p.base};
    for (size_t k = 0; k < 4; k++)
        *floats[k] = (float *)guard_alloc(n * sizeof(float));
    in->fill(r, n, cols, p.w, p.m, p.v, p.base);
    round_to_dtype(s->dtype, p.w, n);
    round_to_dtype(s->dtype, p.base, n);
    p.vbase = (int8_t *)guard_alloc(n);
    test_bytes(r, p.vbase, n);
    set_factors(r, &p, s);
    ckpi_wstats st = {0};
    ckpi_quant_wmax(p.w, n, &st, 0);
    const bool factors = s->v || s->m;
    p.in = (ckpi_enc_in){.grid = {.n = n, .cols = cols, .rows = p.rows, .row = factors ? p.row : NULL, .col = factors ? p.col : NULL,
                                  .vstep = s->vstep, .has_v = s->v},
                         .w = s->w ? p.w : NULL, .m = s->m ? p.m : NULL, .v = s->v ? p.v : NULL, .w_dtype = s->dtype, .key = s->key,
                         .wstep = {s->q * 0.01f, s->q / 4, s->q * 1.5f}, .round = s->round, .phase_key = (uint32_t)test_u64(r),
                         .first = (uint32_t)test_u64(r), .mkind = s->mkind, .kc = 0.9f, .mt = s->mt,
                         .wsq_exp = ckpi_quant_sq_exp(st.max_bits), .vstay = (float)test_below(r, 5) / 4};
    if (s->v && !s->key)
        near_codes(r, &p);
    return p;
}

void
mill_piece_free(mill_piece *p)
{
    guard_free(p->w);
    guard_free(p->m);
    guard_free(p->v);
    guard_free(p->base);
    guard_free(p->vbase);
    free(p->row);
    free(p->col);
}

mill_coded
mill_encode(const mill_piece *p, ckpi_scratch *ws, uint32_t cpu)
{
    mill_coded c = {.wrec = (float *)guard_copy(p->base, p->n * sizeof(float))};
    c.out.wcode = (int8_t *)guard_alloc(p->n);
    c.out.mcode = (int8_t *)guard_alloc(p->n);
    c.out.vdiff = (int8_t *)guard_alloc(p->n);
    c.out.vcode = (int8_t *)guard_copy(p->vbase, p->n);
    ckpi_enc_in in = p->in;
    in.wrec = c.wrec;
    assert_ok(ckpi_quant_encode(&in, &c.out, ws, cpu, NULL));
    c.mg = ckpi_quant_mg(&in);
    return c;
}

void
mill_coded_free(mill_coded *c)
{
    guard_free(c->wrec);
    guard_free(c->out.wcode);
    guard_free(c->out.mcode);
    guard_free(c->out.vdiff);
    guard_free(c->out.vcode);
    ckpi_escapes_free(&c->out.wesc);
    ckpi_escapes_free(&c->out.mesc);
    ckpi_escapes_free(&c->out.vesc);
}

static void
same_escapes(const ckpi_escapes *a, const ckpi_escapes *b)
{
    assert_int_equal(a->n, b->n);
    if (a->n != 0)
        assert_memory_equal(a->at, b->at, a->n * sizeof *a->at);
}

void
mill_assert_same(const mill_piece *p, const mill_coded *a, const mill_coded *b)
{
    const ckpi_enc_out *x = &a->out, *y = &b->out;
    assert_memory_equal(x->vcode, y->vcode, p->n);
    assert_memory_equal(x->vdiff, y->vdiff, p->n);
    assert_memory_equal(x->mcode, y->mcode, p->n);
    assert_memory_equal(x->wcode, y->wcode, p->n);
    assert_memory_equal(a->wrec, b->wrec, p->n * sizeof(float));
    same_escapes(&x->vesc, &y->vesc);
    same_escapes(&x->mesc, &y->mesc);
    same_escapes(&x->wesc, &y->wesc);
    assert_true(x->lsum == y->lsum && x->lcount == y->lcount);
    assert_true(x->wstats.max_bits == y->wstats.max_bits && x->wstats.n_finite == y->wstats.n_finite && x->wstats.sum_sq == y->wstats.sum_sq);
    assert_true(x->w_max_err == y->w_max_err && x->v_max_err == y->v_max_err);
    assert_true(x->w_sum_err2 == y->w_sum_err2 && x->w_sum_w2 == y->w_sum_w2);
    assert_memory_equal(&a->mg, &b->mg, sizeof a->mg);
}

void
mill_decode(const mill_piece *p, const mill_coded *c, ckpi_scratch *ws, uint32_t cpu, float *w, float *m, float *v)
{
    const ckpi_grid *g = &p->in.grid;
    int8_t *vcode = (int8_t *)guard_copy(p->vbase, p->n);
    if (p->in.v != NULL) {
        ckpi_quant_vcode_apply(vcode, c->out.vdiff, p->n, p->in.key, cpu);
        assert_memory_equal(vcode, c->out.vcode, p->n);
        assert_ok(ckpi_quant_decode_v(g, vcode, v, ws, cpu, NULL));
        ckpi_escapes_apply(c->out.vesc.at, c->out.vesc.n, v);
    }
    if (p->in.m != NULL) {
        assert_ok(ckpi_quant_decode_m(g, vcode, c->out.mcode, c->mg, false, m, ws, cpu, NULL));
        ckpi_escapes_apply(c->out.mesc.at, c->out.mesc.n, m);
    }
    if (p->in.w != NULL) {
        memcpy(w, p->base, p->n * sizeof *w);
        assert_ok(ckpi_quant_decode_w(g, vcode, c->out.wcode, &p->in.wstep, p->in.w_dtype, p->in.key, w, ws, cpu, NULL));
        ckpi_escapes_apply(c->out.wesc.at, c->out.wesc.n, w);
    }
    guard_free(vcode);
}

void
mill_each(const char *test, void (*fn)(test_rng *r, const mill_piece *p, const mill_setting *s, ckpi_scratch *ws))
{
    test_rng r = test_rng_new(test);
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t i = 0; mill_input_at(i) != NULL; i++)
        for (size_t k = 0; mill_setting_at(k) != NULL; k++)
            for (size_t h = 0; mill_shape_at(h)->n != SIZE_MAX; h++) {
                mill_piece p = mill_piece_new(&r, mill_input_at(i), mill_setting_at(k), mill_shape_at(h)->n, mill_shape_at(h)->cols);
                fn(&r, &p, mill_setting_at(k), ws);
                mill_piece_free(&p);
            }
    ckpi_scratch_free(ws);
}
