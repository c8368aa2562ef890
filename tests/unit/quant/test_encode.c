/* SPDX-License-Identifier: Apache-2.0 */
/* What the codes promise: no bias, silence when nothing moves, moments clamped or escaped, exact strangers, sums that add up. */
#include "mill.h"
#include "harness/failalloc.h"
#include <math.h>
#include <stdlib.h>
#if CKPI_X86
#include <xmmintrin.h>
#endif

static const mill_setting usual = {"usual", true, true, true, false, true, 512, CKPI_ROUND_PHASE, CKPI_M_CLAMPED, 0.05f, CKP_F32, 0.024f};

static mill_piece
usual_piece(const char *test, const mill_setting *s, size_t n, size_t cols)
{
    test_rng r = test_rng_new(test);
    return mill_piece_new(&r, mill_input_at(0), s, n, cols);
}

/* Over many phase keys w^ averages to w: within 5 deviations of the mean of uniform errors, and over all elements far closer. */
static void
test_phase_is_unbiased(void **state)
{
    enum { N = 1500, KEYS = 600 };
    (void)state;
    mill_piece p = usual_piece("unbiased", &usual, N, 100);
    ckpi_scratch *ws = ckpi_scratch_new();
    double *sum = calloc(N, sizeof *sum), all = 0;
    for (uint32_t k = 0; k < KEYS; k++) {
        p.in.phase_key = k * 0x01000193u + 7;
        mill_coded c = mill_encode(&p, ws, ckpi_cpu());
        for (size_t i = 0; i < N; i++)
            sum[i] += (double)c.wrec[i] - (double)p.w[i];
        mill_coded_free(&c);
    }
    const double q = 0.036;   /* qhi */
    for (size_t i = 0; i < N; i++) {
        assert_true(fabs(sum[i] / KEYS) < 5 * q / 2 / sqrt(KEYS));
        all += sum[i] / KEYS / N;
    }
    assert_true(fabs(all) < 5 * q / 2 / sqrt((double)KEYS * N));
    free(sum);
    ckpi_scratch_free(ws);
    mill_piece_free(&p);
}

/* The same w saved again over its own reconstruction: every code is 0, but where rounding w^ crossed a boundary. */
static void
test_nothing_moved(void **state)
{
    (void)state;
    mill_piece p = usual_piece("frozen", &usual, 20000, 1000);
    ckpi_scratch *ws = ckpi_scratch_new();
    mill_coded first = mill_encode(&p, ws, ckpi_cpu());
    memcpy(p.base, first.wrec, p.n * sizeof(float));
    memcpy(p.vbase, first.out.vcode, p.n);
    mill_coded again = mill_encode(&p, ws, ckpi_cpu());
    size_t moved = 0;
    for (size_t i = 0; i < p.n; i++) {
        moved += again.out.wcode[i] != 0;
        assert_int_equal(again.out.vdiff[i], 0);
    }
    assert_true(moved <= p.n / 10000);
    mill_coded_free(&first);
    mill_coded_free(&again);
    ckpi_scratch_free(ws);
    mill_piece_free(&p);
}

