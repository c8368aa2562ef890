/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/clock.h"
#include "harness/check.h"
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

static void
time_goes_forward(void **state)
{
    (void)state;
    const double wall = ckpi_seconds(), cpu = ckpi_thread_cpu_seconds();
    atomic_uint spin = 0;
    while (ckpi_thread_cpu_seconds() < cpu + 0.002)
        spin++;
    assert_true(ckpi_seconds() > wall);
    assert_true(ckpi_seconds() - wall >= 0.0015);
}

static void
waits_are_counted(void **state)
{
    (void)state;
    const ckpi_usage before = ckpi_thread_usage();
    assert_int_equal(usleep(2000), 0);
    const ckpi_usage after = ckpi_thread_usage();
    assert_true(after.waits > before.waits);
    assert_true(after.wall - before.wall >= 0.002);
    assert_true(after.cpu >= before.cpu && after.cpu - before.cpu < after.wall - before.wall);
}

static void
memory_is_plausible(void **state)
{
    (void)state;
    assert_true(ckpi_ram_bytes() >= (UINT64_C(1) << 24));
}

typedef struct seen { pid_t thread; int priority; } seen;

static void
look(void *arg)
{
    seen *s = arg;
    s->thread = gettid();
    s->priority = getpriority(PRIO_PROCESS, (id_t)s->thread);
}

typedef struct two_seen { seen low, meanwhile; } two_seen;

static void
look_low(void *arg)
{
    look(&((two_seen *)arg)->low);
}

static void
look_meanwhile(void *arg)
{
    look(&((two_seen *)arg)->meanwhile);
}

static void
low_priority_ends_with_the_call(void **state)
{
    (void)state;
    two_seen two = {{0, -100}, {0, -100}};
    seen here, after;
    look(&here);
    ckpi_run_low(look_low, look_meanwhile, &two);
    look(&after);
    assert_int_equal(two.low.priority, CKPI_LOW_NICE);
    assert_int_not_equal(two.low.thread, here.thread);
    assert_int_equal(two.meanwhile.thread, here.thread);
    assert_int_equal(two.meanwhile.priority, here.priority);
    assert_int_equal(after.priority, here.priority);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_goes_forward),
        cmocka_unit_test(waits_are_counted),
        cmocka_unit_test(memory_is_plausible),
        cmocka_unit_test(low_priority_ends_with_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
