/* SPDX-License-Identifier: Apache-2.0 */
/* The newest checkpoint in shared memory: there or not, never more than its budget, and never believed (docs/runs.md, invariant 15). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "harness/failalloc.h"
#include "harness/faultfs.h"
#include "harness/seed.h"
#include "help.h"
#include "os/private.h"
#include "run/memory.h"

#define FILE_NAME "shard-00000-of-00001.ckp"
#define KB ((uint64_t)1024)

/* What a save would write: bytes that its number says. */
typedef struct copy { char dir[32]; uint8_t data[40 * 1024]; size_t n; ckpi_shard_ref ref; } copy;

static copy
make_copy(unsigned number, size_t n)
{
    copy c = {.n = n};
    test_rng rng = test_rng_new("copies");
    rng.s += number;
    (void)snprintf(c.dir, sizeof c.dir, "step-%08u-%08x", number, number);
    test_bytes(&rng, c.data, n);
    c.ref = (ckpi_shard_ref){.file = (char *)(uintptr_t)FILE_NAME, .length = n, .hash = ckpi_hash128(c.data, n)};
    return c;
}

static void
write_copy(ckpi_memory *m, const copy *c, bool key)
{
    ckpi_memory_begin(m, c->dir, FILE_NAME, key);
    ckpi_memory_put(m, c->data, c->n / 3);
    ckpi_memory_put(m, c->data + c->n / 3, c->n - c->n / 3);
    ckpi_memory_finish(m);
}

static void
save_copy(ckpi_memory *m, const copy *c, bool key)
{
    write_copy(m, c, key);
    ckpi_memory_commit(m);
}

/* Whether a reader gets it from there; it must then be the very same. */
static bool
is_there(ckpi_fs *fs, const copy *c)
{
    static uint8_t got[sizeof c->data];
    ckpi_reader *r = ckpi_memory_reader(fs, c->dir, &c->ref);
    if (r == NULL)
        return false;
    assert_ok(ckpi_reader_read(r, 0, got, c->n, NULL));
    assert_memory_equal(got, c->data, c->n);
    ckpi_reader_free(r);
    return true;
}

static ckpi_memory_ask
ask_for(const char *base, uint64_t budget)
{
    return (ckpi_memory_ask){.base = base, .user = ckpi_user(), .run = {1, 2}, .place = "mem://run", .budget = budget, .room = 2};
}

static ckpi_memory
open_memory(const char *base, uint64_t budget)
{
    ckpi_memory m;
    const ckpi_memory_ask ask = ask_for(base, budget);
    ckpi_memory_open(&m, &ask);
    return m;
}

typedef struct sum { ckpi_fs *fs; unsigned n, temporaries; uint64_t bytes; } sum;

static bool
add_entry(void *user, const char *entry, bool is_dir)
{
    sum *s = user;
    ckpi_stat st;
    assert_false(is_dir);
    assert_ok(s->fs->ops->stat(s->fs, entry, &st, NULL));
    s->n++;
    s->temporaries += entry[0] == '.';
    s->bytes += st.size;
    return true;
}

static sum
what_lies_in(ckpi_fs *fs)
{
    sum s = {.fs = fs};
    assert_ok(fs->ops->list(fs, "", add_entry, &s, NULL));
    return s;
}

