/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "harness/faultfs.h"
#include "harness/seed.h"
#include "tmpdir.h"

/* Sizes around the buffer's: everything arrives, in order, however it was cut. */
static void
test_all_sinks(void **state)
{
    const size_t sizes[] = {0, 1, 4096, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 3u << 20};
    ckpi_fs *fs = tmpdir_fs(state);
    test_rng rng = test_rng_new("writer");
    size_t total = 0;
    uint8_t *all = malloc(16u << 20);
    ckpi_buf mem = CKPI_BUF_INIT, file = CKPI_BUF_INIT;
    ckpi_writer *a = NULL, *b = NULL;
    ckpi_id ha, hb;
    assert_ok(ckpi_writer_file(&a, fs, ".t", NULL));
    assert_ok(ckpi_writer_mem(&b, &mem, NULL));
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < CHECK_COUNT(sizes); i++) {
            test_bytes(&rng, all + total, sizes[i]);
            assert_ok(ckpi_writer_put(a, all + total, sizes[i], NULL));
            assert_ok(ckpi_writer_put(b, all + total, sizes[i], NULL));
            total += sizes[i];
            assert_int_equal(ckpi_writer_pos(a), total);
        }
    }
    assert_status(ckpi_writer_hash(a, &ha, NULL), CKP_ESTATE);
    assert_ok(ckpi_writer_publish(a, "name", false, NULL));
    assert_ok(ckpi_writer_finish(b, NULL));
    assert_ok(ckpi_writer_hash(a, &ha, NULL));
    assert_ok(ckpi_writer_hash(b, &hb, NULL));
    assert_true(ckpi_id_eq(ha, hb));
    assert_true(ckpi_id_eq(ha, ckpi_hash128(all, total)));
    assert_ok(ckpi_fs_read(fs, "name", total, &file, NULL));
    assert_int_equal(file.len, total);
    assert_memory_equal(file.data, all, total);
    assert_memory_equal(mem.data, all, total);
    assert_status(ckpi_writer_put(a, "x", 1, NULL), CKP_ESTATE);
    ckpi_writer_free(a);
    ckpi_writer_free(b);
    ckpi_buf_free(&mem);
    ckpi_buf_free(&file);
    free(all);
    ckpi_fs_free(fs);
}

