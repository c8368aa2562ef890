/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "harness/failalloc.h"
#include "os/posix_root.h"
#include "tmpdir.h"

static ckp_status
make(ckpi_fs *fs, const char *name, const char *text)
{
    ckpi_file *f = NULL;
    ckp_status st = fs->ops->open(fs, name, CKPI_OPEN_NEW, &f, NULL);
    if (st != CKP_OK)
        return st;
    st = fs->ops->write(f, text, strlen(text), NULL);
    if (st == CKP_OK)
        st = fs->ops->sync(f, NULL);
    fs->ops->close(f);
    return st;
}

static void
expect(ckpi_fs *fs, const char *name, const char *text)
{
    ckpi_buf b = CKPI_BUF_INIT;
    assert_ok(ckpi_fs_read(fs, name, 1000, &b, NULL));
    assert_int_equal(b.len, strlen(text));
    if (b.len > 0)
        assert_memory_equal(b.data, text, b.len);
    ckpi_buf_free(&b);
}

static void
test_files(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    ckpi_file *f = NULL;
    ckp_error err;
    char buf[8];
    size_t got;
    uint64_t size;
    assert_ok(make(fs, "a", "hello"));
    assert_status(make(fs, "a", "again"), CKP_EEXIST);
    expect(fs, "a", "hello");
    assert_ok(fs->ops->open(fs, "a", CKPI_OPEN_READ, &f, NULL));
    assert_ok(fs->ops->size(f, &size, NULL));
    assert_int_equal(size, 5);
    assert_ok(fs->ops->read_at(f, 3, buf, sizeof buf, &got, NULL));
    assert_int_equal(got, 2);
    assert_ok(fs->ops->read_at(f, UINT64_MAX - 3, buf, sizeof buf, &got, NULL));
    assert_int_equal(got, 0);
    assert_int_not_equal(fs->ops->write(f, "x", 1, &err), CKP_OK);
    fs->ops->close(f);
    assert_status(fs->ops->open(fs, "none", CKPI_OPEN_READ, &f, &err), CKP_ENOTFOUND);
    assert_string_equal(err.file, tmpdir_path(state, "none"));
    assert_ok(fs->ops->unlink(fs, "a", NULL));
    assert_status(fs->ops->unlink(fs, "a", NULL), CKP_ENOTFOUND);
    ckpi_fs_free(fs);
}

static bool
count(void *user, const char *entry, bool is_dir)
{
    ((int *)user)[is_dir]++;
    return strcmp(entry, "stop") != 0;
}

static void
test_directories(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    int n[2] = {0, 0};
    ckpi_stat st;
    assert_ok(fs->ops->mkdir(fs, "d", NULL));
    assert_status(fs->ops->mkdir(fs, "d", NULL), CKP_EEXIST);
    assert_ok(make(fs, "d/f", "x"));
    assert_ok(fs->ops->mkdir(fs, "d/e", NULL));
    assert_ok(make(fs, "d/e/g", ""));
    expect(fs, "d/e/g", "");
    assert_ok(fs->ops->list(fs, "d", count, n, NULL));
    assert_int_equal(n[0], 1);
    assert_int_equal(n[1], 1);
    assert_ok(fs->ops->stat(fs, "d", &st, NULL));
    assert_true(st.is_dir);
    assert_status(fs->ops->rmdir(fs, "d", NULL), CKP_EEXIST);
    assert_ok(fs->ops->sync_dir(fs, "d", NULL));
    assert_ok(fs->ops->sync_dir(fs, "", NULL));
    assert_status(fs->ops->sync_dir(fs, "none", NULL), CKP_ENOTFOUND);
    assert_status(fs->ops->list(fs, "none", count, n, NULL), CKP_ENOTFOUND);
    assert_status(fs->ops->list(fs, "d/f", count, n, NULL), CKP_ENOTFOUND);
    ckpi_fs_free(fs);
}

