/* SPDX-License-Identifier: Apache-2.0 */
/* A machine's clock that is set back by an hour must not keep an idle run from renewing its lock for that hour. */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "help.h"

/* Stands before the C library's: what a wait until a time of day, begun just before the clock was set back, would have been told. */
int
timespec_get(struct timespec *t, int base)
{
    (void)clock_gettime(CLOCK_REALTIME, t);
    t->tv_sec += 3600;
    return base;
}

static void
test_the_lock_is_renewed(void **state)
{
    (void)state;
    char *dir = help_dir();
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    ckp_run *run = NULL;
    struct stat last, now;
    int renewed = 0;
    o.lock_seconds = 4;
    assert_ok(ckp_run_open(&run, dir, &o, NULL));
    const char *claim = help_path(dir, "lock/epoch-00000001.json");
    assert_int_equal(stat(claim, &last), 0);
    /* the first time is when the saving thread begins; from then on it waits */
    for (int i = 0; i < 100 && renewed < 3; i++) {
        (void)usleep(100000);
        if (stat(claim, &now) != 0 || (now.st_mtim.tv_sec == last.st_mtim.tv_sec && now.st_mtim.tv_nsec == last.st_mtim.tv_nsec))
            continue;
        last = now;
        renewed++;
    }
    assert_int_equal(renewed, 3);
    assert_ok(ckp_run_close(run, NULL));
    help_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_lock_is_renewed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
