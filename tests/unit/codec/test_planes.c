/* SPDX-License-Identifier: Apache-2.0 */
/* PLANES beyond the mill: what each kind of data is split into, and that it pays as much as it should. */
#include "harness/check.h"

#include <math.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/float.h"
#include "codec/count/count.h"
#include "codec/pack/pack.h"
#include "codec/planes/float.h"
#include "codec/rows.h"
#include "unit/codec/gen.h"
#include "unit/codec/mill.h"

enum { ROWS = 300, COLS = 200, N = ROWS * COLS };

static ckpi_block
block_of(const void *data, ckp_dtype dtype, size_t n, size_t cols)
{
    return (ckpi_block){.data = data, .n = n, .width = gen_width(dtype), .dtype = dtype, .cols = cols};
}

static size_t
coded(const void *data, ckp_dtype dtype, size_t n, size_t cols)
{
    const ckpi_block b = block_of(data, dtype, n, cols);
    return mill_round_trip(&ckpi_codec_planes, &b, NULL);
}

static void
test_weights_cost_exponents_only(void **state)
{
    (void)state;
    test_rng r = test_rng_new("weights");
    float *data = malloc(N * sizeof *data);
    gen_fill(&r, GEN_NORMAL, CKP_F32, data, N, COLS);
    /* a normal variable in fp32: 24 bits of sign and mantissa, and 2.6 of exponent, of which the mantissa's top bits give 0.06 back */
    const double bits = 8.0 * (double)coded(data, CKP_F32, N, COLS) / N;
    assert_true(bits > 26.4 && bits < 26.65);
    free(data);
}

static void
test_factors_pay(void **state)
{
    (void)state;
    test_rng r = test_rng_new("factors");
    float *data = malloc(N * sizeof *data);
    gen_fill(&r, GEN_SCALED, CKP_F32, data, N, COLS);
    const size_t with = coded(data, CKP_F32, N, COLS), without = coded(data, CKP_F32, N, 0);
    /* rows and columns that spread over 23 and 17 octaves, known: 1.4 bits an element less */
    assert_true(8 * with + 14 * N / 10 < 8 * without);
    free(data);
}

static void
test_short_mantissas_are_cut(void **state)
{
    (void)state;
    test_rng r = test_rng_new("cut");
    float *data = malloc(N * sizeof *data);
    gen_fill(&r, GEN_NORMAL, CKP_F32, data, N, COLS);
    const size_t full = coded(data, CKP_F32, N, COLS);
    for (size_t i = 0; i < N; i++) { /* every second row holds bf16 values */
        if (i / COLS % 2 == 0)
            data[i] = ckpi_bf16_to_f32(ckpi_f32_to_bf16(data[i]));
    }
    const size_t half = coded(data, CKP_F32, N, COLS);
    assert_true(half + N < full + N / 50);
    for (size_t i = 0; i < N / 3; i++)
        data[i] = 0;
    assert_true(coded(data, CKP_F32, N, COLS) < half * 7 / 10);
    free(data);
}

static void
test_escapes(void **state)
{
    (void)state;
    test_rng r = test_rng_new("escapes");
    for (unsigned every = 3; every < 1000; every *= 7) {
        float *data = malloc(N * sizeof *data);
        gen_fill(&r, GEN_NORMAL, CKP_F32, data, N, COLS);
        for (size_t i = 0; i < N; i += every)
            gen_fill(&r, GEN_EDGE, CKP_F32, data + i, 1, 0);
        coded(data, CKP_F32, N, COLS);
        free(data);
    }
}

static void
test_bound_holds_for_noise(void **state)
{
    (void)state;
    test_rng r = test_rng_new("noise");
    uint8_t *data = malloc(N * 8);
    static const ckp_dtype dtypes[] = {CKP_BF16, CKP_F16, CKP_F32, CKP_F64};
    for (size_t d = 0; d < CHECK_COUNT(dtypes); d++) {
        test_bytes(&r, data, N * 8);
        const size_t bytes = N * (size_t)gen_width(dtypes[d]);
        assert_true(coded(data, dtypes[d], N, 0) <= bytes + 33);
    }
    free(data);
}

