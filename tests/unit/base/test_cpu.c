/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "harness/check.h"
#include <stdlib.h>

static void
levels_imply_those_below(void **state)
{
    (void)state;
    const uint32_t cpu = ckpi_cpu();
    assert_int_equal(cpu, ckpi_cpu());
    if ((cpu & CKPI_CPU_VBMI2) != 0)
        assert_true((cpu & CKPI_CPU_AVX512) != 0);
    if ((cpu & CKPI_CPU_AVX512) != 0)
        assert_true((cpu & CKPI_CPU_AVX2) != 0);
    assert_int_equal(cpu & ~(CKPI_CPU_AVX2 | CKPI_CPU_AVX512 | CKPI_CPU_VBMI2 | CKPI_CPU_NEON), 0);
#if CKPI_X86
    /* The compiler's runtime asks the same questions. */
    if ((cpu & CKPI_CPU_AVX2) != 0)
        assert_true(__builtin_cpu_supports("avx2"));
    if ((cpu & CKPI_CPU_VBMI2) != 0)
        assert_true(__builtin_cpu_supports("avx512vbmi2"));
#endif
}

static void
names(void **state)
{
    (void)state;
    assert_string_equal(ckpi_cpu_name(0), "scalar");
    assert_string_equal(ckpi_cpu_name(CKPI_CPU_AVX2), "avx2");
    assert_string_equal(ckpi_cpu_name(CKPI_CPU_AVX2 | CKPI_CPU_AVX512), "avx512");
    assert_string_equal(ckpi_cpu_name(CKPI_CPU_AVX2 | CKPI_CPU_AVX512 | CKPI_CPU_VBMI2), "avx512vbmi2");
    assert_string_equal(ckpi_cpu_name(CKPI_CPU_NEON), "neon");
}

/* Proves that a masked run of the suite is masked. */
static void
the_mask_works(void **state)
{
    (void)state;
#ifdef CKPI_TEST_ENV
    const char *level = getenv("CKPRESS_CPU");
    if (level == NULL || strcmp(level, "native") == 0)
        return;
    if (strcmp(level, "scalar") == 0)
        assert_int_equal(ckpi_cpu(), 0);
    if (strcmp(level, "avx2") == 0)
        assert_int_equal(ckpi_cpu() & ~CKPI_CPU_AVX2, 0);
    if (strcmp(level, "avx512") == 0)
        assert_int_equal(ckpi_cpu() & CKPI_CPU_VBMI2, 0);
#endif
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_imply_those_below),
        cmocka_unit_test(names),
        cmocka_unit_test(the_mask_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
