/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "harness/check.h"
#include <stdatomic.h>

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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_goes_forward),
        cmocka_unit_test(memory_is_plausible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
