/* SPDX-License-Identifier: Apache-2.0 */
/* A run that is read as a whole: how many requests that takes, and that what is not there any more is not said to be. */
#include <pthread.h>
#include <stdio.h>
#include "harness/bucket.h"
#include "harness/check.h"
#include "harness/failalloc.h"
#include "objects/objects.h"

enum { N = 12 };

static ckpi_fs *
mount(bucket *b)
{
    const ckp_objects t = bucket_table(b);
    ckpi_fs *fs = NULL;
    assert_ok(ckpi_fs_objects(&fs, &t, "mem://run", NULL));
    return fs;
}

/* Checkpoint i's object, in `key`. */
static const char *
key_of(char key[64], int i, const char *file)
{
    (void)snprintf(key, 64, "step-%08d-0000000%x/%s", i, (unsigned)i, file);
    return key;
}

static bucket *
filled(void)
{
    bucket *b = bucket_new();
    char key[64], text[64];
    for (int i = 0; i < N; i++) {
        const int n = snprintf(text, sizeof text, "manifest %d", i);
        bucket_set(b, key_of(key, i, "manifest.json"), text, (size_t)n);
        bucket_set(b, key_of(key, i, "shard-00000-of-00001.ckp"), text, (size_t)i + 1);
    }
    bucket_set(b, "run.json", "{}", 2);
    bucket_set(b, "lock/epoch-00000001.json", "{}", 2);
    return b;
}

/* What a scan asks for. Manifest i must read as `text` says, NULL: not be there. */
static ckp_status
ask(ckpi_fs *fs, int i, const char *text)
{
    char key[64];
    ckpi_buf out = CKPI_BUF_INIT;
    ckpi_stat sb;
    ckp_status st = ckpi_fs_read(fs, key_of(key, i, "manifest.json"), 4096, &out, NULL);
    if (st == CKP_OK) {
        assert_non_null(text);
        assert_int_equal(out.len, strlen(text));
        assert_memory_equal(out.data, text, out.len);
        st = fs->ops->stat(fs, key_of(key, i, "shard-00000-of-00001.ckp"), &sb, NULL);
        if (st == CKP_OK)
            assert_int_equal(sb.size, i + 1);
    }
    ckpi_buf_free(&out);
    return st;
}

static void
ask_all(ckpi_fs *fs)
{
    char text[64];
    for (int i = 0; i < N; i++) {
        (void)snprintf(text, sizeof text, "manifest %d", i);
        assert_ok(ask(fs, i, text));
    }
}

static void
few_requests(void **state)
{
    (void)state;
    bucket *b = filled();
    ckpi_fs *fs = mount(b);
    ask_all(fs);
    assert_int_equal(b->stats, 2 * N);   /* outside of a survey: as ever */
    for (int round = 0; round < 3; round++) {
        b->stats = b->gets = b->lists = 0;
        assert_ok(fs->ops->survey(fs, NULL));
        ask_all(fs);
        fs->ops->survey_end(fs);
        assert_int_equal(b->stats, 0);
        assert_int_equal(b->gets, round == 0 ? N : 0);
        assert_int_equal(b->lists, 1);
    }
    ckpi_fs_free(fs);
    bucket_free(b);
}

static void
without_list_all(void **state)
{
    (void)state;
    bucket *b = filled();
    ckp_objects t = bucket_table(b);
    ckpi_fs *fs = NULL;
    t.list_all = NULL;
    assert_ok(ckpi_fs_objects(&fs, &t, "mem://run", NULL));
    assert_ok(fs->ops->survey(fs, NULL));
    ask_all(fs);
    fs->ops->survey_end(fs);
    assert_int_equal(b->stats, 2 * N);
    ckpi_fs_free(fs);
    bucket_free(b);
}

/* What has gone or come since the last survey; a text of another length under the same key, which only a stranger writes. */
static void
changes_show(void **state)
{
    (void)state;
    bucket *b = filled();
    ckpi_fs *fs = mount(b);
    char key[64];
    for (int round = 0; round < 2; round++) {
        assert_ok(fs->ops->survey(fs, NULL));
        for (int i = 4; i < 8; i++) {
            char text[64];
            (void)snprintf(text, sizeof text, round == 0 || i > 5 ? "manifest %d" : "another one, %d", i);
            assert_status(ask(fs, i, text), round == 1 && i == 7 ? CKP_ENOTFOUND : CKP_OK);
        }
        fs->ops->survey_end(fs);
        bucket_set(b, key_of(key, 4, "manifest.json"), "another one, 4", 14);
        bucket_set(b, key_of(key, 5, "manifest.json"), "another one, 5", 14);
        if (round == 0)
            bucket_find(b, key_of(key, 7, "manifest.json"))->there = false;
    }
    /* what comes during a survey is found, what goes may still be said to be there until its end */
    assert_ok(fs->ops->survey(fs, NULL));
    bucket_set(b, key_of(key, 7, "manifest.json"), "manifest 7", 10);
    assert_ok(ask(fs, 7, "manifest 7"));
    bucket_find(b, key_of(key, 7, "manifest.json"))->there = false;
    fs->ops->survey_end(fs);
    assert_status(ask(fs, 7, NULL), CKP_ENOTFOUND);
    ckpi_fs_free(fs);
    bucket_free(b);
}

