/* SPDX-License-Identifier: Apache-2.0 */
/* What a copy holds, what it refuses, and what a source that changes meanwhile does to it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/fail.h"
#include "copies.h"
#include "format/runfile.h"

typedef struct pair { fault_disk *from, *to; trace t; } pair;

static pair
pair_new(void)
{
    pair p = {.from = fault_disk_new(), .to = fault_disk_new()};
    copies_source(p.from, &p.t);
    return p;
}

static void
pair_free(pair *p)
{
    fault_disk_free(p->from);
    fault_disk_free(p->to);
}

#define STEPS(disk, ...)                                          \
    do {                                                          \
        const uint64_t want_[] = {__VA_ARGS__};                   \
        copies_steps((disk), want_, CHECK_COUNT(want_));          \
    } while (0)

static void
test_whole(void **state)
{
    (void)state;
    pair p = pair_new();
    ckpi_copied done;
    const uint64_t before = fault_digest(p.from);
    assert_ok(copies_run(p.from, p.to, NULL, &done, NULL));
    assert_int_equal(done.copied, 5);
    assert_int_equal(done.there + done.damaged, 0);
    assert_true(done.bytes > 5 * 1400);
    assert_int_equal(copies_judge(p.to, &p.t, "whole"), 5);
    assert_true(fault_digest(p.from) == before);
    assert_ok(copies_run(p.from, p.to, NULL, &done, NULL));
    assert_int_equal(done.there, 5);
    assert_int_equal(done.copied + done.bytes, 0);
    copies_train(p.from, 6, 2, true);
    assert_ok(copies_run(p.from, p.to, NULL, &done, NULL));
    assert_int_equal(done.copied, 2);
    STEPS(p.to, 1, 2, 3, 4, 5, 6, 7);
    copies_prune(p.to, 1);               /* the copy's own retention; then it is brought up to date again, whole */
    STEPS(p.to, 4, 5, 6, 7);
    assert_ok(copies_run(p.from, p.to, NULL, &done, NULL));
    STEPS(p.to, 1, 2, 3, 4, 5, 6, 7);
    copies_train(p.to, 8, 1, true);
    STEPS(p.to, 1, 2, 3, 4, 5, 6, 7, 8);
    pair_free(&p);
}

static void
test_some(void **state)
{
    (void)state;
    pair p = pair_new();
    const uint64_t step[] = {3, 5, 9};
    ckpi_copy_ask ask = {.step = step, .n_steps = 1};
    ckpi_copied done;
    ckp_error err;
    assert_ok(copies_run(p.from, p.to, &ask, &done, NULL));
    STEPS(p.to, 1, 2, 3);
    ask = (ckpi_copy_ask){.newest = true};
    assert_ok(copies_run(p.from, p.to, &ask, &done, NULL));
    assert_int_equal(done.copied, 2);
    STEPS(p.to, 1, 2, 3, 4, 5);
    ask = (ckpi_copy_ask){.step = step, .n_steps = 3};
    assert_status(copies_run(p.from, p.to, &ask, &done, &err), CKP_ENOTFOUND);
    assert_non_null(strstr(err.text, "step 9"));
    pair_free(&p);

    /* newer ones first, older ones later: both are whole, and a training's number lies above all */
    p = pair_new();
    ask = (ckpi_copy_ask){.step = step + 1, .n_steps = 1};
    assert_ok(copies_run(p.from, p.to, &ask, &done, NULL));
    STEPS(p.to, 4, 5);
    assert_ok(copies_run(p.from, p.to, NULL, &done, NULL));
    STEPS(p.to, 1, 2, 3, 4, 5);
    copies_train(p.to, 6, 1, true);
    STEPS(p.to, 1, 2, 3, 4, 5, 6);
    pair_free(&p);
}

