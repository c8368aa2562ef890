/* SPDX-License-Identifier: Apache-2.0 */
/* Stage, encode, decode: a closed loop in every profile, on every shape, dtype and look, with the same bytes on every ISA and thread count. */
#include "chain.h"
#include <math.h>
#include <stdlib.h>

static const char *const profiles[] = {"lossless", "resume", "small", "weights", "uniform", "dynaquant", "codebook", "clusters", "centres"};

/* A bit of everything that training has. */
static sim *
mixed(uint64_t seed)
{
    static const uint64_t mat[2] = {70, 130}, vec[1] = {257}, cube[3] = {6, 7, 33}, four[4] = {3, 4, 5, 80}, none[2] = {0, 5}, one[1] = {1};
    sim *m = sim_new(seed);
    (void)sim_add_weight(m, "a", CKP_F32, CKP_F32, CKP_F32, 2, mat);
    (void)sim_add_weight(m, "bias", CKP_F32, CKP_F32, CKP_F32, 1, vec);
    (void)sim_add_weight(m, "half", CKP_BF16, CKP_BF16, CKP_F32, 3, cube);
    (void)sim_add_weight(m, "half2", CKP_F16, CKP_F16, CKP_F16, 4, four);
    (void)sim_add_weight(m, "sgd", CKP_F32, CKP_F32, 0, 2, mat);
    (void)sim_add_weight(m, "rms", CKP_F32, 0, CKP_BF16, 2, mat);
    (void)sim_add_weight(m, "frozen", CKP_F32, 0, 0, 2, mat);
    (void)sim_add(m, "empty", CKP_ROLE_WEIGHT, SIM_NONE, CKP_F32, 2, none);
    (void)sim_add(m, "scalar", CKP_ROLE_OTHER, SIM_NONE, CKP_F64, 0, NULL);
    (void)sim_add(m, "one", CKP_ROLE_OTHER, SIM_NONE, CKP_BOOL, 1, one);
    (void)sim_add(m, "ids", CKP_ROLE_OTHER, SIM_NONE, CKP_I64, 2, mat);
    (void)sim_add(m, "z", CKP_ROLE_OTHER, SIM_NONE, CKP_C64, 2, mat);
    (void)sim_add(m, "f8", CKP_ROLE_OTHER, SIM_NONE, CKP_F8E4M3FN, 2, mat);
    (void)sim_add(m, "f4", CKP_ROLE_OTHER, SIM_NONE, CKP_F4_PACKED, 2, mat);
    (void)sim_add(m, "f6", CKP_ROLE_OTHER, SIM_NONE, CKP_F6E2M3_PACKED, 2, four);
    return m;
}

/* Ten saves: at each, the encoder's reconstruction is the decoder's, bit for bit, and values are what they must be. */
static void
test_chain_of_ten(void **state)
{
    (void)state;
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        sim *m = mixed(11 + p);
        chain *c = chain_new(profiles[p], 1, UINT32_MAX);
        for (size_t i = 0; i < 10; i++) {
            sim_train(m);
            chain_save(c, m, i == 6, false);
            chain_check_recon(c, i);
            chain_check_values(c, m, i);
        }
        chain_free(c);
        sim_free(m);
    }
}

/* A final save has the weights exactly; training may go on from it, with deltas on exact weights. */
static void
test_exact_in_between(void **state)
{
    (void)state;
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        sim *m = mixed(3);
        chain *c = chain_new(profiles[p], 1, UINT32_MAX);
        for (size_t i = 0; i < 7; i++) {
            sim_train(m);
            chain_save(c, m, i == 4, i == 1 || i == 3 || i == 4);
            chain_check_recon(c, i);
            chain_check_values(c, m, i);
        }
        chain_free(c);
        sim_free(m);
    }
}

/* ---- looks ---- */

