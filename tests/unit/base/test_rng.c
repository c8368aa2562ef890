/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "harness/check.h"
#include <math.h>

/* Pinned, so that a refactoring cannot change what a run draws: computed with an independent Python version. */
static void
known_values(void **state)
{
    (void)state;
    assert_int_equal(ckpi_mix32(0), 0);
    assert_int_equal(ckpi_mix32(1), 0x688990c0u);
    assert_int_equal(ckpi_mix32(0xdeadbeef), 0xe628c683u);
    assert_int_equal(ckpi_rng_key(0, 0, 0, 0), 0x2130748au);
    assert_int_equal(ckpi_rng_key(1, 2, 3, 4), 0x336c3255u);
    assert_int_equal(ckpi_rng32(ckpi_rng_key(1, 2, 3, 4), 5), ckpi_mix32(ckpi_rng_key(1, 2, 3, 4) ^ 5));
}

static void
words_and_their_order_matter(void **state)
{
    (void)state;
    static const uint64_t words[][4] = {{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1},
                                        {1, 1, 0, 0}, {UINT64_C(1) << 63, 0, 0, 0}, {UINT64_C(1) << 32, 0, 0, 0}};
    for (size_t i = 0; i < CHECK_COUNT(words); i++)
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(ckpi_rng_key(words[i][0], words[i][1], words[i][2], words[i][3]),
                                 ckpi_rng_key(words[k][0], words[k][1], words[k][2], words[k][3]));
}

/* The phases that rounding uses: uniform, and neighbours not correlated. */
static void
draws_are_uniform(void **state)
{
    (void)state;
    enum { N = 1 << 20, BINS = 256 };
    for (uint64_t stream = 0; stream < 4; stream++) {
        const uint32_t key = ckpi_rng_key(42, stream, 0, 0);
        static unsigned bins[BINS];
        memset(bins, 0, sizeof bins);
        double sum = 0, pairs = 0, before = 0;
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t v = ckpi_rng32(key, i);
            const double u = (double)v * 0x1p-32 - 0.5;
            bins[v >> 24]++;
            sum += u;
            pairs += u * before;
            before = u;
        }
        double chi2 = 0;
        for (int b = 0; b < BINS; b++)
            chi2 += ((double)bins[b] - N / BINS) * ((double)bins[b] - N / BINS) / (N / BINS);
        assert_true(chi2 < 255 + 5 * sqrt(2 * 255.0));
        assert_true(fabs(sum / N) < 5 * sqrt(1.0 / 12 / N));
        assert_true(fabs(pairs / N) < 5 * sqrt(1.0 / 144 / N));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(words_and_their_order_matter),
        cmocka_unit_test(draws_are_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
