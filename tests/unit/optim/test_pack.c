/* SPDX-License-Identifier: Apache-2.0 */
/* Codes come back; exactly the bytes that belong to a row are touched. */
#include <stdlib.h>
#include "base/cpu.h"
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "optim/pack.h"

static void
codes_come_back(void **state)
{
    test_rng r = test_rng_new("codes_come_back");
    (void)state;
    for (unsigned bits = 0; bits < 10; bits++) {
        if (!ckpi_o_pack_known(bits))
            continue;
        for (size_t n = 0; n < 300; n++) {
            uint8_t *code = guard_alloc(n), *packed = guard_alloc(ckpi_o_pack_bytes(n, bits)), back[384];
            test_bytes(&r, code, n);
            const ckpi_o_packer *ref = ckpi_o_pack_pick(0), *pk = ckpi_o_pack_pick(ckpi_cpu());
            uint8_t same[300];
            ref->pack(same, code, n, bits);
            pk->pack(packed, code, n, bits);
            assert_memory_equal(same, packed, ckpi_o_pack_bytes(n, bits));
            memset(back, 0x5a, sizeof back);
            (n % 2 ? pk : ref)->unpack(back, packed, n, bits);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(back[i], code[i] & ((1u << bits) - 1));
            for (size_t i = (n + 7) / 8 * 8; i < sizeof back; i++)
                assert_int_equal(back[i], 0x5a);
            pk->unpack_signed((int8_t *)back, packed, n, bits);
            for (size_t i = 0; i < n; i++) {
                const int low = code[i] & ((1 << bits) - 1);
                assert_int_equal((int8_t)back[i], low >= 1 << (bits - 1) ? low - (1 << bits) : low);
            }
            guard_free(code);
            guard_free(packed);
        }
    }
}

static void
sizes(void **state)
{
    (void)state;
    assert_int_equal(ckpi_o_pack_bytes(64, 3), 24);
    assert_int_equal(ckpi_o_pack_bytes(65, 3), 27);
    assert_int_equal(ckpi_o_pack_bytes(65, 8), 65);
    assert_int_equal(ckpi_o_pack_bytes(0, 4), 0);
    assert_false(ckpi_o_pack_known(0) || ckpi_o_pack_known(1) || ckpi_o_pack_known(7) || ckpi_o_pack_known(9));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(codes_come_back), cmocka_unit_test(sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
