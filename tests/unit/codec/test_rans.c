/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/rans/rans.h"
#include "codec/rans/rans_model.h"
#include "codec/rans/rans_wire.h"
#include "codec/rows.h"
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "unit/codec/mill.h"

enum { BIG = 1 << 20 };

typedef void fill_fn(test_rng *r, uint8_t *dst, size_t n);

static void
fill_skewed(test_rng *r, uint8_t *dst, size_t n)
{
    test_skewed(r, dst, n, 0.9);
}

static void
fill_flat(test_rng *r, uint8_t *dst, size_t n)
{
    test_bytes(r, dst, n);
}

static void
fill_below(test_rng *r, uint8_t *dst, size_t n, uint64_t symbols)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)test_below(r, symbols);
}

static void
fill_two(test_rng *r, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = test_below(r, 10) == 0 ? 200 : 7;
}

static void
fill_16(test_rng *r, uint8_t *dst, size_t n)
{
    fill_below(r, dst, n, 16);
}

static void
fill_33(test_rng *r, uint8_t *dst, size_t n)
{
    fill_below(r, dst, n, 33);
}

static void
fill_64(test_rng *r, uint8_t *dst, size_t n)
{
    fill_below(r, dst, n, 64);
}

static void
fill_65(test_rng *r, uint8_t *dst, size_t n)
{
    fill_below(r, dst, n, 65);
}

static void
fill_200(test_rng *r, uint8_t *dst, size_t n)
{
    fill_below(r, dst, n, 200);
}

/* Eight bits, each one with probability 1/20. */
static void
fill_mask(test_rng *r, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = 0;
        for (unsigned k = 0; k < 8; k++)
            dst[i] = (uint8_t)(dst[i] | (unsigned)(test_below(r, 20) == 0) << k);
    }
}

/* All byte values, one of them nearly always. */
static void
fill_rare(test_rng *r, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = test_below(r, 50) == 0 ? (uint8_t)test_below(r, 256) : 99;
}

static void
fill_one(test_rng *r, uint8_t *dst, size_t n)
{
    (void)r;
    memset(dst, 42, n);
}

static fill_fn *const fills[] = {fill_skewed, fill_flat, fill_two,  fill_16,   fill_33,  fill_64,
                                 fill_65,     fill_200,  fill_mask, fill_rare, fill_one};
enum { FILLS = sizeof fills / sizeof fills[0] };

static ckpi_block
block(const uint8_t *data, size_t n)
{
    return (ckpi_block){.data = data, .n = n, .width = 1, .dtype = CKP_U8};
}

static double
entropy_bytes(const uint8_t *p, size_t n)
{
    double count[256] = {0}, bits = 0;
    for (size_t i = 0; i < n; i++)
        count[p[i]]++;
    for (unsigned s = 0; s < 256; s++)
        if (count[s] > 0)
            bits -= count[s] * log2(count[s] / (double)n);
    return bits / 8;
}

static void
test_short_lengths(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rans_short_lengths");
    uint8_t data[256];
    for (size_t n = 0; n <= 200; n++)
        for (size_t f = 0; f < FILLS; f++) {
            fills[f](&r, data, n);
            const ckpi_block b = block(data, n);
            assert_true(mill_round_trip(&ckpi_codec_rans, &b, NULL) <= n + 1);
        }
}

static void
test_long_lengths(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rans_long_lengths");
    static const size_t lengths[] = {511, 1000, 2047, 4096, 12345, 65536 + 31, 131072, 300007};
    uint8_t *data = malloc(300007);
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
        for (size_t f = 0; f < FILLS; f++) {
            fills[f](&r, data, lengths[l]);
            const ckpi_block b = block(data, lengths[l]);
            mill_round_trip(&ckpi_codec_rans, &b, NULL);
        }
    free(data);
}

/* Skewed and flat streams: within 0.2 % of order-0 entropy plus 192 bytes. Bytes of a mask (256 symbols, shares over five decades) have the
   bar of mask and values: 1 % plus 384. */
static void
test_size_of_big_streams(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rans_size");
    uint8_t *data = malloc(BIG);
    for (size_t f = 0; f < FILLS; f++) {
        fills[f](&r, data, BIG);
        const ckpi_block b = block(data, BIG);
        const size_t len = mill_round_trip(&ckpi_codec_rans, &b, NULL);
        const double over = (double)len - entropy_bytes(data, BIG);
        if (getenv("CKP_VERBOSE") != NULL)
            print_message("fill %zu: %zu bytes, %.1f over entropy (%.3f %%)\n", f, len, over, 100 * over / ((double)len - over + 1));
        const bool mask = fills[f] == fill_mask;
        assert_true((double)len <= entropy_bytes(data, BIG) * (mask ? 1.01 : 1.002) + (mask ? 384 : 192));
    }
    free(data);
}

static void
test_size_of_small_streams(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rans_small_size");
    uint8_t data[1000];
    static fill_fn *const some[] = {fill_skewed, fill_two, fill_mask};
    for (size_t f = 0; f < 3; f++) {
        double over = 0;
        for (int i = 0; i < 20; i++) {
            some[f](&r, data, sizeof data);
            const ckpi_block b = block(data, sizeof data);
            over += (double)mill_round_trip(&ckpi_codec_rans, &b, NULL) - entropy_bytes(data, sizeof data);
        }
        assert_true(over / 20 <= 16);
    }
}

static void
test_corruption(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rans_corruption");
    static const size_t lengths[] = {1, 33, 600};
    uint8_t data[12000], enc[13000];
    for (size_t f = 0; f < FILLS; f++)
        for (size_t l = 0; l < 3; l++) {
            fills[f](&r, data, lengths[l]);
            const ckpi_block b = block(data, lengths[l]);
            const size_t len = mill_round_trip(&ckpi_codec_rans, &b, enc);
            mill_corrupt(&ckpi_codec_rans, &b, enc, len);
        }
}

