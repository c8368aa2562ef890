/* SPDX-License-Identifier: Apache-2.0 */
/* The file system over callbacks: names, staging, ranges, what answers of callbacks become. Crash tables: tests/unit/store/test_crash_objects.c. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "harness/bucket.h"
#include "harness/check.h"
#include "harness/failalloc.h"
#include "harness/faultfs.h"
#include "objects/objects.h"

#define TMP ".tmp-1-0000000000000000-x"    /* a temporary's name, as os/host.h makes them */

static ckpi_fs *
mount(const ckp_objects *t)
{
    ckpi_fs *fs = NULL;
    assert_ok(ckpi_fs_objects(&fs, t, "mem://run", NULL));
    return fs;
}

static void
fill(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 37 + (i >> 8) * 11 + (i >> 16));
}

static void
test_table(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    ckpi_fs *fs = NULL;
    ckp_error err;
    for (int k = 0; k < 7; k++) {
        ckp_objects t = bucket_table(b);
        if (k == 0) t.size--;
        if (k == 1) t.stat = NULL;
        if (k == 2) t.get = NULL;
        if (k == 3) t.put = NULL;
        if (k == 4) t.list = NULL;
        if (k == 5) t.remove = NULL;
        if (k == 6) t.read_back = (ckp_read_back)2;
        assert_status(ckpi_fs_objects(&fs, &t, "x", &err), CKP_EINVAL);
        assert_null(fs);
        assert_true(err.text[0] != '\0');
    }
    bucket_free(b);
}

/* A name is published once; the same again, and only the same, is what a retry of a request would have met. */
static void
test_publish(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    ckpi_fs *fs = mount(&t);
    ckp_error err;
    assert_ok(ckpi_fs_publish(fs, "a/" TMP, "a/x", "one", 3, false, NULL));
    assert_non_null(bucket_find(b, "a/x"));
    assert_int_equal(bucket_count(b), 1);                 /* temporaries never become objects */
    assert_ok(ckpi_fs_publish(fs, "a/" TMP, "a/x", "one", 3, false, NULL));
    assert_status(ckpi_fs_publish(fs, "a/" TMP, "a/x", "two", 3, false, &err), CKP_EEXIST);
    assert_non_null(strstr(err.text, "mem://run/a/x"));
    assert_status(ckpi_fs_publish(fs, "a/" TMP, "a/x", "on", 2, false, NULL), CKP_EEXIST);
    assert_ok(ckpi_fs_publish(fs, "a/" TMP, "a/x", "two", 3, true, NULL));
    assert_memory_equal(bucket_find(b, "a/x")->data, "two", 3);
    /* what was sent before is copied and removed */
    assert_ok(fs->ops->publish(fs, "a/x", "a/y", false, NULL));
    assert_null(bucket_find(b, "a/x"));
    assert_memory_equal(bucket_find(b, "a/y")->data, "two", 3);
    assert_status(fs->ops->publish(fs, "a/x", "a/y", false, NULL), CKP_ENOTFOUND);
    ckpi_fs_free(fs);
    bucket_free(b);
}

static void
test_directories(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    ckpi_fs *fs = mount(&t);
    assert_ok(fs->ops->mkdir(fs, "d", NULL));
    assert_ok(fs->ops->rmdir(fs, "d", NULL));
    bucket_set(b, "d/e/f", "1", 1);
    assert_status(fs->ops->mkdir(fs, "d", NULL), CKP_EEXIST);
    assert_status(fs->ops->mkdir(fs, "d/e", NULL), CKP_EEXIST);
    assert_status(fs->ops->rmdir(fs, "d", NULL), CKP_EEXIST);
    assert_ok(fs->ops->unlink(fs, "d/e/f", NULL));
    assert_ok(fs->ops->unlink(fs, "d/e/f", NULL));
    assert_ok(fs->ops->rmdir(fs, "d", NULL));
    ckpi_fs_free(fs);
    bucket_free(b);
}

#define NAMES 256

static bool
collect(void *user, const char *entry, bool is_dir)
{
    (void)is_dir;
    char *names = user;
    const size_t n = strlen(names);
    snprintf(names + n, NAMES - n, "%s;", entry);
    return true;
}

/* A console's marker of a folder, and names that could lead elsewhere. */
static void
test_odd_names(void **state)
{
    (void)state;
    static const char *const odd[] = {"", "..", ".", "a/b", "c\\d", "fine", NULL};
    char names[NAMES] = "";
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    ckpi_fs *fs = mount(&t);
    b->extra = odd;
    assert_ok(fs->ops->list(fs, "", collect, names, NULL));
    assert_string_equal(names, "fine;");
    ckpi_fs_free(fs);
    bucket_free(b);
}

