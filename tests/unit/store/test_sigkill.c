/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real writer process on a real file system gets SIGKILL at its k-th file call. The next writer opens at once (the lock's
 * process is dead), finds every promised checkpoint whole, nothing else left, and goes on.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "killfs.h"
#include "runs.h"

static ckpi_fs *
posix(const char *dir)
{
    ckpi_fs *fs = NULL;
    assert_ok(ckpi_fs_posix(&fs, dir, true, NULL));
    return fs;
}

static void
tell(int fd, const char dir[CKPI_DIR_NAME_MAX])
{
    if (write(fd, dir, CKPI_DIR_NAME_MAX) != CKPI_DIR_NAME_MAX)
        _exit(9);
}

/* The child: saves, tells what was committed, deletes. Returns only when it was not killed. */
static void
child(const char *dir, uint64_t at, int fd)
{
    char name[CKPI_DIR_NAME_MAX] = {0}, base[CKPI_DIR_NAME_MAX] = {0};
    ckpi_store *s = NULL;
    if (run_open(&s, killfs_wrap(posix(dir), at), CKPI_STORE_WRITE, NULL) != CKP_OK)
        _exit(1);
    for (uint64_t step = 1; step <= 4; step++) {
        memcpy(base, name, sizeof base);
        if (run_save(s, step, step % 3 == 1 ? NULL : base, 2, name, NULL) != CKP_OK)
            _exit(2);
        tell(fd, name);
    }
    if (ckpi_store_retain(s, &LAST_ONE, NULL, NULL) != CKP_OK)
        _exit(3);
    ckpi_store_free(s);
    _exit(0);
}

/* Whether any name in the run is a temporary or a cut deletion. */
static bool
leftover(void *user, const char *entry, bool is_dir)
{
    (void)is_dir;
    if (strncmp(entry, ".tmp-", 5) == 0 || strcmp(entry, "deleted.json") == 0)
        *(bool *)user = true;
    return true;
}

static void
check_entry(ckpi_store *s, const ckpi_entry *e, uint64_t at)
{
    ckp_error err;
    bool found = false;
    if (e->health != CKPI_HEALTH_OK)
        fail_msg("killed at %llu: %s %s", (unsigned long long)at, e->dir, e->reason);
    if (ckpi_store_check(s, e->dir, 2, NULL, NULL, &err) != CKP_OK)
        fail_msg("killed at %llu: %s", (unsigned long long)at, err.text);
    assert_ok(ckpi_store_fs(s)->ops->list(ckpi_store_fs(s), e->dir, leftover, &found, NULL));
    assert_false(found);
}

static void
judge(const char *dir, uint64_t at, const char last[CKPI_DIR_NAME_MAX])
{
    ckpi_store *s = NULL;
    ckpi_entries e = {0};
    ckp_error err;
    bool found = false, last_is_there = last[0] == '\0';
    if (run_open(&s, posix(dir), CKPI_STORE_WRITE, &err) != CKP_OK)
        fail_msg("killed at %llu: %s", (unsigned long long)at, err.text);
    assert_ok(ckpi_store_list(s, &e, NULL));
    for (size_t i = 0; i < e.n; i++) {
        check_entry(s, &e.v[i], at);
        last_is_there = last_is_there || strcmp(e.v[i].dir, last) == 0;
    }
    assert_true(last_is_there);
    assert_ok(ckpi_store_fs(s)->ops->list(ckpi_store_fs(s), "", leftover, &found, NULL));
    assert_ok(ckpi_store_fs(s)->ops->list(ckpi_store_fs(s), "lock", leftover, &found, NULL));
    assert_false(found);
    assert_ok(run_save(s, 100, e.n > 0 ? e.v[e.n - 1].dir : NULL, 1, NULL, NULL));
    ckpi_entries_free(&e);
    ckpi_store_free(s);
}

/* True while the child was killed. */
static bool
one(uint64_t at)
{
    char dir[RUN_TMP_MAX], last[CKPI_DIR_NAME_MAX] = "", name[CKPI_DIR_NAME_MAX];
    int ends[2], status = 0;
    run_tmp(dir);
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0)
        child(dir, at, ends[1]);
    close(ends[1]);
    while (read(ends[0], name, sizeof name) == (ssize_t)sizeof name)
        memcpy(last, name, sizeof last);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    else
        assert_int_equal(WTERMSIG(status), SIGKILL);
    judge(dir, at, last);
    run_rm(dir);
    return WIFSIGNALED(status);
}

static void
test_every_call(void **state)
{
    (void)state;
    const char *every = getenv("CKP_FAIL_EVERY");
    const uint64_t stride = every != NULL && strcmp(every, "1") == 0 ? 1 : 2;
    uint64_t at = 1;
    while (one(at))
        at += stride;
    assert_true(at > 100);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
