/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/check.h"
#include "harness/failalloc.h"
#include "state/hindex.h"

static void
test_rows(void **state)
{
    (void)state;
    ckpi_hindex ix = {0};
    size_t at = 0;
    assert_int_equal(ckpi_hindex_next(&ix, 1, &at), CKPI_HINDEX_NONE);
    for (uint32_t i = 0; i < 5000; i++)
        assert_true(ckpi_hindex_put(&ix, i * UINT64_C(0x9e3779b97f4a7c15), i));
    for (uint32_t i = 0; i < 5000; i++) {
        at = 0;
        assert_int_equal(ckpi_hindex_next(&ix, i * UINT64_C(0x9e3779b97f4a7c15), &at), i);
        assert_int_equal(ckpi_hindex_next(&ix, i * UINT64_C(0x9e3779b97f4a7c15), &at), CKPI_HINDEX_NONE);
    }
    ckpi_hindex_free(&ix);
}

/* Rows with one hash come out one by one, and others that lie between them do not. */
static void
test_equal_hashes(void **state)
{
    (void)state;
    ckpi_hindex ix = {0};
    for (uint32_t i = 0; i < 40; i++)
        assert_true(ckpi_hindex_put(&ix, i % 2 == 0 ? 7 : 7 + 16, i));
    size_t at = 0;
    uint64_t seen = 0;
    for (uint32_t row; (row = ckpi_hindex_next(&ix, 7, &at)) != CKPI_HINDEX_NONE;)
        seen |= UINT64_C(1) << row;
    assert_int_equal(seen, UINT64_C(0x5555555555));
    ckpi_hindex_free(&ix);
}

/* Hashes that end alike, as whoever makes a file can choose them, are found in a few steps each, and after growth in the order in which they came. */
static void
test_alike(void **state)
{
    (void)state;
    enum { N = 20000, EQUAL = 20 };
    ckpi_hindex ix = {0};
    size_t steps = 0;
    for (uint32_t i = 0; i < N; i++)
        assert_true(ckpi_hindex_put(&ix, i % 1000 < EQUAL ? 5 : (uint64_t)i << 44, i));
    for (uint32_t i = 0; i < N; i++) {
        size_t at = 0;
        if (i % 1000 >= EQUAL)
            assert_int_equal(ckpi_hindex_next(&ix, (uint64_t)i << 44, &at), i);
        steps += at;
    }
    assert_true(steps < 100 * (size_t)N);
    size_t at = 0;
    uint32_t before = 0;
    for (uint32_t row, n = 0; (row = ckpi_hindex_next(&ix, 5, &at)) != CKPI_HINDEX_NONE; before = row, n++)
        assert_true(n == 0 || row > before);
    ckpi_hindex_free(&ix);
}

static void
test_no_memory(void **state)
{
    (void)state;
    ckpi_hindex ix = {0};
    for (uint32_t i = 0; i < 10; i++)
        assert_true(ckpi_hindex_put(&ix, i, i));
    failalloc_begin(1);
    assert_false(ckpi_hindex_put(&ix, 10, 10));
    failalloc_end(NULL, NULL);
    for (uint32_t i = 0; i < 10; i++) {
        size_t at = 0;
        assert_int_equal(ckpi_hindex_next(&ix, i, &at), i);
    }
    assert_true(ckpi_hindex_put(&ix, 10, 10));
    ckpi_hindex_free(&ix);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_equal_hashes), cmocka_unit_test(test_alike),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
