/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include <errno.h>
#include "harness/check.h"
#include <stdlib.h>

static void
fields_and_text(void **state)
{
    (void)state;
    ckp_error err;
    memset(&err, 0xff, sizeof err);
    assert_status(ckpi_fail(&err, CKP_EINVAL, "bad %s %d", "thing", 7), CKP_EINVAL);
    assert_status(err.code, CKP_EINVAL);
    assert_string_equal(err.text, "bad thing 7");
    assert_string_equal(err.file, "");
    assert_string_equal(err.tensor, "");
    assert_true(err.offset == CKP_NO_OFFSET);
    assert_int_equal(err.sys_errno, 0);

    assert_status(ckpi_fail_at(&err, CKP_ECORRUPT, 123, "hash differs"), CKP_ECORRUPT);
    assert_string_equal(err.text, "hash differs (at byte 123)");
    assert_int_equal(err.offset, 123);
    ckpi_fail_tensor(&err, "wte.weight");
    ckpi_fail_file(&err, "a.ckp");
    assert_string_equal(err.text, "a.ckp: wte.weight: hash differs (at byte 123)");
    ckpi_fail_file(&err, "b.ckp");                 /* the first name stays */
    assert_string_equal(err.file, "a.ckp");

    ckpi_error_clear(&err);
    assert_status(err.code, CKP_OK);
    assert_string_equal(err.text, "");
}

static void
nobody_need_listen(void **state)
{
    (void)state;
    assert_status(ckpi_fail(NULL, CKP_EIO, "x"), CKP_EIO);
    assert_status(ckpi_fail_at(NULL, CKP_EIO, 1, "x"), CKP_EIO);
    assert_status(ckpi_fail_errno(NULL, ENOSPC, "x"), CKP_ENOSPC);
    ckpi_fail_file(NULL, "x");
    ckpi_fail_tensor(NULL, "x");
    ckpi_error_clear(NULL);
}

static void
errno_is_mapped(void **state)
{
    (void)state;
    static const struct { int sys; ckp_status st; } map[] = {
        {ENOSPC, CKP_ENOSPC}, {EDQUOT, CKP_ENOSPC}, {EACCES, CKP_EACCESS}, {EROFS, CKP_EACCESS}, {EPERM, CKP_EACCESS},
        {ENOENT, CKP_ENOTFOUND}, {ENOTDIR, CKP_ENOTFOUND}, {EEXIST, CKP_EEXIST}, {ENOMEM, CKP_ENOMEM}, {EIO, CKP_EIO}, {EBADF, CKP_EIO},
    };
    ckp_error err;
    for (size_t i = 0; i < CHECK_COUNT(map); i++) {
        assert_status(ckpi_fail_errno(&err, map[i].sys, "write"), map[i].st);
        assert_int_equal(err.sys_errno, map[i].sys);
        assert_non_null(strstr(err.text, strerror(map[i].sys)));
    }
}

static void
long_texts_are_cut(void **state)
{
    (void)state;
    char *name = malloc(5000);
    assert_non_null(name);
    memset(name, 'x', 4999);
    name[4999] = 0;
    ckp_error err;
    ckpi_fail_at(&err, CKP_EIO, 5, "%s", name);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + sizeof err.text - 4, "...");
    ckpi_fail_file(&err, name);
    assert_int_equal(strlen(err.file), sizeof err.file - 1);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    free(name);
}

static void
a_name_in_the_sentence_is_not_repeated(void **state)
{
    (void)state;
    ckp_error err;
    ckpi_fail(&err, CKP_EIO, "cannot read x/a.ckp");
    ckpi_fail_file(&err, "x/a.ckp");
    assert_string_equal(err.text, "cannot read x/a.ckp");
    assert_string_equal(err.file, "x/a.ckp");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_and_text),
        cmocka_unit_test(nobody_need_listen),
        cmocka_unit_test(errno_is_mapped),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(a_name_in_the_sentence_is_not_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
