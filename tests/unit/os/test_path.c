/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/check.h"
#include <stdlib.h>
#include "base/limits.h"
#include "os/os.h"

static void
test_good(void **state)
{
    (void)state;
    const char *const good[] = {"a", "a/b", "step-00000001-00000000/shard.ckp", "...", "..a", ".tmp-1", "a b", "7 (copy)", "\xc3\xa9"};
    for (size_t i = 0; i < CHECK_COUNT(good); i++)
        assert_ok(ckpi_path_ok(good[i], NULL));
}

static void
test_bad(void **state)
{
    (void)state;
    const char *const bad[] = {"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a/../b", "a\\b", "./a"};
    for (size_t i = 0; i < CHECK_COUNT(bad); i++)
        assert_status(ckpi_path_ok(bad[i], NULL), CKP_EPATH);
    assert_status(ckpi_path_ok(NULL, NULL), CKP_EPATH);
}

static void
test_length(void **state)
{
    (void)state;
    char *name = malloc(CKPI_PATH_MAX + 1);
    memset(name, 'a', CKPI_PATH_MAX + 1);
    name[CKPI_PATH_MAX - 1] = '\0';
    assert_ok(ckpi_path_ok(name, NULL));
    name[CKPI_PATH_MAX - 1] = 'a';
    name[CKPI_PATH_MAX] = '\0';
    assert_status(ckpi_path_ok(name, NULL), CKP_EPATH);
    free(name);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad), cmocka_unit_test(test_length)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