/* ---- staging ---- */

static size_t
files_in(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2;
}

static ckp_status
upload(ckpi_fs *fs, const char *name, const uint8_t *p, size_t n, ckp_error *err)
{
    ckpi_writer *w = NULL;
    ckp_status st = ckpi_writer_file(&w, fs, name, err);
    for (size_t off = 0; st == CKP_OK && off < n; off += 3000001)
        st = ckpi_writer_put(w, p + off, n - off < 3000001 ? n - off : 3000001, err);
    if (st == CKP_OK)
        st = ckpi_writer_finish(w, err);
    ckpi_writer_free(w);
    return st;
}

/* In memory, around the limit, and in a file, which nobody sees; sent by sync, not before, in one put. */
static void
test_staged(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 3000001, (8u << 20) - 1, 8u << 20, (8u << 20) + 1, 20u << 20};
    char dir[] = "/tmp/ckp-stage-XXXXXX";
    assert_non_null(mkdtemp(dir));
    uint8_t *p = malloc(20u << 20);
    fill(p, 20u << 20);
    for (size_t k = 0; k < 2 * CHECK_COUNT(sizes); k++) {
        const size_t n = sizes[k / 2];
        bucket *b = bucket_new();
        ckp_objects t = bucket_table(b);
        t.stage_dir = k % 2 != 0 ? dir : NULL;
        ckpi_fs *fs = mount(&t);
        assert_ok(upload(fs, "s/shard.ckp", p, n, NULL));
        const bucket_object *o = bucket_find(b, "s/shard.ckp");
        assert_non_null(o);
        assert_int_equal(o->len, n);
        assert_memory_equal(o->data, p, n);
        assert_int_equal(b->puts, 1);
        assert_int_equal(files_in(dir), 0);
        ckpi_fs_free(fs);
        bucket_free(b);
    }
    free(p);
    assert_int_equal(rmdir(dir), 0);
}

static void
test_stage_fails(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    ckp_objects t = bucket_table(b);
    ckp_error err;
    uint8_t *p = calloc(9u << 20, 1);
    t.stage_dir = "/nonexistent-directory";
    ckpi_fs *fs = mount(&t);
    assert_status(upload(fs, "s", p, 9u << 20, &err), CKP_ENOTFOUND);
    assert_non_null(strstr(err.text, "/nonexistent-directory"));
    assert_int_equal(bucket_count(b), 0);
    assert_ok(upload(fs, "s", p, 100, &err));             /* small ones need no file */
    ckpi_fs_free(fs);
    free(p);
    bucket_free(b);
}

/* What is there is not begun over, and stays. */
static void
test_new_is_new(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    ckpi_fs *fs = mount(&t);
    ckpi_writer *w = NULL;
    bucket_set(b, "s", "theirs", 6);
    assert_status(ckpi_writer_file(&w, fs, "s", NULL), CKP_EEXIST);
    ckpi_writer_free(w);
    assert_non_null(bucket_find(b, "s"));
    ckpi_fs_free(fs);
    bucket_free(b);
}

/* What was not finished leaves nothing. */
static void
test_abandoned(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    ckpi_fs *fs = mount(&t);
    ckpi_writer *w = NULL;
    ckpi_file *f = NULL;
    assert_ok(ckpi_writer_file(&w, fs, "s", NULL));
    assert_ok(ckpi_writer_put(w, "x", 1, NULL));
    ckpi_writer_free(w);
    assert_ok(fs->ops->open(fs, TMP, CKPI_OPEN_NEW, &f, NULL));
    assert_ok(fs->ops->write(f, "y", 1, NULL));
    fs->ops->close(f);
    ckpi_fs_free(fs);
    assert_int_equal(b->puts, 0);
    assert_int_equal(bucket_count(b), 0);
    bucket_free(b);
}

/* ---- reading ---- */

