/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "harness/guard.h"
#include "harness/seed.h"
#include "base/crc32.h"

/* One bit at a time: the definition. */
static uint32_t
slow(uint32_t crc, const uint8_t *p, size_t n)
{
    uint32_t r = ~crc;
    for (size_t i = 0; i < n; i++) {
        r ^= p[i];
        for (int k = 0; k < 8; k++)
            r = r >> 1 ^ (0xedb88320u & (0u - (r & 1)));
    }
    return ~r;
}

static void
test_known(void **state)
{
    (void)state;
    ckpi_crc c;
    ckpi_crc_init(&c);
    assert_int_equal(ckpi_crc_add(&c, 0, "123456789", 9), 0xcbf43926);
    assert_int_equal(ckpi_crc_add(&c, 0, "", 0), 0);
}

/* Every length around the steps of the fast path, at odd addresses and flush against unmapped memory. */
static void
test_equal(void **state)
{
    (void)state;
    test_rng r = test_rng_new("crc32");
    ckpi_crc c;
    ckpi_crc_init(&c);
    for (size_t n = 0; n < 400; n++) {
        uint8_t *p = guard_alloc(n);
        const uint32_t start = (uint32_t)test_u64(&r);
        test_bytes(&r, p, n);
        const uint32_t want = slow(start, p, n);
        assert_int_equal(ckpi_crc_add(&c, start, p, n), want);
        assert_int_equal(ckpi_crc_add_ref(&c, start, p, n), want);
        assert_int_equal(ckpi_crc_add(&c, ckpi_crc_add(&c, start, p, n / 3), p + n / 3, n - n / 3), want);
        guard_free(p);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_equal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
