/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and scales: what they follow, and that nothing about threads, kernels or a strange model makes them unusable. */
#include "engine/numbers.h"
#include <math.h>
#include <stdlib.h>
#include "base/cpu.h"
#include "chain.h"
#include "engine/factors.h"
#include "harness/seed.h"

static void
test_bias_correction(void **state)
{
    (void)state;
    const ckpi_adam first = {0, 0.9, 0.999, 1}, late = {0, 0.9, 0.999, 10000000}, odd = {0, 0.0, 0.0, 3}, never = {0, 0.9, 0.999, 0};
    assert_true(fabs((double)ckpi_bias_correction(&first, true) - sqrt(0.001) / 0.1) < 1e-6);
    assert_true(fabs((double)ckpi_bias_correction(&late, true) - 1.0) < 1e-6);
    assert_true(ckpi_bias_correction(&odd, true) == 1.0F && ckpi_bias_correction(&never, true) == 1.0F);
    assert_true(ckpi_bias_correction(NULL, true) == 1.0F && ckpi_bias_correction(&first, false) == 1.0F);
    for (uint64_t t = 1; t < 5000; t += 7) {
        double b1 = 1.0, b2 = 1.0;
        for (uint64_t i = 0; i < t; i++) {
            b1 *= 0.9;
            b2 *= 0.999;
        }
        const ckpi_adam a = {0, 0.9, 0.999, t};
        assert_true(fabs((double)ckpi_bias_correction(&a, true) * (1.0 - b1) / sqrt(1.0 - b2) - 1.0) < 1e-6);
    }
}

/* The RMS of weights is what it is, whatever the number of pieces and threads; steps follow it. */
static void
test_rms(void **state)
{
    (void)state;
    static const uint64_t big[2] = {2200, 700}, mat[2] = {100, 100};
    sim *m = sim_new(6);
    (void)sim_add_weight(m, "big", CKP_F32, CKP_F32, CKP_F32, 2, big);
    (void)sim_add_weight(m, "mat", CKP_BF16, CKP_F32, CKP_F32, 2, mat);
    sim_train(m);
    double want[2], all = 0.0;
    for (uint32_t t = 0; t < 2; t++) {
        double sum = 0.0;
        for (uint64_t i = 0; i < m->t[3 * t].n; i++)
            sum += (double)m->t[3 * t].value[i] * (double)m->t[3 * t].value[i];
        want[t] = sqrt(sum / (double)m->t[3 * t].n);
        all += sum;
    }
    all = sqrt(all / (double)(m->t[0].n + m->t[3].n));
    float first[2] = {0};
    for (unsigned threads = 1; threads <= 3; threads += 2) {
        chain *c = chain_new("resume", threads, UINT32_MAX);
        chain_save(c, m, true, false);
        for (uint32_t t = 0; t < 2; t++) {
            assert_true(fabs((double)c->pred->rms[3 * t] / want[t] - 1.0) < 1e-3);
            assert_true(threads == 1 || first[t] == c->pred->rms[3 * t]);
            first[t] = c->pred->rms[3 * t];
        }
        assert_true(fabs(c->pred->rms_all / all - 1.0) < 1e-3);
        assert_true(fabs(c->pred->q0 / (0.5 * 1.2 * c->pred->rms_all) - 1.0) < 1e-12);
        chain_free(c);
    }
    sim_free(m);
}

/* Steps shrink when the movement between two saves does: k times it at most. */
static void
test_movement(void **state)
{
    (void)state;
    static const uint64_t big[2] = {400, 700};
    sim *m = sim_new(6);
    const uint32_t w = sim_add_weight(m, "big", CKP_F32, CKP_F32, CKP_F32, 2, big);
    sim_train(m);
    chain *c = chain_new("resume", 1, UINT32_MAX);
    chain_save(c, m, true, false);
    assert_false(c->lasting.moved);
    for (uint64_t i = 0; i < m->t[w].n; i++)             /* a thousandth of a step */
        m->t[w].value[i] += (i % 2 != 0 ? 1e-3F : -1e-3F) * 0.02F;
    sim_put(m, w, 0, m->t[w].value[0]);
    chain_save(c, m, false, false);
    assert_true(c->lasting.moved && c->lasting.move > 0.0 && c->lasting.move < 0.01 * c->pred->rms_all);
    const double before = c->pred->q0;
    chain_save(c, m, false, false);                       /* the next one's steps are made of it */
    assert_true(c->pred->q0 <= before);
    chain_free(c);
    sim_free(m);
}

