/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in an object store, through the public interface: what holds of a directory holds there. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "harness/bucket.h"
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "model.h"

#define NAME "mem://bucket/run"

static ckp_run *
open_run(const ckp_objects *in, ckp_profile profile, unsigned keep_last)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.objects = in;
    o.coding.profile = profile;
    o.keep_last = keep_last;
    o.key_every = 3;
    return model_run(NAME, o);
}

static void
verify_all(const ckp_objects *in)
{
    ckp_verify_options o = CKP_VERIFY_OPTIONS_INIT;
    ckp_verified done = {.size = sizeof done};
    ckp_error err;
    o.level = CKP_VERIFY_DECODE;
    o.threads = 1;
    assert_ok(ckp_run_verify_in(in, NAME, &o, &done, &err));
    assert_true(done.checkpoints > 0 && done.whole == done.checkpoints);
}

static void
save(ckp_run *run, model *m)
{
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    const ckp_metric loss = {"loss", (double)m->step};
    ckp_error err;
    so.wait = true;
    so.metrics = &loss;
    so.n_metrics = 1;
    if (model_save(run, m, &so, &err) != CKP_OK)
        fail_msg("%s", err.text);
}

static void
restore(const ckp_objects *in, int64_t step, model *m)
{
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    if (ckp_checkpoint_open_run_in(&ck, in, NAME, NULL, step, true, &err) != CKP_OK || model_read(ck, m, &err) != CKP_OK)
        fail_msg("%s", err.text);
    ckp_checkpoint_close(ck);
}

static int
count_ok(void *user, const ckp_list_entry *e)
{
    *(int *)user += strcmp(e->health, "ok") == 0;
    return 0;
}

static int
count_inspected(void *user, const ckp_list_entry *e, const ckp_checkpoint *ck, const ckp_error *why)
{
    (void)e;
    (void)why;
    *(int *)user += ck != NULL;
    return 0;
}

static void
test_life(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    ckp_error err;
    model m = {0}, was[7], got = {0};
    model_small(&m, "objects");
    ckp_run *run = open_run(&t, CKP_PROFILE_LOSSLESS, 0);
    for (int i = 0; i < 7; i++) {
        save(run, &m);
        model_copy(&was[i], &m);
        model_step(&m);
    }
    ckp_run *second = NULL;
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.objects = &t;
    assert_status(ckp_run_open(&second, NAME, &o, &err), CKP_EBUSY);
    assert_non_null(strstr(err.text, NAME));
    assert_ok(ckp_run_close(run, NULL));

    model_copy(&got, &m);
    for (int i = 0; i < 7; i++) {
        model_clear(&got);
        restore(&t, (int64_t)was[i].step, &got);
        assert_true(model_equal(&got, &was[i]));
    }
    int n = 0;
    assert_ok(ckp_run_list_in(&t, NAME, count_ok, &n, NULL));
    assert_int_equal(n, 7);
    n = 0;
    assert_ok(ckp_run_inspect_in(&t, NAME, count_inspected, &n, NULL));
    assert_int_equal(n, 7);
    verify_all(&t);

    const unsigned long before = b->puts + b->removes;
    assert_status(ckp_checkpoint_open_run_in(&(ckp_checkpoint *){NULL}, &t, NAME, NULL, 99, true, &err), CKP_ENOTFOUND);
    assert_int_equal(b->puts + b->removes, before);        /* a reader changes nothing */

    ckp_retention rules = CKP_RETENTION_INIT;
    ckp_pruned done = {.size = sizeof done};
    rules.keep_last = 1;
    assert_ok(ckp_run_prune_in(&t, NAME, &rules, false, NULL, NULL, &done, &err));
    assert_int_equal(done.kept, 1);
    assert_int_equal(done.deleted, 6);
    model_clear(&got);
    restore(&t, CKP_STEP_NEWEST, &got);
    assert_true(model_equal(&got, &was[6]));
    assert_int_equal(bucket_count(b), 4);                 /* run.json, one claim, shard, manifest */
    for (int i = 0; i < 7; i++)
        model_free(&was[i]);
    model_free(&got);
    model_free(&m);
    bucket_free(b);
}

/* Going on after a restore is a delta against it; retention goes on as well. */
static void
test_resume(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    model m = {0}, got = {0};
    ckp_error err;
    model_small(&m, "objects again");
    ckp_run *run = open_run(&t, CKP_PROFILE_RESUME, 2);
    for (int i = 0; i < 5; i++) {
        save(run, &m);
        model_step(&m);
    }
    assert_ok(ckp_run_close(run, NULL));
    model_copy(&got, &m);
    run = open_run(&t, CKP_PROFILE_RESUME, 2);
    ckp_checkpoint *ck = NULL;
    assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &err));
    assert_ok(model_read(ck, &got, &err));
    assert_ok(ckp_run_adopt(run, ck, &err));
    ckp_checkpoint_close(ck);
    got.step = m.step;
    save(run, &got);
    ckp_save_stats s = {.size = sizeof s};
    ckp_run_stats(run, &s);
    assert_true(s.committed);
    assert_false(s.is_key);
    assert_string_equal(s.warning, "");
    assert_ok(ckp_run_close(run, NULL));
    verify_all(&t);
    model_free(&got);
    model_free(&m);
    bucket_free(b);
}

