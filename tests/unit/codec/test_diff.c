/* SPDX-License-Identifier: Apache-2.0 */
/* DIFF beyond the mill: its symbols by hand, kernels against each other, contexts, and sizes on data like training's. */
#include "harness/check.h"

#include <math.h>
#include <stdlib.h>

#include "codec/diff/diff.h"
#include "codec/rows.h"
#include "unit/codec/gen.h"
#include "unit/codec/mill.h"

enum { N = 100000 };

static void
test_symbols_by_hand(void **state)
{
    (void)state;
    /* 1.0, its neighbours, both zeros, -1.0 */
    const uint32_t base[] = {0x3F800000, 0x3F800000, 0x3F800000, 0x00000000, 0xBF800000, 0xBF800000};
    const uint32_t data[] = {0x3F800000, 0x3F800001, 0x3F7FFFFE, 0x80000000, 0xBF800001, 0x3F800000};
    const uint32_t magnitude[] = {0, 1, 2, 1, 1, 0x7F000001};
    /* away from zero is even, toward it (or through it) odd; 0x7F000001: 31 bits, rest 28, lead 7 */
    const uint8_t want[] = {0, 2, 5, 3, 2, (uint8_t)(2 * ((28 << 2) + 7) + 1)};
    const ckpi_diff_par p = {.width = 4, .is_float = true, .mant = 23, .msb = 2};
    uint8_t sym[6];
    uint32_t got[6], back[6];
    ckpi_diff_symbols(&p, data, base, 6, sym, got, 0);
    assert_memory_equal(got, magnitude, sizeof got);
    assert_memory_equal(sym, want, sizeof sym);
    ckpi_diff_kern_pick(4, 0)->words(&p, back, base, 6, sym, got);
    assert_memory_equal(back, data, sizeof back);
}

static void
test_rest_and_lead(void **state)
{
    (void)state;
    for (unsigned width = 1; width <= 8; width *= 2) {
        for (unsigned msb = 0; msb <= (width == 8 ? 1u : 2u); msb++) {
            uint8_t rest[256];
            uint64_t lead[256];
            ckpi_diff_rest_bits(rest, msb, width);
            ckpi_diff_leads(lead, rest, msb);
            /* every magnitude of a word lies in the range of exactly one pair of symbols: ranges follow each other */
            const uint64_t most = UINT64_C(1) << (8 * width - 1);
            uint64_t next = 0, last = 0;
            for (unsigned s = 0; s < 256 && last < most; s += 2) {
                assert_true(lead[s] == next && lead[s + 1] == next);
                last = next + ((UINT64_C(1) << rest[s]) - 1);
                next = last + 1;
            }
            assert_true(last >= most);
        }
    }
}

static void
test_kernels(void **state)
{
    (void)state;
    enum { MOST = 70 };
    test_rng r = test_rng_new("diff kernels");
    uint32_t words[8];
    const size_t n_words = mill_words(words);
    for (unsigned round = 0; round < 3000; round++) {
        const unsigned width = test_below(&r, 2) ? 2 : 4;
        const ckpi_diff_par p = {.width = width,
                                 .is_float = test_below(&r, 4) != 0,
                                 .mant = width == 4 ? 23 : 7,
                                 .msb = (unsigned)test_below(&r, 3),
                                 .contexts = 1 + (unsigned)test_below(&r, 16),
                                 .top = (unsigned)test_below(&r, 300)};
        const size_t n = test_below(&r, MOST);
        uint8_t data[MOST * 4], base[MOST * 4], sym[2][MOST], mag[2][MOST * 4], ctx[2][MOST], back[MOST * 4];
        test_bytes(&r, data, sizeof data);
        test_bytes(&r, base, sizeof base);
        for (size_t i = 0; i < sizeof data; i++) /* half of the words close to the base */
            if (i / width % 2 && i % width != 0)
                data[i] = base[i];
        memset(sym, 0, sizeof sym);
        memset(mag, 0, sizeof mag);
        memset(ctx, 0, sizeof ctx);
        ckpi_diff_symbols(&p, data, base, n, sym[0], mag[0], 0);
        ckpi_diff_kern_pick(width, 0)->contexts(&p, base, n, ctx[0]);
        for (size_t w = 0; w < n_words; w++) {
            const ckpi_diff_kern *k = ckpi_diff_kern_pick(width, words[w]);
            ckpi_diff_symbols(&p, data, base, n, sym[1], mag[1], words[w]);
            k->contexts(&p, base, n, ctx[1]);
            k->words(&p, back, base, n, sym[1], mag[1]);
            assert_memory_equal(sym[0], sym[1], sizeof sym[0]);
            assert_memory_equal(mag[0], mag[1], sizeof mag[0]);
            assert_memory_equal(ctx[0], ctx[1], sizeof ctx[0]);
            if (n != 0)
                assert_memory_equal(back, data, n * width);
        }
    }
}