/* 32 lanes, so that the wide kernels see hostile words and states; bits sampled. */
static void
test_corruption_of_wide_streams(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rans_corruption_wide");
    enum { N = 70000 };
    uint8_t *data = malloc(N), *enc = malloc(N + 64), *dst = malloc(N);
    uint32_t words[8];
    const size_t n_words = mill_words(words);
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t f = 0; f < FILLS; f++) {
        fills[f](&r, data, N);
        const ckpi_block b = block(data, N);
        const size_t len = mill_round_trip(&ckpi_codec_rans, &b, enc);
        for (int i = 0; i < 100; i++) {
            const size_t at = i < 50 ? test_below(&r, len < 400 ? len : 400) : test_below(&r, len);
            const uint8_t bit = (uint8_t)(1u << test_below(&r, 8));
            enc[at] ^= bit;
            for (size_t w = 0; w < n_words; w++) {
                const ckp_status st = ckpi_rans_decode(enc, len, dst, N, ws, words[w], NULL);
                assert_true(st == CKP_OK || st == CKP_ECORRUPT);
            }
            enc[at] ^= bit;
        }
    }
    ckpi_scratch_free(ws);
    free(data);
    free(enc);
    free(dst);
}

/* Any table that is accepted keeps the model's invariants. */
static void
test_tables_from_random_bytes(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rans_tables");
    uint8_t table[64];
    unsigned accepted = 0;
    for (int i = 0; i < 20000; i++) {
        ckpi_rans_model m = {.kind = (ckpi_rans_kind)(CKPI_RANS_SPAN + test_below(&r, 3)), .bits = 8 + 2 * (unsigned)test_below(&r, 5)};
        size_t used = 0;
        test_bytes(&r, table, sizeof table);
        if (i & 1)
            table[1] = (uint8_t)(table[1] & 3);
        if (!ckpi_rans_model_read(&m, table, sizeof table, &used))
            continue;
        uint32_t sum = 0;
        for (unsigned s = 0; s < 256; s++) {
            assert_true(m.freq[s] <= 65535);
            sum += m.freq[s];
        }
        assert_int_equal(sum, 65536);
        /* Written again it may be shorter (runs of zeros closed up) but means the same. */
        uint8_t again[CKPI_RANS_TABLE_MAX];
        ckpi_rans_model m2 = {.kind = m.kind, .bits = m.bits};
        const size_t len = ckpi_rans_model_write(&m, again);
        assert_true(len <= used);
        assert_true(ckpi_rans_model_read(&m2, again, len, &used));
        assert_memory_equal(m.freq, m2.freq, sizeof m.freq);
        assert_memory_equal(m.start, m2.start, sizeof m.start);
        accepted++;
    }
    assert_true(accepted > 100);
}

static void
test_log2(void **state)
{
    (void)state;
    for (uint32_t x = 1; x < 1u << 31; x += x / 1000 + 1)
        assert_true(fabs(ckpi_rans_log2(x) - 65536 * log2(x)) < 2);
}

static ckp_status
use_once(void *user)
{
    const uint8_t *data = user;
    uint8_t *enc = ckpi_malloc(3001, 1), *dst = ckpi_malloc(3000, 1);
    ckpi_scratch *ws = ckpi_scratch_new();
    ckp_status st = CKP_ENOMEM;
    size_t len;
    if (enc != NULL && dst != NULL && ws != NULL) {
        st = ckpi_rans_encode(data, 3000, NULL, enc, 3001, &len, ws, 0, NULL);
        if (st == CKP_OK)
            st = ckpi_rans_decode(enc, len, dst, 3000, ws, 0, NULL);
    }
    ckpi_scratch_free(ws);
    free(enc);
    free(dst);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rans_no_memory");
    uint8_t data[3000];
    fill_skewed(&r, data, sizeof data);
    failalloc_run(use_once, data, 1, 1);
}

static void
test_misuse(void **state)
{
    (void)state;
    uint8_t b[4] = {0};
    size_t len;
    ckp_error err = {0};
    assert_int_equal(ckpi_rans_encode(b, 4, NULL, b, 4, &len, NULL, 0, &err), CKP_EINVAL);
    assert_int_equal(ckpi_rans_decode(b, 4, b, 0, NULL, 0, &err), CKP_ECORRUPT);
}

/* The largest states there are: as many bytes as the caller's buffer is said to need, no more. */
static void
test_largest_states(void **state)
{
    (void)state;
    uint32_t x[64], back[64];
    size_t used = 0;
    for (unsigned i = 0; i < 64; i++)
        x[i] = UINT32_MAX - i;
    uint8_t *dst = guard_alloc(CKPI_RANS_STATES_MAX);
    const size_t len = ckpi_rans_states_write(x, 64, dst);
    assert_int_equal(len, CKPI_RANS_STATES_MAX);
    assert_true(ckpi_rans_states_read(back, 64, dst, len, &used));
    assert_int_equal(used, len);
    assert_memory_equal(back, x, sizeof x);
    guard_free(dst);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest_states), cmocka_unit_test(test_short_lengths),
        cmocka_unit_test(test_long_lengths),
        cmocka_unit_test(test_size_of_big_streams),
        cmocka_unit_test(test_size_of_small_streams),
        cmocka_unit_test(test_corruption),
        cmocka_unit_test(test_corruption_of_wide_streams),
        cmocka_unit_test(test_tables_from_random_bytes),
        cmocka_unit_test(test_log2),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