static void
test_life(void **state)
{
    (void)state;
    char *base = help_dir();
    const copy c[5] = {make_copy(1, 9000), make_copy(2, 4000), make_copy(3, 4001), make_copy(4, 9100), make_copy(5, 1)};
    ckpi_memory m = open_memory(base, 100 * KB);
    assert_string_equal(m.note, "");
    for (int i = 0; i < 3; i++)
        save_copy(&m, &c[i], i == 0);
    for (int i = 0; i < 3; i++)
        assert_true(is_there(m.fs, &c[i]));
    assert_int_equal(m.used, 17001);
    write_copy(&m, &c[3], true);                      /* until it is committed, both are there */
    assert_true(is_there(m.fs, &c[0]) && is_there(m.fs, &c[3]));
    ckpi_memory_commit(&m);
    assert_int_equal(what_lies_in(m.fs).n, 1);
    write_copy(&m, &c[4], false);
    ckpi_memory_abort(&m);                            /* was not committed */
    assert_false(is_there(m.fs, &c[4]));
    save_copy(&m, &c[4], false);
    assert_int_equal(m.used, 9101);

    /* a crash, and a process that goes on from there: what it needs stays, what else there is goes with its first commit */
    assert_ok(ckpi_fs_publish(m.fs, ".t", ".tmp-123-0123456789abcdef-" FILE_NAME, "torn", 4, false, NULL));
    ckpi_memory_close(&m, true);
    m = open_memory(base, 100 * KB);
    assert_int_equal(what_lies_in(m.fs).temporaries, 0);
    assert_int_equal(what_lies_in(m.fs).n, 2);
    ckpi_buf names = CKPI_BUF_INIT;
    for (int i = 3; i < 5; i++) {
        char name[CKPI_MEMORY_NAME];
        assert_true(ckpi_memory_name(name, c[i].dir, FILE_NAME));
        ckpi_buf_put(&names, name, strlen(name) + 1);
    }
    ckpi_memory_adopt(&m, &names);
    ckpi_buf_free(&names);
    save_copy(&m, &c[0], false);
    assert_int_equal(what_lies_in(m.fs).n, 3);
    ckpi_memory_close(&m, true);
    m = open_memory(base, 100 * KB);                  /* from scratch in the same run */
    save_copy(&m, &c[1], true);
    assert_int_equal(what_lies_in(m.fs).n, 1);
    ckpi_memory_close(&m, false);
    assert_int_equal(rmdir(base), 0);                 /* nothing is left */
    free(base);
}

/* A copy counts only with the length and the hash that the manifest states. */
static void
test_damage(void **state)
{
    (void)state;
    char *base = help_dir(), path[512], name[CKPI_MEMORY_NAME];
    const copy c = make_copy(1, 9000);
    copy other = make_copy(1, 9000);
    ckpi_memory m = open_memory(base, 100 * KB);
    save_copy(&m, &c, true);
    assert_true(ckpi_memory_name(name, c.dir, FILE_NAME));
    (void)snprintf(path, sizeof path, "%s/%s", m.dir, name);
    other.ref.length--;
    assert_false(is_there(m.fs, &other));
    other = make_copy(1, 9000);
    other.ref.hash.hi ^= 1;
    assert_false(is_there(m.fs, &other));
    for (unsigned bit = 0; bit < 9000 * 8; bit += 997) {
        const int fd = open(path, O_RDWR);
        const uint8_t bad = (uint8_t)(c.data[bit / 8] ^ 1u << bit % 8);
        assert_int_equal(pwrite(fd, &bad, 1, bit / 8), 1);
        assert_false(is_there(m.fs, &c));
        assert_int_equal(pwrite(fd, &c.data[bit / 8], 1, bit / 8), 1);
        (void)close(fd);
    }
    assert_true(is_there(m.fs, &c));
    assert_int_equal(truncate(path, 8999), 0);
    assert_false(is_there(m.fs, &c));
    assert_int_equal(truncate(path, 9001), 0);
    assert_false(is_there(m.fs, &c));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_false(is_there(m.fs, &c));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(is_there(m.fs, &c));
    assert_int_equal(unlink(path), 0);
    ckpi_memory_close(&m, false);
    help_remove(base);
}

static void
test_budget(void **state)
{
    (void)state;
    char *base = help_dir();
    const copy key = make_copy(1, 9000), delta = make_copy(2, 2000), large = make_copy(3, 30000), next = make_copy(4, 7000);
    ckpi_memory m = open_memory(base, 12 * KB);
    save_copy(&m, &key, true);
    save_copy(&m, &delta, false);
    assert_true(is_there(m.fs, &key) && is_there(m.fs, &delta));
    /* a delta that is too large leaves its chain there, of which a restore still has most */
    save_copy(&m, &large, false);
    assert_true(is_there(m.fs, &key) && is_there(m.fs, &delta) && !is_there(m.fs, &large));
    assert_non_null(strstr(m.note, "more than 0 MB"));
    /* a key takes the old chain's place, before it is committed if it must */
    write_copy(&m, &next, true);
    assert_false(is_there(m.fs, &key));
    ckpi_memory_commit(&m);
    assert_true(is_there(m.fs, &next));
    assert_string_equal(m.note, "");
    save_copy(&m, &large, true);                      /* and one that never fits leaves nothing: what was there is no longer the newest's */
    assert_int_equal(what_lies_in(m.fs).n, 0);
    ckpi_memory_close(&m, false);

    /* what crashes leave between commits is counted, and goes when room is needed */
    for (int i = 0; i < 6; i++) {
        m = open_memory(base, 12 * KB);
        const copy orphan = make_copy(10 + (unsigned)i, 5000);
        write_copy(&m, &orphan, true);
        assert_true(is_there(m.fs, &orphan));
        assert_true(what_lies_in(m.fs).bytes <= 12 * KB);
        m.there = false;                              /* as a kill would: nothing is undone */
        ckpi_memory_close(&m, true);
    }
    m = open_memory(base, 12 * KB);
    ckpi_memory_close(&m, false);
    assert_int_equal(rmdir(base), 0);
    free(base);
}

