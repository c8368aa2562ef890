/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/rows.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "unit/codec/mill.h"

enum { BIG = 1 << 20 };

static const ckpi_codec *
row(uint8_t id)
{
    const ckpi_codec *const rows[] = {&ckpi_codec_zero, &ckpi_codec_rans, &ckpi_codec_mask};
    for (unsigned i = 0; i < 3; i++)
        if (rows[i]->id == id)
            return rows[i];
    fail_msg("codes chose codec %u", id);
    return NULL;
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

/* Same bytes on every ISA, decoded on every ISA. */
static size_t
round_trip(const uint8_t *data, size_t n, uint8_t *id)
{
    uint32_t words[8];
    const size_t n_words = mill_words(words), cap = n + n / 64 + 64;
    uint8_t *first = malloc(cap);
    size_t first_len = 0;
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t w = 0; w < n_words; w++) {
        uint8_t *src = guard_copy(data, n), *enc = guard_alloc(cap), *dst = guard_alloc(n);
        size_t len = 0;
        uint8_t got = 0;
        guard_readonly(src);
        assert_int_equal(ckpi_codec_codes((const int8_t *)src, n, enc, cap, &len, &got, ws, words[w], NULL), CKP_OK);
        if (w == 0) {
            memcpy(first, enc, len);
            first_len = len;
            *id = got;
        }
        assert_int_equal(got, *id);
        assert_int_equal(len, first_len);
        assert_memory_equal(enc, first, len);
        const ckpi_block b = {.n = n, .width = 1, .dtype = CKP_I8};
        assert_int_equal(row(got)->decode(&b, enc, len, dst, ws, words[w], NULL), CKP_OK);
        if (n != 0)
            assert_memory_equal(dst, data, n);
        guard_free(src);
        guard_free(enc);
        guard_free(dst);
    }
    ckpi_scratch_free(ws);
    free(first);
    return first_len;
}

static void
test_lengths(void **state)
{
    (void)state;
    test_rng r = test_rng_new("codes_lengths");
    uint8_t data[20000], id = 0;
    static const double p0[] = {0, 0.3, 0.7, 0.95, 1};
    for (size_t n = 0; n <= 20000; n += n < 200 ? 1 : 3911)
        for (unsigned p = 0; p < 5; p++) {
            test_skewed(&r, data, n, p0[p]);
            round_trip(data, n, &id);
        }
}

/* Issue 3: at most 1 % plus 384 bytes larger than order-0 entropy. */
static void
test_size(void **state)
{
    (void)state;
    test_rng r = test_rng_new("codes_size");
    uint8_t *data = malloc(BIG), id = 0;
    static const double p0[] = {0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.99999};
    for (unsigned p = 0; p < 10; p++) {
        test_skewed(&r, data, BIG, p0[p]);
        const double h = entropy_bytes(data, BIG);
        const size_t len = round_trip(data, BIG, &id);
        if (getenv("CKP_VERBOSE") != NULL)
            print_message("p0 %.5f: codec %u, %zu bytes, %.1f over entropy\n", p0[p], id, len, (double)len - h);
        assert_true((double)len <= 1.01 * h + 384);
        if (p0[p] >= 0.7)
            assert_int_equal(id, CKPI_CODEC_MASK);
    }
    free(data);
}

static void
test_zeros(void **state)
{
    (void)state;
    uint8_t data[1000] = {0}, id = 0;
    assert_int_equal(round_trip(data, sizeof data, &id), 0);
    assert_int_equal(id, CKPI_CODEC_ZERO);
}

static void
test_no_room(void **state)
{
    (void)state;
    uint8_t data[1000], enc[100], id;
    size_t len;
    test_rng r = test_rng_new("codes_no_room");
    ckpi_scratch *ws = ckpi_scratch_new();
    test_skewed(&r, data, sizeof data, 0.5);
    assert_int_equal(ckpi_codec_codes((const int8_t *)data, sizeof data, enc, sizeof enc, &len, &id, ws, 0, NULL), CKP_EINVAL);
    ckpi_scratch_free(ws);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