#if CKPI_X86
/* Denormals in every input, FTZ, DAZ and another rounding mode set by the caller: the same bits, and the caller's mode comes back. */
static void
test_fp_environment(void **state)
{
    const unsigned modes[] = {0x1f80 | 0x8040, 0x1f80 | 0x6000, 0x1f80 | 0x2000 | 0x8000};
    (void)state;
    test_rng r = test_rng_new("environment");
    mill_setting s = usual;
    s.q = 1e-38f;
    mill_piece p = mill_piece_new(&r, mill_input_at(2), &s, 3000, 100);
    for (size_t i = 0; i < p.n; i++)
        p.w[i] *= 1e-36f;
    memcpy(p.base, p.w, p.n * sizeof(float));
    ckpi_scratch *ws = ckpi_scratch_new();
    float *x[2][3];
    for (size_t k = 0; k < 6; k++)
        x[k / 3][k % 3] = calloc(p.n, sizeof(float));
    mill_coded want = mill_encode(&p, ws, ckpi_cpu());
    mill_decode(&p, &want, ws, ckpi_cpu(), x[0][0], x[0][1], x[0][2]);
    for (size_t i = 0; i < CHECK_COUNT(modes); i++) {
        const unsigned saved = _mm_getcsr();
        int16_t row[30], col[100];
        _mm_setcsr(modes[i]);
        mill_coded got = mill_encode(&p, ws, ckpi_cpu());
        mill_decode(&p, &want, ws, 0, x[1][0], x[1][1], x[1][2]);
        const ckp_status st = ckpi_quant_factors(p.v, false, p.n, 100, row, col, ws, 0, NULL);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(saved);
        assert_ok(st);
        assert_int_equal(after & 0xffc0, modes[i] & 0xffc0);
        mill_assert_same(&p, &want, &got);
        for (size_t k = 0; k < 3; k++)
            assert_memory_equal(x[0][k], x[1][k], p.n * sizeof(float));
        mill_coded_free(&got);
    }
    for (size_t k = 0; k < 6; k++)
        free(x[k / 3][k % 3]);
    mill_coded_free(&want);
    ckpi_scratch_free(ws);
    mill_piece_free(&p);
}
#endif

/* u to half a step; beyond 127 of them the last code, or an escape. */
static void
test_moments(void **state)
{
    (void)state;
    for (int kind = CKPI_M_CLAMPED; kind <= CKPI_M_UNIFORM; kind++) {
        mill_setting s = usual;
        s.mkind = (ckpi_mkind)kind;
        mill_piece p = usual_piece("moments", &s, 50000, 250);
        ckpi_scratch *ws = ckpi_scratch_new();
        for (size_t i = 0; i < p.n; i += 100)
            p.m[i] = (float)(i % 200 == 0 ? 1000.0 : -1000.0) * sqrtf(p.v[i]);
        mill_coded c = mill_encode(&p, ws, ckpi_cpu());
        float *w = calloc(p.n, sizeof *w), *m = calloc(p.n, sizeof *m), *v = calloc(p.n, sizeof *v);
        mill_decode(&p, &c, ws, ckpi_cpu(), w, m, v);
        assert_int_equal(c.out.mesc.n, kind == CKPI_M_CLAMPED ? 0 : p.n / 100);
        for (size_t i = 0; i < p.n; i++) {
            if (i % 100 != 0)
                assert_true(fabs((double)m[i] - (double)p.m[i]) <= 0.501 * (double)c.mg * sqrt((double)v[i]));
            else if (kind == CKPI_M_CLAMPED)
                assert_int_equal(c.out.mcode[i], i % 200 == 0 ? 127 : -127);
            else
                assert_true(m[i] == p.m[i]);
        }
        free(w);
        free(m);
        free(v);
        mill_coded_free(&c);
        ckpi_scratch_free(ws);
        mill_piece_free(&p);
    }
}

static mill_coded
part_of(const mill_piece *p, size_t at, size_t n, ckpi_scratch *ws)
{
    mill_piece part = *p;
    part.w += at;
    part.m += at;
    part.v += at;
    part.base += at;
    part.vbase += at;
    part.n = n;
    part.in.w += at;
    part.in.m += at;
    part.in.v += at;
    part.in.first += (uint32_t)at;
    part.in.grid.n = n;
    part.in.grid.rows = n / p->cols + (n % p->cols != 0);
    part.in.grid.row += at / p->cols;
    return mill_encode(&part, ws, ckpi_cpu());
}

