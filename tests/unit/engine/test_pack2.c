/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "engine/pack2.h"
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "quant/quant.h"

static int8_t
draw(test_rng *r, unsigned others)
{
    return test_below(r, 100) < others ? (int8_t)test_below(r, 256) : (int8_t)((int)test_below(r, 3) - 1);
}

static const uint32_t words[] = {0, CKPI_CPU_AVX2, CKPI_CPU_AVX2 | CKPI_CPU_AVX512, CKPI_CPU_NEON};

/* Three pieces of about n codes; p ends as the reference leaves it. */
static void
pieces(test_rng *r, size_t n, unsigned others, uint32_t cpu)
{
    ckpi_pack2 p = {0}, ref = {0};
    ckpi_unpack2 from = {0};
    int8_t *code[3];
    assert_true(ckpi_pack2_alloc(&p, 3 * n + 15) && ckpi_pack2_alloc(&ref, 3 * n + 15) && ckpi_pack2_alloc(&p, 0));    /* what is there is enough */
    for (size_t k = 0; k < 3; k++) {
        code[k] = (int8_t *)guard_alloc(n + k);
        for (size_t i = 0; i < n + k; i++)
            code[k][i] = draw(r, others);
        assert_true(ckpi_pack2_add(&p, code[k], n + k, cpu) && ckpi_pack2_add(&ref, code[k], n + k, 0));
    }
    assert_int_equal(p.n, ref.n);
    assert_int_equal(p.n_other, ref.n_other);
    assert_memory_equal(p.two, ref.two, CKPI_PACK2_BYTES(p.n));
    assert_memory_equal(p.other, ref.other, p.n_other);
    for (size_t k = 0; k < 3; k++) {
        int8_t *back = (int8_t *)guard_alloc(n + k);
        ckpi_pack2_take(&p, &from, back, n + k, cpu);
        assert_memory_equal(code[k], back, n + k);
        guard_free(code[k]);
        guard_free(back);
    }
    ckpi_pack2_free(&p);
    ckpi_pack2_free(&ref);
}

/* Every length up to some vectors' worth, with few and with many others, and buffers that end at an unmapped page. */
static void
test_round_trip(void **state)
{
    static const unsigned others[] = {0, 1, 3, 60};
    (void)state;
    test_rng r = test_rng_new("pack2");
    for (size_t w = 0; w < CHECK_COUNT(words); w++)
        for (size_t n = 0; n < 700 && (ckpi_cpu() & words[w]) == words[w]; n = n < 270 ? n + 1 : n + 37)
            pieces(&r, n, others[n % 4], words[w]);
}

/* What vectors take and give ends at the first code that is none of the three, wherever it is. */
static void
test_ends(void **state)
{
    enum { N = 256 };
    (void)state;
    test_rng r = test_rng_new("pack2_ends");
    for (size_t w = 0; w < CHECK_COUNT(words); w++)
        for (size_t at = 0; at < N && (ckpi_cpu() & words[w]) == words[w]; at++) {
            int8_t code[N], back[N];
            uint8_t two[N / 4];
            for (size_t i = 0; i < N; i++)
                code[i] = draw(&r, 0);
            assert_int_equal(ckpi_quant_pack2(code, N, two, words[w]), N);
            code[at] = (int8_t)(test_below(&r, 2) != 0 ? 2 + (int)test_below(&r, 126) : -2 - (int)test_below(&r, 127));
            uint8_t again[N / 4] = {0};
            assert_int_equal(ckpi_quant_pack2(code, N, again, words[w]), at / 4 * 4);
            assert_memory_equal(two, again, at / 4);
            two[at / 4] = (uint8_t)((two[at / 4] & ~(3u << 2 * (at % 4))) | CKPI_PACK2_ELSEWHERE << 2 * (at % 4));
            assert_int_equal(ckpi_quant_unpack2(two, N, back, words[w]), at / 4 * 4);
            assert_memory_equal(code, back, at / 4 * 4);
        }
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
            assert_true(ckpi_pack2_alloc(&p, 4) && ckpi_pack2_add(&p, code, 4, ckpi_cpu()));
            assert_int_equal(p.n_other, x < -1 || x > 1);
            ckpi_pack2_take(&p, &from, back, 4, ckpi_cpu());
            assert_memory_equal(code, back, 4);
        }
    assert_true(ckpi_pack2_held(&p) >= 1);
    ckpi_pack2_free(&p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_ends), cmocka_unit_test(test_every_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
