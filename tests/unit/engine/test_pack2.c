/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pack2.h"
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"

static int8_t
draw(test_rng *r, unsigned others)
{
    return test_below(r, 100) < others ? (int8_t)test_below(r, 256) : (int8_t)((int)test_below(r, 3) - 1);
}

/* Every length up to some vectors' worth, in pieces, with few and with many others, and buffers that end at an unmapped page. */
static void
test_round_trip(void **state)
{
    static const unsigned others[] = {0, 3, 60};
    (void)state;
    test_rng r = test_rng_new("pack2");
    ckpi_pack2 p = {0};
    assert_true(ckpi_pack2_alloc(&p, 3 * 1000 + 12));
    for (size_t n = 0; n < 700; n = n < 270 ? n + 1 : n + 37) {
        int8_t *code[3], *back[3];
        ckpi_unpack2 from = {0};
        assert_true(ckpi_pack2_alloc(&p, 0));        /* what is there is enough */
        for (size_t k = 0; k < 3; k++) {
            code[k] = (int8_t *)guard_alloc(n + k);
            for (size_t i = 0; i < n + k; i++)
                code[k][i] = draw(&r, others[(n + k) % 3]);
            assert_true(ckpi_pack2_add(&p, code[k], n + k));
        }
        for (size_t k = 0; k < 3; k++) {
            back[k] = (int8_t *)guard_alloc(n + k);
            ckpi_pack2_take(&p, &from, back[k], n + k);
            assert_memory_equal(code[k], back[k], n + k);
        }
        for (size_t k = 0; k < 3; k++) {
            guard_free(code[k]);
            guard_free(back[k]);
        }
    }
    ckpi_pack2_free(&p);
}

/* Every value at each of four places. */
static void
test_every_byte(void **state)
{
    (void)state;
    ckpi_pack2 p = {0};
    for (int x = -128; x < 128; x++)
        for (size_t at = 0; at < 4; at++) {
            int8_t code[4] = {-1, 1, 0, -1}, back[4];
            ckpi_unpack2 from = {0};
            code[at] = (int8_t)x;
            assert_true(ckpi_pack2_alloc(&p, 4) && ckpi_pack2_add(&p, code, 4));
            assert_int_equal(p.n_other, x < -1 || x > 1);
            ckpi_pack2_take(&p, &from, back, 4);
            assert_memory_equal(code, back, 4);
        }
    assert_true(ckpi_pack2_held(&p) >= 1);
    ckpi_pack2_free(&p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_every_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
