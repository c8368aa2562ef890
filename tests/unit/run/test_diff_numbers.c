/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of differences: every type, small floats as their papers have them, sums that an f64 does not hold. */
#include <math.h>
#include "base/dtype.h"
#include "harness/check.h"
#include "harness/seed.h"
#include "run/diff_numbers.h"

static ckpi_diff_sums
sums_of(ckp_dtype dt, const void *a, const void *b, size_t n)
{
    ckpi_diff_sums s = {0};
    ckpi_diff_add(&s, dt, a, b, n);
    return s;
}

/* Every type: equal bytes are equal, and one other bit is one element, also where elements are smaller than a byte. */
static void
every_type(void **state)
{
    enum { N = 2048 + 8 };
    uint8_t a[N * 32], b[N * 32];
    const ckpi_dtype_info *t;
    test_rng rng = test_rng_new("every type");

    (void)state;
    for (size_t i = 0; (t = ckpi_dtype_at(i)) != NULL; i++) {
        uint64_t bytes = 0;
        assert_true(ckpi_dtype_bytes(t->id, N, &bytes));
        test_bytes(&rng, a, (size_t)bytes);
        memcpy(b, a, (size_t)bytes);
        ckpi_diff_sums s = sums_of(t->id, a, b, N);
        assert_true(s.differ == 0 && s.not_finite == 0 && s.max_abs == 0.0 && ckpi_squares_rms(&s.d, N) == 0.0);
        for (size_t k = 0; k < bytes; k += bytes / 8 + 1) {
            b[k] ^= 1;
            s = sums_of(t->id, a, b, N);
            assert_true(s.differ == 1 && s.not_finite <= 1);
            assert_true(ckpi_diff_has_numbers(t->id) || (s.max_abs == 0.0 && ckpi_squares_rms(&s.a, N) == 0.0));
            b[k] ^= 1;
        }
    }
}

/* Values of small floats that their papers name: largest, smallest, what is NaN. */
static void
small_floats(void **state)
{
    static const struct { ckp_dtype dt; uint8_t code; double value; } row[] = {
        {CKP_F8E4M3FN, 0x7E, 448.0}, {CKP_F8E4M3FN, 0x01, 0x1p-9}, {CKP_F8E4M3FN, 0x7F, NAN}, {CKP_F8E4M3FN, 0xC0, 2.0},
        {CKP_F8E5M2, 0x7B, 57344.0}, {CKP_F8E5M2, 0x01, 0x1p-16}, {CKP_F8E5M2, 0x7C, NAN}, {CKP_F8E5M2, 0x7D, NAN},
        {CKP_F8E4M3FNUZ, 0x7F, 240.0}, {CKP_F8E4M3FNUZ, 0x80, NAN}, {CKP_F8E4M3FNUZ, 0x01, 0x1p-10}, {CKP_F8E5M2FNUZ, 0x7F, 57344.0},
        {CKP_F8E5M2FNUZ, 0x80, NAN}, {CKP_F8E4M3B11FNUZ, 0x7F, 30.0}, {CKP_F8E4M3B11FNUZ, 0x80, NAN}, {CKP_F8E4M3, 0x77, 240.0}, {CKP_F8E4M3, 0x78, NAN},
        {CKP_F8E3M4, 0x6F, 15.5}, {CKP_F8E3M4, 0x70, NAN}, {CKP_F8E8M0FNU, 0x7F, 1.0}, {CKP_F8E8M0FNU, 0x00, 0x1p-127}, {CKP_F8E8M0FNU, 0xFF, NAN},
        {CKP_F6E2M3FN, 0x1F, 7.5}, {CKP_F6E3M2FN, 0x1F, 28.0}, {CKP_F4E2M1FN, 0x07, 6.0}, {CKP_F4E2M1FN, 0x01, 0.5},
        {CKP_I4, 0xF8, 8.0}, {CKP_U4, 0x0F, 15.0}};

    (void)state;
    for (size_t i = 0; i < CHECK_COUNT(row); i++) {
        /* against another value: what is not finite is counted, what is has its size in A's RMS */
        const uint8_t other = (uint8_t)(row[i].code ^ 1);
        const ckpi_diff_sums s = sums_of(row[i].dt, &row[i].code, &other, 1);
        assert_int_equal(s.differ, 1);
        if (isnan(row[i].value))
            assert_true(s.not_finite == 1 && ckpi_squares_rms(&s.a, 1) == 0.0);
        else if (fabs(ckpi_squares_rms(&s.a, 1) - row[i].value) > 1e-15 * row[i].value)
            fail_msg("dtype %d, code %02x: %g, not %g", (int)row[i].dt, row[i].code, ckpi_squares_rms(&s.a, 1), row[i].value);
    }
}

static void
sums_of_any_size(void **state)
{
    static const double size[] = {1e-320, 1e-200, 1.0, 1e200, 1.7e308};
    double a[4096], b[4096];

    (void)state;
    for (size_t i = 0; i < CHECK_COUNT(size); i++) {
        for (size_t k = 0; k < 4096; k++) {
            a[k] = k % 2 != 0 ? size[i] : -size[i];
            b[k] = 0.0;
        }
        const ckpi_diff_sums s = sums_of(CKP_F64, a, b, 4096);
        assert_true(s.differ == 4096 && s.max_abs == size[i]);
        assert_true(fabs(ckpi_squares_rms(&s.a, 4096) / size[i] - 1.0) < 1e-4 && fabs(ckpi_squares_rms(&s.d, 4096) / size[i] - 1.0) < 1e-4);
    }
    a[0] = 1.7e308;
    b[0] = -1.7e308;
    const ckpi_diff_sums s = sums_of(CKP_F64, a, b, 1);
    assert_true(s.differ == 1 && s.not_finite == 1 && s.max_abs == 0.0);
    const ckpi_squares none = {0};
    assert_true(ckpi_squares_rms(&none, 0) == 0.0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_type), cmocka_unit_test(small_floats), cmocka_unit_test(sums_of_any_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