static void
test_dry(void **state)
{
    (void)state;
    pair p = pair_new();
    const uint64_t one = 1;
    const ckpi_copy_ask dry = {.dry_run = true}, first = {.step = &one, .n_steps = 1};
    ckpi_store *a = NULL, *b = NULL;
    ckpi_copied done;
    assert_ok(run_open(&a, fault_mount(p.from), CKPI_STORE_READ, NULL));
    assert_ok(ckpi_store_copy(a, NULL, &dry, &done, NULL));
    assert_int_equal(done.copied, 5);
    assert_status(ckpi_store_copy(a, NULL, &first, &done, NULL), CKP_EINVAL);
    assert_status(ckpi_store_copy(a, a, &dry, &done, NULL), CKP_EINVAL);
    assert_ok(copies_run(p.from, p.to, &first, &done, NULL));
    const uint64_t before = fault_digest(p.to);
    assert_ok(run_open(&b, fault_mount(p.to), CKPI_STORE_READ, NULL));
    assert_ok(ckpi_store_copy(a, b, &dry, &done, NULL));
    assert_int_equal(done.copied, 4);
    assert_int_equal(done.there, 1);
    assert_status(ckpi_store_copy(a, b, &first, &done, NULL), CKP_EINVAL);     /* a reader is not written to */
    ckpi_store_free(b);
    ckpi_store_free(a);
    assert_true(fault_digest(p.to) == before);
    pair_free(&p);
}

/* ---- histories ------------------------------------------------------------------------------------------------------ */

/* A mirror that is made once in a while of a run that keeps little: nothing in common is left, and nothing has parted. */
static void
test_mirror(void **state)
{
    (void)state;
    pair p = pair_new();
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    for (uint64_t day = 0; day < 3; day++) {
        copies_train(p.from, 10 + 10 * day, 3, false);
        copies_prune(p.from, 1);
        assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    }
    STEPS(p.to, 1, 2, 3, 4, 5, 12, 22, 32);
    pair_free(&p);
}

/* One copy goes on, and the other follows: in either direction, whatever each has deleted. */
static void
test_follow(void **state)
{
    (void)state;
    for (int pruned = 0; pruned < 4; pruned++) {
        pair p = pair_new();
        ckpi_copied done;
        assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
        copies_train(p.to, 6, 3, false);
        if ((pruned & 1) != 0)
            copies_prune(p.to, 1);
        if ((pruned & 2) != 0)
            copies_prune(p.from, 1);
        assert_ok(copies_run(p.from, p.to, NULL, &done, NULL));      /* the copy is ahead: older ones are filled in */
        assert_ok(copies_run(p.to, p.from, NULL, &done, NULL));
        assert_int_equal(done.copied, pruned == 0 ? 3 : pruned == 2 ? 6 : 1);
        copies_train(p.from, 20, 2, false);
        assert_ok(copies_run(p.from, p.to, NULL, &done, NULL));
        assert_int_equal(done.copied, 2);
        pair_free(&p);
    }
}

static void
refused(fault_disk *from, fault_disk *to, const char *word)
{
    ckp_error err;
    const ckp_status st = copies_run(from, to, NULL, NULL, &err);
    if (st != CKP_EMISMATCH || strstr(err.text, word) == NULL)
        fail_msg("%s: %s", ckp_status_name(st), err.text);
}

static void
test_parted(void **state)
{
    (void)state;
    for (int pruned = 0; pruned < 4; pruned++)
        for (unsigned ahead = 1; ahead <= 4; ahead++) {
            pair p = pair_new();
            assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
            copies_train(p.to, 6, 2, false);
            copies_train(p.from, 6, ahead, false);
            if ((pruned & 1) != 0)
                copies_prune(p.to, 1);
            if ((pruned & 2) != 0)
                copies_prune(p.from, 1);
            const size_t have = (pruned & 1) != 0 ? 1 : 7;
            refused(p.from, p.to, "gone on by itself");
            refused(p.to, p.from, "gone on by itself");
            ckpi_store *s = NULL;
            ckpi_entries e = {0};
            assert_ok(run_open(&s, fault_mount(p.to), CKPI_STORE_READ, NULL));
            assert_ok(ckpi_store_list(s, &e, NULL));
            assert_int_equal(e.n, have);
            ckpi_entries_free(&e);
            ckpi_store_free(s);
            pair_free(&p);
        }
}