/* No symbolic link is followed, neither as last component nor on the way. */
static void
test_links(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    ckpi_file *f = NULL;
    ckpi_stat st;
    int n[2];
    assert_ok(make(fs, "real", "secret"));
    assert_ok(fs->ops->mkdir(fs, "dir", NULL));
    assert_int_equal(symlink("real", tmpdir_path(state, "link")), 0);
    assert_int_equal(symlink("/", tmpdir_path(state, "way")), 0);
    assert_status(fs->ops->open(fs, "link", CKPI_OPEN_READ, &f, NULL), CKP_EPATH);
    assert_int_not_equal(fs->ops->open(fs, "way/etc/passwd", CKPI_OPEN_READ, &f, NULL), CKP_OK);
    assert_int_not_equal(fs->ops->list(fs, "way", count, n, NULL), CKP_OK);
    assert_int_not_equal(make(fs, "way/tmp/ckp", "x"), CKP_OK);
    assert_status(make(fs, "link", "x"), CKP_EEXIST);
    assert_ok(fs->ops->stat(fs, "link", &st, NULL));
    assert_true(st.is_link);
    ckpi_fs_free(fs);
}

static void
test_fifo_does_not_block(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    ckpi_buf b = CKPI_BUF_INIT;
    assert_int_equal(mkfifo(tmpdir_path(state, "fifo"), 0600), 0);
    assert_ok(ckpi_fs_read(fs, "fifo", 100, &b, NULL));        /* size 0, nothing read, and above all no waiting */
    assert_int_equal(b.len, 0);
    ckpi_buf_free(&b);
    ckpi_fs_free(fs);
}

static void
test_publish(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    assert_ok(ckpi_fs_publish(fs, ".t", "name", "one", 3, false, NULL));
    expect(fs, "name", "one");
    assert_status(ckpi_fs_publish(fs, ".t", "name", "two", 3, false, NULL), CKP_EEXIST);
    expect(fs, "name", "one");
    assert_int_not_equal(access(tmpdir_path(state, ".t"), F_OK), 0);
    assert_ok(ckpi_fs_publish(fs, ".t", "name", "two", 3, true, NULL));
    expect(fs, "name", "two");
    assert_ok(make(fs, ".t", "someone else's"));
    assert_status(ckpi_fs_publish(fs, ".t", "other", "x", 1, false, NULL), CKP_EEXIST);
    expect(fs, ".t", "someone else's");
    assert_status(ckpi_fs_publish(fs, ".u", "../out", "x", 1, false, NULL), CKP_EPATH);
    assert_status(ckpi_fs_publish(fs, "../u", "out", "x", 1, false, NULL), CKP_EPATH);
    assert_status(ckpi_fs_publish(fs, ".u", "none/out", "x", 1, false, NULL), CKP_ENOTFOUND);
    assert_int_not_equal(access(tmpdir_path(state, ".u"), F_OK), 0);
    ckpi_fs_free(fs);
}

/* The second way of publishing without replacing, for file systems that lack renameat2's flag. */
static void
test_link_fallback(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    const int dir = open(*state, O_RDONLY | O_DIRECTORY);
    assert_ok(make(fs, "a", "one"));
    assert_ok(make(fs, "b", "two"));
    assert_int_equal(ckpi_posix_link_new(dir, "a", dir, "c"), 0);
    expect(fs, "c", "one");
    assert_int_not_equal(access(tmpdir_path(state, "a"), F_OK), 0);
    assert_int_equal(ckpi_posix_link_new(dir, "b", dir, "c"), EEXIST);
    expect(fs, "c", "one");
    expect(fs, "b", "two");
    assert_int_equal(ckpi_posix_link_new(dir, "none", dir, "d"), ENOENT);
    /* directories, which have no second names */
    assert_ok(fs->ops->mkdir(fs, "x", NULL));
    assert_ok(fs->ops->mkdir(fs, "y", NULL));
    assert_ok(make(fs, "x/in", "it"));
    assert_int_equal(ckpi_posix_link_new(dir, "x", dir, "y"), EEXIST);
    assert_int_equal(ckpi_posix_link_new(dir, "x", dir, "b"), EEXIST);
    assert_int_equal(ckpi_posix_link_new(dir, "x", dir, "z"), 0);
    expect(fs, "z/in", "it");
    assert_ok(fs->ops->publish(fs, "z", "x", false, NULL));
    expect(fs, "x/in", "it");
    assert_status(fs->ops->publish(fs, "x", "y", false, NULL), CKP_EEXIST);
    close(dir);
    ckpi_fs_free(fs);
}