static void
test_bits(void **state)
{
    (void)state;
    enum { MOST = 300 };
    test_rng r = test_rng_new("diff bits");
    uint32_t words[8];
    const size_t n_words = mill_words(words);
    for (unsigned round = 0; round < 2000; round++) {
        const unsigned width = 1u << test_below(&r, 4), msb = (unsigned)test_below(&r, width == 8 ? 2 : 3);
        const size_t n = test_below(&r, MOST);
        uint8_t data[MOST * 8], zero[MOST * 8] = {0}, sym[MOST], mag[MOST * 8], back[MOST * 8], room[MOST * 8], rest[256], bits[MOST * 8 + 8];
        uint64_t total = 0;
        test_bytes(&r, data, sizeof data);
        for (size_t i = 0; i < sizeof data; i++) /* of all lengths */
            if (i % width >= (unsigned)test_below(&r, width) + 1)
                data[i] = 0;
        const ckpi_diff_par p = {.width = width, .msb = msb, .contexts = 1};
        ckpi_diff_symbols(&p, data, zero, n, sym, mag, 0);
        ckpi_diff_rest_bits(rest, msb, width);
        for (size_t i = 0; i < n; i++)
            total += rest[sym[i]];
        const size_t len = (size_t)((total + 7) / 8);
        for (size_t w = 0; w < n_words; w++) {
            memset(bits, 0xEE, sizeof bits);
            ckpi_diff_bits_pick(width, words[w])->put(bits, len, sym, mag, n, rest);
            assert_int_equal(bits[len], 0xEE);
            assert_true(ckpi_diff_join(&p, back, zero, bits, len, sym, n, room, words[w]) == total);
            if (n != 0)
                assert_memory_equal(back, data, n * width);
        }
    }
}

/* One step of training on weights: much smaller than a key, and contexts give their part. */
static void
test_size(void **state)
{
    (void)state;
    test_rng r = test_rng_new("diff size");
    float *base = malloc(N * sizeof *base), *data = malloc(N * sizeof *data);
    for (size_t i = 0; i < N; i++) {
        base[i] = (float)(0.02 * test_normal(&r));
        data[i] = base[i] + (float)(2e-5 * test_normal(&r));
    }
    const ckpi_block b = {.data = data, .base = base, .n = N, .width = 4, .dtype = CKP_F32};
    const double bits = 8.0 * (double)mill_round_trip(&ckpi_codec_diff, &b, NULL) / N;
    /* The difference has 10 bits less than the weight's 26.5; below an ulp of the step's size there is nothing to win. */
    assert_true(bits < 17.2);
    free(data);
    free(base);
}

static void
test_few_changes(void **state)
{
    (void)state;
    test_rng r = test_rng_new("few changes");
    uint16_t *base = malloc(N * sizeof *base), *data = malloc(N * sizeof *data);
    gen_fill(&r, GEN_NORMAL, CKP_BF16, base, N, 0);
    memcpy(data, base, N * sizeof *data);
    for (size_t i = 0; i < N; i += 100)
        data[i] = (uint16_t)(data[i] ^ 1);
    const ckpi_block b = {.data = data, .base = base, .n = N, .width = 2, .dtype = CKP_BF16};
    assert_true(mill_round_trip(&ckpi_codec_diff, &b, NULL) * 100 < 2 * N);
    free(data);
    free(base);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_symbols_by_hand), cmocka_unit_test(test_rest_and_lead), cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_bits),            cmocka_unit_test(test_size),          cmocka_unit_test(test_few_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