static void
test_none(void **state)
{
    (void)state;
    char *base = help_dir();
    const copy c = make_copy(1, 9000);
    ckpi_memory m = open_memory(base, 0);
    assert_null(m.fs);
    assert_string_equal(m.note, "");
    save_copy(&m, &c, true);                          /* nothing happens */
    ckpi_memory_close(&m, false);

    m = open_memory(base, UINT64_MAX / 4);            /* no machine has that much */
    assert_null(m.fs);
    assert_non_null(strstr(m.note, "left"));
    save_copy(&m, &c, true);
    ckpi_memory_close(&m, false);
    assert_int_equal(rmdir(base), 0);                 /* and no directory is left for it */
    assert_int_equal(mkdir(base, 0700), 0);

    m = open_memory(base, 100 * KB);                  /* room that has gone since */
    m.budget = UINT64_MAX / 4;
    save_copy(&m, &c, true);
    assert_int_equal(what_lies_in(m.fs).n, 0);
    assert_non_null(strstr(m.note, "left"));
    m.budget = 100 * KB;
    save_copy(&m, &c, true);
    assert_true(is_there(m.fs, &c));
    assert_string_equal(m.note, "");
    ckpi_memory_close(&m, false);

    m = open_memory("/no/such/place", 100 * KB);
    assert_null(m.fs);
    assert_non_null(strstr(m.note, "/no/such/place"));
    ckpi_memory_close(&m, false);
    help_remove(base);
}

/* Somebody who makes our directory first gets nothing, and gives us nothing. */
static void
test_foreign(void **state)
{
    (void)state;
    char *base = help_dir();
    const copy c = make_copy(1, 9000);
    ckpi_memory m = open_memory(base, 100 * KB);
    save_copy(&m, &c, true);
    char dir[sizeof m.dir];
    (void)snprintf(dir, sizeof dir, "%s", m.dir);
    ckpi_memory_close(&m, true);
    assert_int_equal(chmod(dir, 0777), 0);
    m = open_memory(base, 100 * KB);
    assert_null(m.fs);
    assert_non_null(strstr(m.note, "belongs to another user"));
    save_copy(&m, &c, true);
    ckpi_memory_close(&m, false);
    assert_int_equal(access(dir, F_OK), 0);
    if (ckpi_user() == 0) {
        assert_int_equal(chmod(dir, 0700), 0);
        assert_int_equal(chown(dir, 12345, 12345), 0);
        m = open_memory(base, 100 * KB);
        assert_null(m.fs);
        ckpi_memory_close(&m, false);
    }
    help_remove(base);
}