static void
test_odd_rows(void **state)
{
    (void)state;
    test_rng r = test_rng_new("odd rows");
    float *data = malloc(N * sizeof *data);
    gen_fill(&r, GEN_SHORT, CKP_F32, data, N, 7);
    static const size_t cols[] = {1, 2, 7, 63, 64, 65, 4999, N - 1, N, N + 1, SIZE_MAX / 2};
    for (size_t i = 0; i < CHECK_COUNT(cols); i++)
        coded(data, CKP_F32, 5000, cols[i]);
    free(data);
}

static void
test_kernels_of_a_row(void **state)
{
    (void)state;
    enum { MOST = 100 };
    test_rng r = test_rng_new("kernels");
    uint32_t words[8];
    const size_t n_words = mill_words(words);
    for (unsigned round = 0; round < 3000; round++) {
        const unsigned width = test_below(&r, 2) ? 2 : 4, mant = width == 4 ? 23 : test_below(&r, 2) ? 7 : 10;
        const size_t n = test_below(&r, MOST);
        uint8_t data[MOST * 4], col[MOST], sym[2][MOST], low[2][MOST * 4], top[2][MOST], back[MOST * 4];
        ckpi_float_row row = {.add = test_u64(&r), .col = col, .col_shift = mant - 2, .low_bits = mant - (unsigned)test_below(&r, 3)};
        row.esc = 1 + (unsigned)test_below(&r, 255);
        row.has_sign = test_below(&r, 2) != 0;
        row.sign = !row.has_sign && test_below(&r, 2) != 0;
        row.cut = test_below(&r, 2) ? 0 : (unsigned)test_below(&r, row.low_bits + 1);
        const unsigned rest = row.low_bits - row.cut + row.has_sign;
        row.low_bytes = rest / 8;
        test_bytes(&r, data, sizeof data);
        test_bytes(&r, col, sizeof col);
        memset(sym, 0, sizeof sym);
        memset(low, 0, sizeof low);
        memset(top, 0, sizeof top);
        const size_t escapes = ckpi_float_split(width, 0, &row, data, n, sym[0], low[0], rest % 8 ? top[0] : NULL);
        ckpi_float_merge(width, 0, &row, back, n, sym[0], low[0], rest % 8 ? top[0] : NULL);
        for (size_t w = 0; w < n_words; w++) {
            uint8_t same[MOST * 4];
            assert_int_equal(ckpi_float_split(width, words[w], &row, data, n, sym[1], low[1], rest % 8 ? top[1] : NULL), escapes);
            assert_memory_equal(sym[0], sym[1], sizeof sym[0]);
            assert_memory_equal(low[0], low[1], sizeof low[0]);
            assert_memory_equal(top[0], top[1], sizeof top[0]);
            ckpi_float_merge(width, words[w], &row, same, n, sym[0], low[0], rest % 8 ? top[0] : NULL);
            if (n != 0)
                assert_memory_equal(back, same, n * width);
        }
    }
}

static void
test_pack(void **state)
{
    (void)state;
    test_rng r = test_rng_new("pack");
    uint32_t words[8];
    const size_t n_words = mill_words(words);
    for (unsigned bits = 1; bits < 8; bits++) {
        for (size_t n = 0; n < 200; n++) {
            uint8_t src[200], want[200], packed[2][200], back[200];
            test_bytes(&r, src, sizeof src);
            ckpi_pack(packed[0], src, n, bits, 0);
            for (size_t i = 0; i < n; i++)
                want[i] = src[i] & (uint8_t)((1u << bits) - 1);
            for (size_t w = 0; w < n_words; w++) {
                memset(packed[1], 0xEE, sizeof packed[1]);
                ckpi_pack(packed[1], src, n, bits, words[w]);
                if (n != 0)
                    assert_memory_equal(packed[0], packed[1], ckpi_pack_bytes(n, bits));
                assert_int_equal(packed[1][ckpi_pack_bytes(n, bits)], 0xEE);
                ckpi_unpack(back, packed[1], n, bits, words[w]);
                if (n != 0)
                    assert_memory_equal(back, want, n);
            }
            if (n == 0)
                continue;
            assert_true(ckpi_count_byte(src, n, src[0], words[0]) == ckpi_count_byte(src, n, src[0], 0));
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_cost_exponents_only), cmocka_unit_test(test_factors_pay),
        cmocka_unit_test(test_short_mantissas_are_cut),     cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_bound_holds_for_noise),       cmocka_unit_test(test_odd_rows),
        cmocka_unit_test(test_kernels_of_a_row),            cmocka_unit_test(test_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
