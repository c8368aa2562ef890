/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pack2.h"
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"

/* Every length up to some vectors' worth, with buffers that end at an unmapped page. */
static void
test_round_trip(void **state)
{
    (void)state;
    test_rng r = test_rng_new("pack2");
    for (size_t n = 0; n < 700; n = n < 270 ? n + 1 : n + 37) {
        int8_t *code = (int8_t *)guard_alloc(n), *back = (int8_t *)guard_alloc(n);
        uint8_t *packed = guard_alloc(CKPI_PACK2_BYTES(n));
        for (size_t i = 0; i < n; i++)
            code[i] = (int8_t)((int)test_below(&r, 3) - 1);
        ckpi_pack2(packed, code, n);
        ckpi_unpack2(back, packed, n);
        assert_memory_equal(code, back, n);
        guard_free(code);
        guard_free(back);
        guard_free(packed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
