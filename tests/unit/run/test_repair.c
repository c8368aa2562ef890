/* SPDX-License-Identifier: Apache-2.0 */
/* Repair through the public interface: its arguments, a training that goes on after it, and the n-th allocation that fails. Faults: tests/unit/store. */
#define _GNU_SOURCE
#include <unistd.h>
#include "help.h"
#include "model.h"
#include <ckpress/run_repair.h>
#include "harness/failalloc.h"

enum { SAVES = 4 };

/* Two keys with a delta each; the first delta's shard is gone, and so is run.json. */
static char *
make_damaged(void)
{
    char *dir = help_dir();
    sim *m = help_model(5, true);
    ckp_run *run = help_open(dir, CKP_PROFILE_LOSSLESS, 2, 0);

    for (int i = 0; i < SAVES; i++) {
        sim_train(m);
        help_save(run, m, NULL);
    }
    assert_ok(ckp_run_close(run, NULL));
    sim_free(m);
    char *shard = help_shard(dir, 2);
    assert_int_equal(unlink(shard), 0);
    free(shard);
    assert_int_equal(unlink(help_path(dir, "run.json")), 0);
    return dir;
}

typedef struct seen { unsigned n; ckp_repair_fate fate; } seen;

static void
tell(void *user, const ckp_list_entry *e, ckp_repair_fate fate, const char *reason)
{
    seen *s = user;
    assert_true(e->step != 0 && reason[0] != '\0');
    s->n++;
    s->fate = fate;
}

static void
test_goes_on(void **state)
{
    (void)state;
    char *dir = make_damaged();
    seen s = {0};
    ckp_repair_opts o = CKP_REPAIR_OPTS_INIT;
    ckp_repaired done = {.size = sizeof done}, bad = {.size = 1};
    ckp_error err;

    assert_status(ckp_run_repair(NULL, NULL, &done, &err), CKP_EINVAL);
    assert_status(ckp_run_repair(dir, NULL, NULL, &err), CKP_EINVAL);
    assert_status(ckp_run_repair(dir, NULL, &bad, &err), CKP_EINVAL);
    o.told = tell;
    o.told_user = &s;
    OK_OR_FAIL(ckp_run_repair(dir, &o, &done, &err));
    assert_true(s.n == 1 && s.fate == CKP_REPAIR_SET_ASIDE && done.set_aside == 1 && done.restorable == SAVES - 1 && done.identity);
    assert_int_equal(help_count(dir), SAVES - 1);
    sim *m = help_model(5, true);
    for (int i = 0; i < SAVES; i++)
        sim_train(m);
    help_image *x = help_read_run(dir, CKP_STEP_NEWEST);
    assert_true(help_is_model(x, m));
    help_image_free(x);
    ckp_run *run = help_open(dir, CKP_PROFILE_LOSSLESS, 2, 0);
    sim_train(m);
    help_save(run, m, NULL);
    assert_ok(ckp_run_close(run, NULL));
    assert_int_equal(help_count(dir), SAVES);
    OK_OR_FAIL(ckp_run_repair(dir, NULL, &done, &err));
    assert_true(done.set_aside + done.deleted + done.left + done.swept == 0 && !done.identity && done.restorable == SAVES);
    sim_free(m);
    help_remove(dir);
}

static ckp_status
repair_dry(void *user)
{
    ckp_repair_opts o = CKP_REPAIR_OPTS_INIT;
    ckp_repaired done = {.size = sizeof done};

    o.data = true;
    o.dry_run = true;
    return ckp_run_repair(user, &o, &done, NULL);
}

/* What a repair that ran out of memory has left, the next one finishes. */
static void
test_memory(void **state)
{
    (void)state;
    char *from = make_damaged(), *place = help_dir();
    ckp_repaired done = {.size = sizeof done};
    ckp_error err;
    bool fired = true;
    unsigned faults = 0;

    assert_true(failalloc_run(repair_dry, from, 20, 1) > 20);
    for (unsigned long n = 1; fired; n += 3) {
        const char *to = help_path(place, "copy");
        unsigned long live = 0;
        model_copy_tree(from, to);
        failalloc_begin(n);
        const ckp_status st = ckp_run_repair(to, NULL, &done, NULL);
        failalloc_end(&live, &fired);
        assert_int_equal(live, 0);
        assert_true(fired ? st == CKP_OK || st == CKP_ENOMEM : st == CKP_OK);
        faults += fired;
        help_remove(strdup(help_path(to, "lock")));      /* a claim may not have been released for want of memory */
        OK_OR_FAIL(ckp_run_repair(to, NULL, &done, &err));
        assert_int_equal(done.restorable, SAVES - 1);
        assert_int_equal(help_count(to), SAVES - 1);
        model_remove_tree(to);
    }
    assert_true(faults > 20);
    help_remove(from);
    help_remove(place);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goes_on), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
