/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thinning and rebasing: weights and all else bit for bit as before, moments as zeros where they may go, chains whole, trainings that go on,
 * copies that stay one run; and the n-th allocation that fails, and a process that is killed. Faults of the disk: tests/unit/store.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
#include "help.h"
#include "model.h"
#include <ckpress/run_copy.h>
#include <ckpress/run_rewrite.h>
#include "harness/failalloc.h"

enum { SAVES = 7 };

typedef struct bed { char *dir; help_image *was[SAVES]; int64_t step[SAVES]; } bed;

/* With key_every 3, keys are the saves 1, 4 and 7. still: nothing moves, so that all of a lossless delta is a difference to its base. */
static bed
make(ckp_profile p, unsigned key_every, bool still)
{
    bed b = {.dir = help_dir()};
    sim *m = help_model(21, true);
    ckp_run *run = help_open(b.dir, p, key_every, 0);

    for (int i = 0; i < SAVES; i++) {
        if (still)
            m->step++;
        else
            sim_train(m);
        help_save(run, m, NULL);
        b.step[i] = (int64_t)m->step;
    }
    assert_ok(ckp_run_close(run, NULL));
    for (int i = 0; i < SAVES; i++)
        b.was[i] = help_read_run(b.dir, b.step[i]);
    sim_free(m);
    return b;
}

static void
drop(bed *b)
{
    for (int i = 0; i < SAVES; i++)
        help_image_free(b->was[i]);
    help_remove(b->dir);
}

static bool
is_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0)
            return false;
    return true;
}

/* Everything but first moments as it was; those either as they were, or zeros. Returns how many are zeros now. */
static unsigned
same_but_moments(const char *dir, int64_t step, const help_image *was)
{
    help_image *now = help_read_run(dir, step);
    unsigned zeros = 0;

    assert_int_equal(now->n, was->n);
    for (size_t i = 0; i < now->n; i++) {
        const size_t len = strlen(now->name[i]);
        const bool m = len > 2 && strcmp(now->name[i] + len - 2, "/m") == 0;
        assert_string_equal(now->name[i], was->name[i]);
        assert_int_equal(now->len[i], was->len[i]);
        if (memcmp(now->data[i], was->data[i], now->len[i]) == 0)
            continue;
        if (!m || !is_zero(now->data[i], now->len[i]))
            fail_msg("step %lld: %s is not what it was", (long long)step, now->name[i]);
        zeros++;
    }
    help_image_free(now);
    return zeros;
}

static bool
is_dropped(const char *dir, int64_t step)
{
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    OK_OR_FAIL(ckp_checkpoint_open_run(&ck, dir, step, true, &err));
    const bool dropped = ckp_checkpoint_dropped(ck) != NULL;
    ckp_checkpoint_close(ck);
    return dropped;
}