/* The caller's string may go as soon as a call has returned. */
static void
test_stage_dir_is_copied(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    ckp_objects t = bucket_table(b);
    model m = {0};
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    model_small(&m, "copied");
    char *dir = (char *)guard_copy("/tmp", 5);
    t.stage_dir = dir;
    ckp_run *run = open_run(&t, CKP_PROFILE_LOSSLESS, 0);
    guard_free(dir);
    save(run, &m);
    assert_ok(ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, &err));
    assert_ok(ckp_run_adopt(run, ck, &err));
    ckp_checkpoint_close(ck);
    t.stage_dir = dir = (char *)guard_copy("/tmp", 5);
    assert_ok(ckp_checkpoint_open_run_in(&ck, &t, NAME, NULL, CKP_STEP_NEWEST, true, &err));
    guard_free(dir);
    assert_ok(ckp_run_adopt(run, ck, &err));
    ckp_checkpoint_close(ck);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
    bucket_free(b);
}

/* A store that fails fails the save, by name; afterwards all is as before. */
static void
test_failing_store(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    const ckp_objects t = bucket_table(b);
    ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
    ckp_error err;
    model m = {0}, was = {0}, got = {0};
    so.wait = true;
    model_small(&m, "objects that fail");
    ckp_run *run = open_run(&t, CKP_PROFILE_LOSSLESS, 0);
    save(run, &m);
    model_copy(&was, &m);
    model_copy(&got, &m);
    b->answer = CKP_ENOSPC;
    model_step(&m);
    assert_status(model_save(run, &m, &so, &err), CKP_ENOSPC);
    assert_non_null(strstr(err.text, "says the bucket"));
    b->answer = CKP_OK;
    model_clear(&got);
    restore(&t, CKP_STEP_NEWEST, &got);
    assert_true(model_equal(&got, &was));
    model_step(&m);
    save(run, &m);
    assert_ok(ckp_run_close(run, NULL));
    restore(&t, CKP_STEP_NEWEST, &got);
    assert_true(model_equal(&got, &m));
    verify_all(&t);
    model_free(&was);
    model_free(&got);
    model_free(&m);
    bucket_free(b);
}

/* ---- a reader beside a writer that deletes ---- */

typedef struct beside { bucket *b; char base[128], delta[128]; unsigned others; unsigned long before; bool done; } beside;

/* The base's manifest is read last of all, when delta and base have been deleted, in this order. */
static ckp_status
get_beside(void *user, const char *key, uint64_t off, void *dst, size_t n, ckp_error *err)
{
    beside *d = user;
    if (!d->done && strcmp(key, d->base) == 0) {
        const struct timespec while_others_read = {0, 1000000L};
        for (int i = 0; i < 3000 && d->b->gets < d->before + d->others; i++)
            (void)nanosleep(&while_others_read, NULL);
        d->done = true;
        bucket_find(d->b, d->delta)->there = false;
        bucket_find(d->b, d->base)->there = false;
    }
    const ckp_objects t = bucket_table(d->b);
    return t.get(d->b, key, off, dst, n, err);
}

#define AS_BUCKET(call) do { const beside *d = user; const ckp_objects t = bucket_table(d->b); return t.call; } while (0)

static ckp_status
stat_beside(void *user, const char *key, uint64_t *bytes, ckp_error *err)
{
    AS_BUCKET(stat(d->b, key, bytes, err));
}

static ckp_status
list_beside(void *user, const char *dir, bool (*fn)(void *fn_user, const char *name, bool is_dir), void *fn_user, ckp_error *err)
{
    AS_BUCKET(list(d->b, dir, fn, fn_user, err));
}

static ckp_status
list_all_beside(void *user, bool (*fn)(void *fn_user, const char *key, uint64_t bytes), void *fn_user, ckp_error *err)
{
    AS_BUCKET(list_all(d->b, fn, fn_user, err));
}

static int
note_dirs(void *user, const ckp_list_entry *e)
{
    char (*dir)[64] = user;
    for (int i = 0; i < 8; i++)
        if (dir[i][0] == '\0') {
            (void)snprintf(dir[i], sizeof dir[i], "%.63s", e->dir);
            break;
        }
    return 0;
}

static int
no_damage(void *user, const ckp_list_entry *e)
{
    *(int *)user += strcmp(e->health, "ok") == 0;
    if (strcmp(e->health, "ok") != 0 && strncmp(e->health, "incomplete", 10) != 0)
        fail_msg("%s: %s", e->dir, e->health);
    return 0;
}