static void
test_pipe(void **state)
{
    (void)state;
    int ends[2];
    char got[6] = "";
    ckpi_writer *w = NULL;
    ckp_error err;
    assert_int_equal(pipe(ends), 0);
    assert_ok(ckpi_writer_fd(&w, ends[1], NULL));
    assert_ok(ckpi_writer_put(w, "hello", 5, NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    assert_int_equal(read(ends[0], got, 5), 5);
    assert_string_equal(got, "hello");
    assert_status(ckpi_writer_publish(w, "x", false, NULL), CKP_EINVAL);
    ckpi_writer_free(w);
    close(ends[1]);
    assert_ok(ckpi_writer_fd(&w, ends[1], NULL));          /* closed: the error is the system's */
    assert_ok(ckpi_writer_put(w, "x", 1, NULL));
    assert_status(ckpi_writer_finish(w, &err), CKP_EIO);
    assert_int_not_equal(err.sys_errno, 0);
    ckpi_writer_free(w);
    close(ends[0]);
}

static void
test_mem_cap(void **state)
{
    (void)state;
    ckpi_buf mem = CKPI_BUF_INIT_MAX(4);
    ckpi_writer *w = NULL;
    assert_ok(ckpi_writer_mem(&w, &mem, NULL));
    assert_ok(ckpi_writer_put(w, "1234", 4, NULL));
    assert_status(ckpi_writer_put(w, "5", 1, NULL), CKP_ELIMIT);
    assert_status(ckpi_writer_finish(w, NULL), CKP_ELIMIT);
    ckpi_writer_free(w);
    ckpi_buf_free(&mem);
}

/* An unfinished or failed writer leaves no file, a finished one does. */
static void
test_free_cleans_up(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    ckpi_writer *w = NULL, *second = NULL;
    assert_ok(ckpi_writer_file(&w, fs, ".t", NULL));
    ckpi_writer_free(w);
    assert_int_not_equal(access(tmpdir_path(state, ".t"), F_OK), 0);
    assert_ok(ckpi_writer_file(&w, fs, ".t", NULL));
    assert_status(ckpi_writer_file(&second, fs, ".t", NULL), CKP_EEXIST);       /* and does not remove the other's */
    assert_null(second);
    assert_int_equal(access(tmpdir_path(state, ".t"), F_OK), 0);
    ckpi_writer_free(w);
    assert_ok(ckpi_writer_file(&w, fs, ".t", NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    ckpi_writer_free(w);
    assert_int_equal(access(tmpdir_path(state, ".t"), F_OK), 0);
    ckpi_fs_free(fs);
}

/* Every call of a writer's life fails once: the error stays, nothing is left under the final name, the temporary is gone. */
static void
test_faults(void **state)
{
    (void)state;
    uint8_t *big = calloc(1, 3u << 20);
    const fault_kind kinds[] = {FAULT_EIO, FAULT_ENOSPC, FAULT_SHORT};
    for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
        for (uint64_t at = 1;; at++) {
            fault_disk *d = fault_disk_new();
            ckpi_fs *fs = fault_mount(d);
            ckpi_writer *w = NULL;
            fault_arm(d, kinds[k], at, false);
            ckp_status st = ckpi_writer_file(&w, fs, ".t", NULL), first = CKP_OK;
            if (st == CKP_OK) {
                first = ckpi_writer_put(w, big, 100, NULL);
                if (first == CKP_OK)
                    first = ckpi_writer_put(w, big, 3u << 20, NULL);
                st = ckpi_writer_publish(w, "name", false, NULL);
                if (first != CKP_OK)
                    assert_status(st, first);
            }
            const bool fired = fault_fired(d) > 0;
            assert_int_equal(st != CKP_OK, fired);
            ckpi_writer_free(w);
            assert_int_equal(fault_exists(d, "name"), !fired);
            assert_false(fault_exists(d, ".t"));
            ckpi_fs_free(fs);
            fault_disk_free(d);
            if (!fired) {
                assert_true(at > 2);
                break;
            }
        }
    }
    free(big);
}

static void
test_fork(void **state)
{
    ckpi_fs *fs = tmpdir_fs(state);
    ckpi_writer *w = NULL;
    int status = -1;
    assert_ok(ckpi_writer_file(&w, fs, ".t", NULL));
    assert_ok(ckpi_writer_put(w, "x", 1, NULL));
    const pid_t child = fork();
    if (child == 0) {
        const bool ok = ckpi_writer_put(w, "y", 1, NULL) == CKP_EFORK && ckpi_writer_finish(w, NULL) == CKP_EFORK;
        ckpi_writer_free(w);
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(access(tmpdir_path(state, ".t"), F_OK), 0);
    assert_ok(ckpi_writer_publish(w, "name", false, NULL));
    ckpi_writer_free(w);
    ckpi_fs_free(fs);
}

/* Nowhere counts what it is given, however it comes, and has no name to publish. */
static void
test_nowhere(void **state)
{
    (void)state;
    ckpi_writer *w = NULL;
    uint64_t want = 0;
    uint8_t *big = calloc(1, 3 << 20);
    assert_non_null(big);
    assert_ok(ckpi_writer_null(&w, NULL));
    for (size_t n = 0; n <= 3u << 20; n = 3 * n + 1) {
        assert_ok(ckpi_writer_put(w, big, n, NULL));
        want += n;
        assert_int_equal(ckpi_writer_pos(w), want);
    }
    assert_int_not_equal(ckpi_writer_publish(w, "name", true, NULL), CKP_OK);
    ckpi_writer_free(w);
    assert_ok(ckpi_writer_null(&w, NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    ckpi_writer_free(w);
    free(big);
}

#define WITH_DIR(t) cmocka_unit_test_setup_teardown(t, tmpdir_setup, tmpdir_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_all_sinks), cmocka_unit_test(test_pipe),   cmocka_unit_test(test_mem_cap),
        WITH_DIR(test_free_cleans_up), cmocka_unit_test(test_faults), WITH_DIR(test_fork),
        cmocka_unit_test(test_nowhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