static void
make_old(const char *dir, time_t seconds)
{
    const struct timespec t[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    assert_int_equal(utimensat(AT_FDCWD, dir, t, 0), 0);
}

static ckpi_memory
open_run_of(const char *base, uint64_t id, uint64_t budget)
{
    ckpi_memory m;
    ckpi_memory_ask ask = ask_for(base, budget);
    ask.run.lo = id;
    ckpi_memory_open(&m, &ask);
    return m;
}

/* Runs that were killed and never went on: what they left goes after a day, sooner where there is no room; never a living one's. */
static void
test_other_runs(void **state)
{
    (void)state;
    char *base = help_dir(), dead[160], living[160], young[160];
    const copy c = make_copy(1, 9000);
    ckpi_memory a = open_run_of(base, 10, 100 * KB), b = open_run_of(base, 11, 100 * KB), d = open_run_of(base, 12, 100 * KB);
    save_copy(&a, &c, true);
    save_copy(&b, &c, true);
    save_copy(&d, &c, true);
    (void)snprintf(dead, sizeof dead, "%s", a.dir);
    (void)snprintf(living, sizeof living, "%s", b.dir);
    (void)snprintf(young, sizeof young, "%s", d.dir);
    ckpi_memory_close(&a, true);
    ckpi_memory_close(&d, true);
    make_old(dead, 25 * 3600);
    make_old(living, 25 * 3600);
    make_old(young, 23 * 3600);
    assert_int_equal(mkdir(help_path(base, "ckpress-notes"), 0700), 0);
    assert_int_equal(mkdir(help_path(base, "other"), 0700), 0);
    make_old(help_path(base, "ckpress-notes"), 25 * 3600);

    ckpi_memory m = open_memory(base, 100 * KB);
    assert_int_not_equal(access(dead, F_OK), 0);
    assert_int_equal(access(living, F_OK), 0);
    assert_int_equal(access(young, F_OK), 0);
    assert_true(is_there(b.fs, &c));
    ckpi_memory_close(&m, false);

    m = open_memory(base, UINT64_MAX / 4);
    assert_int_not_equal(access(young, F_OK), 0);
    assert_int_equal(access(living, F_OK), 0);
    assert_int_equal(access(help_path(base, "ckpress-notes"), F_OK), 0);
    assert_int_equal(access(help_path(base, "other"), F_OK), 0);
    ckpi_memory_close(&m, false);
    ckpi_memory_close(&b, false);
    help_remove(base);
}

/* ---- faults --------------------------------------------------------------------------------------------------------- */

static ckpi_memory
on_disk(fault_disk *d, const char *base)
{
    ckpi_memory m = {.fs = fault_mount(d), .budget = 20 * KB};
    (void)snprintf(m.base, sizeof m.base, "%s", base);
    return m;
}

static void
faulty_life(ckpi_memory *m, const copy *c)
{
    save_copy(m, &c[0], true);
    save_copy(m, &c[1], false);
    write_copy(m, &c[2], false);
    ckpi_memory_abort(m);
    save_copy(m, &c[3], true);
    save_copy(m, &c[4], false);
}

/*
 * Every call fails, or is the process's last: a reader never gets anything but what was saved, there is never more than the budget, and the next
 * writer that commits leaves what belongs to it alone.
 */
static void
test_faults(void **state)
{
    (void)state;
    char *base = help_dir();
    const copy c[6] = {make_copy(1, 9000), make_copy(2, 4000), make_copy(3, 4001), make_copy(4, 9100), make_copy(5, 700), make_copy(6, 8000)};
    static const fault_kind kinds[] = {FAULT_EIO, FAULT_ENOSPC, FAULT_SHORT, FAULT_KILL};
    unsigned fired = 0, complete = 0;
    for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
        for (int lasting = 0; lasting < 2; lasting++)
            for (uint64_t at = 1;; at++) {
                fault_disk *d = fault_disk_new();
                ckpi_memory m = on_disk(d, base);
                fault_arm(d, kinds[k], at, lasting != 0);
                faulty_life(&m, c);
                const unsigned now = fault_fired(d);
                fired += now;
                if (kinds[k] == FAULT_KILL)
                    fault_restart(d);
                else
                    fault_arm(d, FAULT_NONE, 0, false);
                ckpi_fs *fs = fault_mount(d);
                const sum s = what_lies_in(fs);
                assert_true(s.bytes <= 20 * KB);
                for (int i = 0; i < 5; i++)
                    complete += is_there(fs, &c[i]);
                if (now == 0)
                    assert_true(s.n == 2 && is_there(fs, &c[3]) && is_there(fs, &c[4]));
                ckpi_memory next = on_disk(d, base);
                save_copy(&next, &c[5], true);
                assert_int_equal(what_lies_in(fs).n, 1);
                assert_true(is_there(fs, &c[5]));
                ckpi_fs_free(fs);
                ckpi_memory_close(&next, true);
                ckpi_memory_close(&m, true);
                fault_disk_free(d);
                if (now == 0)
                    break;
            }
    assert_true(fired > 100 && complete > 100);
    help_remove(base);
}

static ckp_status
use(void *user)
{
    static copy key, delta;
    key = make_copy(1, 9000);
    delta = make_copy(2, 900);
    ckpi_memory m = open_memory(user, 100 * KB);
    save_copy(&m, &key, true);
    save_copy(&m, &delta, false);
    (void)is_there(m.fs, &key);
    ckpi_memory_close(&m, false);
    return CKP_OK;                                    /* whatever failed: there is a copy or there is none */
}

static void
test_no_memory(void **state)
{
    (void)state;
    char *base = help_dir();
    failalloc_run(use, base, 10, 1);
    help_remove(base);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),    cmocka_unit_test(test_damage),     cmocka_unit_test(test_budget), cmocka_unit_test(test_none),
        cmocka_unit_test(test_foreign), cmocka_unit_test(test_other_runs), cmocka_unit_test(test_faults), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
