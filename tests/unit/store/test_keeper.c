/* SPDX-License-Identifier: Apache-2.0 */
/* Refreshing a claim from beside what takes long. */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
#include "runs.h"

static pthread_t slow;       /* whose syncs take long */

/* Nothing waits for the disk itself, which may be as slow as the claim is short. */
static ckp_status
sync_slowly(ckpi_file *f, ckp_error *err)
{
    (void)f;
    (void)err;
    if (pthread_equal(pthread_self(), slow))
        usleep(4500000);
    return CKP_OK;
}

static ckp_status
sync_no_dir(ckpi_fs *fs, const char *name, ckp_error *err)
{
    (void)fs;
    (void)name;
    (void)err;
    return CKP_OK;
}

/* What is one call, and outlasts a claim: it is refreshed from beside. */
static void
test_kept_from_beside(void **state)
{
    (void)state;
    const ckpi_store_options quick = {.lock_expiry_s = 2};
    char dir[RUN_TMP_MAX];
    ckpi_fs *fs = NULL, *other = NULL;
    ckpi_store *s = NULL, *second = NULL;
    ckpi_writer *w = NULL;
    run_tmp(dir);
    assert_ok(ckpi_fs_posix(&fs, dir, false, NULL));
    const ckpi_fs_ops *usual = fs->ops;
    ckpi_fs_ops ops = *usual;
    ops.sync = sync_slowly;
    ops.sync_dir = sync_no_dir;
    assert_ok(ckpi_store_open(&s, fs, CKPI_STORE_WRITE, &quick, NULL));
    assert_ok(ckpi_writer_file(&w, fs, "x", NULL));
    fs->ops = &ops;
    slow = pthread_self();
    ckpi_keeper *k = ckpi_store_keep(s);
    assert_ok(ckpi_writer_finish(w, NULL));
    assert_ok(ckpi_fs_posix(&other, dir, false, NULL));
    assert_status(ckpi_store_open(&second, other, CKPI_STORE_WRITE, &quick, NULL), CKP_EBUSY);
    ckpi_keeper_stop(k);
    ckpi_writer_free(w);
    fs->ops = usual;
    ckpi_store_free(s);
    run_rm(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept_from_beside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
