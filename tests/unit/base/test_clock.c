/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/clock.h"
#include "harness/check.h"
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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
memory_is_plausible(void **state)
{
    (void)state;
    assert_true(ckpi_ram_bytes() >= (UINT64_C(1) << 24));
}

typedef struct seen { pid_t thread; int priority; uint64_t slice; } seen;

/* Nanoseconds; 0 where the kernel does not tell. */
static uint64_t
slice_of_this_thread(void)
{
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; } s = {.size = 48};
    return syscall(SYS_sched_getattr, 0, &s, sizeof s, 0) == 0 ? s.runtime : 0;
}

static void
look(void *arg)
{
    seen *s = arg;
    s->thread = gettid();
    s->priority = getpriority(PRIO_PROCESS, (id_t)s->thread);
    s->slice = slice_of_this_thread();
}

static void
low_priority_ends_with_the_call(void **state)
{
    (void)state;
    seen here, low = {.priority = -100}, after;
    look(&here);
    ckpi_run_low(look, &low);
    look(&after);
    /* a kernel that knows no slices, or keeps to its own, leaves the lowest */
    assert_int_equal(low.priority, low.slice == 100 * 1000 * 1000 ? CKPI_LOW_NICE_SLICED : CKPI_LOW_NICE);
    assert_int_not_equal(low.thread, here.thread);
    assert_int_equal(after.priority, here.priority);
    assert_true(after.slice == here.slice);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_goes_forward),
        cmocka_unit_test(memory_is_plausible),
        cmocka_unit_test(low_priority_ends_with_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
