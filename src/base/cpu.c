/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU features. A level counts only if the operating system saves its registers (XCR0): a CPU may know AVX-512 while
 * the kernel or hypervisor does not keep ZMM registers across a context switch.
 */
#define _GNU_SOURCE
#include "base/cpu.h"
#include <stdatomic.h>
#include <stdbool.h>
#ifdef CKPI_TEST_ENV
#include <stdlib.h>
#include <string.h>
#endif

#if CKPI_X86
#include <cpuid.h>

static uint64_t
xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool
all(uint64_t word, uint64_t bits)
{
    return (word & bits) == bits;
}

static uint32_t
detect(void)
{
    unsigned a, b, c, d, a1, b1, c1, d1, ax, bx, cx, dx;
    if (!__get_cpuid(1, &a1, &b1, &c1, &d1) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)
        || !__get_cpuid(0x80000001, &ax, &bx, &cx, &dx))
        return 0;
    if (!all(c1, bit_OSXSAVE | bit_AVX))
        return 0;
    const uint64_t saved = xcr0();
    uint32_t word = 0;
    /* XMM and YMM; bit_ABM stands for LZCNT. */
    if (all(saved, 0x06) && all(c1, bit_F16C | bit_FMA | bit_POPCNT) && all(b, bit_AVX2 | bit_BMI | bit_BMI2) && all(cx, bit_ABM))
        word |= CKPI_CPU_AVX2;
    /* opmask, the upper halves of ZMM0-15, ZMM16-31 */
    if (word != 0 && all(saved, 0xe6) && all(b, (unsigned)bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD))
        word |= CKPI_CPU_AVX512;
    if ((word & CKPI_CPU_AVX512) != 0 && all(c, bit_AVX512VBMI | bit_AVX512VBMI2))
        word |= CKPI_CPU_VBMI2;
    return word;
}
#elif CKPI_ARM
static uint32_t
detect(void)
{
    return CKPI_CPU_NEON;   /* part of the base architecture */
}
#else
static uint32_t
detect(void)
{
    return 0;
}
#endif

#ifdef CKPI_TEST_ENV
/* Test builds only: CKPRESS_CPU names the best level to use, so that a suite can run once per level. */
static uint32_t
mask_from_env(void)
{
    const char *level = getenv("CKPRESS_CPU");
    if (level == NULL || strcmp(level, "native") == 0)
        return UINT32_MAX;
    if (strcmp(level, "avx512") == 0)
        return CKPI_CPU_AVX512 | CKPI_CPU_AVX2;
    if (strcmp(level, "avx2") == 0)
        return CKPI_CPU_AVX2;
    return 0;
}
#endif

uint32_t
ckpi_cpu(void)
{
    enum { FOUND = 1 << 30 };   /* tells "nothing special" from "not looked yet" */
    static _Atomic uint32_t cached;

    uint32_t word = atomic_load_explicit(&cached, memory_order_relaxed);
    if (word == 0) {
        word = detect();
#ifdef CKPI_TEST_ENV
        word &= mask_from_env();
#endif
        word |= FOUND;
        atomic_store_explicit(&cached, word, memory_order_relaxed);
    }
    return word & ~(uint32_t)FOUND;
}

const char *
ckpi_cpu_name(uint32_t cpu)
{
    if ((cpu & CKPI_CPU_VBMI2) != 0)
        return "avx512vbmi2";
    if ((cpu & CKPI_CPU_AVX512) != 0)
        return "avx512";
    if ((cpu & CKPI_CPU_AVX2) != 0)
        return "avx2";
    if ((cpu & CKPI_CPU_NEON) != 0)
        return "neon";
    return "scalar";
}
