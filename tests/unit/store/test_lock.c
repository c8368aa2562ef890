/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants 9 (one writing job) and 11 (a handle belongs to its process). */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/limits.h"
#include "format/runfile.h"
#include "harness/bucket.h"
#include "objects/objects.h"
#include "runs.h"

static bool in_objects;

/* Each test runs on a disk and in an object store. */
static fault_disk *
disk_new(void)
{
    return in_objects ? fault_objects_new() : fault_disk_new();
}

static ckpi_store *
writer(fault_disk *d)
{
    ckpi_store *s = NULL;
    ckp_error err;
    if (run_open(&s, fault_mount(d), CKPI_STORE_WRITE, &err) != CKP_OK)
        fail_msg("open: %s", err.text);
    return s;
}

static void
put_claim(fault_disk *d, const ckpi_lockfile *l)
{
    char path[64];
    ckpi_buf b = CKPI_BUF_INIT;
    assert_ok(ckpi_lockfile_print(l, &b, NULL));
    snprintf(path, sizeof path, "lock/epoch-%08llu.json", (unsigned long long)l->epoch);
    fault_write(d, path, b.data, b.len);
    ckpi_buf_free(&b);
}

static ckpi_lockfile
get_claim(fault_disk *d, uint64_t epoch)
{
    char path[64];
    ckpi_buf b = CKPI_BUF_INIT;
    ckpi_lockfile l;
    ckpi_fs *fs = fault_mount(d);
    snprintf(path, sizeof path, "lock/epoch-%08llu.json", (unsigned long long)epoch);
    assert_ok(ckpi_fs_read(fs, path, CKPI_RUNFILE_MAX, &b, NULL));
    assert_ok(ckpi_lockfile_parse(&l, b.data, b.len, NULL));
    ckpi_buf_free(&b);
    ckpi_fs_free(fs);
    return l;
}

/* A claim as this process would write it, changed by the test. */
static ckpi_lockfile
forge(fault_disk *d, uint64_t epoch)
{
    ckpi_store *s = NULL;
    ckpi_lockfile l = {.epoch = epoch, .nonce = 77, .held = true, .time = ckpi_now_unix(), .expiry = 120};
    ckpi_store_free(writer(d));
    assert_ok(run_open(&s, fault_mount(d), CKPI_STORE_READ, NULL));
    l.run_id = ckpi_store_run_id(s);
    ckpi_store_free(s);
    ckpi_proc_self(&l.owner);
    return l;
}

static ckp_status
try_open(fault_disk *d, ckp_error *err)
{
    ckpi_store *s = NULL;
    const ckp_status st = run_open(&s, fault_mount(d), CKPI_STORE_WRITE, err);
    ckpi_store_free(s);
    return st;
}

static void
test_one_writer(void **state)
{
    (void)state;
    ckp_error err;
    fault_disk *d = disk_new();
    ckpi_store *s = writer(d), *r = NULL;
    assert_int_equal(ckpi_store_epoch(s), 1);
    assert_status(try_open(d, &err), CKP_EBUSY);
    assert_non_null(strstr(err.text, "this process has the run open"));
    assert_ok(run_open(&r, fault_mount(d), CKPI_STORE_READ, NULL));      /* readers take no lock */
    assert_int_equal(ckpi_store_epoch(r), 0);
    ckpi_store_free(r);
    ckpi_store_free(s);
    s = writer(d);
    assert_int_equal(ckpi_store_epoch(s), 2);
    ckpi_store_free(s);
    fault_disk_free(d);
}

static void
test_dead_process(void **state)
{
    (void)state;
    fault_disk *d = disk_new();
    ckpi_lockfile l = forge(d, 5);
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    l.owner.pid = child;
    put_claim(d, &l);
    assert_ok(try_open(d, NULL));
    assert_int_equal(get_claim(d, 6).epoch, 6);          /* taking over raises the epoch */
    fault_disk_free(d);
}

static void
test_pid_used_again(void **state)
{
    (void)state;
    fault_disk *d = disk_new();
    ckpi_lockfile l = forge(d, 5);
    put_claim(d, &l);
    assert_status(try_open(d, NULL), CKP_EBUSY);         /* our own pid and start time: alive */
    l.owner.start++;
    put_claim(d, &l);
    assert_ok(try_open(d, NULL));
    fault_disk_free(d);
}