/* What is deleted while a run is read is not damage. */
static void
test_beside_a_deletion(void **state)
{
    (void)state;
    enum { SAVES = 8 };
    bucket *b = bucket_new();
    ckp_objects t = bucket_table(b);
    beside d = {.b = b, .others = SAVES - 1};
    char dir[8][64] = {{0}};
    int ok = 0;
    model m = {0};
    model_small(&m, "beside a deletion");
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.objects = &t;
    o.key_every = 2;
    ckp_run *run = model_run(NAME, o);
    for (int i = 0; i < SAVES; i++) {
        save(run, &m);
        model_step(&m);
    }
    assert_ok(ckp_run_close(run, NULL));
    assert_ok(ckp_run_list_in(&t, NAME, note_dirs, dir, NULL));
    (void)snprintf(d.base, sizeof d.base, "%s/manifest.json", dir[0]);
    (void)snprintf(d.delta, sizeof d.delta, "%s/manifest.json", dir[1]);
    t.user = &d;
    t.stat = stat_beside;
    t.get = get_beside;
    t.list = list_beside;
    t.list_all = list_all_beside;
    d.before = b->gets + 1;              /* run.json */
    assert_ok(ckp_run_list_in(&t, NAME, no_damage, &ok, NULL));
    assert_true(d.done);
    assert_int_equal(ok, SAVES - 2);
    model_free(&m);
    bucket_free(b);
}

static void
test_arguments(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    ckp_objects t = bucket_table(b);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    ckp_run *run = NULL;
    ckp_error err;
    int n = 0;
    assert_status(ckp_run_list_in(&t, NAME, count_ok, &n, &err), CKP_ENOTFOUND);
    assert_non_null(strstr(err.text, "not a run"));
    assert_int_equal(bucket_count(b), 0);
    t.size += 8;
    o.objects = &t;
    assert_status(ckp_run_open(&run, NAME, &o, &err), CKP_EINVAL);
    assert_status(ckp_run_list_in(&t, NAME, count_ok, &n, &err), CKP_EINVAL);
    assert_int_equal(b->puts + b->stats, 1);              /* of the first listing */
    bucket_free(b);
}

static atomic_uint claims, meanwhile;    /* puts of claims; those while a shard was on its way */

static ckp_status
put_slowly(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err)
{
    const struct timespec second = {1, 0};
    const unsigned was = claims;
    claims += strncmp(key, "lock/", 5) == 0;
    if (strstr(key, ".ckp") != NULL) {
        (void)nanosleep(&second, NULL);
        meanwhile = claims - was;
    }
    return bucket_table(user).put(user, key, bytes, replace, err);
}

/* An upload is one call, and may outlast the claim. */
static void
test_refreshed_while_uploading(void **state)
{
    (void)state;
    bucket *b = bucket_new();
    ckp_objects t = bucket_table(b);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    model m = {.step = 1};
    t.put = put_slowly;
    o.objects = &t;
    o.lock_seconds = 2;
    model_add_adam(&m, "w", CKP_F32, CKP_F32, (const uint64_t[4]){8, 8});
    ckp_run *run = model_run(NAME, o);
    save(run, &m);
    assert_true(meanwhile > 1);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
    bucket_free(b);
}

/* ---- the n-th allocation fails ---- */

typedef struct fixture { bucket *b; model *m; } fixture;

static ckp_status
save_and_read(void *user)
{
    const fixture *f = user;
    ckp_objects t = bucket_table(f->b);
    t.stage_dir = "/tmp";
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    ckp_run *run = NULL;
    ckp_checkpoint *ck = NULL;
    o.objects = &t;
    o.coding.threads = 1;
    o.keep_last = 1;
    for (size_t i = 0; i < BUCKET_OBJECTS; i++)           /* claims that there was no memory to forget would make each opening longer */
        f->b->v[i].there = f->b->v[i].there && strncmp(f->b->v[i].key, "lock/", 5) != 0;
    ckp_status st = ckp_run_open(&run, NAME, &o, NULL);
    if (st == CKP_OK)
        st = model_save(run, f->m, NULL, NULL);
    const ckp_status closed = ckp_run_close(run, NULL);
    st = st == CKP_OK ? closed : st;
    if (st == CKP_OK)
        st = ckp_checkpoint_open_run_in(&ck, &t, NAME, NULL, CKP_STEP_NEWEST, true, NULL);
    ckp_checkpoint_close(ck);
    return st;
}

static void
test_memory(void **state)
{
    (void)state;
    model m = {0}, got = {0};
    fixture f = {bucket_new(), &m};
    static const uint64_t shape[4] = {40, 8};
    m.step = 1;
    model_add_adam(f.m, "w", CKP_F32, CKP_F32, shape);
    const ckp_objects t = bucket_table(f.b);
    assert_ok(save_and_read(&f));
    assert_true(failalloc_run(save_and_read, &f, 100, 3) > 100);
    model_copy(&got, f.m);
    model_clear(&got);
    restore(&t, CKP_STEP_NEWEST, &got);
    assert_true(model_equal(&got, f.m));
    model_free(&got);
    model_free(f.m);
    bucket_free(f.b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_stage_dir_is_copied),
        cmocka_unit_test(test_failing_store),
        cmocka_unit_test(test_beside_a_deletion),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_refreshed_while_uploading),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