static void
test_make_dirs(void **state)
{
    ckpi_fs *fs = NULL;
    ckp_error err;
    const char *deep = tmpdir_path(state, "x//y/z/");
    assert_status(ckpi_fs_posix(&fs, deep, false, &err), CKP_ENOTFOUND);
    assert_null(fs);
    assert_ok(ckpi_fs_posix(&fs, deep, true, NULL));
    ckpi_fs_free(fs);
    assert_ok(ckpi_fs_posix(&fs, deep, true, NULL));
    ckpi_fs_free(fs);
    tmpdir_write(state, "file", "x", 1);
    assert_int_not_equal(ckpi_fs_posix(&fs, tmpdir_path(state, "file"), true, NULL), CKP_OK);
    assert_int_not_equal(ckpi_fs_posix(&fs, tmpdir_path(state, "file/sub"), true, NULL), CKP_OK);
    assert_int_not_equal(ckpi_fs_posix(&fs, "", true, NULL), CKP_OK);
    assert_int_equal(symlink(*state, tmpdir_path(state, "run")), 0);     /* the run itself may be reached by a link */
    assert_ok(ckpi_fs_posix(&fs, tmpdir_path(state, "run"), false, NULL));
    ckpi_fs_free(fs);
}

static void
test_read_cap(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    ckpi_buf b = CKPI_BUF_INIT;
    assert_ok(make(fs, "a", "12345"));
    assert_status(ckpi_fs_read(fs, "a", 4, &b, NULL), CKP_ELIMIT);
    assert_ok(ckpi_fs_read(fs, "a", 5, &b, NULL));
    assert_ok(ckpi_fs_read(fs, "a", 5, &b, NULL));        /* appends */
    assert_memory_equal(b.data, "1234512345", 10);
    assert_status(ckpi_fs_read(fs, "none", 5, &b, NULL), CKP_ENOTFOUND);
    assert_status(ckpi_fs_read(fs, "../a", 5, &b, NULL), CKP_EPATH);
    ckpi_buf_free(&b);
    ckpi_fs_free(fs);
}

static void
test_fork(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    int status = -1;
    assert_ok(make(fs, "a", "x"));
    const pid_t child = fork();
    if (child == 0) {
        const bool ok = make(fs, "b", "x") == CKP_EFORK && fs->ops->unlink(fs, "a", NULL) == CKP_EFORK
            && fs->ops->mkdir(fs, "d", NULL) == CKP_EFORK && fs->ops->publish(fs, "a", "c", true, NULL) == CKP_EFORK;
        ckpi_fs_free(fs);
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect(fs, "a", "x");
    ckpi_fs_free(fs);
}

static ckp_status
use(void *user)
{
    ckpi_fs *fs = NULL;
    ckpi_buf b = CKPI_BUF_INIT;
    ckp_status st = ckpi_fs_posix(&fs, user, true, NULL);
    if (st == CKP_OK)
        st = ckpi_fs_publish(fs, ".t", "name", "one", 3, true, NULL);
    if (st == CKP_OK)
        st = ckpi_fs_read(fs, "name", 10, &b, NULL);
    ckpi_buf_free(&b);
    ckpi_fs_free(fs);
    return st;
}

static void
test_no_memory(void **state)
{
    failalloc_run(use, *state, 4, 1);
}

#define WITH_DIR(t) cmocka_unit_test_setup_teardown(t, tmpdir_setup, tmpdir_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_files),     WITH_DIR(test_directories),   WITH_DIR(test_links),     WITH_DIR(test_fifo_does_not_block),
        WITH_DIR(test_publish),   WITH_DIR(test_link_fallback), WITH_DIR(test_make_dirs), WITH_DIR(test_read_cap),
        WITH_DIR(test_fork),      WITH_DIR(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