static void
test_elsewhere_only_expires(void **state)
{
    (void)state;
    for (int what = 0; what < 3; what++) {
        fault_disk *d = disk_new();
        ckpi_lockfile l = forge(d, 5);
        l.owner.pid = 1 << 22;                           /* beyond pid_max on most systems: certainly not here */
        if (what == 0)
            snprintf(l.owner.host, sizeof l.owner.host, "elsewhere");
        else if (what == 1)
            snprintf(l.owner.boot, sizeof l.owner.boot, "another-boot");
        else
            l.owner.pid_ns++;
        put_claim(d, &l);
        assert_status(try_open(d, NULL), CKP_EBUSY);
        l.time -= 119;
        put_claim(d, &l);
        assert_status(try_open(d, NULL), CKP_EBUSY);
        l.time -= 10;
        put_claim(d, &l);
        assert_ok(try_open(d, NULL));
        fault_disk_free(d);
    }
}

static void
test_clock_ahead(void **state)
{
    (void)state;
    fault_disk *d = disk_new();
    ckpi_lockfile l = forge(d, 5);
    snprintf(l.owner.host, sizeof l.owner.host, "elsewhere");
    l.time += 60;
    put_claim(d, &l);
    assert_status(try_open(d, NULL), CKP_EBUSY);
    l.time += 1000;                                      /* a clock that was wrong must not lock for ever */
    put_claim(d, &l);
    assert_ok(try_open(d, NULL));
    fault_disk_free(d);
}

static void
test_other_run_and_garbage(void **state)
{
    (void)state;
    fault_disk *d = disk_new();
    ckpi_lockfile l = forge(d, 5);
    l.run_id.lo ^= 1;
    put_claim(d, &l);
    assert_ok(try_open(d, NULL));
    fault_write(d, "lock/epoch-00000042.json", "{\"torn", 6);
    assert_ok(try_open(d, NULL));
    assert_int_equal(get_claim(d, 43).held, false);
    fault_write(d, "lock/notes.txt", "mine", 4);
    fault_write(d, "lock/epoch-7.json", "mine", 4);      /* not as we would print it: no claim */
    assert_ok(try_open(d, NULL));
    assert_true(fault_exists(d, "lock/notes.txt"));
    assert_true(fault_exists(d, "lock/epoch-7.json"));
    /* The last number that there is: the one who put it there is told which file it is. */
    ckp_error err;
    fault_write(d, "lock/epoch-9223372036854775807.json", "junk", 4);
    assert_status(try_open(d, &err), CKP_ECORRUPT);
    assert_non_null(strstr(err.text, "lock/epoch-9223372036854775807.json"));
    assert_non_null(strstr(err.text, "remove the file"));
    fault_remove(d, "lock/epoch-9223372036854775807.json");
    assert_ok(try_open(d, NULL));
    fault_disk_free(d);
}

/* A paused writer that was taken over must not publish, delete or refresh any more. */
static void
test_fencing(void **state)
{
    (void)state;
    ckp_error err;
    trace t = {0};
    fault_disk *d = disk_new();
    ckpi_store *old = writer(d), *new = NULL;
    assert_ok(trace_save(&t, old, 1, NULL, NULL));
    assert_ok(trace_save(&t, old, 2, NULL, NULL));
    run_age_lock(d);
    new = writer(d);
    assert_int_equal(ckpi_store_epoch(new), 2);
    assert_status(ckpi_store_retain(old, &LAST_ONE, NULL, NULL), CKP_EBUSY);
    assert_status(run_save(old, 3, NULL, 1, NULL, &err), CKP_EBUSY);
    assert_status(ckpi_store_refresh(old, NULL), CKP_EBUSY);
    ckpi_store_free(old);
    assert_int_equal(get_claim(d, 2).held, true);        /* and its close left the other's claim alone */
    assert_ok(trace_save(&t, new, 4, NULL, NULL));
    ckpi_store_free(new);
    run_judge(d, &t, "fencing");
    fault_disk_free(d);
}

