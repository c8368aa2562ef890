/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stream.h"
#include "harness/check.h"
#include "harness/guard.h"
#include <string.h>

enum { LONGEST = 300, BEFORE = 64 };

/* Every length beside every alignment of either, flush against memory that is not there; what lies before stays as it is. */
static void
copies_to_the_last_byte(void **state)
{
    (void)state;
    uint8_t src[LONGEST + 3], *all = guard_alloc(BEFORE + LONGEST), *end = all + BEFORE + LONGEST;
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (uint8_t)(i * 37 + 1);
    for (size_t n = 0; n <= LONGEST; n++) {
        for (size_t skew = 0; skew < 3; skew++) {
            uint8_t *dst = end - n;
            memset(all, 0xee, BEFORE + LONGEST);
            ckpi_stream(dst, src + skew, n);
            assert_memory_equal(dst, src + skew, n);
            for (size_t i = 1; i <= BEFORE; i++)
                assert_int_equal(*(dst - i), 0xee);
        }
    }
    guard_free(all);
}

static void
reads_and_writes_no_further(void **state)
{
    (void)state;
    for (size_t n = 1; n <= LONGEST; n++) {
        uint8_t *src = guard_alloc(n), *dst = guard_alloc(n), *front = guard_alloc_front(n);
        memset(src, (int)(n & 255), n);
        guard_readonly(src);
        ckpi_stream(dst, src, n);
        assert_memory_equal(dst, src, n);
        ckpi_stream(front, src, n);
        assert_memory_equal(front, src, n);
        guard_free(front);
        guard_free(dst);
        guard_free(src);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_to_the_last_byte),
        cmocka_unit_test(reads_and_writes_no_further),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