/* Three copies: what came from the second is not what the first has gone on to. */
static void
test_third(void **state)
{
    (void)state;
    pair p = pair_new();
    fault_disk *third = fault_disk_new();
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    assert_ok(copies_run(p.from, third, NULL, NULL, NULL));
    copies_train(third, 6, 2, false);
    assert_ok(copies_run(third, p.to, NULL, NULL, NULL));
    copies_train(p.from, 6, 2, false);
    refused(p.from, p.to, "gone on by itself");
    fault_disk_free(third);
    pair_free(&p);
}

static void
test_another_run(void **state)
{
    (void)state;
    pair p = pair_new(), q = pair_new();
    const uint64_t before = fault_digest(q.from);
    refused(p.from, q.from, "another run");
    assert_true(fault_digest(q.from) == before);       /* not even its lock was taken */
    fault_disk *full = fault_disk_new();
    fault_write(full, "notes.txt", "x", 1);
    assert_status(copies_run(p.from, full, NULL, NULL, NULL), CKP_EEXIST);
    assert_false(fault_exists(full, "run.json"));
    fault_remove(full, "notes.txt");
    fault_write(full, ".DS_Store", "x", 1);
    assert_ok(copies_run(p.from, full, NULL, NULL, NULL));
    fault_disk_free(full);
    pair_free(&q);
    pair_free(&p);
}

/* A copy by other means has no copied.json: what both have says where they were one. */
static void
test_record(void **state)
{
    (void)state;
    pair p = pair_new();
    static const char garbage[] = "{}";
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    fault_write(p.to, "copied.json", garbage, sizeof garbage);
    copies_train(p.from, 6, 1, true);
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    STEPS(p.to, 1, 2, 3, 4, 5, 6);
    fault_remove(p.to, "copied.json");
    copies_train(p.from, 7, 2, false);
    copies_prune(p.from, 1);
    refused(p.from, p.to, "gone on by itself");         /* nothing is left that would tell */
    pair_free(&p);
}

/* Somebody takes the newest out of a copy by hand. What is trained then still lies above all that was copied, and is not taken for a copy. */
static void
test_taken_out(void **state)
{
    (void)state;
    static const char *const files[] = {"manifest.json", "shard-00000-of-00002.ckp", "shard-00001-of-00002.ckp"};
    pair p = pair_new();
    ckpi_store *s = NULL;
    ckpi_chain c = CKPI_CHAIN_INIT;
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    for (size_t i = 0; i < 2 * CHECK_COUNT(files); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", p.t.kept[3 + i % 2], files[i / 2]);
        fault_remove(p.to, path);
    }
    copies_train(p.to, 6, 1, false);
    assert_ok(run_open(&s, fault_mount(p.to), CKPI_STORE_READ, NULL));
    assert_ok(ckpi_store_latest(s, UINT64_MAX, &c, NULL, NULL));
    assert_int_equal(c.m[c.n - 1]->sequence, 6);
    ckpi_chain_free(&c);
    ckpi_store_free(s);
    copies_train(p.from, 6, 3, false);
    copies_prune(p.from, 1);
    refused(p.from, p.to, "gone on by itself");
    pair_free(&p);
}

/* ---- damage ------------------------------------------------------------------------------------------------------------ */

static void
tell_fate(void *user, const ckpi_entries *all, const ckpi_entry *e, ckpi_copy_fate fate, const char *reason)
{
    char *fates = user;
    (void)all;
    assert_true((fate == CKPI_COPY_DAMAGED) == (reason != NULL));
    fates[strlen(fates)] = "ctd"[fate];
    assert_true(e->step > 0);
}

