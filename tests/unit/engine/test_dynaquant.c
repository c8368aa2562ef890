/* SPDX-License-Identifier: Apache-2.0 */
/* DynaQuant in the engine: who is pruned, kept and indexed; when codebooks stay; what changes of configuration leave behind. */
#include "chain.h"
#include <math.h>
#include <stdlib.h>
#include "engine/values.h"
#include "quant/sketch.h"

enum { ROWS = 80, COLS = 130, N = ROWS * COLS };
static const uint64_t mat[2] = {ROWS, COLS};

static sim *
one_weight(uint64_t seed, ckp_dtype dt)
{
    sim *m = sim_new(seed);
    (void)sim_add_weight(m, "a", dt, CKP_F32, CKP_F32, 2, mat);
    sim_train(m);
    return m;
}

static chain *
with_numbers(ckpi_dq_numbers num)
{
    chain *c = chain_new("dynaquant", 1, UINT32_MAX);
    c->dq.num = num;
    return c;
}

/* The indices that the last save left behind; one group, one piece. */
static const ckpi_indices *
indices(const chain *c)
{
    assert_true(c->pred->layout->n >= 1 && c->pred->layout->g[0].lossy && c->pred->rec[0].idx.code != NULL);
    return &c->pred->rec[0].idx;
}

static float
round_to(ckp_dtype dt, float x)
{
    uint8_t word[4];
    float y;
    ckpi_floats_to(dt, word, &x, 1);
    ckpi_floats_from(dt, &y, word, 1);
    return y;
}

/* Pruned is zero, kept is the nearest bf16, the rest the nearest centre; all rounded to the dtype. */
static void
check_values(const chain *c, size_t i, ckp_dtype dt, const float *w)
{
    const ckpi_indices *x = indices(c);
    const ckpi_codebook *b = &x->book[0];
    ckpi_lineage *l = chain_open(c, i);
    uint8_t *raw = calloc(N, 4);
    float *got = calloc(N, sizeof *got);
    size_t kept = 0;
    chain_read(c, l, 0, raw);
    ckpi_floats_from(dt, got, raw, N);
    for (size_t k = 0; k < N; k++) {
        const unsigned code = (uint8_t)x->code[k];
        if (code == b->k + 1) {
            assert_true(fabs((double)got[k] - (double)w[k]) <= ldexp(fabs((double)w[k]), -8));
            kept++;
        } else if (code == 0) {
            assert_true(got[k] == 0.0F && !signbit(got[k]));
        } else {
            assert_true(got[k] == round_to(dt, b->centre[code - 1]));
            for (uint32_t j = 0; j < b->k; j++)
                assert_true(fabs((double)w[k] - (double)b->centre[code - 1]) <= fabs((double)w[k] - (double)b->centre[j]) * (1 + 1e-6) + 1e-12);
        }
    }
    assert_int_equal(kept, x->n_kept);
    free(got);
    free(raw);
    ckpi_lineage_free(l);
}

static size_t
count(const ckpi_indices *x, uint32_t code)
{
    size_t n = 0;
    for (size_t i = 0; i < N; i++)
        n += (uint32_t)(uint8_t)x->code[i] == code;
    return n;
}

static const float *
weights(const sim *m, float *w)
{
    ckpi_floats_from(m->t[0].dtype, w, m->t[0].dense, N);
    return w;
}