static void
test_looks(void **state)
{
    (void)state;
    static const uint64_t mat[2] = {67, 129};
    static const sim_look looks[] = {LOOK_TRANSPOSED, LOOK_REVERSED, LOOK_PULL, LOOK_ODD_ADDRESS};
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        chain *plain = chain_new(profiles[p], 1, UINT32_MAX);
        sim *m = sim_new(5);
        (void)sim_add_weight(m, "a", CKP_F32, CKP_BF16, CKP_F32, 2, mat);
        (void)sim_add_weight(m, "h", CKP_F16, CKP_F32, CKP_F16, 2, mat);
        (void)sim_add(m, "ids", CKP_ROLE_OTHER, SIM_NONE, CKP_I16, 2, mat);
        sim_train(m);
        chain_save(plain, m, true, false);
        for (size_t k = 0; k < CHECK_COUNT(looks); k++) {
            chain *c = chain_new(profiles[p], 1, UINT32_MAX);
            for (uint32_t t = 0; t < m->n; t++)
                sim_set_look(m, t, looks[k]);
            chain_save(c, m, true, false);
            assert_int_equal(c->file[0].len, plain->file[0].len);
            assert_memory_equal(c->file[0].data, plain->file[0].data, c->file[0].len);
            chain_free(c);
        }
        chain_free(plain);
        sim_free(m);
    }
}

static void
test_expanded(void **state)
{
    (void)state;
    static const uint64_t mat[2] = {40, 50};
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        sim *m = sim_new(5);
        chain *c = chain_new(profiles[p], 1, UINT32_MAX);
        const uint32_t w = sim_add_weight(m, "a", CKP_F32, CKP_F32, CKP_F32, 2, mat);
        sim_set_look(m, w, LOOK_EXPANDED);
        for (size_t i = 0; i < 3; i++) {
            sim_train(m);
            chain_save(c, m, false, false);
            chain_check_recon(c, i);
            chain_check_values(c, m, i);
        }
        chain_free(c);
        sim_free(m);
    }
}

/* ---- values ---- */

static void
odd_values(sim *m, uint32_t t)
{
    static const uint32_t bits[] = {0x7fc00000U, 0xffc01234U, 0x7f800001U, 0x7f800000U, 0xff800000U, 0x80000000U, 1U, 0x80000001U, 0x007fffffU,
                                    0x7f7fffffU, 0xff7fffffU, 0x33800000U};
    for (size_t i = 0; i < CHECK_COUNT(bits); i++)
        sim_put_bits(m, t, (i * 61 + m->step * 7 + t) % m->t[t].n, bits[i]);
}

static void
test_odd_values(void **state)
{
    (void)state;
    static const uint64_t mat[2] = {64, 80}, vec[1] = {700};
    static const ckp_dtype dts[] = {CKP_F32, CKP_BF16, CKP_F16};
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++)
        for (size_t d = 0; d < CHECK_COUNT(dts); d++) {
            sim *m = sim_new(23);
            chain *c = chain_new(profiles[p], 1, UINT32_MAX);
            (void)sim_add_weight(m, "a", dts[d], dts[d], dts[d], 2, mat);
            (void)sim_add_weight(m, "b", dts[d], dts[d], 0, 1, vec);
            for (size_t i = 0; i < 6; i++) {
                sim_train(m);
                for (uint32_t t = 0; i % 2 == 0 && t < m->n; t++)
                    odd_values(m, t);
                chain_save(c, m, i == 4, i == 3);
                chain_check_recon(c, i);
                if (i >= 2 || p == 0)            /* the first NaN spoils what a sum over a tensor would say */
                    chain_check_recon(c, i);
                ckp_error err;
                ckpi_lineage *l = chain_open(c, i);
                if (chain_decode_all(c, l, &err) != CKP_OK)
                    fail_msg("%s: save %zu: %s", profiles[p], i, err.text);
                ckpi_lineage_free(l);
            }
            chain_free(c);
            sim_free(m);
        }
}

/* All zero at first; later rows wake up one after another, so that v is zero in the base and positive afterwards. */
static void
test_waking_rows(void **state)
{
    (void)state;
    static const uint64_t mat[2] = {96, 64}, vec[1] = {500};
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        sim *m = sim_new(9);
        chain *c = chain_new(profiles[p], 1, UINT32_MAX);
        const uint32_t a = sim_add_weight(m, "a", CKP_F32, CKP_F32, CKP_F32, 2, mat), b = sim_add_weight(m, "b", CKP_F32, CKP_F32, CKP_F32, 1, vec);
        memset(m->t[a].value, 0, m->t[a].bytes);
        memset(m->t[b].value, 0, m->t[b].bytes);
        sim_put(m, a, 0, 0.0F);
        sim_put(m, b, 0, 0.0F);
        chain_save(c, m, true, false);
        chain_check_recon(c, 0);
        for (size_t i = 1; i < 9; i++) {
            sim_train(m);
            for (size_t k = 0; k < m->t[a].n; k++)     /* row r is asleep before save r / 12, and ten decades apart */
                if (k / 64 > i * 12) {
                    m->t[a].value[k] = m->t[a + 1].value[k] = m->t[a + 2].value[k] = 0.0F;
                } else {
                    const float s = powf(10.0F, (float)(k / 64 % 11) - 10.0F);
                    m->t[a + 1].value[k] *= s;
                    m->t[a + 2].value[k] *= s * s;
                }
            for (uint32_t t = 0; t < m->n; t++)
                sim_put(m, t, 0, m->t[t].value[0]);
            chain_save(c, m, i == 5, false);
            chain_check_recon(c, i);
            chain_check_values(c, m, i);
        }
        chain_free(c);
        sim_free(m);
    }
}