/* Four matrices of one size and an embedding that is so many times as large, in a key. */
static chain *
with_embedding(const char *profile, float times)
{
    static const uint64_t mat[2] = {80, 80};
    sim *m = sim_new(6);

    for (int k = 0; k < 5; k++) {
        const char name[] = {(char)('a' + k), 0};
        const uint32_t w = sim_add_weight(m, name, CKP_F32, CKP_F32, CKP_F32, 2, mat);
        for (uint64_t i = 0; k == 0 && i < m->t[w].n; i++)
            m->t[w].value[i] *= times;
        sim_put(m, w, 0, m->t[w].value[0]);
    }
    chain *c = chain_new(profile, 1, UINT32_MAX);
    chain_save(c, m, true, false);
    sim_free(m);
    return c;
}

/* An embedding that makes the model's RMS does not make its steps: neither the others' nor its own. */
static void
test_uneven(void **state)
{
    (void)state;
    chain *even = with_embedding("resume", 1.0F), *some = with_embedding("resume", 5.0F), *much = with_embedding("resume", 50.0F);
    chain *apart = with_embedding("weights", 50.0F), *between = with_embedding("resume", 8.0F);
    assert_true(even->pred->scale == even->pred->rms_all && some->pred->scale == some->pred->rms_all && apart->pred->scale == apart->pred->rms_all);

    const double typical = even->pred->rms_all * pow(50.0, 0.2), f = 0.5 * much->set.f;
    assert_true(fabs(much->pred->scale / (0.25 * typical) - 1.0) < 0.02);
    assert_true(fabs(much->pred->q0 / (f * much->pred->scale) - 1.0) < 1e-12);
    for (size_t g = 0; g < much->pred->layout->n; g++)
        for (size_t k = 0; k < much->pred->layout->g[g].n_pieces; k++) {
            const ckpi_wstep *s = &much->stages[g].wstep[k];
            assert_true((double)s->qlo <= 1.0001 * much->set.clamp_lo * much->pred->q0 && (double)s->qhi <= 1.0001 * much->set.clamp_hi * much->pred->q0);
        }
    /* nothing jumps: 5.3 times the typical is a part of the way */
    const double quarter = 0.25 * even->pred->rms_all * pow(8.0, 0.2);
    assert_true(between->pred->scale > 1.1 * quarter && between->pred->scale < 0.9 * between->pred->rms_all);
    assert_true(between->pred->cap > 1.1 * between->pred->scale && between->pred->cap < 0.9 * 8.0 * even->pred->rms_all);
    chain_free(even);
    chain_free(some);
    chain_free(much);
    chain_free(between);
    chain_free(apart);
}

/* Beyond 64 times, in whole octaves, it makes no difference how large one of five is: an element of 1e10 is no reason to lose the other tensors' weights. */
static void
test_huge(void **state)
{
    (void)state;
    chain *even = with_embedding("resume", 1.0F), *huge = with_embedding("resume", 1e4F), *beyond = with_embedding("resume", 1e30F);
    chain *apart = with_embedding("weights", 1e10F);

    assert_true(huge->pred->scale == beyond->pred->scale && huge->pred->cap == beyond->pred->cap && huge->pred->rms_all == beyond->pred->rms_all);
    assert_true(huge->pred->scale < even->pred->scale && huge->pred->scale > 0.25 * even->pred->scale);
    assert_true(apart->pred->rms_all < 128.0 * even->pred->rms_all);
    assert_true(even->pred->most == HUGE_VAL);
    assert_true(huge->pred->most >= 64.0 * even->pred->rms_all && huge->pred->most <= 128.0 * even->pred->rms_all);
    chain_free(even);
    chain_free(huge);
    chain_free(beyond);
    chain_free(apart);
}

static bool
step_ok(const ckpi_wstep *s)
{
    return isfinite(s->qmul) && isfinite(s->qlo) && isfinite(s->qhi) && s->qmul > 0.0F && s->qlo > 0.0F && s->qlo <= s->qhi;
}

