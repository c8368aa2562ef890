/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "base/checked.h"
#include "harness/check.h"

static void
overflow_leaves_the_result_alone(void **state)
{
    (void)state;
    uint64_t v = 7;
    size_t s = 7;
    assert_false(ckpi_add_u64(UINT64_MAX, 1, &v));
    assert_false(ckpi_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &v));
    assert_false(ckpi_add_size(SIZE_MAX, 1, &s));
    assert_false(ckpi_mul_size(SIZE_MAX, 2, &s));
    assert_int_equal(v, 7);
    assert_int_equal(s, 7);
}

static void
the_largest_results_are_right(void **state)
{
    (void)state;
    uint64_t v;
    size_t s;
    assert_true(ckpi_add_u64(UINT64_MAX - 1, 1, &v) && v == UINT64_MAX);
    assert_true(ckpi_mul_u64(UINT64_MAX, 1, &v) && v == UINT64_MAX);
    assert_true(ckpi_mul_u64(UINT64_MAX, 0, &v) && v == 0);
    assert_true(ckpi_mul_u64(0, UINT64_MAX, &v) && v == 0);
    assert_true(ckpi_mul_u64(UINT32_MAX, (UINT64_C(1) << 32) + 1, &v) && v == UINT64_MAX);
    assert_true(ckpi_add_size(SIZE_MAX, 0, &s) && s == SIZE_MAX);
    assert_true(ckpi_mul_size(SIZE_MAX / 2, 2, &s) && s == SIZE_MAX - 1);
}

static void
bytes_are_little_endian_at_any_alignment(void **state)
{
    (void)state;
    uint8_t raw[16] = {0};
    for (unsigned at = 0; at < 8; at++) {
        ckpi_st64(raw + at, UINT64_C(0x0102030405060708));
        assert_int_equal(raw[at], 8);
        assert_int_equal(raw[at + 7], 1);
        assert_true(ckpi_ld64(raw + at) == UINT64_C(0x0102030405060708));
        assert_int_equal(ckpi_ld32(raw + at), 0x05060708);
        assert_int_equal(ckpi_ld16(raw + at), 0x0708);
        ckpi_st32(raw + at, 0xfffefdfc);
        assert_int_equal(ckpi_ld32(raw + at), 0xfffefdfc);
        ckpi_st16(raw + at, 0xfedc);
        assert_int_equal(ckpi_ld16(raw + at), 0xfedc);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow_leaves_the_result_alone),
        cmocka_unit_test(the_largest_results_are_right),
        cmocka_unit_test(bytes_are_little_endian_at_any_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