/* No more than the fraction goes, and hardly less: a bucket of the sketch at most. */
static void
test_fractions(void **state)
{
    (void)state;
    static const ckp_dtype dts[] = {CKP_F32, CKP_BF16, CKP_F16};
    float *w = calloc(N, sizeof *w);
    for (size_t d = 0; d < CHECK_COUNT(dts); d++)
        for (int by_score = 0; by_score < 2; by_score++) {
            sim *m = one_weight(5 + d, dts[d]);
            const ckpi_dq_numbers num = {.bins = 7, .bins_embedding = 9, .prune = 0.25, .protect = 0.01, .by_score = by_score != 0};
            chain *c = with_numbers(num);
            for (size_t i = 0; i < 3; i++) {
                chain_save(c, m, false, false);
                chain_check_recon(c, i);
                check_values(c, i, dts[d], weights(m, w));
                const size_t pruned = count(indices(c), 0), kept = indices(c)->n_kept;
                assert_true(indices(c)->book[0].k == 9);          /* the first tensor is an embedding */
                assert_in_range(pruned, (size_t)(0.22 * N), (size_t)(0.25 * N));
                assert_in_range(kept, (size_t)(0.005 * N), (size_t)(0.02 * N));   /* the union of two hundredths */
                sim_train(m);
            }
            chain_free(c);
            sim_free(m);
        }
    free(w);
}

/* Scores of the caller's come before those of v; NaN among them protects. */
static void
test_given_scores(void **state)
{
    (void)state;
    const ckpi_dq_numbers num = {.bins = 4, .bins_embedding = 4, .prune = 0.6, .by_score = true};
    sim *m = one_weight(9, CKP_F32);
    chain *c = with_numbers(num);
    float *score = calloc(N, sizeof *score), *w = calloc(N, sizeof *w);
    for (size_t i = 0; i < N; i++)
        score[i] = i % 2 ? 1e-3F : -1.0F;      /* odd ones do not matter */
    score[8] = NAN;
    chain_save(c, m, true, false);             /* binds the table */
    c->dq.score[0] = score;
    chain_save(c, m, true, false);
    const ckpi_indices *x = indices(c);
    for (size_t i = 0; i < N; i++)
        assert_int_equal((uint8_t)x->code[i] == 0, i % 2);
    check_values(c, 1, CKP_F32, weights(m, w));
    assert_int_equal(count(x, 5), 1);
    assert_int_equal(x->code[8], 5);
    free(score);
    free(w);
    chain_free(c);
    sim_free(m);
}

static void
put_all(sim *m, float (*value)(size_t i))
{
    for (size_t i = 0; i < N; i++)
        sim_put(m, 0, i, value(i));
}

static float none(size_t i) { (void)i; return 0.0F; }
static float constant(size_t i) { (void)i; return 0.1F; }
static float two(size_t i) { return i % 3 ? 1.1F : -1.0F; }
static float tiny(size_t i) { return 1e-12F * (float)(i % 4); }
static float outlier(size_t i) { return i == 77 ? 1e30F : 1e-3F * (float)(i % 7); }
static float huge(size_t i) { return i % 2 ? 3.4e38F : -3.4e38F; }

/* A tensor of few values comes back as it is, whatever their size. */
static void
test_few_values(void **state)
{
    (void)state;
    static float (*const looks[])(size_t) = {none, constant, two, tiny, outlier, huge};
    float *w = calloc(N, sizeof *w), *got = calloc(N, sizeof *got);
    for (size_t k = 0; k < CHECK_COUNT(looks); k++) {
        sim *m = one_weight(3, CKP_F32);
        chain *c = with_numbers((ckpi_dq_numbers){.bins = 8, .bins_embedding = 8});
        put_all(m, looks[k]);
        for (size_t i = 0; i < 2; i++) {
            chain_save(c, m, false, false);
            chain_check_recon(c, i);
            ckpi_lineage *l = chain_open(c, i);
            chain_read(c, l, 0, (uint8_t *)got);
            ckpi_lineage_free(l);
            assert_memory_equal(got, weights(m, w), N * sizeof *w);
        }
        chain_free(c);
        sim_free(m);
    }
    free(got);
    free(w);
}