/* A tensor cut at rows gives the codes and sums of the whole. */
static void
test_pieces(void **state)
{
    static const size_t cols[] = {1, 10, 96, 300, 700, 1024};
    (void)state;
    for (size_t k = 0; k < CHECK_COUNT(cols); k++) {
        const size_t n = cols[k] * 23 + cols[k] / 2, cut = cols[k] * 7;
        mill_piece p = usual_piece("pieces", &usual, n, cols[k]);
        ckpi_scratch *ws = ckpi_scratch_new();
        mill_coded whole = mill_encode(&p, ws, ckpi_cpu()), a = part_of(&p, 0, cut, ws), b = part_of(&p, cut, n - cut, ws);
        assert_memory_equal(whole.wrec, a.wrec, cut * sizeof(float));
        assert_memory_equal(whole.wrec + cut, b.wrec, (n - cut) * sizeof(float));
        assert_memory_equal(whole.out.mcode + cut, b.out.mcode, n - cut);
        assert_memory_equal(whole.out.vdiff + cut, b.out.vdiff, n - cut);
        assert_true(whole.out.lsum == a.out.lsum + b.out.lsum && whole.out.lcount == a.out.lcount + b.out.lcount);
        assert_true(whole.out.wstats.sum_sq == a.out.wstats.sum_sq + b.out.wstats.sum_sq);
        assert_true(whole.out.w_sum_err2 == a.out.w_sum_err2 + b.out.w_sum_err2);
        mill_coded_free(&whole);
        mill_coded_free(&a);
        mill_coded_free(&b);
        ckpi_scratch_free(ws);
        mill_piece_free(&p);
    }
}

/* The sums against plain double arithmetic. */
static void
test_sums(void **state)
{
    (void)state;
    mill_piece p = usual_piece("sums", &usual, 30000, 300);
    ckpi_scratch *ws = ckpi_scratch_new();
    p.in.vstay = 0;              /* the nearest code, for the bound on its error below */
    mill_coded c = mill_encode(&p, ws, ckpi_cpu());
    double err2 = 0, w2 = 0, max = 0;
    int64_t lsum = 0;
    for (size_t i = 0; i < p.n; i++) {
        const double e = (double)p.w[i] - (double)c.wrec[i];
        err2 += e * e;
        w2 += (double)p.w[i] * (double)p.w[i];
        max = fmax(max, fabs(e));
        lsum += p.row[i / 300] + p.col[i % 300] + c.out.vcode[i] * 512;
    }
    assert_true(fabs(c.out.w_sum_err2 / err2 - 1) < 1e-3);
    assert_true(fabs(c.out.w_sum_w2 / w2 - 1) < 1e-3);
    assert_true(fabs(c.out.w_max_err / max - 1) < 1e-6);
    assert_true(lsum == c.out.lsum && c.out.lcount == p.n);
    assert_int_equal(c.out.wstats.n_finite, p.n);
    /* Two octaves a step: half a step either way is a factor of 2 in sqrt v, and the bound is no looser than it says. */
    assert_true(c.out.v_max_err > 1 && c.out.v_max_err < 3.1);
    mill_coded_free(&c);
    ckpi_scratch_free(ws);
    mill_piece_free(&p);
}

static bool
has(const ckpi_escapes *e, size_t i)
{
    for (size_t k = 0; k < e->n; k++)
        if (e->at[k].index == i)
            return true;
    return false;
}

/* Each kind of stranger in an otherwise plain piece: escaped or not as quant.h says. */
static void
test_strangers(void **state)
{
    static const struct { char which; float x; bool v_esc, m_esc, w_esc; } cases[] = {
        {'v', -0.0f, true, true, false}, {'v', NAN, true, true, false},   {'v', INFINITY, true, true, false}, {'v', -1.0f, true, true, false},
        {'v', 0.0f, false, true, false}, {'v', 1e-45f, true, true, false}, {'v', 3.4e38f, true, true, false}, {'m', NAN, false, true, false},
        {'m', -INFINITY, false, true, false}, {'m', 1e30f, false, false, false}, {'w', NAN, false, false, true}, {'w', INFINITY, false, false, true},
        {'w', 1e30f, false, false, true}, {'b', NAN, false, false, true}, {'b', -INFINITY, false, false, true}, {'b', 3.4e38f, false, false, true},
    };
    (void)state;
    for (size_t k = 0; k < CHECK_COUNT(cases); k++) {
        const size_t at = 37 + 11 * k;
        mill_piece p = usual_piece("one stranger", &usual, 640, 64);
        float *to = cases[k].which == 'v' ? p.v : cases[k].which == 'm' ? p.m : cases[k].which == 'w' ? p.w : p.base;
        ckpi_scratch *ws = ckpi_scratch_new();
        p.m[at] = 1e-5f;
        to[at] = cases[k].x;
        mill_coded c = mill_encode(&p, ws, ckpi_cpu());
        assert_int_equal(has(&c.out.vesc, at), cases[k].v_esc);
        assert_int_equal(has(&c.out.mesc, at), cases[k].m_esc);
        assert_int_equal(has(&c.out.wesc, at), cases[k].w_esc);
        assert_int_equal(c.out.vesc.n + c.out.mesc.n + c.out.wesc.n, cases[k].v_esc + cases[k].m_esc + cases[k].w_esc);
        if (cases[k].w_esc)
            assert_memory_equal(&c.wrec[at], &p.w[at], sizeof(float));
        if (cases[k].which == 'v' && !(cases[k].x > 0))
            assert_int_equal(c.out.vcode[at], CKPI_VCODE_ZERO);
        mill_coded_free(&c);
        ckpi_scratch_free(ws);
        mill_piece_free(&p);
    }
}

