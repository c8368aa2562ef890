/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/rows.h"
#include "harness/failalloc.h"
#include "harness/seed.h"
#include "unit/codec/mill.h"

enum { BIG = 1 << 20 };
static const unsigned widths[] = {1, 2, 4};

/* Elements that are zero with probability 1 - 1/one_in, or differ from base then. */
static void
fill(test_rng *r, uint8_t *data, const uint8_t *base, size_t n, unsigned width, uint64_t one_in)
{
    for (size_t i = 0; i < n * width; i += width) {
        for (unsigned k = 0; k < width; k++)
            data[i + k] = base != NULL ? base[i + k] : 0;
        if (test_below(r, one_in) == 0)
            data[i + test_below(r, width)] ^= (uint8_t)(1 + test_below(r, 7));
    }
}

static ckpi_block
block(const uint8_t *data, const uint8_t *base, size_t n, unsigned width)
{
    return (ckpi_block){.data = data, .base = base, .n = n, .width = width, .dtype = width == 1 ? CKP_I8 : width == 2 ? CKP_BF16 : CKP_F32};
}

static void
test_lengths(void **state)
{
    (void)state;
    test_rng r = test_rng_new("mask_lengths");
    uint8_t data[4 * 5000], base[4 * 5000];
    static const uint64_t one_in[] = {1, 2, 20, 1000000};
    for (size_t n = 0; n <= 5000; n += n < 200 ? 1 : 1201)
        for (unsigned w = 0; w < 3; w++)
            for (unsigned p = 0; p < 4; p++) {
                test_bytes(&r, base, n * widths[w]);
                fill(&r, data, NULL, n, widths[w], one_in[p]);
                const ckpi_block alone = block(data, NULL, n, widths[w]);
                mill_round_trip(&ckpi_codec_mask, &alone, NULL);
                fill(&r, data, base, n, widths[w], one_in[p]);
                const ckpi_block delta = block(data, base, n, widths[w]);
                mill_round_trip(&ckpi_codec_mask, &delta, NULL);
            }
}

static void
test_random_bytes(void **state)
{
    (void)state;
    test_rng r = test_rng_new("mask_random");
    uint8_t data[4 * 3000];
    for (size_t n = 1; n <= 3000; n += n < 70 ? 1 : 977)
        for (unsigned w = 0; w < 3; w++) {
            test_bytes(&r, data, n * widths[w]);
            const ckpi_block b = block(data, NULL, n, widths[w]);
            mill_round_trip(&ckpi_codec_mask, &b, NULL); /* checks the bound of codec.h */
        }
}

static void
test_few_values_are_tiny(void **state)
{
    (void)state;
    test_rng r = test_rng_new("mask_few");
    uint8_t *data = calloc(BIG, 1);
    for (unsigned i = 0; i < 10; i++)
        data[test_below(&r, BIG)] = 1;
    const ckpi_block b = block(data, NULL, BIG, 1);
    assert_true(mill_round_trip(&ckpi_codec_mask, &b, NULL) <= 48);
    memset(data, 0, BIG);
    assert_true(mill_round_trip(&ckpi_codec_mask, &b, NULL) <= 8);
    free(data);
}

static void
test_delta_beats_the_bitmask(void **state)
{
    (void)state;
    test_rng r = test_rng_new("mask_delta");
    uint8_t *data = malloc(2 * BIG), *base = malloc(2 * BIG);
    test_bytes(&r, base, 2 * BIG);
    fill(&r, data, base, BIG, 2, 100);
    const ckpi_block b = block(data, base, BIG, 2);
    /* a plain bitmask takes BIG / 8 bytes for the mask alone */
    assert_true(mill_round_trip(&ckpi_codec_mask, &b, NULL) < BIG / 8 / 3);
    free(data);
    free(base);
}

static void
test_corruption(void **state)
{
    (void)state;
    test_rng r = test_rng_new("mask_corruption");
    uint8_t data[4 * 600], base[4 * 600], enc[4 * 700];
    static const uint64_t one_in[] = {1, 3, 300};
    for (unsigned w = 0; w < 3; w++)
        for (unsigned p = 0; p < 3; p++) {
            const size_t n = p == 0 ? 60 : 600;
            test_bytes(&r, base, n * widths[w]);
            fill(&r, data, base, n, widths[w], one_in[p]);
            const ckpi_block b = block(data, base, n, widths[w]);
            const size_t len = mill_round_trip(&ckpi_codec_mask, &b, enc);
            mill_corrupt(&ckpi_codec_mask, &b, enc, len);
        }
}

static void
test_zero(void **state)
{
    (void)state;
    uint8_t data[300] = {0}, base[300];
    memset(base, 7, sizeof base);
    for (size_t n = 0; n <= 300; n += 100) {
        ckpi_block b = block(data, NULL, n, 1);
        assert_true(ckpi_codec_zero.fits(&b));
        assert_int_equal(mill_round_trip(&ckpi_codec_zero, &b, NULL), 0);
        b.base = base;
        assert_int_equal(ckpi_codec_zero.fits(&b), n == 0);
        b.data = base;
        assert_true(ckpi_codec_zero.fits(&b));
        assert_int_equal(mill_round_trip(&ckpi_codec_zero, &b, NULL), 0);
    }
    data[299] = 1;
    const ckpi_block b = block(data, NULL, 300, 1);
    assert_false(ckpi_codec_zero.fits(&b));
    size_t len;
    assert_int_equal(ckpi_codec_zero.encode(&b, base, 0, &len, NULL, 0, NULL), CKP_EINVAL);
    assert_int_equal(ckpi_codec_zero.decode(&b, base, 1, data, NULL, 0, NULL), CKP_ECORRUPT);
}

static ckp_status
use_once(void *user)
{
    const ckpi_block *b = user;
    const size_t cap = ckpi_codec_mask.bound(b);
    uint8_t *enc = ckpi_malloc(cap, 1), *dst = ckpi_malloc(b->n, b->width);
    ckpi_scratch *ws = ckpi_scratch_new();
    ckp_status st = CKP_ENOMEM;
    size_t len;
    if (enc != NULL && dst != NULL && ws != NULL) {
        st = ckpi_codec_mask.encode(b, enc, cap, &len, ws, 0, NULL);
        if (st == CKP_OK)
            st = ckpi_codec_mask.decode(b, enc, len, dst, ws, 0, NULL);
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
    test_rng r = test_rng_new("mask_no_memory");
    uint8_t data[2 * 3000];
    fill(&r, data, NULL, 3000, 2, 10);
    ckpi_block b = block(data, NULL, 3000, 2);
    failalloc_run(use_once, &b, 1, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),    cmocka_unit_test(test_random_bytes), cmocka_unit_test(test_few_values_are_tiny),
        cmocka_unit_test(test_delta_beats_the_bitmask), cmocka_unit_test(test_corruption), cmocka_unit_test(test_zero),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