static void
test_ranges(void **state)
{
    (void)state;
    const size_t n = (5u << 20) + 12345;
    uint8_t *p = malloc(n), *q = malloc(n + 10);
    fill(p, n);
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    ckpi_fs *fs = mount(&t);
    ckpi_reader *r = NULL;
    uint64_t size = 0;
    size_t got = 0;
    bucket_set(b, "f", p, n);
    assert_ok(ckpi_reader_file(&r, fs, "f", NULL));
    assert_ok(ckpi_reader_size(r, &size, NULL));
    assert_int_equal(size, n);
    uint32_t s = 12345;
    for (int i = 0; i < 400; i++) {
        s = s * 1664525u + 1013904223u;
        const size_t off = (size_t)s % n, k = 1 + (size_t)(s >> 8) % (i % 3 == 0 ? 2000000 : 5000), can = n - off < k ? n - off : k;
        assert_ok(ckpi_reader_some(r, off, q, k, &got, NULL));
        assert_int_equal(got, can);
        assert_memory_equal(q, p + off, can);
    }
    assert_ok(ckpi_reader_some(r, n, q, 1, &got, NULL));
    assert_int_equal(got, 0);
    assert_status(ckpi_reader_read(r, n - 1, q, 2, NULL), CKP_ETRUNCATED);
    /* from end to end in small pieces: a request a block */
    b->gets = 0;
    for (size_t off = 0; off < n; off += 1000)
        assert_ok(ckpi_reader_some(r, off, q, 1000, &got, NULL));
    assert_in_range(b->gets, 1, 7);
    b->gets = 0;
    assert_ok(ckpi_reader_hold(r, NULL));
    assert_in_range(b->gets, 1, 2);
    ckpi_reader_free(r);
    assert_status(ckpi_reader_file(&r, fs, "g", NULL), CKP_ENOTFOUND);
    ckpi_fs_free(fs);
    bucket_free(b);
    free(p);
    free(q);
}

/* ---- answers ---- */

static void
test_answers(void **state)
{
    (void)state;
    static const ckp_status said[] = {CKP_EIO, CKP_EACCESS, CKP_ENOSPC, CKP_ENOMEM, CKP_ECANCELLED, CKP_EINVAL, CKP_ECORRUPT, CKP_EFORK, (ckp_status)7};
    for (size_t i = 0; i < CHECK_COUNT(said); i++) {
        bucket *b = bucket_new();
        const ckp_objects t = bucket_table(b);
        const ckp_status want = i < 6 ? said[i] : CKP_EIO;
        ckpi_fs *fs = mount(&t);
        ckpi_stat sb;
        ckpi_buf out = CKPI_BUF_INIT;
        ckp_error err;
        char names[NAMES] = "";
        bucket_set(b, "f", "abc", 3);
        b->answer = said[i];
        assert_status(fs->ops->stat(fs, "f", &sb, &err), want);
        assert_non_null(strstr(err.text, "mem://run/f"));
        assert_int_equal(err.code, want);
        assert_status(ckpi_fs_read(fs, "f", 100, &out, NULL), want);
        assert_status(fs->ops->list(fs, "", collect, names, NULL), want);
        assert_status(fs->ops->unlink(fs, "f", NULL), want);
        assert_status(ckpi_fs_publish(fs, TMP, "g", "x", 1, false, &err), want);
        assert_status(ckpi_fs_publish(fs, TMP, "g", "x", 1, true, NULL), want);
        /* only where nobody knows what became of a put is its directory in doubt, and no other one */
        assert_status(fs->ops->sync_dir(fs, "", NULL), want == CKP_EIO ? CKP_EIO : CKP_OK);
        assert_ok(fs->ops->sync_dir(fs, "d", NULL));
        ckpi_buf_free(&out);
        ckpi_fs_free(fs);
        bucket_free(b);
    }
}

/* A put whose answer is lost has been done; one that fails and is not there is a failure; what is damaged on its way is taken back. */
static void
test_what_became_of_it(void **state)
{
    (void)state;
    static const struct { fault_kind kind; ckp_status want, synced; bool there; } rows[] = {
        {FAULT_LOST, CKP_OK, CKP_OK, true}, {FAULT_EIO, CKP_EIO, CKP_EIO, false}, {FAULT_DAMAGE, CKP_EIO, CKP_OK, false}, {FAULT_ENOSPC, CKP_ENOSPC, CKP_OK, false},
    };
    for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
        fault_disk *d = fault_objects_new();
        ckpi_fs *fs = fault_mount(d);
        ckp_error err;
        fault_arm(d, rows[i].kind, 1, false);
        assert_status(ckpi_fs_publish(fs, TMP, "m.json", "text", 4, false, &err), rows[i].want);
        assert_int_equal(fault_fired(d), 1);
        assert_int_equal(fault_exists(d, "m.json"), rows[i].there);
        assert_status(fs->ops->sync_dir(fs, "", NULL), rows[i].synced);
        ckpi_fs_free(fs);
        fault_disk_free(d);
    }
}

