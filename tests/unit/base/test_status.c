/* SPDX-License-Identifier: Apache-2.0 */
#include <ckpress/base.h>
#include "harness/check.h"
#include <stdio.h>

static void
version_agrees(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", CKP_VERSION_MAJOR, CKP_VERSION_MINOR, CKP_VERSION_PATCH);
    assert_string_equal(ckp_version(), text);
    assert_string_equal(CKP_VERSION_STRING, text);
}

/* The values are pinned: this list is their second copy. */
static void
statuses_are_pinned_and_named(void **state)
{
    (void)state;
    static const struct { ckp_status st; int value; } pinned[] = {
        {CKP_OK, 0}, {CKP_EINVAL, -1}, {CKP_ENOMEM, -2}, {CKP_ELIMIT, -3}, {CKP_EUNSUPPORTED, -4}, {CKP_ECANCELLED, -5},
        {CKP_EBUSY, -6}, {CKP_EFORK, -7}, {CKP_ESTATE, -8}, {CKP_EIO, -20}, {CKP_ENOTFOUND, -21}, {CKP_EEXIST, -22},
        {CKP_ENOSPC, -23}, {CKP_EACCESS, -24}, {CKP_ECORRUPT, -40}, {CKP_ETRUNCATED, -41}, {CKP_EFORMAT, -42},
        {CKP_EVERSION, -43}, {CKP_EBASE, -44}, {CKP_EMISMATCH, -45}, {CKP_EPATH, -46}, {CKP_EUNSAFE, -47}, {CKP_EPARTIAL, -48},
        {CKP_EINTERNAL, -60},
    };
    for (size_t i = 0; i < CHECK_COUNT(pinned); i++) {
        assert_int_equal((int)pinned[i].st, pinned[i].value);
        assert_string_not_equal(ckp_status_name(pinned[i].st), "unknown");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(ckp_status_name(pinned[k].st), ckp_status_name(pinned[i].st));
    }
    assert_string_equal(ckp_status_name((ckp_status)-999), "unknown");
}

static void
roles_have_names(void **state)
{
    (void)state;
    for (int r = 0; r < CKP_ROLE_COUNT_; r++)
        assert_non_null(ckp_role_name((ckp_role)r));
    assert_null(ckp_role_name(CKP_ROLE_COUNT_));
    assert_string_equal(ckp_role_name(CKP_ROLE_V), "v");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_agrees),
        cmocka_unit_test(statuses_are_pinned_and_named),
        cmocka_unit_test(roles_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
