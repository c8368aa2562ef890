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
    uint8_t *src = guard_alloc(n * width), *back = guard_alloc(n * width), *plane = guard_alloc(n);

    test_bytes(r, src, n * width);
    for (unsigned k = 0; k < width; k++) {
        ckpi_plane_take(plane, src, n, width, k);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(plane[i], src[i * width + k]);
        ckpi_plane_put(back, plane, n, width, k);
    }
    if (n != 0)
        assert_memory_equal(back, src, n * width);
    guard_free(src);
    guard_free(back);
    guard_free(plane);
}

static void
test_take_and_put(void **state)
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_take_and_put)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
