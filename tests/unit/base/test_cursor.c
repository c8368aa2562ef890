/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cursor.h"
#include "harness/check.h"
#include "harness/guard.h"

static void
after_a_bad_read_nothing_moves(void **state)
{
    (void)state;
    static const uint8_t data[] = {1, 2, 3, 4, 5};
    ckpi_rd r = ckpi_rd_init(data, sizeof data, 1000);
    assert_int_equal(ckpi_rd_u16(&r), 0x0201);
    assert_int_equal(ckpi_rd_u32(&r), 0);
    assert_false(ckpi_rd_ok(&r));
    assert_int_equal(r.pos, 2);
    size_t n = 9;
    assert_int_equal(ckpi_rd_u8(&r), 0);
    assert_int_equal(ckpi_rd_u16(&r), 0);
    assert_int_equal(ckpi_rd_u64(&r), 0);
    assert_int_equal(ckpi_rd_varint(&r, UINT64_MAX), 0);
    assert_true(ckpi_rd_f32(&r) == 0);
    assert_true(ckpi_rd_f64(&r) == 0);
    assert_null(ckpi_rd_bytes(&r, 1));
    assert_null(ckpi_rd_str(&r, 10, &n));
    assert_int_equal(n, 0);
    assert_int_equal(r.pos, 2);
    assert_int_equal(ckpi_rd_left(&r), 0);
    assert_false(ckpi_rd_done(&r));

    ckp_error err;
    assert_status(ckpi_rd_error(&r, &err, "tensor record"), CKP_ECORRUPT);
    assert_int_equal(err.offset, 1002);
    assert_non_null(strstr(err.text, "tensor record"));
    assert_non_null(strstr(err.text, "4 bytes"));
    assert_non_null(strstr(err.text, "1002"));
}

static void
the_first_reason_stays(void **state)
{
    (void)state;
    ckpi_rd r = ckpi_rd_init("", 0, 0);
    ckpi_rd_fail(&r, "a known codec");
    ckpi_rd_fail(&r, "something else");
    (void)ckpi_rd_u8(&r);
    assert_string_equal(r.why, "a known codec");
}

static void
done_needs_the_end(void **state)
{
    (void)state;
    ckpi_rd r = ckpi_rd_init("ab", 2, 0);
    assert_false(ckpi_rd_done(&r));
    assert_memory_equal(ckpi_rd_bytes(&r, 2), "ab", 2);
    assert_true(ckpi_rd_done(&r));
    assert_null(ckpi_rd_bytes(&r, 0));
    assert_true(ckpi_rd_done(&r));      /* no bytes are no failure */
    ckp_error err;
    assert_status(ckpi_rd_error(&r, &err, "x"), CKP_ECORRUPT);
}

/* Each reader, at every length shorter than it needs, flush against an unmapped page. */
static void
never_reads_beyond(void **state)
{
    (void)state;
    for (size_t len = 0; len < 12; len++) {
        uint8_t *p = guard_alloc(len);
        memset(p, 0xff, len);
        for (int kind = 0; kind < 6; kind++) {
            ckpi_rd r = ckpi_rd_init(p, len, 0);
            size_t n, need;
            switch (kind) {
            case 0: (void)ckpi_rd_u8(&r); need = 1; break;
            case 1: (void)ckpi_rd_u16(&r); need = 2; break;
            case 2: (void)ckpi_rd_u32(&r); need = 4; break;
            case 3: (void)ckpi_rd_u64(&r); need = 8; break;
            case 4: (void)ckpi_rd_varint(&r, UINT64_MAX); need = 99; break;
            default: (void)ckpi_rd_str(&r, SIZE_MAX, &n); need = 99; break;
            }
            assert_int_equal(ckpi_rd_ok(&r), len >= need);
            assert_int_equal(r.pos, len >= need ? need : 0);
        }
        guard_free(p);
    }
}

struct bad_varint { const char *bytes; size_t len; uint64_t max; };

static void
bad_varints(void **state)
{
    (void)state;
    static const struct bad_varint bad[] = {
        {"\x80\x00", 2, UINT64_MAX},                                      /* zero in two bytes */
        {"\xff\x80\x00", 3, UINT64_MAX},                                  /* over-long */
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", 10, UINT64_MAX},     /* 2^64 */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10, UINT64_MAX},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, UINT64_MAX}, /* eleven bytes */
        {"\x80", 1, UINT64_MAX},                                          /* cut */
        {"\x05", 1, 4},                                                   /* above max */
    };
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        ckpi_rd r = ckpi_rd_init(bad[i].bytes, bad[i].len, 0);
        assert_int_equal(ckpi_rd_varint(&r, bad[i].max), 0);
        assert_false(ckpi_rd_ok(&r));
        assert_int_equal(r.pos, 0);
    }
    ckpi_rd r = ckpi_rd_init("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, 0);
    assert_true(ckpi_rd_varint(&r, UINT64_MAX) == UINT64_MAX);
    assert_true(ckpi_rd_done(&r));
}

static void
strings_keep_to_their_cap(void **state)
{
    (void)state;
    size_t n;
    ckpi_rd r = ckpi_rd_init("\x03" "abcd", 5, 0);
    assert_memory_equal(ckpi_rd_str(&r, 3, &n), "abc", 3);
    assert_int_equal(n, 3);
    assert_int_equal(ckpi_rd_left(&r), 1);

    r = ckpi_rd_init("\x03" "abcd", 5, 0);
    assert_null(ckpi_rd_str(&r, 2, &n));
    assert_false(ckpi_rd_ok(&r));

    r = ckpi_rd_init("\x09" "abcd", 5, 0);      /* longer than what is left */
    assert_null(ckpi_rd_str(&r, 100, &n));
    assert_int_equal(r.pos, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_bad_read_nothing_moves),
        cmocka_unit_test(the_first_reason_stays),
        cmocka_unit_test(done_needs_the_end),
        cmocka_unit_test(never_reads_beyond),
        cmocka_unit_test(bad_varints),
        cmocka_unit_test(strings_keep_to_their_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
