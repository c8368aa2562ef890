/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every file call of a writer's life (open with its sweep, saves, retention, close) fails, is the process's last, or is the
 * last before a power cut with each fate of the unsynced writes. After each the judge checks invariants 1 to 10.
 */
#include "life.h"

static void
test_kill(void **state)
{
    (void)state;
    life_all(fault_disk_new, FAULT_KILL, 1, false, life_restart, 1, "killed");
}

static void
test_eio(void **state)
{
    (void)state;
    life_all(fault_disk_new, FAULT_EIO, 1, false, life_heal, 1, "EIO once");
    life_all(fault_disk_new, FAULT_EIO, 5, true, life_heal, 1, "EIO from then on");
}

/* An error, and then the power goes at the end of the same life: what was reported as failed must not be half there. */
static void
test_eio_then_power(void **state)
{
    (void)state;
    life_all(fault_disk_new, FAULT_EIO, 3, false, life_cut_none, 1, "EIO, then power, nothing unsynced kept");
    life_all(fault_disk_new, FAULT_EIO, 3, false, life_cut_reordered, 2, "EIO, then power, reordered");
}

static void
test_enospc(void **state)
{
    (void)state;
    life_all(fault_disk_new, FAULT_ENOSPC, 1, false, life_heal, 1, "ENOSPC once");
    life_all(fault_disk_new, FAULT_ENOSPC, 2, true, life_heal, 1, "disk full from then on");
    life_all(fault_disk_new, FAULT_SHORT, 1, false, life_heal, 1, "short write");
}

static void
test_power_all(void **state)
{
    (void)state;
    life_all(fault_disk_new, FAULT_POWER, 2, false, life_cut_all, 1, "power, all kept");
}

static void
test_power_none(void **state)
{
    (void)state;
    life_all(fault_disk_new, FAULT_POWER, 1, false, life_cut_none, 1, "power, nothing unsynced kept");
}

static void
test_power_torn(void **state)
{
    (void)state;
    life_all(fault_disk_new, FAULT_POWER, 1, false, life_cut_torn, 2, "power, torn");
}

static void
test_power_reordered(void **state)
{
    (void)state;
    life_all(fault_disk_new, FAULT_POWER, 1, false, life_cut_reordered, 3, "power, reordered");
}

/* The very first opening of a run, before it has an identity. */
static void
test_first_open(void **state)
{
    (void)state;
    life_first_open(fault_disk_new, FAULT_KILL, life_restart);
    const after_fn fates[] = {life_cut_all, life_cut_none, life_cut_torn, life_cut_reordered};
    for (size_t f = 0; f < CHECK_COUNT(fates); f++)
        life_first_open(fault_disk_new, FAULT_POWER, fates[f]);
}

/* The words: ENOSPC at every write of save n, then saves n+1 and n+2 commit. */
static void
test_enospc_then_two_saves(void **state)
{
    (void)state;
    for (uint64_t at = 1;; at++) {
        trace t = {0};
        ckpi_store *s = NULL;
        fault_disk *d = fault_disk_new();
        char dir[CKPI_DIR_NAME_MAX];
        assert_ok(run_open(&s, fault_mount(d), CKPI_STORE_WRITE, NULL));
        assert_ok(trace_save(&t, s, 1, NULL, dir));
        fault_arm(d, FAULT_ENOSPC, at, true);
        const ckp_status st = trace_save(&t, s, 2, dir, NULL);
        const bool fired = fault_fired(d) > 0;
        assert_status(st, fired ? CKP_ENOSPC : CKP_OK);
        fault_arm(d, FAULT_NONE, 0, false);
        assert_ok(trace_save(&t, s, 3, dir, dir));
        assert_ok(trace_save(&t, s, 4, dir, dir));
        ckpi_store_free(s);
        run_judge(d, &t, "ENOSPC in save 2");
        fault_disk_free(d);
        if (!fired)
            break;
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_eio),
        cmocka_unit_test(test_eio_then_power),
        cmocka_unit_test(test_enospc),
        cmocka_unit_test(test_power_all),
        cmocka_unit_test(test_power_none),
        cmocka_unit_test(test_power_torn),
        cmocka_unit_test(test_power_reordered),
        cmocka_unit_test(test_first_open),
        cmocka_unit_test(test_enospc_then_two_saves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