static void *
stat_shard(void *user)
{
    ckpi_fs *fs = user;
    char key[64];
    ckpi_stat sb;
    return fs->ops->stat(fs, key_of(key, 1, "shard-00000-of-00001.ckp"), &sb, NULL) == CKP_OK ? fs : NULL;
}

/* Of the lock and of run.json everybody sees the last word; other threads do of everything. */
static void
only_checkpoints_only_here(void **state)
{
    (void)state;
    bucket *b = filled();
    ckpi_fs *fs = mount(b);
    ckpi_stat sb;
    pthread_t other;
    void *found = NULL;
    assert_ok(fs->ops->survey(fs, NULL));
    assert_ok(fs->ops->stat(fs, "run.json", &sb, NULL));
    assert_ok(fs->ops->stat(fs, "lock/epoch-00000001.json", &sb, NULL));
    assert_int_equal(b->stats, 2);
    assert_int_equal(pthread_create(&other, NULL, stat_shard, fs), 0);
    assert_int_equal(pthread_join(other, &found), 0);
    assert_ptr_equal(found, fs);
    assert_int_equal(b->stats, 3);
    assert_ptr_equal(stat_shard(fs), fs);
    assert_int_equal(b->stats, 3);
    fs->ops->survey_end(fs);
    ckpi_fs_free(fs);
    bucket_free(b);
}

static ckp_status
odd_names(void *user, bool (*fn)(void *fn_user, const char *key, uint64_t bytes), void *fn_user, ckp_error *err)
{
    static const char *const odd[] = {"", "/", "step-", "step-1//x", "step-1/../x", "step-1/\\", "/step-1/x", "stepping", "step-00000001-00000001/manifest.json"};
    (void)user;
    (void)err;
    assert_true(fn(fn_user, NULL, 1));
    for (size_t i = 0; i < CHECK_COUNT(odd); i++)
        assert_true(fn(fn_user, odd[i], i + 1 == CHECK_COUNT(odd) ? UINT64_MAX : 5));
    return CKP_OK;
}

/* Names of other programs are passed over, and a size that is a lie is found out by the request. */
static void
odd_listings(void **state)
{
    (void)state;
    bucket *b = filled();
    ckp_objects t = bucket_table(b);
    ckpi_fs *fs = NULL;
    ckpi_buf out = CKPI_BUF_INIT;
    char key[64];
    t.list_all = odd_names;
    assert_ok(ckpi_fs_objects(&fs, &t, "mem://run", NULL));
    assert_ok(fs->ops->survey(fs, NULL));
    assert_true(ckpi_fs_read(fs, key_of(key, 1, "manifest.json"), 4096, &out, NULL) != CKP_OK);
    assert_ok(ckpi_fs_read(fs, key_of(key, 2, "manifest.json"), 4096, &out, NULL));
    fs->ops->survey_end(fs);
    assert_ok(ckpi_fs_read(fs, key_of(key, 1, "manifest.json"), 4096, &out, NULL));
    ckpi_buf_free(&out);
    ckpi_fs_free(fs);
    bucket_free(b);
}

static void
failures(void **state)
{
    (void)state;
    bucket *b = filled();
    ckpi_fs *fs = mount(b);
    b->answer = CKP_EACCESS;             /* of the listing: nothing is spared, and whoever asks for something is told */
    assert_ok(fs->ops->survey(fs, NULL));
    assert_status(ask(fs, 3, NULL), CKP_EACCESS);
    b->answer = CKP_OK;
    ask_all(fs);
    assert_true(b->stats > 2 * N);
    fs->ops->survey_end(fs);
    assert_ok(fs->ops->survey(fs, NULL));
    b->answer = CKP_EIO;                 /* many at a time fail in silence; whoever needs one hears of it */
    assert_status(ask(fs, 3, NULL), CKP_EIO);
    b->answer = CKP_OK;
    ask_all(fs);
    fs->ops->survey_end(fs);
    ckpi_fs_free(fs);
    bucket_free(b);
}

static ckp_status
twice(void *user)
{
    const ckp_objects t = bucket_table(user);
    ckpi_fs *fs = NULL;
    ckp_status st = ckpi_fs_objects(&fs, &t, "mem://run", NULL);
    for (int round = 0; round < 2 && st == CKP_OK; round++) {
        st = fs->ops->survey(fs, NULL);
        for (int i = 0; i < N && st == CKP_OK; i++) {
            char text[64];
            (void)snprintf(text, sizeof text, "manifest %d", i);
            st = ask(fs, i, text);
        }
        fs->ops->survey_end(fs);
    }
    ckpi_fs_free(fs);
    return st;
}

static void
memory(void **state)
{
    (void)state;
    bucket *b = filled();
    failalloc_run(twice, b, 20, 1);
    bucket_free(b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_requests),
        cmocka_unit_test(without_list_all),
        cmocka_unit_test(changes_show),
        cmocka_unit_test(only_checkpoints_only_here),
        cmocka_unit_test(odd_listings),
        cmocka_unit_test(failures),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
