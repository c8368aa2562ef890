/* SPDX-License-Identifier: Apache-2.0 */
/* Runs with a copy of their newest checkpoint in shared memory: what is restored, by whom, and after what (docs/runs.md, invariant 15). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "harness/seed.h"
#include "help.h"
#include "os/private.h"

static ckp_run *
open_run(const char *dir, uint64_t memory)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    ckp_run *run = NULL;
    ckp_error err;
    o.coding.threads = 1;
    o.memory = memory;
    o.key_every = 4;
    OK_OR_FAIL(ckp_run_open(&run, dir, &o, &err));
    return run;
}

static ckp_save_stats
stats_of(const ckp_run *run)
{
    ckp_save_stats s = {.size = sizeof s};
    ckp_run_stats(run, &s);
    return s;
}

/* The newest through the run, compared; bytes of its files that came from memory, and of all. */
static uint64_t
restore(ckp_run *run, const help_image *want, uint64_t *all)
{
    ckp_checkpoint *ck = NULL;
    ckp_checkpoint_info info = {.size = sizeof info};
    ckp_error err;
    OK_OR_FAIL(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &err));
    help_image *got = help_read(ck);
    assert_true(help_same(got, want));
    ckp_checkpoint_get_info(ck, &info);
    OK_OR_FAIL(ckp_run_adopt(run, ck, &err));
    help_image_free(got);
    ckp_checkpoint_close(ck);
    if (all != NULL)
        *all = stats_of(run).copy_bytes;
    return info.memory_bytes;
}

static void
test_run(void **state)
{
    (void)state;
    if (ckpi_memory_room(CKPI_SHARED_MEMORY) < 128 << 20)
        skip();
    char *dir = help_dir();
    sim *m = help_model(1, true);
    uint64_t all = 0, opened;
    ckp_run *run = open_run(dir, 64 << 20);
    assert_int_equal(stats_of(run).copy_bytes, 0);
    for (int i = 0; i < 3; i++) {
        help_save(run, m, NULL);
        sim_train(m);
    }
    ckp_save_stats s = stats_of(run);
    assert_string_equal(s.copy_note, "");
    assert_true(s.copy_bytes > 0 && s.copy_bytes <= s.sum_stored);
    assert_true(s.memory_peak >= s.memory_bytes && s.sum_raw == 3 * s.raw_bytes);
    ckp_run_keep_memory(run);
    assert_ok(ckp_run_close(run, NULL));

    help_image *want = help_read_run(dir, CKP_STEP_NEWEST);
    run = open_run(dir, 64 << 20);
    opened = restore(run, want, &all);
    assert_true(opened > 0 && opened == all);         /* the whole chain */
    /* the run's own file is damaged now, and memory still has what the manifest says; a save goes on from there */
    char *shard = help_shard(dir, 3);
    size_t len = 0;
    uint8_t *bytes = help_file(shard, &len);
    bytes[len / 2] ^= 1;
    help_write(shard, bytes, len);
    assert_int_equal(restore(run, want, NULL), opened);
    bytes[len / 2] ^= 1;
    help_write(shard, bytes, len);
    help_save(run, m, NULL);
    assert_false(stats_of(run).is_key);
    ckp_run_keep_memory(run);
    assert_ok(ckp_run_close(run, NULL));
    free(bytes);
    free(shard);
    help_image_free(want);

    want = help_read_run(dir, CKP_STEP_NEWEST);
    run = open_run(dir, 64 << 20);
    assert_true(restore(run, want, NULL) > opened);
    assert_ok(ckp_run_close(run, NULL));              /* in order: nothing stays */
    run = open_run(dir, 64 << 20);
    assert_int_equal(restore(run, want, NULL), 0);
    assert_ok(ckp_run_close(run, NULL));
    run = open_run(dir, CKP_MEMORY_DEFAULT);          /* a directory has none of its own accord */
    help_save(run, m, NULL);
    assert_int_equal(stats_of(run).copy_bytes, 0);
    assert_string_equal(stats_of(run).copy_note, "");
    assert_ok(ckp_run_close(run, NULL));
    help_image_free(want);
    sim_free(m);
    help_remove(dir);
}

/* A checkpoint that was opened through a run outlives it, and reads on. */
static void
test_outlives(void **state)
{
    (void)state;
    if (ckpi_memory_room(CKPI_SHARED_MEMORY) < 128 << 20)
        skip();
    char *dir = help_dir();
    sim *m = help_model(2, true);
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    ckp_run *run = open_run(dir, 64 << 20);
    help_save(run, m, NULL);
    OK_OR_FAIL(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &err));
    assert_ok(ckp_run_close(run, NULL));
    help_image *got = help_read(ck);
    assert_true(help_is_model(got, m));
    help_image_free(got);
    ckp_checkpoint_close(ck);
    sim_free(m);
    help_remove(dir);
}

/* Killed at any moment of its saves: the next process gets the newest committed checkpoint, from memory where that is whole. */
static void
test_killed(void **state)
{
    (void)state;
    if (ckpi_memory_room(CKPI_SHARED_MEMORY) < 128 << 20)
        skip();
    char *dir = help_dir();
    test_rng rng = test_rng_new("killed beside a copy");
    unsigned from_memory = 0;
    for (int i = 0; i < 20; i++) {
        const pid_t child = fork();
        if (child == 0) {
            sim *m = help_model((uint64_t)i, true);
            ckp_run *run = open_run(dir, 64 << 20);
            for (;;) {
                help_save(run, m, NULL);
                sim_train(m);
            }
        }
        (void)usleep((useconds_t)(20000 + test_below(&rng, 60000)));
        assert_int_equal(kill(child, SIGKILL), 0);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        if (help_count(dir) == 0)
            continue;
        help_image *want = help_read_run(dir, CKP_STEP_NEWEST);
        ckp_run *run = open_run(dir, 64 << 20);
        from_memory += restore(run, want, NULL) > 0;
        assert_true(stats_of(run).copy_bytes <= 64 << 20);
        ckp_run_keep_memory(run);
        assert_ok(ckp_run_close(run, NULL));
        help_image_free(want);
    }
    assert_true(from_memory >= 5);
    ckp_run *run = open_run(dir, 64 << 20);
    assert_ok(ckp_run_close(run, NULL));
    help_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_run), cmocka_unit_test(test_outlives), cmocka_unit_test(test_killed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