static void
thin_keeps(ckp_profile p, unsigned key_every, bool still, uint64_t older_than, int want_thin)
{
    bed b = make(p, key_every, still);
    ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
    ckp_rewritten plan = {.size = sizeof plan}, done = plan;
    ckp_error err;
    int thin = 0;

    o.older_than = older_than;
    o.threads = 1;
    o.dry_run = true;
    OK_OR_FAIL(ckp_run_thin(b.dir, &o, &plan, &err));
    assert_true(plan.deleted == 0 && plan.new_bytes == 0);
    for (int i = 0; i < SAVES; i++)
        assert_int_equal(same_but_moments(b.dir, b.step[i], b.was[i]), 0);
    o.dry_run = false;
    OK_OR_FAIL(ckp_run_thin(b.dir, &o, &done, &err));
    assert_true(plan.done == done.done && plan.moved == done.moved && plan.needed == done.needed);
    assert_int_equal(done.deleted, done.done + done.moved);
    assert_int_equal(help_count(b.dir), SAVES);
    for (int i = 0; i < SAVES; i++) {
        const unsigned zeros = same_but_moments(b.dir, b.step[i], b.was[i]);
        assert_int_equal(zeros != 0, is_dropped(b.dir, b.step[i]));
        assert_true(zeros == 0 || i < SAVES - (int)older_than);
        thin += zeros != 0;
    }
    assert_int_equal(thin, (int)done.done);
    if (thin != want_thin)
        fail_msg("profile %d, a key every %u%s, older than %llu: %d thinned, not %d", (int)p, key_every, still ? ", still" : "", (unsigned long long)older_than, thin, want_thin);
    assert_true(thin == 0 || done.new_bytes < done.freed_bytes);
    OK_OR_FAIL(ckp_verify(b.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    /* nothing more to do */
    OK_OR_FAIL(ckp_run_thin(b.dir, &o, &done, &err));
    assert_true(done.done + done.moved + done.deleted == 0);
    drop(&b);
}

static void
test_thin(void **state)
{
    (void)state;
    /* lossless: deltas of moments; the chain of what keeps its own keeps them too */
    thin_keeps(CKP_PROFILE_LOSSLESS, 3, true, 2, 3);
    thin_keeps(CKP_PROFILE_LOSSLESS, 32, true, 2, 0);
    thin_keeps(CKP_PROFILE_LOSSLESS, 1, true, 2, 5);
    /* what moves as much as a moment does is no difference worth storing */
    thin_keeps(CKP_PROFILE_LOSSLESS, 32, false, 2, 5);
    /* lossy: moments stand alone, scaled by second ones, which stay */
    thin_keeps(CKP_PROFILE_RESUME, 3, false, 2, 5);
    thin_keeps(CKP_PROFILE_RESUME, 32, false, 1, 6);
    thin_keeps(CKP_PROFILE_SMALL, 32, false, 3, 4);
    thin_keeps(CKP_PROFILE_RESUME, 32, false, 100, 0);
}

/* A training goes on from a thinned checkpoint, and from the newest behind thinned ones. */
static void
test_goes_on(void **state)
{
    (void)state;
    bed b = make(CKP_PROFILE_RESUME, 32, false);
    ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
    ckp_rewritten done = {.size = sizeof done};
    ckp_error err;

    o.older_than = 1;
    OK_OR_FAIL(ckp_run_thin(b.dir, &o, &done, &err));
    for (int from = SAVES - 1; from >= 2; from -= 4) {
        ckp_checkpoint *ck = NULL;
        ckp_run *run = help_open(b.dir, CKP_PROFILE_RESUME, 32, 0);
        sim *m = help_model(21, true);
        OK_OR_FAIL(ckp_checkpoint_open(&ck, run, b.step[from], &err));
        OK_OR_FAIL(ckp_run_adopt(run, ck, &err));
        ckp_checkpoint_close(ck);
        for (int i = 0; i < SAVES + 3; i++)
            sim_train(m);
        help_save(run, m, NULL);
        assert_ok(ckp_run_close(run, NULL));
        sim_free(m);
    }
    assert_int_equal(help_count(b.dir), SAVES + 2);
    OK_OR_FAIL(ckp_verify(b.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    drop(&b);
}

static void
test_rebase(void **state)
{
    (void)state;
    bed b = make(CKP_PROFILE_LOSSLESS, 32, false);
    ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
    ckp_rewritten done = {.size = sizeof done};
    ckp_error err;
    ckp_checkpoint_info i = {.size = sizeof i};
    char content[33] = "";

    for (int twice = 0; twice < 2; twice++) {
        ckp_checkpoint *ck = NULL;
        OK_OR_FAIL(ckp_checkpoint_open_run(&ck, b.dir, b.step[3], true, &err));
        ckp_checkpoint_get_info(ck, &i);
        ckp_checkpoint_close(ck);
        assert_int_equal(i.is_delta, twice == 0);
        assert_true(twice == 0 || strcmp(content, i.content_id) == 0);
        (void)snprintf(content, sizeof content, "%s", i.content_id);
        if (twice == 0)
            OK_OR_FAIL(ckp_run_rebase(b.dir, (uint64_t)b.step[3], &o, &done, &err));
    }
    assert_true(done.done == 1 && done.moved == 3 && done.deleted == 4);
    assert_int_equal(help_count(b.dir), SAVES);
    for (int k = 0; k < SAVES; k++)
        assert_int_equal(same_but_moments(b.dir, b.step[k], b.was[k]), 0);
    OK_OR_FAIL(ckp_verify(b.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    OK_OR_FAIL(ckp_run_rebase(b.dir, (uint64_t)b.step[3], &o, &done, &err));
    assert_true(done.done + done.moved + done.deleted == 0);      /* a key already */
    assert_status(ckp_run_rebase(b.dir, 4711, &o, &done, &err), CKP_ENOTFOUND);
    drop(&b);
    b = make(CKP_PROFILE_RESUME, 32, false);
    assert_status(ckp_run_rebase(b.dir, (uint64_t)b.step[3], &o, &done, &err), CKP_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "resume"));
    assert_int_equal(help_count(b.dir), SAVES);
    assert_status(ckp_run_thin(NULL, &o, &done, &err), CKP_EINVAL);
    o.older_than = 0;
    assert_status(ckp_run_thin(b.dir, &o, &done, &err), CKP_EINVAL);
    drop(&b);
}

/* Stops a thin once it has made so many stand-ins. */
typedef struct cut { unsigned after, made; } cut;

static void
count_made(void *user, const ckp_list_entry *e, ckp_rewrite_fate fate, uint64_t new_bytes)
{
    cut *c = user;
    (void)e;
    (void)new_bytes;
    c->made += fate == CKP_REWRITE_DONE;
}

static int
stop_there(void *user, uint64_t read, uint64_t total)
{
    const cut *c = user;
    (void)read;
    (void)total;
    return c->made == c->after;
}

/*
 * Keys are 1, 4 and 7. A thin of 1 to 6 has made five stand-ins, and then something else is asked for, by which 6 keeps its moments: they are differences to
 * those of 5, which its stand-in has no more. 6 stays where it is, until the thin is asked for again.
 */
static void
test_cut_short_and_another(void **state)
{
    (void)state;
    for (int rebase = 0; rebase < 2; rebase++) {
        bed b = make(CKP_PROFILE_LOSSLESS, 3, true);
        ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
        ckp_rewritten done = {.size = sizeof done};
        cut c = {.after = 5};
        ckp_error err;

        o.older_than = 1;
        o.threads = 1;
        o.told = count_made;
        o.told_user = &c;
        o.progress = stop_there;
        o.user = &c;
        assert_status(ckp_run_thin(b.dir, &o, &done, &err), CKP_ECANCELLED);
        c.after = UINT_MAX;
        o.older_than = 2;
        if (rebase)
            OK_OR_FAIL(ckp_run_rebase(b.dir, (uint64_t)b.step[1], &o, &done, &err));
        else
            OK_OR_FAIL(ckp_run_thin(b.dir, &o, &done, &err));
        for (int i = 0; i < SAVES; i++)
            assert_int_equal(same_but_moments(b.dir, b.step[i], b.was[i]) != 0, i < 5);
        OK_OR_FAIL(ckp_verify(b.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
        o.older_than = 1;
        OK_OR_FAIL(ckp_run_thin(b.dir, &o, &done, &err));
        assert_int_equal(help_count(b.dir), SAVES);
        for (int i = 0; i < SAVES; i++)
            assert_int_equal(same_but_moments(b.dir, b.step[i], b.was[i]) != 0, i < 6);
        drop(&b);
    }
}

/* An earlier copy is brought up to date after the source was thinned, and holds what it holds. */
static void
test_copy(void **state)
{
    (void)state;
    bed b = make(CKP_PROFILE_RESUME, 3, false);
    char *to = help_dir();
    ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
    ckp_rewritten done = {.size = sizeof done};
    ckp_copied copied = {.size = sizeof copied};
    ckp_error err;

    OK_OR_FAIL(ckp_run_copy(b.dir, help_path(to, "run"), NULL, &copied, &err));
    o.older_than = 1;
    OK_OR_FAIL(ckp_run_thin(b.dir, &o, &done, &err));
    OK_OR_FAIL(ckp_run_copy(b.dir, help_path(to, "run"), NULL, &copied, &err));
    assert_int_equal(copied.copied, done.done + done.moved);
    OK_OR_FAIL(ckp_run_thin(help_path(to, "run"), &o, &done, &err));       /* deletes what was replaced */
    assert_int_equal(done.deleted, copied.copied);
    for (int i = 0; i < SAVES; i++)
        (void)same_but_moments(help_path(to, "run"), b.step[i], b.was[i]);
    assert_int_equal(help_count(help_path(to, "run")), SAVES);
    help_remove(to);
    drop(&b);
}

/* Both are there, and what stands in turns out to be damaged: what it stands in for, of the same sequence, is the newest. */
static void
test_falls_back_to_the_original(void **state)
{
    (void)state;
    bed b = make(CKP_PROFILE_RESUME, 32, false);
    char *place = help_dir();
    ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
    ckp_rewritten done = {.size = sizeof done};
    ckp_checkpoint_info info = {.size = sizeof info};
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    size_t n = 0;

    o.older_than = 1;
    model_copy_tree(b.dir, help_path(place, "was"));
    OK_OR_FAIL(ckp_run_thin(b.dir, &o, &done, &err));
    assert_int_equal(done.deleted, SAVES);
    char *shard = help_shard(b.dir, 0);
    for (int i = 0; i < SAVES; i++) {
        char dir[1024];
        (void)snprintf(dir, sizeof dir, "%s", model_shard(help_path(place, "was"), (uint64_t)b.step[i]));
        *strrchr(dir, '/') = '\0';
        assert_int_equal(rename(dir, help_path(b.dir, strrchr(dir, '/') + 1)), 0);
    }
    assert_int_equal(help_count(b.dir), 2 * SAVES);
    uint8_t *bytes = help_file(shard, &n);
    bytes[n / 2] ^= 1;
    help_write(shard, bytes, n);
    OK_OR_FAIL(ckp_checkpoint_open_run(&ck, b.dir, CKP_STEP_NEWEST, true, &err));
    ckp_checkpoint_get_info(ck, &info);
    assert_int_equal(info.step, b.step[SAVES - 1]);
    assert_true(ckp_checkpoint_notes(ck)[0] != '\0');
    ckp_checkpoint_close(ck);
    free(bytes);
    free(shard);
    help_remove(place);
    drop(&b);
}

/* ---- memory, and a kill ----------------------------------------------------------------------------------------------- */

static void
judge(const bed *b, const char *dir, ckp_rewrite_opts *o)
{
    ckp_rewritten done = {.size = sizeof done};
    ckp_error err;

    for (int i = 0; i < SAVES; i++)
        (void)same_but_moments(dir, b->step[i], b->was[i]);
    help_remove(strdup(help_path(dir, "lock")));
    OK_OR_FAIL(ckp_run_thin(dir, o, &done, &err));
    for (int i = 0; i < SAVES; i++)
        (void)same_but_moments(dir, b->step[i], b->was[i]);
    assert_int_equal(help_count(dir), SAVES);
    OK_OR_FAIL(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
}

static void
test_memory(void **state)
{
    (void)state;
    bed b = make(CKP_PROFILE_RESUME, 4, false);
    char *place = help_dir();
    ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
    ckp_rewritten done = {.size = sizeof done};
    bool fired = true;
    unsigned faults = 0;

    o.older_than = 2;
    o.threads = 1;
    for (unsigned long n = 1; fired; n += 37) {
        const char *to = help_path(place, "copy");
        unsigned long live = 0;
        model_copy_tree(b.dir, to);
        failalloc_begin(n);
        const ckp_status st = ckp_run_thin(to, &o, &done, NULL);
        failalloc_end(&live, &fired);
        assert_int_equal(live, 0);
        assert_true(fired ? st == CKP_OK || st == CKP_ENOMEM : st == CKP_OK);
        faults += fired;
        judge(&b, to, &o);
        model_remove_tree(to);
    }
    assert_true(faults > 20);
    help_remove(place);
    drop(&b);
}

/* A process is killed at the n-th progress call, which is between two chunks, or by a timer anywhere. */
static int
die(void *user, uint64_t read, uint64_t total)
{
    int *left = user;
    assert_true(read <= total);
    if (--*left == 0)
        (void)raise(SIGKILL);
    return 0;
}

static void
test_killed(void **state)
{
    (void)state;
    bed b = make(CKP_PROFILE_RESUME, 4, false);
    char *place = help_dir();
    unsigned kills = 0;
    bool killed = true;

    for (int n = 1; killed; n += 3) {
        const char *to = help_path(place, "copy");
        ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
        int status = 0;
        o.older_than = 2;
        model_copy_tree(b.dir, to);
        const pid_t pid = fork();
        if (pid == 0) {
            ckp_rewritten done = {.size = sizeof done};
            int left = n;
            o.progress = die;
            o.user = &left;
            _exit(ckp_run_thin(to, &o, &done, NULL) == CKP_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        killed = WIFSIGNALED(status);
        assert_true(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        kills += killed;
        judge(&b, to, &o);
        model_remove_tree(to);
    }
    assert_true(kills > 10);
    help_remove(place);
    drop(&b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_thin), cmocka_unit_test(test_goes_on), cmocka_unit_test(test_rebase),
                                       cmocka_unit_test(test_cut_short_and_another), cmocka_unit_test(test_copy), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_killed), cmocka_unit_test(test_falls_back_to_the_original)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