/* ---- sizes ---- */

static void
one_shape(const char *profile, ckp_dtype dt, unsigned ndim, const uint64_t *shape, size_t saves)
{
    sim *m = sim_new(77);
    chain *c = chain_new(profile, 1, UINT32_MAX);
    (void)sim_add_weight(m, "a", dt, dt, dt, ndim, shape);
    for (size_t i = 0; i < saves; i++) {
        sim_train(m);
        chain_save(c, m, false, false);
        chain_check_recon(c, i);
        chain_check_values(c, m, i);
    }
    chain_free(c);
    sim_free(m);
}

static void
test_columns(void **state)
{
    (void)state;
    for (uint64_t cols = 1; cols <= 17; cols++)
        for (size_t p = 1; p < CHECK_COUNT(profiles); p++) {
            const uint64_t tall[2] = {300, cols}, two[2] = {4096, cols}, wide[2] = {cols, 700}, deep[3] = {cols, 5, 11};
            one_shape(profiles[p], CKP_F32, 2, tall, 2);
            one_shape(profiles[p], CKP_BF16, 2, two, 2);
            one_shape(profiles[p], CKP_F32, 2, wide, 2);
            one_shape(profiles[p], CKP_F16, 3, deep, 2);
        }
}

static void
test_around_a_chunk(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {(1U << 20) - 1, 1U << 20, (1U << 20) + 1};
    static const uint64_t shapes[][2] = {{1, (1U << 16) + 3}, {20, (1U << 16) + 3}, {17, 1U << 16}, {70000, 16}, {32800, 33}, {65537, 17}, {3, 400001}};
    for (size_t i = 0; i < CHECK_COUNT(sizes); i++)
        one_shape("resume", CKP_F32, 1, &sizes[i], 2);
    one_shape("lossless", CKP_F32, 1, &sizes[2], 2);
    for (size_t i = 0; i < CHECK_COUNT(shapes); i++)
        one_shape("resume", CKP_F32, 2, shapes[i], 2);
    one_shape("weights", CKP_F32, 2, shapes[4], 2);
    for (size_t i = 0; i < CHECK_COUNT(shapes); i++)
        one_shape(i % 2 ? "dynaquant" : "codebook", CKP_F32, 2, shapes[i], 2);
}

/* Packed elements of more than one chunk, with rows that do not end on a byte. */
static void
test_packed_rows(void **state)
{
    (void)state;
    static const uint64_t odd[2] = {40000, 33}, six[2] = {80000, 17};
    sim *m = sim_new(8);
    chain *c = chain_new("lossless", 1, UINT32_MAX);
    (void)sim_add(m, "f4", CKP_ROLE_OTHER, SIM_NONE, CKP_F4_PACKED, 2, odd);
    (void)sim_add(m, "f6", CKP_ROLE_OTHER, SIM_NONE, CKP_F6E3M2_PACKED, 2, six);
    for (size_t i = 0; i < 2; i++) {
        sim_train(m);
        chain_save(c, m, false, false);
        chain_check_values(c, m, i);
    }
    chain_free(c);
    sim_free(m);
}

/* Nothing to store at all. */
static void
test_nothing(void **state)
{
    (void)state;
    static const uint64_t none[2] = {0, 5};
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++)
        for (int with = 0; with < 2; with++) {
            sim *m = sim_new(8);
            chain *c = chain_new(profiles[p], 1, UINT32_MAX);
            if (with)
                (void)sim_add_weight(m, "empty", CKP_F32, CKP_F32, CKP_F32, 2, none);
            chain_save(c, m, true, false);
            chain_save(c, m, false, false);
            chain_check_recon(c, 1);
            chain_free(c);
            sim_free(m);
        }
}

