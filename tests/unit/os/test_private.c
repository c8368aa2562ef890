/* SPDX-License-Identifier: Apache-2.0 */
/* One user's directory where all may write: nothing that somebody else could have put there is used. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include "harness/failalloc.h"
#include "os/private.h"
#include "tmpdir.h"

static ckpi_fs *
open_mine(void **state, bool create)
{
    ckpi_fs *fs = NULL;
    ckp_error err;
    if (ckpi_fs_private(&fs, tmpdir_path(state, "mine"), ckpi_user(), create, &err) != CKP_OK)
        fail_msg("%s", err.text);
    return fs;
}

static ckp_status
try_open(void **state, const char *name, int64_t user)
{
    ckpi_fs *fs = NULL;
    ckp_error err = {0};
    const ckp_status st = ckpi_fs_private(&fs, tmpdir_path(state, name), user, false, &err);
    assert_true(st == CKP_OK || (fs == NULL && strstr(err.text, name) != NULL));
    ckpi_fs_free(fs);
    return st;
}

static mode_t
mode_of(void **state, const char *name)
{
    struct stat sb;
    assert_int_equal(stat(tmpdir_path(state, name), &sb), 0);
    return sb.st_mode & 07777;
}

/* Whatever the process's umask lets others do elsewhere. */
static void
test_modes(void **state)
{
    const mode_t before = umask(0);
    ckpi_fs *fs = open_mine(state, true);
    assert_ok(ckpi_fs_publish(fs, ".t", "name", "one", 3, false, NULL));
    (void)umask(before);
    assert_int_equal(mode_of(state, "mine"), 0700);
    assert_int_equal(mode_of(state, "mine/name"), 0600);
    ckpi_fs_free(fs);
    ckpi_fs_free(open_mine(state, true));
    ckpi_fs_free(open_mine(state, false));
}

static void
test_directories_of_others(void **state)
{
    ckpi_fs_free(open_mine(state, true));
    assert_status(try_open(state, "none", ckpi_user()), CKP_ENOTFOUND);
    assert_status(try_open(state, "mine", ckpi_user() + 1), CKP_EACCESS);
    static const mode_t open_to[] = {0701, 0710, 0740, 0777, 01777};
    for (size_t i = 0; i < CHECK_COUNT(open_to); i++) {
        assert_int_equal(chmod(tmpdir_path(state, "mine"), open_to[i]), 0);
        assert_status(try_open(state, "mine", ckpi_user()), CKP_EACCESS);
    }
    assert_int_equal(chmod(tmpdir_path(state, "mine"), 0700), 0);
    assert_int_equal(symlink("mine", tmpdir_path(state, "link")), 0);
    assert_status(try_open(state, "link", ckpi_user()), CKP_EPATH);
    tmpdir_write(state, "file", "x", 1);
    assert_status(try_open(state, "file", ckpi_user()), CKP_EPATH);
    assert_ok(try_open(state, "mine", ckpi_user()));
}

static void
test_files_of_others(void **state)
{
    ckpi_fs *fs = open_mine(state, true), *theirs = NULL;
    ckpi_file *f = NULL;
    ckp_error err;
    assert_ok(ckpi_fs_publish(fs, ".t", "name", "one", 3, false, NULL));
    assert_ok(fs->ops->open(fs, "name", CKPI_OPEN_READ, &f, NULL));
    fs->ops->close(f);
    assert_int_equal(chmod(tmpdir_path(state, "mine/name"), 0604), 0);
    assert_status(fs->ops->open(fs, "name", CKPI_OPEN_READ, &f, &err), CKP_EACCESS);
    assert_non_null(strstr(err.text, "mine/name"));
    assert_int_equal(mkfifo(tmpdir_path(state, "mine/fifo"), 0600), 0);
    assert_status(fs->ops->open(fs, "fifo", CKPI_OPEN_READ, &f, NULL), CKP_EACCESS);
    assert_int_equal(symlink("name", tmpdir_path(state, "mine/link")), 0);
    assert_status(fs->ops->open(fs, "link", CKPI_OPEN_READ, &f, NULL), CKP_EPATH);
    ckpi_fs_free(fs);
    /* only root can make somebody else's file, to see that it is refused in a directory that is ours */
    if (ckpi_user() != 0)
        return;
    fs = open_mine(state, false);
    assert_ok(ckpi_fs_publish(fs, ".t", "other", "two", 3, false, NULL));
    assert_int_equal(chown(tmpdir_path(state, "mine/other"), 12345, 12345), 0);
    assert_status(fs->ops->open(fs, "other", CKPI_OPEN_READ, &f, NULL), CKP_EACCESS);
    assert_int_equal(chown(tmpdir_path(state, "mine"), 12345, 12345), 0);
    assert_status(ckpi_fs_private(&theirs, tmpdir_path(state, "mine"), ckpi_user(), true, NULL), CKP_EACCESS);
    ckpi_fs_free(fs);
}

static void
test_claims(void **state)
{
    ckpi_fs *a = open_mine(state, true), *b = open_mine(state, false);
    int pipes[2];
    char c;
    assert_true(ckpi_private_claim(a));
    assert_true(ckpi_private_claim(a));
    assert_false(ckpi_private_claim(b));
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)close(pipes[1]);
        _exit(read(pipes[0], &c, 1) == 0 ? 0 : 1);
    }
    (void)close(pipes[0]);
    ckpi_fs_free(a);
    assert_false(ckpi_private_claim(b));          /* the child has it open too */
    (void)close(pipes[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(ckpi_private_claim(b));
    ckpi_fs_free(b);
}

static void
test_age(void **state)
{
    ckpi_fs *fs = open_mine(state, true);
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_in_range(ckpi_private_age(fs), 0, 100);
    assert_int_equal(utimensat(AT_FDCWD, tmpdir_path(state, "mine"), old, 0), 0);
    assert_true(ckpi_private_age(fs) > 1000000);
    assert_ok(ckpi_fs_publish(fs, ".t", "name", "one", 3, false, NULL));
    assert_in_range(ckpi_private_age(fs), 0, 100);
    ckpi_fs_free(fs);
}

static void
test_room(void **state)
{
    struct statvfs vfs;
    assert_int_equal(ckpi_memory_room(tmpdir_path(state, "none")), 0);
    const uint64_t room = ckpi_memory_room(*state);
    assert_int_equal(statvfs(*state, &vfs), 0);
    assert_true(room > 0 && room <= (uint64_t)vfs.f_blocks * (uint64_t)vfs.f_frsize);
    /* /proc is a file system without room */
    assert_int_equal(ckpi_memory_room("/proc"), 0);
}

static ckp_status
use(void *user)
{
    ckpi_fs *fs = NULL;
    const ckp_status st = ckpi_fs_private(&fs, user, ckpi_user(), true, NULL);
    ckpi_fs_free(fs);
    return st;
}

static void
test_no_memory(void **state)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s", tmpdir_path(state, "mine"));
    failalloc_run(use, path, 2, 1);
}

#define WITH_DIR(t) cmocka_unit_test_setup_teardown(t, tmpdir_setup, tmpdir_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_modes),  WITH_DIR(test_directories_of_others), WITH_DIR(test_files_of_others), WITH_DIR(test_claims),
        WITH_DIR(test_age),    WITH_DIR(test_room),                  WITH_DIR(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
