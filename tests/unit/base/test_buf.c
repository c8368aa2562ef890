/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/cursor.h"
#include "harness/check.h"
#include "harness/failalloc.h"
#include "harness/seed.h"
#include <math.h>

/* What is written is read back, in little-endian order. */
static void
round_trip(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT;
    ckpi_buf_u8(&b, 0x12);
    ckpi_buf_u16(&b, 0x3456);
    ckpi_buf_u32(&b, 0x789abcde);
    ckpi_buf_u64(&b, UINT64_C(0x1122334455667788));
    ckpi_buf_varint(&b, 300);
    ckpi_buf_f32(&b, -0.0f);
    ckpi_buf_f64(&b, 1.5);
    ckpi_buf_str(&b, "hi", 2);
    ckpi_buf_str(&b, NULL, 0);
    ckpi_buf_put(&b, NULL, 0);
    assert_ok(ckpi_buf_status(&b, NULL, "test"));
    static const uint8_t head[] = {0x12, 0x56, 0x34, 0xde, 0xbc, 0x9a, 0x78, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xac, 0x02};
    assert_memory_equal(b.data, head, sizeof head);

    ckpi_rd r = ckpi_rd_init(b.data, b.len, 0);
    assert_int_equal(ckpi_rd_u8(&r), 0x12);
    assert_int_equal(ckpi_rd_u16(&r), 0x3456);
    assert_int_equal(ckpi_rd_u32(&r), 0x789abcde);
    assert_true(ckpi_rd_u64(&r) == UINT64_C(0x1122334455667788));
    assert_int_equal(ckpi_rd_varint(&r, 300), 300);
    assert_true(signbit(ckpi_rd_f32(&r)));
    assert_true(ckpi_rd_f64(&r) == 1.5);
    size_t n;
    assert_memory_equal(ckpi_rd_str(&r, 2, &n), "hi", 2);
    assert_int_equal(n, 2);
    assert_non_null(ckpi_rd_str(&r, 2, &n));
    assert_int_equal(n, 0);
    assert_true(ckpi_rd_done(&r));
    ckpi_buf_free(&b);
}

static void
varints_have_the_shortest_form(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++)
        for (int d = -1; d <= 1; d++) {
            const uint64_t v = (UINT64_C(1) << bit) + (uint64_t)d;
            ckpi_buf b = CKPI_BUF_INIT;
            ckpi_buf_varint(&b, v);
            unsigned bits = 0;
            for (uint64_t x = v; x != 0; x >>= 1)
                bits++;
            assert_int_equal(b.len, bits == 0 ? 1 : (bits + 6) / 7);
            ckpi_rd r = ckpi_rd_init(b.data, b.len, 0);
            assert_true(ckpi_rd_varint(&r, UINT64_MAX) == v);
            assert_true(ckpi_rd_done(&r));
            ckpi_buf_free(&b);
        }
}

static void
the_cap_is_sticky(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT_MAX(10);
    ckp_error err;
    ckpi_buf_u64(&b, 1);
    assert_ok(b.failed);
    ckpi_buf_u32(&b, 2);
    assert_status(b.failed, CKP_ELIMIT);
    ckpi_buf_u8(&b, 3);                    /* would fit, but comes after a failure */
    assert_int_equal(b.len, 8);
    assert_false(ckpi_buf_reserve(&b, 0));
    assert_null(ckpi_buf_extend(&b, 1));
    assert_status(ckpi_buf_status(&b, &err, "table"), CKP_ELIMIT);
    assert_non_null(strstr(err.text, "table"));
    assert_non_null(strstr(err.text, "10"));
    ckpi_buf_clear(&b);
    ckpi_buf_u64(&b, 1);
    ckpi_buf_u16(&b, 1);
    assert_ok(b.failed);
    assert_int_equal(b.len, 10);
    assert_true(b.cap <= 10);
    ckpi_buf_free(&b);
    assert_int_equal(b.max, 10);           /* an empty, reusable buffer with the same cap */
    ckpi_buf_free(NULL);
}

static void
absurd_sizes_fail(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT;
    ckpi_buf_u8(&b, 1);
    assert_false(ckpi_buf_reserve(&b, SIZE_MAX));
    assert_status(b.failed, CKP_ELIMIT);
    ckpi_buf_free(&b);
}

static void
an_empty_extension_has_a_place(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT;
    assert_non_null(ckpi_buf_extend(&b, 0));
    assert_int_equal(b.len, 0);
    ckpi_buf_free(&b);
}

static ckp_status
fill(void *user)
{
    (void)user;
    ckpi_buf b = CKPI_BUF_INIT;
    for (unsigned i = 0; i < 5000; i++)
        ckpi_buf_u32(&b, i);
    const ckp_status st = ckpi_buf_status(&b, NULL, "fill");
    if (st == CKP_OK)
        assert_int_equal(b.len, 20000);
    ckpi_buf_free(&b);
    return st;
}

static void
what_is_not_used_is_given_back(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT;
    assert_true(ckpi_buf_reserve(&b, 4096));
    ckpi_buf_put(&b, "abc", 3);
    ckpi_buf_fit(&b);
    assert_int_equal(b.cap, 3);
    assert_memory_equal(b.data, "abc", 3);
    ckpi_buf_put(&b, "def", 3);
    assert_memory_equal(b.data, "abcdef", 6);
    ckpi_buf_clear(&b);
    ckpi_buf_fit(&b);
    assert_int_equal(b.cap, 0);
    ckpi_buf_fit(&b);
    ckpi_buf_free(&b);
}

static void
failing_allocations(void **state)
{
    (void)state;
    failalloc_run(fill, NULL, 5, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(varints_have_the_shortest_form),
        cmocka_unit_test(the_cap_is_sticky),
        cmocka_unit_test(absurd_sizes_fail),
        cmocka_unit_test(an_empty_extension_has_a_place),
        cmocka_unit_test(what_is_not_used_is_given_back),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