/* bucket_table's put; then another process puts over it, which its store does not keep it from. */
static ckp_status
put_then_another(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err)
{
    const ckp_status st = bucket_table(user).put(user, key, bytes, replace, err);
    bucket_set(user, key, "theirs", 6);
    return st;
}

/* What may be another's stays; by its size it cannot be told. Keys of one writer alone are taken back. */
static void
test_put_over(void **state)
{
    (void)state;
    static const struct { const char *key; ckp_read_back how; ckp_status want; } rows[] = {
        {"run.json", CKP_READ_BACK_SIZE, CKP_EEXIST}, {"lock/epoch-00000001.json", CKP_READ_BACK_BYTES, CKP_EEXIST}, {"step-1/manifest.json", CKP_READ_BACK_BYTES, CKP_EIO},
    };
    for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
        bucket *b = bucket_new();
        ckp_objects t = bucket_table(b);
        t.put = put_then_another;
        t.read_back = rows[i].how;
        ckpi_fs *fs = mount(&t);
        assert_status(ckpi_fs_publish(fs, TMP, rows[i].key, "mine!!", 6, false, NULL), rows[i].want);
        assert_int_equal(bucket_find(b, rows[i].key) != NULL, rows[i].want == CKP_EEXIST);
        assert_ok(fs->ops->sync_dir(fs, "lock", NULL));
        ckpi_fs_free(fs);
        bucket_free(b);
    }
}

static void
test_size_only(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    ckp_objects t = bucket_table(b);
    t.read_back = CKP_READ_BACK_SIZE;
    ckpi_fs *fs = mount(&t);
    assert_ok(ckpi_fs_publish(fs, TMP, "m", "text", 4, false, NULL));
    assert_int_equal(b->gets, 0);
    assert_int_equal(b->stats, 1);
    /* whether it is ours is always asked of its bytes */
    assert_status(ckpi_fs_publish(fs, TMP, "m", "next", 4, false, NULL), CKP_EEXIST);
    assert_int_equal(b->gets, 1);
    ckpi_fs_free(fs);
    bucket_free(b);
}

/* ---- processes, memory ---- */

static void
test_fork(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    ckpi_fs *fs = mount(&t);
    ckpi_file *f = NULL;
    int code = 0;
    bucket_set(b, "f", "abc", 3);
    assert_ok(fs->ops->open(fs, "g", CKPI_OPEN_NEW, &f, NULL));
    const pid_t pid = fork();
    if (pid == 0) {
        ckpi_file *h = NULL;
        ckpi_buf out = CKPI_BUF_INIT;
        const bool ok = ckpi_fs_read(fs, "f", 10, &out, NULL) == CKP_OK && fs->ops->open(fs, "h", CKPI_OPEN_NEW, &h, NULL) == CKP_EFORK
            && fs->ops->write(f, "x", 1, NULL) == CKP_EFORK && fs->ops->sync(f, NULL) == CKP_EFORK && fs->ops->unlink(fs, "f", NULL) == CKP_EFORK
            && fs->ops->publish(fs, "f", "k", true, NULL) == CKP_EFORK && fs->ops->mkdir(fs, "k", NULL) == CKP_EFORK;
        _exit(ok && b->puts + b->removes == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_int_equal(code, 0);
    fs->ops->close(f);
    ckpi_fs_free(fs);
    bucket_free(b);
}

static ckp_status
whole_use(void *user)
{
    bucket *b = user;
    const ckp_objects t = bucket_table(b);
    ckpi_fs *fs = NULL;
    ckpi_buf out = CKPI_BUF_INIT;
    ckp_status st = ckpi_fs_objects(&fs, &t, "mem://run", NULL);
    if (st == CKP_OK)
        st = ckpi_fs_publish(fs, "d/" TMP, "d/x", "one", 3, false, NULL);
    if (st == CKP_OK)
        st = fs->ops->publish(fs, "d/x", "d/y", true, NULL);
    if (st == CKP_OK)
        st = ckpi_fs_read(fs, "d/y", 10, &out, NULL);
    if (st == CKP_OK)
        assert_memory_equal(out.data, "one", 3);
    ckpi_buf_free(&out);
    ckpi_fs_free(fs);
    return st;
}

static void
test_memory(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    assert_in_range(failalloc_run(whole_use, b, 10, 1), 10, 200);
    bucket_free(b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_publish),
        cmocka_unit_test(test_directories),
        cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_staged),
        cmocka_unit_test(test_stage_fails),
        cmocka_unit_test(test_new_is_new),
        cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_what_became_of_it),
        cmocka_unit_test(test_put_over),
        cmocka_unit_test(test_size_only),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
