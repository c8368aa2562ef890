/* SPDX-License-Identifier: Apache-2.0 */
/* Byte planes: what the header says, for every width and length around the vectors', without a byte beyond. */
#include "harness/check.h"

#include <stdlib.h>
#include <string.h>

#include "codec/stream/plane.h"
#include "harness/guard.h"
#include "harness/seed.h"

enum { MOST = 70, WIDEST = 9 };

static void
check(test_rng *r, size_t n, unsigned width)
{
    uint8_t *src = guard_alloc(n * width), *back = guard_alloc(n * width), *plane[WIDEST];

    test_bytes(r, src, n * width);
    for (unsigned k = 0; k < width; k++) {
        plane[k] = guard_alloc(n);
        ckpi_plane_take(plane[k], src, n, width, k);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(plane[k][i], src[i * width + k]);
    }
    ckpi_plane_join(back, (const uint8_t *const *)plane, n, width);
    if (n != 0)
        assert_memory_equal(back, src, n * width);
    guard_free(src);
    guard_free(back);
    for (unsigned k = 0; k < width; k++)
        guard_free(plane[k]);
}

static void
test_take_and_join(void **state)
{
    (void)state;
    test_rng r = test_rng_new("plane");
    for (unsigned width = 1; width <= WIDEST; width++)
        for (size_t n = 0; n <= MOST; n++)
            check(&r, n, width);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_take_and_join)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
