/* SPDX-License-Identifier: Apache-2.0 */
/* A forked child can use none of its parent's handles, and harms nothing by trying or by exiting. */
#include "help.h"
#include <sys/wait.h>
#include <unistd.h>

typedef struct fixture { char *dir; sim *m; ckp_run *run; ckp_checkpoint *ck; } fixture;

/* In the child: the number of the first call that did not refuse, 0 when all did. */
static int
try_all(fixture *f)
{
    ckp_error err;
    ckp_checkpoint *ck = NULL;
    ckp_tensor_info info = {.size = sizeof info};
    uint8_t mem[64];
    size_t len = 1;
    const ckp_target t = {.index = 0, .data = mem};
    ckp_state *s = sim_state(f->m);
    int bad = 0, at = 0;
#define MUST_REFUSE(call) (at++, bad = bad != 0 || (call) == CKP_EFORK ? bad : at)
    MUST_REFUSE(ckp_run_save(f->run, 5, s, NULL, NULL, &err));
    MUST_REFUSE(ckp_run_wait(f->run, &err));
    MUST_REFUSE(ckp_run_adopt(f->run, f->ck, &err));
    MUST_REFUSE(ckp_checkpoint_open(&ck, f->run, CKP_STEP_NEWEST, &err));
    MUST_REFUSE(ckp_checkpoint_read(f->ck, &t, 1, 1, &err));
    MUST_REFUSE(ckp_checkpoint_read_range(f->ck, 0, 0, 1, mem, &err));
    MUST_REFUSE(ckp_checkpoint_tensor(f->ck, 0, &info, &err));
#undef MUST_REFUSE
    if (bad == 0 && (ckp_run_busy(f->run) || ckp_checkpoint_count(f->ck) != 0 || ckp_checkpoint_tree(f->ck, &len) != NULL || len != 0))
        bad = 100;
    ckp_checkpoint_close(f->ck);
    if (bad == 0 && ckp_run_close(f->run, &err) != CKP_EFORK)
        bad = 101;
    ckp_state_free(s);
    return bad;
}

static void
fork_and_try(fixture *f)
{
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(try_all(f));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void
test_child(void **state)
{
    (void)state;
    fixture f = {.dir = help_dir(), .m = help_model(3, false)};
    ckp_error err;
    f.run = help_open(f.dir, CKP_PROFILE_RESUME, 32, 0);
    help_save(f.run, f.m, NULL);
    OK_OR_FAIL(ckp_checkpoint_open(&f.ck, f.run, CKP_STEP_NEWEST, &err));
    fork_and_try(&f);
    /* and with a save in flight */
    ckp_state *s = sim_state(f.m);
    OK_OR_FAIL(ckp_run_save(f.run, 2, s, NULL, NULL, &err));
    fork_and_try(&f);
    OK_OR_FAIL(ckp_run_wait(f.run, &err));
    ckp_state_free(s);
    sim_train(f.m);
    help_save(f.run, f.m, NULL);
    help_image *x = help_read_run(f.dir, CKP_STEP_NEWEST);
    help_image_free(x);
    assert_int_equal(help_count(f.dir), 3);
    ckp_checkpoint_close(f.ck);
    OK_OR_FAIL(ckp_run_close(f.run, &err));
    OK_OR_FAIL(ckp_verify(f.dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, &err));
    sim_free(f.m);
    help_remove(f.dir);
}

/* The child may open a run of its own, and read its parent's. */
static void
test_own_handles(void **state)
{
    (void)state;
    char *dir = help_dir();
    sim *m = help_model(3, true);
    ckp_error err;
    int status = 0;
    ckp_run *run = help_open(help_path(dir, "parent"), CKP_PROFILE_LOSSLESS, 32, 0);
    help_save(run, m, NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ckp_run *own = help_open(help_path(dir, "child"), CKP_PROFILE_LOSSLESS, 32, 0);
        help_save(own, m, NULL);
        help_image *x = help_read_run(help_path(dir, "parent"), CKP_STEP_NEWEST);
        const bool ok = help_is_model(x, m);
        help_image_free(x);
        _exit(ok && ckp_run_close(own, &err) == CKP_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK_OR_FAIL(ckp_run_close(run, &err));
    sim_free(m);
    help_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_child), cmocka_unit_test(test_own_handles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