/* ---- equality ---- */

static void
same_files(const chain *a, const chain *b, const char *what)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->file[i].len != b->file[i].len || memcmp(a->file[i].data, b->file[i].data, a->file[i].len) != 0)
            fail_msg("%s: save %zu has other bytes", what, i);
}

static void
run_chain(chain *c, uint64_t seed)
{
    static const uint64_t big[2] = {3000, 500};
    sim *m = mixed(seed);
    (void)sim_add_weight(m, "big", CKP_F32, CKP_F32, CKP_F32, 2, big);
    for (size_t i = 0; i < 4; i++) {
        sim_train(m);
        chain_save(c, m, false, i == 2);
    }
    sim_free(m);
}

static void
test_same_bytes(void **state)
{
    (void)state;
    static const uint32_t masks[] = {0, UINT32_MAX};
    static const unsigned threads[] = {1, 2, 5};
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        chain *first = chain_new(profiles[p], 1, UINT32_MAX);
        run_chain(first, 31);
        for (size_t k = 0; k < CHECK_COUNT(masks); k++)
            for (size_t t = 0; t < CHECK_COUNT(threads); t++) {
                if (k == 0 && t != 1)            /* the reference kernels are slow */
                    continue;
                chain *c = chain_new(profiles[p], threads[t], masks[k]);
                run_chain(c, 31);
                same_files(first, c, profiles[p]);
                chain_check_recon(c, 3);
                chain_free(c);
            }
        chain_free(first);
    }
}

/* One mask a level that this machine has. */
static void
same_by_level(const char *profile)
{
    chain *first = chain_new(profile, 1, UINT32_MAX);
    sim *m = mixed(4);
    for (size_t i = 0; i < 3; i++) {
        sim_train(m);
        chain_save(first, m, false, false);
    }
    sim_free(m);
    for (unsigned bits = 1; bits < 16; bits++) {
        chain *c = chain_new(profile, 1, (UINT32_C(1) << bits) - 1);
        m = mixed(4);
        for (size_t i = 0; i < 3; i++) {
            sim_train(m);
            chain_save(c, m, false, false);
        }
        same_files(first, c, "fewer features");
        sim_free(m);
        chain_free(c);
    }
    chain_free(first);
}

static void
test_same_bytes_by_level(void **state)
{
    (void)state;
    same_by_level("resume");
    same_by_level("dynaquant");
    same_by_level("clusters");
    same_by_level("centres");
}

/* Without bases in memory lossless chunks stand alone; a base that was kept once must not be used later. */
static void
test_bases_come_and_go(void **state)
{
    (void)state;
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        sim *m = mixed(12);
        chain *c = chain_new(profiles[p], 1, UINT32_MAX);
        for (size_t i = 0; i < 6; i++) {
            sim_train(m);
            c->keep_raw = i != 1 && i != 3;
            chain_save(c, m, false, false);
            chain_check_values(c, m, i);
        }
        chain_free(c);
        sim_free(m);
    }
}

/* Staged or made as the groups are coded: the same file. */
static void
test_inline_pass(void **state)
{
    (void)state;
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        sim *m = mixed(12);
        chain *a = chain_new(profiles[p], 1, UINT32_MAX), *b = chain_new(profiles[p], 2, UINT32_MAX);
        b->staged = false;
        sim_train(m);
        chain_save(a, m, true, false);
        chain_save(b, m, true, false);
        same_files(a, b, profiles[p]);
        chain_check_recon(b, 0);
        chain_free(a);
        chain_free(b);
        sim_free(m);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_of_ten),     cmocka_unit_test(test_exact_in_between), cmocka_unit_test(test_looks),
        cmocka_unit_test(test_expanded),         cmocka_unit_test(test_odd_values),       cmocka_unit_test(test_waking_rows),
        cmocka_unit_test(test_columns),          cmocka_unit_test(test_around_a_chunk),   cmocka_unit_test(test_packed_rows),
        cmocka_unit_test(test_nothing),          cmocka_unit_test(test_same_bytes),       cmocka_unit_test(test_same_bytes_by_level),
        cmocka_unit_test(test_bases_come_and_go), cmocka_unit_test(test_inline_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