/* Whether the w chunk of a save says that its book is the base's. */
static bool
book_is_kept(const chain *c, size_t i)
{
    ckpi_lineage *l = chain_open(c, i);
    const ckpi_fmt_file *f = l->level[0].f;
    bool kept = false, found = false;
    for (size_t k = 0; k < f->n_chunks; k++) {
        ckpi_buf body = CKPI_BUF_INIT;
        ckpi_chunk x;
        assert_ok(ckpi_fmt_read_chunk(f, k, &body, &x, NULL));
        if (x.quant == CKPI_QUANT_INDEX) {
            kept = x.params[1] == 0x80;
            found = true;
        }
        ckpi_buf_free(&body);
    }
    assert_true(found);
    ckpi_lineage_free(l);
    return kept;
}

static void
scale_all(sim *m, float by)
{
    float *w = calloc(N, sizeof *w);
    (void)weights(m, w);
    for (size_t i = 0; i < N; i++)
        sim_put(m, 0, i, w[i] * by);
    free(w);
}

/* A codebook stays while weights hardly move, and goes when it no longer fits. */
static void
test_codebooks_stay(void **state)
{
    (void)state;
    sim *m = one_weight(4, CKP_F32);
    chain *c = with_numbers((ckpi_dq_numbers){.bins = 8, .bins_embedding = 8, .prune = 0.1, .protect = 0.005});
    chain_save(c, m, true, false);
    const ckpi_codebook first = indices(c)->book[0];
    for (size_t i = 1; i < 4; i++) {
        scale_all(m, 1.0005F);
        chain_save(c, m, false, false);
        assert_true(book_is_kept(c, i));
        assert_memory_equal(first.centre, indices(c)->book[0].centre, 8 * sizeof first.centre[0]);
        chain_check_recon(c, i);
    }
    assert_true(c->sum[3].stored_by_role[CKP_ROLE_WEIGHT] < c->sum[0].stored_by_role[CKP_ROLE_WEIGHT] / 4);
    scale_all(m, 2.0F);
    chain_save(c, m, false, false);
    assert_false(book_is_kept(c, 4));
    assert_true(indices(c)->book[0].centre[7] > 1.5F * first.centre[7]);
    chain_check_recon(c, 4);
    chain_free(c);
    sim_free(m);
}

/* Grids on indices, indices on grids, other bins, exact weights in between: every save is what its decoder gets. */
static void
test_other_ways_between(void **state)
{
    (void)state;
    sim *m = one_weight(6, CKP_BF16);
    chain *c = with_numbers((ckpi_dq_numbers){.bins = 8, .bins_embedding = 6, .prune = 0.1, .protect = 0.005});
    for (size_t i = 0; i < 9; i++) {
        c->set.dynaquant = i != 2 && i != 3 && i != 6;
        c->dq.num.bins_embedding = i < 5 ? 6 : 11;
        sim_train(m);
        chain_save(c, m, false, i == 7);
        assert_int_equal(c->pred->rec[0].idx.code != NULL, c->set.dynaquant && i != 7);
        chain_check_recon(c, i);
    }
    chain_free(c);
    sim_free(m);
}

/* Coded again by another configuration it is what a first save by that one would have been, moments and all. */
static void
test_again(void **state)
{
    (void)state;
    const ckpi_dq_numbers first = {.bins = 4, .bins_embedding = 5, .prune = 0.4, .by_score = true}, second = {.bins = 9, .bins_embedding = 12, .protect = 0.02};
    sim *m = one_weight(8, CKP_F32);
    chain *a = with_numbers(first), *b = with_numbers(first);
    chain_save(a, m, true, false);
    chain_save(b, m, true, false);
    sim_train(m);
    a->dq.num = second;
    chain_save(a, m, false, false);
    b->again = &second;
    chain_save(b, m, false, false);
    assert_int_equal(a->file[1].len, b->file[1].len);
    assert_memory_equal(a->file[1].data, b->file[1].data, a->file[1].len);
    chain_check_recon(b, 1);
    chain_free(a);
    chain_free(b);
    sim_free(m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fractions),      cmocka_unit_test(test_given_scores),       cmocka_unit_test(test_few_values),
        cmocka_unit_test(test_codebooks_stay), cmocka_unit_test(test_other_ways_between), cmocka_unit_test(test_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
