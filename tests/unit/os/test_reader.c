/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "tmpdir.h"

#define SIZE (1500000u)

static uint8_t *
content(void)
{
    uint8_t *p = malloc(SIZE);
    test_rng rng = test_rng_new("reader");
    test_bytes(&rng, p, SIZE);
    return p;
}

/* Same answers whatever the source. */
static void
check(ckpi_reader *r, const uint8_t *all, bool seekable)
{
    uint8_t *p = guard_alloc(1000);
    ckp_error err;
    uint64_t size = 0;
    size_t got;
    assert_int_equal(ckpi_reader_seekable(r), seekable);
    assert_status(ckpi_reader_size(r, &size, NULL), seekable ? CKP_OK : CKP_EUNSUPPORTED);
    assert_int_equal(size, seekable ? SIZE : 0);
    assert_ok(ckpi_reader_read(r, 0, p, 8, NULL));
    assert_memory_equal(p, all, 8);
    assert_ok(ckpi_reader_read(r, 0, p, 1000, NULL));                     /* a little back: allowed on pipes too */
    assert_memory_equal(p, all, 1000);
    for (uint64_t off = 1000; off + 1000 <= SIZE; off += 77777) {
        assert_ok(ckpi_reader_read(r, off, p, 1000, NULL));
        assert_memory_equal(p, all + off, 1000);
    }
    assert_ok(ckpi_reader_some(r, SIZE - 10, p, 1000, &got, NULL));
    assert_int_equal(got, 10);
    assert_memory_equal(p, all + SIZE - 10, 10);
    assert_status(ckpi_reader_read(r, SIZE - 10, p, 11, &err), CKP_ETRUNCATED);
    assert_string_equal(err.file, ckpi_reader_name(r));
    assert_int_equal(err.offset, SIZE - 10);
    assert_ok(ckpi_reader_some(r, UINT64_MAX - 1, p, 1000, &got, NULL));
    assert_int_equal(got, 0);
    assert_status(ckpi_reader_read(r, SIZE + 5, p, 1, NULL), CKP_ETRUNCATED);
    assert_ok(ckpi_reader_read(r, SIZE - 10, p, 0, NULL));
    assert_status(ckpi_reader_read(r, 100, p, 10, &err), seekable ? CKP_OK : CKP_EUNSUPPORTED);
    guard_free(p);
}

static void
test_sources(void **state)
{
    uint8_t *all = content(), skip[7];
    ckpi_fs *fs = tmpdir_fs(state);
    ckpi_reader *r = NULL;
    tmpdir_write(state, "f", all, SIZE);
    assert_ok(ckpi_reader_file(&r, fs, "f", NULL));
    check(r, all, true);
    ckpi_reader_free(r);
    assert_ok(ckpi_reader_path(&r, tmpdir_path(state, "f"), NULL));
    check(r, all, true);
    ckpi_reader_free(r);
    uint8_t *guarded = guard_copy(all, SIZE);
    assert_ok(ckpi_reader_mem(&r, guarded, SIZE, "memory", NULL));
    check(r, all, true);
    ckpi_reader_free(r);
    guard_free(guarded);
    const int fd = open(tmpdir_path(state, "f"), O_RDONLY);
    assert_ok(ckpi_reader_fd(&r, fd, "stdin", NULL));
    check(r, all, true);
    ckpi_reader_free(r);
    assert_int_equal(read(fd, skip, sizeof skip), sizeof skip);          /* still open, and read from where it stands */
    assert_ok(ckpi_reader_fd(&r, fd, "stdin", NULL));
    uint64_t size;
    assert_ok(ckpi_reader_size(r, &size, NULL));
    assert_int_equal(size, SIZE - sizeof skip);
    assert_ok(ckpi_reader_read(r, 0, skip, sizeof skip, NULL));
    assert_memory_equal(skip, all + sizeof skip, sizeof skip);
    ckpi_reader_free(r);
    close(fd);
    ckpi_fs_free(fs);
    free(all);
}

typedef struct feed { int fd; const uint8_t *p; } feed;

