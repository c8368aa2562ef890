/* SPDX-License-Identifier: Apache-2.0 */
/* A process that may open no more files has no damaged checkpoints: a restore says so, and takes no older one instead. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/resource.h>
#include <ckpress/run_verify.h>
#include "help.h"
#include "run/checkpoint.h"

enum { SAVES = 24 };

static struct rlimit before;

static void
allow(rlim_t files)
{
    const struct rlimit r = {files, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
}

static int
count_ok(void *user, const ckp_list_entry *e)
{
    *(int *)user += strcmp(e->health, "ok") == 0;
    return 0;
}

static void
test_too_few(void **state)
{
    (void)state;
    char *dir = help_dir();
    sim *m = help_model(1, true);
    ckp_run *run = help_open(dir, CKP_PROFILE_LOSSLESS, SAVES, 0);
    for (int i = 0; i < SAVES; i++) {
        help_save(run, m, NULL);
        sim_train(m);
    }
    assert_ok(ckp_run_close(run, NULL));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    unsigned short_of = 0;
    for (rlim_t files = 4; files < SAVES + 16; files++) {
        ckp_checkpoint *ck = NULL;
        ckp_error err = {0};
        int ok = 0;
        allow(files);
        const ckp_status st = ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, false, &err);
        const ckp_status listed = ckp_run_list(dir, count_ok, &ok, NULL);
        const ckp_status checked = ckp_verify(dir, NULL, 0, CKP_VERIFY_STRUCTURE, 1, NULL, NULL, NULL);
        allow(before.rlim_cur);
        if (listed != CKP_OK || checked != CKP_OK) {
            assert_true(listed == CKP_OK || listed == CKP_ENOMEM);
            assert_status(checked, CKP_ENOMEM);
        }
        assert_int_equal(ok, listed == CKP_OK ? SAVES : 0);
        if (st == CKP_OK) {
            ckp_checkpoint_info i = {.size = sizeof i};
            ckp_checkpoint_get_info(ck, &i);
            assert_int_equal(i.sequence, SAVES);
            assert_string_equal(ckp_checkpoint_notes(ck), "");
        } else {
            assert_status(st, CKP_ENOMEM);
            assert_non_null(strstr(err.text, "Too many open files"));
            short_of++;
        }
        ckp_checkpoint_close(ck);
    }
    assert_in_range(short_of, 5, SAVES + 11);
    sim_free(m);
    help_remove(dir);
}

static int
open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

/* A shard that is another's than its manifest says is closed again. */
static void
test_foreign_shard(void **state)
{
    (void)state;
    char *dir = help_dir();
    sim *m = help_model(1, true);
    ckp_run *run = help_open(dir, CKP_PROFILE_LOSSLESS, SAVES, 0);
    ckpi_fs *fs = NULL;
    ckpi_store *s = NULL;
    ckpi_entries all = {0};
    ckpi_fmt_file *f = NULL;
    ckp_error err;
    help_save(run, m, NULL);
    assert_ok(ckp_run_close(run, NULL));
    assert_ok(ckpi_fs_posix(&fs, dir, false, NULL));
    assert_ok(ckpi_store_open(&s, fs, CKPI_STORE_READ, NULL, NULL));
    assert_ok(ckpi_store_list(s, &all, NULL));
    all.v[0].m->shards[0].content.lo ^= 1;
    const int open = open_files();
    assert_status(ckpi_checkpoint_open_shard(s, all.v[0].dir, all.v[0].m, 0, &f, &err), CKP_ECORRUPT);
    assert_null(f);
    assert_int_equal(open_files(), open);
    ckpi_entries_free(&all);
    ckpi_store_free(s);
    sim_free(m);
    help_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_too_few), cmocka_unit_test(test_foreign_shard)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