/* A v that wanders less than `stay` from its code keeps it, one that goes further gets the nearest; zero and positive never mix. */
static void
test_codes_stay(void **state)
{
    (void)state;
    mill_piece p = usual_piece("stay", &usual, 4000, 100);
    ckpi_scratch *ws = ckpi_scratch_new();
    p.in.vstay = 0.75f;
    p.in.key = true;
    mill_coded first = mill_encode(&p, ws, ckpi_cpu());
    p.in.key = false;
    memcpy(p.vbase, first.out.vcode, p.n);
    size_t kept = 0, moved = 0;
    for (int octaves = -3; octaves <= 3; octaves++) {
        float *was = malloc(p.n * sizeof *was);
        memcpy(was, p.v, p.n * sizeof *was);
        for (size_t i = 0; i < p.n; i++)
            p.v[i] = ldexpf(p.v[i], octaves);        /* half as many octaves of sqrt(v); a step is two of those */
        p.in.vstay = 0.75f;
        mill_coded stay = mill_encode(&p, ws, ckpi_cpu());
        p.in.vstay = 0;
        mill_coded nearest = mill_encode(&p, ws, ckpi_cpu());
        for (size_t i = 0; i < p.n; i++) {
            const int a = stay.out.vcode[i], b = nearest.out.vcode[i], base = p.vbase[i];
            assert_true(a == b || (a == base && abs(a - b) == 1));
            assert_true((a == CKPI_VCODE_ZERO) == (b == CKPI_VCODE_ZERO));
            kept += a != b;
            moved += a != base;
        }
        assert_true(stay.out.v_max_err <= (double)exp2f(3.05f) - 1);   /* three quarters of two octaves of sqrt(v) */
        mill_coded_free(&stay);
        mill_coded_free(&nearest);
        memcpy(p.v, was, p.n * sizeof *was);
        free(was);
    }
    assert_true(kept > p.n / 20 && moved > p.n / 20);
    mill_coded_free(&first);
    ckpi_scratch_free(ws);
    mill_piece_free(&p);
}

