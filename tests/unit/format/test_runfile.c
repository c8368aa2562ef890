/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/check.h"
#include <stdio.h>
#include "format/runfile.h"

static void
test_run(void **state)
{
    (void)state;
    const ckpi_runfile run = {.id = {7, 8}, .created = -5};
    ckpi_runfile back;
    ckpi_buf b = CKPI_BUF_INIT;
    assert_ok(ckpi_runfile_print(&run, &b, NULL));
    assert_ok(ckpi_runfile_parse(&back, b.data, b.len, NULL));
    assert_true(ckpi_id_eq(back.id, run.id) && back.created == -5);
    for (size_t bit = 0; bit < 8 * b.len; bit++) {
        b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(ckpi_runfile_parse(&back, b.data, b.len, NULL), CKP_OK);
        b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t n = 0; n < b.len; n++)
        assert_int_not_equal(ckpi_runfile_parse(&back, b.data, n, NULL), CKP_OK);
    ckpi_buf_clear(&b);
    const ckpi_runfile zero = {.created = 1};
    assert_ok(ckpi_runfile_print(&zero, &b, NULL));
    assert_status(ckpi_runfile_parse(&back, b.data, b.len, NULL), CKP_ECORRUPT);
    ckpi_buf_free(&b);
}

static void
test_lock(void **state)
{
    (void)state;
    ckpi_lockfile l = {.run_id = {1, 2}, .epoch = 9, .nonce = UINT64_MAX - 1, .held = true, .time = 1790000000, .expiry = 120};
    ckpi_lockfile back;
    ckpi_buf b = CKPI_BUF_INIT;
    ckpi_proc_self(&l.owner);
    assert_ok(ckpi_lockfile_print(&l, &b, NULL));
    assert_ok(ckpi_lockfile_parse(&back, b.data, b.len, NULL));
    assert_true(ckpi_id_eq(back.run_id, l.run_id) && back.epoch == 9 && back.nonce == l.nonce && back.held);
    assert_true(back.time == l.time && back.expiry == 120);
    assert_string_equal(back.owner.host, l.owner.host);
    assert_string_equal(back.owner.boot, l.owner.boot);
    assert_true(back.owner.pid == l.owner.pid && back.owner.pid_ns == l.owner.pid_ns && back.owner.start == l.owner.start);
    ckpi_runfile run;
    assert_status(ckpi_runfile_parse(&run, b.data, b.len, NULL), CKP_EFORMAT);       /* one record is not the other */
    ckpi_buf_free(&b);
}

static void
test_copied(void **state)
{
    (void)state;
    const ckpi_copyfile c = {.run_id = {1, 2}, .sequence = 77, .dir = "step-00000100-9f3a61c2", .next = ""};
    ckpi_copyfile back, bad = c;
    ckpi_buf b = CKPI_BUF_INIT;
    assert_ok(ckpi_copyfile_print(&c, &b, NULL));
    assert_ok(ckpi_copyfile_parse(&back, b.data, b.len, NULL));
    assert_memory_equal(&back, &c, sizeof c);
    for (size_t bit = 0; bit < 8 * b.len; bit++) {
        b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(ckpi_copyfile_parse(&back, b.data, b.len, NULL), CKP_OK);
        b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* a sweep removes what `next` names: only what can be a checkpoint's may be named */
    static const char *const names[] = {"lock", "step-7", "step-00000100-9f3a61c2/..", "../step-00000100-9f3a61c2"};
    for (size_t i = 0; i < CHECK_COUNT(names); i++) {
        (void)snprintf(bad.next, sizeof bad.next, "%s", names[i]);
        ckpi_buf_clear(&b);
        assert_ok(ckpi_copyfile_print(&bad, &b, NULL));
        assert_status(ckpi_copyfile_parse(&back, b.data, b.len, NULL), CKP_ECORRUPT);
    }
    ckpi_buf_free(&b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_run), cmocka_unit_test(test_lock), cmocka_unit_test(test_copied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
