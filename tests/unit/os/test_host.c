/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "harness/check.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "os/host.h"

static void
test_self(void **state)
{
    (void)state;
    ckpi_proc a, b;
    ckpi_proc_self(&a);
    ckpi_proc_self(&b);
    assert_int_equal(a.pid, getpid());
    assert_memory_equal(&a, &b, sizeof a);
    if (ckpi_proc_same_place(&a, &b) && a.start != 0)
        assert_int_equal(ckpi_proc_alive(&a, &b), CKPI_ALIVE_YES);
    assert_int_equal(ckpi_pid(), getpid());
}

static void
test_dead(void **state)
{
    (void)state;
    ckpi_proc self, other;
    ckpi_proc_self(&self);
    if (!ckpi_proc_same_place(&self, &self))
        skip();
    other = self;
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    other.pid = child;
    assert_int_equal(ckpi_proc_alive(&self, &other), CKPI_ALIVE_NO);
    other = self;
    other.start++;
    assert_int_equal(ckpi_proc_alive(&self, &other), CKPI_ALIVE_NO);
    other.start = 0;
    assert_int_equal(ckpi_proc_alive(&self, &other), CKPI_ALIVE_UNKNOWN);
    other = self;
    other.pid = -1;
    assert_int_equal(ckpi_proc_alive(&self, &other), CKPI_ALIVE_UNKNOWN);
    other = self;
    other.boot[0] ^= 1;
    assert_int_equal(ckpi_proc_alive(&self, &other), CKPI_ALIVE_UNKNOWN);
    assert_int_not_equal(ckpi_proc_place(&self), ckpi_proc_place(&other));
}

static void
test_random(void **state)
{
    (void)state;
    uint64_t a = 0, b = 0;
    assert_ok(ckpi_random(&a, sizeof a, NULL));
    assert_ok(ckpi_random(&b, sizeof b, NULL));
    assert_true(a != b);
}

static void
test_tmp_names(void **state)
{
    (void)state;
    char a[CKPI_TMP_MAX], b[CKPI_TMP_MAX], dead[CKPI_TMP_MAX], name[400];
    int64_t pid;
    uint32_t place;
    ckpi_proc self;
    ckpi_proc_self(&self);
    assert_ok(ckpi_tmp_name(a, "manifest.json", NULL));
    assert_ok(ckpi_tmp_name(b, "manifest.json", NULL));
    assert_string_not_equal(a, b);
    assert_true(ckpi_tmp_parse(a, &pid, &place));
    assert_int_equal(pid, getpid());
    assert_int_equal(place, ckpi_proc_place(&self));
    assert_false(ckpi_tmp_dead(&self, a));
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    snprintf(dead, sizeof dead, ".tmp-%d-%08x00000000-x", (int)child, place);
    assert_true(ckpi_tmp_dead(&self, dead));
    snprintf(dead, sizeof dead, ".tmp-%d-%08x00000000-x", (int)child, place ^ 1);
    assert_false(ckpi_tmp_dead(&self, dead));
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_status(ckpi_tmp_name(a, name, NULL), CKP_EPATH);
}

static void
test_other_names(void **state)
{
    (void)state;
    const char *const names[] = {"", ".tmp-", ".tmp-12", ".tmp-x-0123456789abcdef-n", ".tmp-12-0123456789abcde-n", ".tmp-12-0123456789abcdef-",
                                 ".tmp-012-0123456789abcdef-n", ".tmp--12-0123456789abcdef-n", ".tmp-12-0123456789ABCDEF-n", "tmp-12-0123456789abcdef-n",
                                 ".tmp-12-01234567"};
    int64_t pid;
    uint32_t place;
    for (size_t i = 0; i < CHECK_COUNT(names); i++)
        assert_false(ckpi_tmp_parse(names[i], &pid, &place));
    assert_true(ckpi_tmp_parse(".tmp-12-0123456789abcdef-n", &pid, &place));
    assert_int_equal(place, 0x01234567);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self),      cmocka_unit_test(test_dead),        cmocka_unit_test(test_random),
        cmocka_unit_test(test_tmp_names), cmocka_unit_test(test_other_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