static void
test_misuse(void **state)
{
    (void)state;
    mill_piece p = usual_piece("misuse", &usual, 640, 64);
    ckpi_scratch *ws = ckpi_scratch_new();
    int8_t codes[4][640];
    float rec[640] = {0};
    ckpi_enc_out out = {.wcode = codes[0], .mcode = codes[1], .vdiff = codes[2], .vcode = codes[3]};
    p.in.wrec = rec;
    memset(codes, 0, sizeof codes);
#define REFUSED(change)                                                                    \
    do {                                                                                   \
        ckpi_enc_in in = p.in;                                                             \
        change;                                                                            \
        assert_status(ckpi_quant_encode(&in, &out, ws, ckpi_cpu(), NULL), CKP_EINVAL);     \
    } while (0)
    REFUSED(in.grid.rows = 11);
    REFUSED(in.grid.cols = 0);
    REFUSED(in.grid.vstep = 0);
    REFUSED(in.grid.vstep = 48);
    REFUSED(in.grid.vstep = 8192);
    REFUSED(in.grid.row = NULL);
    REFUSED(in.v = NULL);
    REFUSED(in.kc = NAN);
    REFUSED(in.mt = 0);
    REFUSED(in.wrec = NULL);
    REFUSED(in.wstep.qlo = 0);
    REFUSED(in.vstay = 1.1f);
    REFUSED(in.vstay = -0.1f);
    REFUSED(in.vstay = NAN);
    REFUSED(in.wstep.qhi = INFINITY);
    REFUSED(in.wstep.qmul = NAN);
    REFUSED(p.row[3] = INT16_MAX);
    const ckpi_wstep bad = {1, 2, 1};
    assert_status(ckpi_quant_decode_w(&p.in.grid, codes[3], codes[0], &bad, CKP_F32, false, rec, ws, 0, NULL), CKP_ECORRUPT);
    assert_status(ckpi_quant_decode_m(&p.in.grid, codes[3], codes[1], NAN, false, rec, ws, 0, NULL), CKP_ECORRUPT);
    assert_status(ckpi_quant_decode_w(&p.in.grid, codes[3], codes[0], &p.in.wstep, CKP_F64, false, rec, ws, 0, NULL), CKP_EUNSUPPORTED);
    assert_status(ckpi_quant_decode_v(&p.in.grid, NULL, rec, ws, 0, NULL), CKP_EINVAL);
    ckpi_grid none = {.n = 0, .cols = 1};
    assert_ok(ckpi_quant_decode_w(&none, NULL, NULL, &p.in.wstep, CKP_F32, false, NULL, ws, 0, NULL));
    ckpi_scratch_free(ws);
    mill_piece_free(&p);
}

static ckp_status
encode_once(void *user)
{
    const mill_piece *p = user;
    ckpi_scratch *ws = ckpi_scratch_new();
    if (ws == NULL)
        return CKP_ENOMEM;
    static int8_t codes[4][2000];
    static float rec[2000];
    ckpi_enc_in in = p->in;
    ckpi_enc_out out = {.wcode = codes[0], .mcode = codes[1], .vdiff = codes[2], .vcode = codes[3]};
    in.wrec = rec;
    const ckp_status st = ckpi_quant_encode(&in, &out, ws, ckpi_cpu(), NULL);
    ckpi_escapes_free(&out.wesc);
    ckpi_escapes_free(&out.mesc);
    ckpi_escapes_free(&out.vesc);
    ckpi_scratch_free(ws);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    test_rng r = test_rng_new("no memory");
    mill_piece p = mill_piece_new(&r, mill_input_at(6), &usual, 2000, 50);
    assert_true(failalloc_run(encode_once, &p, 5, 1) >= 5);
    mill_piece_free(&p);
}

/* The second piece of the same shape allocates nothing. */
static void
test_warm_scratch(void **state)
{
    (void)state;
    mill_piece p = usual_piece("warm", &usual, 4096, 512);
    ckpi_scratch *ws = ckpi_scratch_new();
    int8_t *codes = calloc(4, p.n);
    ckpi_enc_in in = p.in;
    ckpi_enc_out out = {.wcode = codes, .mcode = codes + p.n, .vdiff = codes + 2 * p.n, .vcode = codes + 3 * p.n};
    in.wrec = p.base;
    assert_ok(ckpi_quant_encode(&in, &out, ws, ckpi_cpu(), NULL));
    failalloc_begin(0);
    assert_ok(ckpi_quant_encode(&in, &out, ws, ckpi_cpu(), NULL));
    assert_int_equal(failalloc_count(), 0);
    failalloc_end(NULL, NULL);
    free(codes);
    ckpi_scratch_free(ws);
    mill_piece_free(&p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phase_is_unbiased),
        cmocka_unit_test(test_nothing_moved),
#if CKPI_X86
        cmocka_unit_test(test_fp_environment),
#endif
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_codes_stay), cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_warm_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
