/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants 7 and 8 in bad company: readers beside a writer that deletes, and a sweep on a disk that fails for a moment. */
#include <stdio.h>
#include <stdlib.h>
#include "format/format.h"
#include "format/table.h"
#include "state/state.h"
#include "runs.h"

/* ---- a reader whose n-th look at a file comes after a deletion ------------------------------------------------------- */

static struct {
    const ckpi_fs_ops *ops;      /* of the file system below */
    ckpi_store *writer;
    uint64_t looks, at;          /* the writer deletes before this one */
} beside;

static ckp_status
open_beside(ckpi_fs *fs, const char *name, ckpi_open_how how, ckpi_file **out, ckp_error *err)
{
    if (++beside.looks == beside.at)
        assert_ok(ckpi_store_retain(beside.writer, &LAST_ONE, NULL, NULL));
    return beside.ops->open(fs, name, how, out, err);
}

typedef struct backwards { char name[32][64]; bool is_dir[32]; size_t n; } backwards;

static bool
note(void *user, const char *entry, bool is_dir)
{
    backwards *b = user;
    assert_true(b->n < 32);
    (void)snprintf(b->name[b->n], sizeof b->name[0], "%s", entry);
    b->is_dir[b->n++] = is_dir;
    return true;
}

/* Directories have no order: deltas before their bases, here. */
static ckp_status
list_backwards(ckpi_fs *fs, const char *dir, bool (*fn)(void *user, const char *entry, bool is_dir), void *user, ckp_error *err)
{
    backwards b = {.n = 0};
    const ckp_status st = beside.ops->list(fs, dir, note, &b, err);
    while (st == CKP_OK && b.n-- > 0)
        if (!fn(user, b.name[b.n], b.is_dir[b.n]))
            break;
    return st;
}

/* Returns whether the deletion fell into the listing. */
static bool
list_beside(uint64_t at)
{
    fault_disk *d = fault_disk_new();
    ckpi_fs *fs = fault_mount(d);
    ckpi_store *reader = NULL;
    ckpi_entries e = {0};
    char key[CKPI_DIR_NAME_MAX], delta[CKPI_DIR_NAME_MAX];
    size_t ok = 0;

    assert_ok(run_open(&beside.writer, fault_mount(d), CKPI_STORE_WRITE, NULL));
    assert_ok(run_save(beside.writer, 100, NULL, 1, key, NULL));
    assert_ok(run_save(beside.writer, 200, key, 1, delta, NULL));
    assert_ok(run_save(beside.writer, 300, delta, 1, NULL, NULL));
    assert_ok(run_save(beside.writer, 400, NULL, 1, NULL, NULL));
    assert_ok(run_open(&reader, fs, CKPI_STORE_READ, NULL));
    ckpi_fs_ops ops = *fs->ops;
    beside.ops = fs->ops;
    beside.looks = 0;
    beside.at = at;
    ops.open = open_beside;
    ops.list = list_backwards;
    fs->ops = &ops;
    assert_ok(ckpi_store_list(reader, &e, NULL));
    for (size_t i = 0; i < e.n; i++) {
        ok += e.v[i].health == CKPI_HEALTH_OK;
        if (e.v[i].health != CKPI_HEALTH_OK && e.v[i].health != CKPI_HEALTH_INCOMPLETE && e.v[i].health != CKPI_HEALTH_DELETING)
            fail_msg("deleted before look %llu: %s is %s: %s", (unsigned long long)at, e.v[i].dir, ckpi_health_name(e.v[i].health), e.v[i].reason);
    }
    assert_in_range(ok, 1, 4);
    const bool fell = beside.looks >= at;
    ckpi_entries_free(&e);
    fs->ops = beside.ops;
    ckpi_store_free(reader);
    ckpi_store_free(beside.writer);
    fault_disk_free(d);
    return fell;
}

static void
test_deleted_while_it_is_listed(void **state)
{
    (void)state;
    uint64_t at = 1;
    while (list_beside(at))
        at++;
    assert_true(at > 4);         /* a look at each manifest */
}

/* ---- whole shards without manifests ------------------------------------------------------------------------------------ */

/* Of a state without tensors. */
static void
whole_shard(ckpi_buf *out)
{
    ckp_state *s = NULL;
    ckpi_table *t = NULL;
    ckpi_writer *w = NULL;
    ckpi_fmt_writer *fw = NULL;
    ckpi_fmt_sum sum;
    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckpi_state_seal(s, NULL));
    assert_ok(ckpi_table_from_state(&t, s, NULL));
    assert_ok(ckpi_writer_mem(&w, out, NULL));
    assert_ok(ckpi_fmt_writer_new(&fw, w, &(ckpi_file_info){0}, t, s->tree.data, s->tree.len, NULL, NULL, 0, NULL));
    assert_ok(ckpi_fmt_writer_finish(fw, NULL, 0, &sum, NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    ckpi_fmt_writer_free(fw);
    ckpi_writer_free(w);
    ckpi_table_free(t);
    ckp_state_free(s);
}

/* A save of a process that is dead, in a run without a manifest: all that is left, perhaps. */
static void
test_a_read_that_fails_is_no_proof(void **state)
{
    (void)state;
    ckpi_buf shard = CKPI_BUF_INIT;
    uint64_t failed = 0;
    whole_shard(&shard);
    for (uint64_t at = 1;; at++) {
        fault_disk *d = fault_disk_new();
        ckpi_store *s = NULL;
        ckpi_attempt *a = NULL;
        char path[128];
        assert_ok(run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL));
        assert_ok(ckpi_store_begin(s, 100, &a, NULL));
        (void)snprintf(path, sizeof path, "%.60s/shard-00000-of-00001.ckp", ckpi_attempt_dir(a));
        fault_write(d, path, shard.data, shard.len);
        fault_restart(d);
        run_age_lock(d);
        fault_arm(d, FAULT_EIO, at, false);
        ckpi_store_free(s);
        s = NULL;
        free(a);
        const ckp_status st = run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL);
        const bool fired = fault_fired(d) != 0;
        failed += fired;
        if (!fault_exists(d, path))
            fail_msg("the shard went because call %llu failed (the opening: %s)", (unsigned long long)at, ckp_status_name(st));
        fault_arm(d, FAULT_NONE, 0, false);
        ckpi_store_free(s);
        fault_disk_free(d);
        if (!fired)
            break;
    }
    assert_true(failed > 10);
    ckpi_buf_free(&shard);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deleted_while_it_is_listed),
        cmocka_unit_test(test_a_read_that_fails_is_no_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