/* Whatever the weights are, steps are finite, positive and in order. */
static void
test_strange_models(void **state)
{
    (void)state;
    static const uint64_t mat[2] = {80, 80}, vec[1] = {200};
    static const uint32_t fills[] = {0, 1, 0x00800000U, 0x7f7fffffU, 0x7f800000U, 0x7fc00000U, 0x3f800000U, 0x0d000000U, 0x71000000U};
    for (size_t a = 0; a < CHECK_COUNT(fills); a++)
        for (size_t b = 0; b < CHECK_COUNT(fills); b++) {
            sim *m = sim_new(6);
            const uint32_t w = sim_add_weight(m, "w", CKP_F32, CKP_F32, CKP_F32, 2, mat), x = sim_add_weight(m, "x", CKP_F32, CKP_F32, CKP_F32, 1, vec);
            for (int k = 0; k < 3; k++) {
                for (uint64_t i = 0; i < m->t[w].n; i++)
                    memcpy(&m->t[w + (uint32_t)k].value[i], &fills[k == 0 ? a : b], 4);
                for (uint64_t i = 0; i < m->t[x].n; i++)
                    memcpy(&m->t[x + (uint32_t)k].value[i], &fills[k == 0 ? b : a], 4);
            }
            for (uint32_t t = 0; t < m->n; t++)
                sim_put_bits(m, t, 0, fills[(a + b) % CHECK_COUNT(fills)]);
            chain *c = chain_new("resume", 1, UINT32_MAX);
            for (int i = 0; i < 2; i++) {
                chain_save(c, m, false, false);
                for (size_t g = 0; g < c->pred->layout->n; g++)
                    for (size_t k = 0; k < c->pred->layout->g[g].n_pieces; k++)
                        assert_true(step_ok(&c->stages[g].wstep[k]));
                chain_check_recon(c, (size_t)i);
                chain_check_values(c, m, (size_t)i);
            }
            chain_free(c);
            sim_free(m);
        }
}

/* ---- factors ---- */

static void
lay(ckpi_factors *f, uint64_t n, size_t cols)
{
    const ckpi_piece p = {0, 0, n};
    ckp_error err;
    assert_ok(ckpi_factors_alloc(f, &p, &cols, 1, 512, &err));
}

/* What the encoder moved is what the moves say, within the quantizer's bounds, for any v. */
static void
test_follow(void **state)
{
    (void)state;
    static const struct { uint64_t n; size_t cols; } shapes[] = {{64 * 200, 200}, {1000, 0}, {17 * 16, 16}, {5, 0}, {3 * 512, 512}, {640 * 17, 17}};
    test_rng r = test_rng_new("follow");
    ckpi_scratch *ws = ckpi_scratch_new();
    ckp_error err;
    for (size_t s = 0; s < CHECK_COUNT(shapes); s++) {
        ckpi_factors f, g;
        const size_t n = (size_t)shapes[s].n;
        float *v = calloc(n, sizeof *v);
        int8_t *moves = calloc(2 * n + 8, 1);
        lay(&f, n, shapes[s].cols);
        lay(&g, n, shapes[s].cols);
        for (size_t i = 0; i < n; i++)
            v[i] = test_below(&r, 9) == 0 ? 0.0F : ldexpf((float)test_unit(&r), -20 - (int)test_below(&r, 30));
        assert_ok(ckpi_factors_set(&f.at[0], v, false, ws, ckpi_cpu(), &err));
        memcpy(g.mem, f.mem, f.mem_n * sizeof *f.mem);
        for (int round = 0; round < 12; round++) {
            const int drift = (int)test_below(&r, 60) - 30;
            for (size_t i = 0; i < n; i++) {
                v[i] = round == 8 ? 0.0F : round == 9 ? INFINITY : round == 10 ? NAN : round == 11 ? 3e38F : ldexpf((float)test_unit(&r), drift - 40);
                if (round < 8 && test_below(&r, 30) == 0)
                    v[i] = -v[i];
            }
            ckpi_scratch_reset(ws);
            assert_ok(ckpi_factors_follow(&f.at[0], v, moves, ws, ckpi_cpu(), &err));
            ckpi_factors_lift(&f.at[0], v);
            assert_true(f.at[0].lift >= -128 && f.at[0].lift <= 127);
            ckpi_factors_move(g.mem, moves, g.mem_n);
            assert_memory_equal(f.mem, g.mem, f.mem_n * sizeof *f.mem);
            for (size_t i = 0; i < f.at[0].rows; i++)
                assert_true(f.at[0].row[i] % CKPI_FAC_UNIT == 0 && f.at[0].row[i] >= CKPI_VROW_MIN && f.at[0].row[i] <= CKPI_VROW_MAX);
            for (size_t j = 0; !f.at[0].blocks && j < f.at[0].cols; j++)
                assert_true(f.at[0].col[j] % CKPI_FAC_UNIT == 0 && abs(f.at[0].col[j]) <= CKPI_VCOL_MAX);
        }
        free(v);
        free(moves);
        ckpi_factors_free(&f);
        ckpi_factors_free(&g);
    }
    ckpi_scratch_free(ws);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bias_correction), cmocka_unit_test(test_rms), cmocka_unit_test(test_movement),
                                       cmocka_unit_test(test_uneven), cmocka_unit_test(test_huge), cmocka_unit_test(test_strange_models), cmocka_unit_test(test_follow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