/* In odd pieces, so that reads come short. */
static void *
feeder(void *arg)
{
    const feed *f = arg;
    for (size_t at = 0, n; at < SIZE; at += n) {
        const size_t want = 1 + at % 9973;
        const ssize_t w = write(f->fd, f->p + at, want < SIZE - at ? want : SIZE - at);
        if (w <= 0)
            break;
        n = (size_t)w;
    }
    close(f->fd);
    return NULL;
}

static void
test_pipe(void **state)
{
    (void)state;
    uint8_t *all = content();
    ckpi_reader *r = NULL;
    pthread_t thread;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    feed f = {ends[1], all};
    assert_int_equal(pthread_create(&thread, NULL, feeder, &f), 0);
    assert_ok(ckpi_reader_fd(&r, ends[0], "pipe", NULL));
    check(r, all, false);
    pthread_join(thread, NULL);
    ckpi_reader_free(r);
    close(ends[0]);
    free(all);
}

static void
test_errors(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    ckpi_reader *r = NULL;
    ckp_error err;
    assert_status(ckpi_reader_path(&r, tmpdir_path(state, "none"), &err), CKP_ENOTFOUND);
    assert_string_equal(err.file, tmpdir_path(state, "none"));
    assert_status(ckpi_reader_path(&r, *state, &err), CKP_EINVAL);
    assert_status(ckpi_reader_file(&r, fs, "../x", &err), CKP_EPATH);
    assert_status(ckpi_reader_file(&r, fs, "x", &err), CKP_ENOTFOUND);
    assert_status(ckpi_reader_fd(&r, -1, "closed", &err), CKP_EIO);
    assert_null(r);
    ckpi_fs_free(fs);
}

static ckp_status
use(void *user)
{
    uint8_t p[4];
    ckpi_reader *r = NULL;
    ckp_status st = ckpi_reader_path(&r, user, NULL);
    if (st == CKP_OK)
        st = ckpi_reader_read(r, 0, p, sizeof p, NULL);
    ckpi_reader_free(r);
    return st;
}

/* Held, a file may be cut, and goes on reading as it was. */
static void
test_hold(void **state)
{
    uint8_t *all = content();
    ckpi_fs *fs = tmpdir_fs(state);
    ckpi_reader *r[2] = {NULL, NULL};
    tmpdir_write(state, "f", all, SIZE);
    assert_ok(ckpi_reader_file(&r[0], fs, "f", NULL));
    assert_ok(ckpi_reader_path(&r[1], tmpdir_path(state, "f"), NULL));
    for (int i = 0; i < 2; i++) {
        assert_ok(ckpi_reader_hold(r[i], NULL));
        assert_ok(ckpi_reader_hold(r[i], NULL));
    }
    assert_int_equal(truncate(tmpdir_path(state, "f"), 10), 0);
    for (int i = 0; i < 2; i++) {
        check(r[i], all, true);
        ckpi_reader_free(r[i]);
    }
    ckpi_fs_free(fs);
    free(all);
}

static void
test_no_memory(void **state)
{
    char path[256];
    tmpdir_write(state, "f", "12345", 5);
    snprintf(path, sizeof path, "%s", tmpdir_path(state, "f"));
    failalloc_run(use, path, 2, 1);
}

#define WITH_DIR(t) cmocka_unit_test_setup_teardown(t, tmpdir_setup, tmpdir_teardown)

/* A FIFO, which has no other end, is refused at once. */
static void
test_plain(void **state)
{
    (void)state;
    char dir[] = "/tmp/ckp-plain-XXXXXX", fifo[64], file[64];
    ckpi_reader *r = NULL;
    ckp_error err;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    (void)snprintf(file, sizeof file, "%s/file", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_status(ckpi_reader_plain(&r, fifo, &err), CKP_EINVAL);
    assert_null(r);
    assert_non_null(strstr(err.text, "not a plain file"));
    assert_status(ckpi_reader_plain(&r, file, &err), CKP_ENOTFOUND);
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite("abc", 1, 3, f), 3);
    assert_int_equal(fclose(f), 0);
    assert_ok(ckpi_reader_plain(&r, file, &err));
    assert_true(ckpi_reader_seekable(r));
    ckpi_reader_free(r);
    assert_int_equal(remove(fifo) | remove(file) | remove(dir), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        WITH_DIR(test_sources), cmocka_unit_test(test_pipe), WITH_DIR(test_errors), WITH_DIR(test_hold),
        WITH_DIR(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
