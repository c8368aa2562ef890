/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As test_crash, on an object store behind callbacks: each request fails, is the process's last, loses its answer, arrives late (also when the process has
 * died meanwhile) or damages what it uploads.
 * The store's code is the same; what is on trial is what stands for rename and fsync (docs/runs.md, "Object stores").
 */
#include "life.h"

static void
test_kill(void **state)
{
    (void)state;
    life_all(fault_objects_new, FAULT_KILL, 1, false, life_restart, 1, "killed before the request");
    life_all(fault_objects_new, FAULT_POWER, 1, false, life_cut_none, 1, "killed after the request");
}

static void
test_failed_request(void **state)
{
    (void)state;
    life_all(fault_objects_new, FAULT_EIO, 1, false, life_heal, 1, "a request fails");
    life_all(fault_objects_new, FAULT_EIO, 5, true, life_heal, 1, "requests fail from then on");
}

static void
test_store_full(void **state)
{
    (void)state;
    life_all(fault_objects_new, FAULT_ENOSPC, 1, false, life_heal, 1, "quota once");
    life_all(fault_objects_new, FAULT_ENOSPC, 2, true, life_heal, 1, "quota from then on");
}

static void
test_lost_answer(void **state)
{
    (void)state;
    life_all(fault_objects_new, FAULT_LOST, 1, false, life_heal, 1, "an answer is lost");
    life_all(fault_objects_new, FAULT_LOST, 5, true, life_heal, 1, "answers are lost from then on");
}

static void
land(fault_disk *d, uint64_t seed)
{
    fault_arrive(d);
    life_heal(d, seed);
}

static unsigned late_by;

static fault_disk *
late_store(void)
{
    fault_disk *d = fault_objects_new();
    fault_late_by(d, late_by);
    return d;
}

/* While the writer looks for it, undoes the save, begins the next one ... */
static void
test_late_put(void **state)
{
    (void)state;
    for (late_by = 0; late_by < 16; late_by++)
        life_all(late_store, FAULT_LATE, 1, false, land, 1, "an upload arrives late");
}

/* The next writer looks, sweeps, saves, has closed. */
static void
test_put_of_the_dead(void **state)
{
    (void)state;
    life_orphans();
}

static void
test_damaged_put(void **state)
{
    (void)state;
    life_all(fault_objects_new, FAULT_DAMAGE, 1, false, life_heal, 1, "an upload is damaged");
}

static void
test_first_open(void **state)
{
    (void)state;
    life_first_open(fault_objects_new, FAULT_KILL, life_restart);
    life_first_open(fault_objects_new, FAULT_POWER, life_cut_none);
    life_first_open(fault_objects_new, FAULT_LOST, life_heal);
    for (late_by = 0; late_by < 8; late_by++)
        life_first_open(late_store, FAULT_LATE, land);
    life_first_open(fault_objects_new, FAULT_DAMAGE, life_heal);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_failed_request),
        cmocka_unit_test(test_store_full),
        cmocka_unit_test(test_lost_answer),
        cmocka_unit_test(test_late_put),
        cmocka_unit_test(test_put_of_the_dead),
        cmocka_unit_test(test_damaged_put),
        cmocka_unit_test(test_first_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