static void
shard(char out[128], const trace *t, size_t i)
{
    snprintf(out, 128, "%s/shard-00001-of-00002.ckp", t->kept[i]);
}

static void
test_damaged_source(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        pair p = pair_new();
        char path[128], fates[16] = "";
        const ckpi_copy_ask ask = {.told = tell_fate, .told_user = fates};
        const uint64_t third = 3;
        const ckpi_copy_ask step = {.step = &third, .n_steps = 1};
        ckpi_copied done;
        ckp_error err;
        shard(path, &p.t, 1);
        if (how == 0)
            fault_flip(p.from, path, 11, 1);
        else if (how == 1)
            fault_truncate(p.from, path, 11);
        else
            fault_remove(p.from, path);
        assert_status(copies_run(p.from, p.to, &ask, &done, &err), CKP_ECORRUPT);
        assert_non_null(strstr(err.text, p.t.kept[1]));
        assert_string_equal(fates, "cddcc");           /* what needs it is left out with it, the rest is there */
        assert_int_equal(done.copied, 3);
        assert_int_equal(done.damaged, 2);
        STEPS(p.to, 1, 4, 5);
        assert_status(copies_run(p.from, p.to, &step, &done, NULL), CKP_ECORRUPT);
        if (how == 0) {
            fault_flip(p.from, path, 11, 1);           /* repaired: the rest follows */
            assert_ok(copies_run(p.from, p.to, NULL, &done, NULL));
            STEPS(p.to, 1, 2, 3, 4, 5);
        }
        pair_free(&p);
    }
}

static struct { const ckpi_fs_ops *ops; const char *path; } closed;

static ckp_status
open_but_one(ckpi_fs *fs, const char *name, ckpi_open_how how, ckpi_file **out, ckp_error *err)
{
    if (strcmp(name, closed.path) == 0)
        return ckpi_fail_errno(err, EACCES, "%s: cannot open", name);
    return closed.ops->open(fs, name, how, out, err);
}

/* A file that cannot be opened is damage like one that cannot be read. */
static void
test_closed_source(void **state)
{
    (void)state;
    pair p = pair_new();
    char path[128];
    ckpi_buf identity = CKPI_BUF_INIT;
    ckpi_fs *fs = fault_mount(p.from);
    ckpi_fs_ops ops = *fs->ops;
    ckpi_store *from = NULL, *to = NULL;
    ckpi_copied done;
    ckp_error err;
    shard(path, &p.t, 1);
    closed.ops = fs->ops;
    closed.path = path;
    ops.open = open_but_one;
    fs->ops = &ops;
    assert_ok(run_open(&from, fs, CKPI_STORE_READ, NULL));
    assert_ok(ckpi_store_identity(from, &identity, NULL));
    assert_ok(ckpi_store_open(&to, fault_mount(p.to), CKPI_STORE_WRITE, &(ckpi_store_options){.identity = &identity}, NULL));
    assert_status(ckpi_store_copy(from, to, &(ckpi_copy_ask){.newest = false}, &done, &err), CKP_EACCESS);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(done.copied, 3);
    assert_int_equal(done.damaged, 2);
    fs->ops = closed.ops;
    ckpi_store_free(from);
    ckpi_store_free(to);
    ckpi_buf_free(&identity);
    STEPS(p.to, 1, 4, 5);
    pair_free(&p);
}

static void
test_damaged_copy(void **state)
{
    (void)state;
    pair p = pair_new();
    char path[128];
    ckp_error err;
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    shard(path, &p.t, 3);
    fault_remove(p.to, path);
    assert_status(copies_run(p.from, p.to, NULL, NULL, &err), CKP_ECORRUPT);
    assert_non_null(strstr(err.text, p.t.kept[3]));
    assert_non_null(strstr(err.text, "remove that directory"));
    snprintf(path, sizeof path, "%s/shard-00000-of-00002.ckp", p.t.kept[3]);
    fault_remove(p.to, path);
    snprintf(path, sizeof path, "%s/manifest.json", p.t.kept[3]);
    fault_remove(p.to, path);
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    STEPS(p.to, 1, 2, 3, 4, 5);
    pair_free(&p);
}

