/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"
#include "base/limits.h"
#include "harness/check.h"

static void
the_table_is_consistent(void **state)
{
    (void)state;
    size_t rows = 0;
    const ckpi_dtype_info *d;
    for (size_t i = 0; (d = ckpi_dtype_at(i)) != NULL; i++, rows++) {
        assert_ptr_equal(ckpi_dtype_get(d->id), d);
        assert_int_equal(ckp_dtype_find(d->name), d->id);
        assert_string_equal(ckp_dtype_name(d->id), d->name);
        assert_int_equal(ckp_dtype_bits(d->id), d->bits);
        assert_true(d->bits <= CKPI_MAX_ELEM_BYTES * 8);
        assert_true(d->part_bytes >= 1 && (d->bits < 8 || d->bits % (d->part_bytes * 8u) == 0));
        if (d->kind == CKPI_KIND_FLOAT && d->bits >= 8 && d->id < CKP_F6E2M3FN)
            assert_int_equal(d->exp_bits + d->mant_bits + d->is_signed, d->bits);
        if (d->kind == CKPI_KIND_COMPLEX)
            assert_int_equal(2 * (d->exp_bits + d->mant_bits + 1), d->bits);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(ckpi_dtype_at(k)->id, d->id);
            assert_string_not_equal(ckpi_dtype_at(k)->name, d->name);
        }
    }
    assert_int_equal(rows, 48);
}

static void
unknown_dtypes(void **state)
{
    (void)state;
    uint64_t n;
    assert_null(ckpi_dtype_get((ckp_dtype)0));
    assert_null(ckp_dtype_name((ckp_dtype)99));
    assert_int_equal(ckp_dtype_bits((ckp_dtype)19), 0);
    assert_int_equal(ckp_dtype_find("float"), 0);
    assert_int_equal(ckp_dtype_find(NULL), 0);
    assert_false(ckpi_dtype_bytes((ckp_dtype)0, 1, &n));
}

static void
sizes(void **state)
{
    (void)state;
    uint64_t n;
    assert_true(ckpi_dtype_bytes(CKP_F32, 3, &n) && n == 12);
    assert_true(ckpi_dtype_bytes(CKP_C256, 2, &n) && n == 64);
    assert_true(ckpi_dtype_bytes(CKP_F64, 0, &n) && n == 0);
    assert_true(ckpi_dtype_bytes(CKP_I4, 3, &n) && n == 3);
    assert_true(ckpi_dtype_bytes(CKP_F4_PACKED, 6, &n) && n == 3);
    assert_false(ckpi_dtype_bytes(CKP_F4_PACKED, 5, &n));
    assert_true(ckpi_dtype_bytes(CKP_F6E2M3_PACKED, 4, &n) && n == 3);
    assert_true(ckpi_dtype_bytes(CKP_F6E2M3_PACKED, 12, &n) && n == 9);
    assert_false(ckpi_dtype_bytes(CKP_F6E2M3_PACKED, 6, &n));
    /* The bits of so many elements would overflow, the bytes do not. */
    assert_true(ckpi_dtype_bytes(CKP_F4_PACKED, UINT64_MAX - 1, &n) && n == UINT64_MAX / 2);
    assert_true(ckpi_dtype_bytes(CKP_U8, UINT64_MAX, &n) && n == UINT64_MAX);
    n = 5;
    assert_false(ckpi_dtype_bytes(CKP_F32, UINT64_MAX / 2, &n));
    assert_int_equal(n, 5);
}

static void
shapes(void **state)
{
    (void)state;
    uint64_t n;
    const uint64_t plain[] = {3, 4, 5}, huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 40}, empty[] = {UINT64_C(1) << 40, UINT64_C(1) << 40, 0};
    assert_true(ckpi_shape_numel(NULL, 0, &n) && n == 1);
    assert_true(ckpi_shape_numel(plain, 3, &n) && n == 60);
    assert_false(ckpi_shape_numel(huge, 2, &n));
    assert_false(ckpi_shape_numel(empty, 3, &n));   /* overflows before it is known to be empty */
    const uint64_t empty_first[] = {0, UINT64_C(1) << 40, UINT64_C(1) << 40};
    assert_true(ckpi_shape_numel(empty_first, 3, &n) && n == 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_consistent),
        cmocka_unit_test(unknown_dtypes),
        cmocka_unit_test(sizes),
        cmocka_unit_test(shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