static void
test_fenced_at_commit(void **state)
{
    (void)state;
    fault_disk *d = disk_new();
    ckpi_store *old = writer(d), *new = NULL;
    ckpi_attempt *a = NULL;
    ckpi_writer *w = NULL;
    ckpi_manifest *m = ckpi_manifest_new();
    ckpi_id hash;
    char name[CKPI_DIR_NAME_MAX], dir[CKPI_DIR_NAME_MAX];
    assert_ok(ckpi_store_begin(old, 1, &a, NULL));
    snprintf(dir, sizeof dir, "%s", ckpi_attempt_dir(a));
    assert_ok(ckpi_store_shard(old, a, 0, 1, &w, NULL));
    assert_ok(ckpi_writer_put(w, "x", 1, NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    assert_ok(ckpi_writer_hash(w, &hash, NULL));
    ckpi_writer_free(w);
    ckpi_shard_name(name, 0, 1);
    assert_ok(ckpi_manifest_add_shard(m, name, 1, hash, hash, NULL));
    assert_ok(ckpi_manifest_set(&m->profile, "lossless", NULL));
    m->content = hash;
    run_age_lock(d);
    new = writer(d);                                     /* sweeps the attempt of the writer it took to be dead */
    assert_false(fault_exists(d, dir));
    assert_int_not_equal(ckpi_store_commit(old, a, m, NULL), CKP_OK);
    ckpi_manifest_free(m);
    ckpi_store_free(old);
    ckpi_store_free(new);
    fault_disk_free(d);
}

static void
test_lock_removed(void **state)
{
    (void)state;
    fault_disk *d = disk_new();
    ckpi_store *s = writer(d);
    fault_remove(d, "lock/epoch-00000001.json");
    assert_status(ckpi_store_refresh(s, NULL), CKP_EBUSY);
    ckpi_store_free(s);
    assert_ok(try_open(d, NULL));
    fault_disk_free(d);
}

static void
test_refresh(void **state)
{
    (void)state;
    fault_disk *d = disk_new();
    ckpi_store *s = writer(d);
    run_age_lock(d);
    assert_ok(ckpi_store_refresh(s, NULL));
    assert_true(llabs((long long)(get_claim(d, 1).time - ckpi_now_unix())) < 60);
    assert_status(try_open(d, NULL), CKP_EBUSY);
    ckpi_store_free(s);
    fault_disk_free(d);
}

/* An attempt with a shard, and what its manifest needs but for the base. */
static ckpi_manifest *
begin_delta(ckpi_store *s, ckpi_attempt **a, const ckpi_manifest *base, const char *base_dir)
{
    ckpi_writer *w = NULL;
    ckpi_id hash;
    char name[CKPI_DIR_NAME_MAX];
    ckpi_manifest *m = ckpi_manifest_new();
    assert_ok(ckpi_store_begin(s, 99, a, NULL));
    assert_ok(ckpi_store_shard(s, *a, 0, 1, &w, NULL));
    assert_ok(ckpi_writer_put(w, "x", 1, NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    assert_ok(ckpi_writer_hash(w, &hash, NULL));
    ckpi_writer_free(w);
    ckpi_shard_name(name, 0, 1);
    assert_ok(ckpi_manifest_add_shard(m, name, 1, hash, hash, NULL));
    assert_ok(ckpi_manifest_set(&m->profile, "lossless", NULL));
    assert_ok(ckpi_manifest_set(&m->base_dir, base_dir, NULL));
    m->kind = CKPI_CKPT_DELTA;
    m->base = base->content;
    m->chain = base->chain + 1;
    m->content = hash;
    return m;
}

/* Claims count whole seconds: one that was written in this second is not yet due. */
static void
wait_past(int64_t second)
{
    while (ckpi_now_unix() <= second)
        usleep(20000);
}

/* Where each request takes long, listing and looking at a chain may outlast a claim: it is refreshed on the way. */
static void
test_kept_while_slow(void **state)
{
    (void)state;
    const ckpi_store_options quick = {.lock_expiry_s = 4};
    fault_disk *d = disk_new();
    ckpi_store *s = NULL;
    ckpi_attempt *a = NULL;
    ckpi_chain chain = CKPI_CHAIN_INIT;
    char dir[5][CKPI_DIR_NAME_MAX];
    assert_ok(ckpi_store_open(&s, fault_mount(d), CKPI_STORE_WRITE, &quick, NULL));
    for (uint64_t step = 1; step <= 4; step++)
        assert_ok(run_save(s, step, step > 1 ? dir[step - 1] : NULL, 1, dir[step], NULL));
    assert_ok(ckpi_store_chain(s, dir[4], &chain, NULL));
    ckpi_manifest *m = begin_delta(s, &a, chain.m[3], dir[4]);
    int64_t was = get_claim(d, 1).time;
    wait_past(was);
    fault_slow(d, 80);
    assert_ok(ckpi_store_commit(s, a, m, NULL));
    fault_slow(d, 0);
    assert_true(get_claim(d, 1).time > was);
    was = get_claim(d, 1).time;
    wait_past(was);
    fault_slow(d, 80);
    assert_ok(ckpi_store_retain(s, &LAST_ONE, NULL, NULL));
    fault_slow(d, 0);
    assert_true(get_claim(d, 1).time > was);
    ckpi_chain_free(&chain);
    ckpi_manifest_free(m);
    ckpi_store_free(s);
    fault_disk_free(d);
}

static const ckpi_fs_ops *usual;
static fault_disk *full;     /* but for what the reserve takes */

static ckp_status
write_full(ckpi_file *f, const void *src, size_t n, ckp_error *err)
{
    return full != NULL && fault_exists(full, "lock/reserve") ? ckpi_fail_errno(err, ENOSPC, "injected") : usual->write(f, src, n, err);
}

/* On a full disk a run can be refreshed, closed, opened and pruned. */
static void
test_full_disk(void **state)
{
    (void)state;
    fault_disk *d = fault_disk_new();
    ckpi_fs_ops ops = {0};
    ckpi_store *s = NULL;
    ckpi_retained done;
    full = NULL;
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        ckpi_fs *fs = fault_mount(d);
        usual = fs->ops;
        ops = *usual;
        ops.write = write_full;
        fs->ops = &ops;
        assert_ok(run_open(&s, fs, CKPI_STORE_WRITE, NULL));
        for (uint64_t step = 1; epoch == 1 && step <= 2; step++)
            assert_ok(run_save(s, step, NULL, 1, NULL, NULL));
        full = d;
        assert_true(fault_exists(d, "lock/reserve"));
        assert_status(run_save(s, 3, NULL, 1, NULL, NULL), CKP_ENOSPC);
        assert_ok(ckpi_store_refresh(s, NULL));
        if (epoch == 2)
            assert_ok(ckpi_store_retain(s, &LAST_ONE, &done, NULL));
        ckpi_store_free(s);
        assert_false(get_claim(d, epoch).held);
    }
    assert_int_equal(done.deleted, 1);
    full = NULL;
    fault_disk_free(d);
}

static void *
free_later(void *s)
{
    usleep(400000);
    ckpi_store_free(s);
    return NULL;
}

static void
test_wait(void **state)
{
    (void)state;
    const ckpi_store_options wait = {.lock_wait_s = 20}, wait1 = {.lock_wait_s = 1};
    ckpi_store *s, *second = NULL;
    pthread_t thread;
    char dir[RUN_TMP_MAX];
    ckpi_fs *a = NULL, *b = NULL;
    run_tmp(dir);
    assert_ok(ckpi_fs_posix(&a, dir, false, NULL));
    assert_ok(ckpi_store_open(&s, a, CKPI_STORE_WRITE, NULL, NULL));
    assert_ok(ckpi_fs_posix(&b, dir, false, NULL));
    assert_status(ckpi_store_open(&second, b, CKPI_STORE_WRITE, &wait1, NULL), CKP_EBUSY);
    assert_ok(ckpi_fs_posix(&b, dir, false, NULL));
    assert_int_equal(pthread_create(&thread, NULL, free_later, s), 0);
    assert_ok(ckpi_store_open(&second, b, CKPI_STORE_WRITE, &wait, NULL));
    pthread_join(thread, NULL);
    assert_int_equal(ckpi_store_epoch(second), 2);
    ckpi_store_free(second);
    run_rm(dir);
}

/* In a forked child: every call fails with CKP_EFORK, free changes nothing. */
static int
child_result(ckpi_store *s, ckpi_attempt *a, fault_disk *d)
{
    const uint64_t before = fault_digest(d);
    ckpi_entries e = {0};
    ckpi_chain c = CKPI_CHAIN_INIT;
    ckpi_attempt *b = NULL;
    ckpi_writer *w = NULL;
    ckpi_manifest *m = ckpi_manifest_new();
    const ckp_status st[] = {
        ckpi_store_refresh(s, NULL),
        ckpi_store_begin(s, 9, &b, NULL),
        ckpi_store_shard(s, a, 0, 1, &w, NULL),
        ckpi_store_list(s, &e, NULL),
        ckpi_store_latest(s, UINT64_MAX, &c, NULL, NULL),
        ckpi_store_at_step(s, 1, &c, NULL),
        ckpi_store_retain(s, &LAST_ONE, NULL, NULL),
        ckpi_store_commit(s, a, m, NULL),
    };
    ckpi_manifest_free(m);
    ckpi_store_free(s);
    for (size_t i = 0; i < CHECK_COUNT(st); i++)
        if (st[i] != CKP_EFORK)
            return 1 + (int)i;
    return fault_digest(d) == before ? 0 : 100;
}

static void
test_fork(void **state)
{
    (void)state;
    int status = -1;
    fault_disk *d = disk_new();
    ckpi_store *s = writer(d);
    ckpi_attempt *a = NULL;
    assert_ok(run_save(s, 1, NULL, 1, NULL, NULL));
    assert_ok(ckpi_store_begin(s, 2, &a, NULL));
    const pid_t child = fork();
    if (child == 0)
        _exit(child_result(s, a, d));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    ckpi_store_abort(s, a);
    assert_ok(run_save(s, 3, NULL, 1, NULL, NULL));
    ckpi_store_free(s);
    fault_disk_free(d);
}

/* ---- stores that know no condition, and another process that begins the run at the same moment ---- */

static bucket *theirs;       /* what it puts */
static const char *late_for; /* not NULL: run.json after our put of that key, else each key after our put of it */

static ckp_status
put_over(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err)
{
    const ckp_status st = bucket_table(user).put(user, key, bytes, replace, err);
    const char *put = late_for == NULL ? key : strcmp(key, late_for) == 0 ? "run.json" : "";
    const bucket_object *o = replace ? NULL : bucket_find(theirs, put);
    if (o != NULL)
        bucket_set(user, put, o->data, o->len);
    return st;
}

static ckp_status
open_in(bucket *b, bool beside, ckpi_store **s, ckp_error *err)
{
    ckpi_fs *fs = NULL;
    ckp_objects t = bucket_table(b);
    t.put = beside ? put_over : t.put;
    assert_ok(ckpi_fs_objects(&fs, &t, "mem://run", NULL));
    return ckpi_store_open(s, fs, CKPI_STORE_WRITE, NULL, err);
}

/* The one that put last is the one whose run and claim they are; nothing of it is removed. */
static void
test_begun_together(void **state)
{
    (void)state;
    ckpi_store *s = NULL, *they = NULL;
    bucket *b = bucket_new();
    ckp_error err;
    theirs = bucket_new();
    late_for = NULL;
    assert_ok(open_in(theirs, false, &they, &err));
    const bucket_object *claim = bucket_find(theirs, "lock/epoch-00000001.json");
    assert_status(open_in(b, true, &s, &err), CKP_EBUSY);
    assert_memory_equal(bucket_find(b, "run.json")->data, bucket_find(theirs, "run.json")->data, bucket_find(theirs, "run.json")->len);
    assert_memory_equal(bucket_find(b, "lock/epoch-00000001.json")->data, claim->data, claim->len);
    bucket_free(b);
    /* put over when ours had been read back: it shows before anything is done */
    b = bucket_new();
    late_for = "lock/epoch-00000001.json";
    assert_status(open_in(b, true, &s, &err), CKP_EBUSY);
    assert_non_null(strstr(err.text, "at the same moment"));
    assert_ok(open_in(b, true, &s, &err));
    assert_true(ckpi_id_eq(ckpi_store_run_id(s), ckpi_store_run_id(they)));
    ckpi_store_free(s);
    ckpi_store_free(they);
    bucket_free(b);
    bucket_free(theirs);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_writer),
        cmocka_unit_test(test_dead_process),
        cmocka_unit_test(test_pid_used_again),
        cmocka_unit_test(test_elsewhere_only_expires),
        cmocka_unit_test(test_clock_ahead),
        cmocka_unit_test(test_other_run_and_garbage),
        cmocka_unit_test(test_fencing),
        cmocka_unit_test(test_fenced_at_commit),
        cmocka_unit_test(test_lock_removed),
        cmocka_unit_test(test_refresh),
        cmocka_unit_test(test_kept_while_slow),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_begun_together),
    };
    const int failed = cmocka_run_group_tests_name("on a disk", tests, NULL, NULL);
    in_objects = true;
    return failed + cmocka_run_group_tests_name("in an object store", tests, NULL, NULL);
}