/* ---- a source that changes meanwhile -------------------------------------------------------------------------------------- */

typedef struct meddler { fault_disk *from; uint64_t at, calls; uint32_t keep; bool save; } meddler;

static int
meddle(void *user, uint64_t done, uint64_t total)
{
    meddler *m = user;
    assert_true(done <= total);
    if (m->calls++ != m->at)
        return 0;
    if (m->save)
        copies_train(m->from, 6, 1, true);
    if (m->keep != 0)
        copies_prune(m->from, m->keep);
    return 0;
}

/* At each shard somebody deletes, saves, or both. What the copy holds is whole, and the newest of what stays is in it. */
static void
test_meanwhile(void **state)
{
    (void)state;
    for (int kind = 1; kind < 4; kind++)
        for (uint64_t at = 0; at < 10; at++) {
            pair p = pair_new();
            char fates[16] = "";
            meddler m = {.from = p.from, .at = at, .keep = (kind & 1) != 0 ? 1 : 0, .save = (kind & 2) != 0};
            const ckpi_copy_ask ask = {.progress = meddle, .user = &m, .told = tell_fate, .told_user = fates};
            ckpi_copied done;
            ckpi_store *s = NULL;
            ckpi_chain c = CKPI_CHAIN_INIT;
            assert_ok(copies_run(p.from, p.to, &ask, &done, NULL));
            assert_true(m.calls > at);
            assert_int_equal(done.damaged, 0);
            assert_int_equal(done.copied + done.there, strlen(fates));
            assert_ok(run_open(&s, fault_mount(p.to), CKPI_STORE_READ, NULL));
            assert_ok(ckpi_store_latest(s, UINT64_MAX, &c, NULL, NULL));
            assert_true(c.m[c.n - 1]->step >= 5);
            ckpi_chain_free(&c);
            ckpi_store_free(s);
            assert_ok(copies_run(p.from, p.to, NULL, &done, NULL));
            copies_train(p.to, 100, 1, true);
            pair_free(&p);
        }
}

static int
stop(void *user, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return ++*(int *)user == 5;
}

static void
test_stop(void **state)
{
    (void)state;
    pair p = pair_new();
    int calls = 0;
    const ckpi_copy_ask ask = {.progress = stop, .user = &calls};
    assert_status(copies_run(p.from, p.to, &ask, NULL, NULL), CKP_ECANCELLED);
    STEPS(p.to, 1, 2);                   /* and no rest of the third */
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    STEPS(p.to, 1, 2, 3, 4, 5);
    pair_free(&p);
}

/* Somebody trains on the copy: it is left alone. */
static void
test_busy(void **state)
{
    (void)state;
    pair p = pair_new();
    ckpi_store *s = NULL;
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    copies_train(p.from, 6, 1, true);
    assert_ok(run_open(&s, fault_mount(p.to), CKPI_STORE_WRITE, NULL));
    assert_status(copies_run(p.from, p.to, NULL, NULL, NULL), CKP_EBUSY);
    ckpi_store_free(s);
    assert_ok(copies_run(p.from, p.to, NULL, NULL, NULL));
    pair_free(&p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_some),
        cmocka_unit_test(test_dry),
        cmocka_unit_test(test_mirror),
        cmocka_unit_test(test_follow),
        cmocka_unit_test(test_parted),
        cmocka_unit_test(test_third),
        cmocka_unit_test(test_another_run),
        cmocka_unit_test(test_record),
        cmocka_unit_test(test_taken_out),
        cmocka_unit_test(test_damaged_source),
        cmocka_unit_test(test_closed_source),
        cmocka_unit_test(test_damaged_copy),
        cmocka_unit_test(test_meanwhile),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
