/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU and the operating system allow, found once. Policy (masking in tests) is the caller's: pass a masked word on. */
#ifndef CKPI_BASE_CPU_H
#define CKPI_BASE_CPU_H
#include <stdint.h>

#define CKPI_CPU_AVX2 (1u << 0)        /* AVX2, BMI1, BMI2, F16C, FMA present; OS saves YMM */
#define CKPI_CPU_AVX512 (1u << 1)      /* F, BW, DQ, VL, CD and OS saves ZMM */
#define CKPI_CPU_VBMI2 (1u << 2)       /* VBMI and VBMI2 on top */
#define CKPI_CPU_NEON (1u << 8)

#if defined(__x86_64__) && defined(__GNUC__)
#define CKPI_X86 1
#define CKPI_TARGET(t) __attribute__((target(t)))
#define CKPI_TARGET_AVX2 CKPI_TARGET("avx2,bmi,bmi2,lzcnt,popcnt,f16c")
#define CKPI_TARGET_AVX2_FMA CKPI_TARGET("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c")
#define CKPI_TARGET_AVX512 CKPI_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,bmi,bmi2,lzcnt,popcnt,f16c")
#define CKPI_TARGET_VBMI2 CKPI_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vbmi,avx512vbmi2,avx2,bmi,bmi2,lzcnt,popcnt,f16c")
#else
#define CKPI_X86 0
#endif
#if defined(__aarch64__)
#define CKPI_ARM 1
#else
#define CKPI_ARM 0
#endif

/* Cached in one atomic word; a race computes the same value twice. */
uint32_t ckpi_cpu(void);
/* Name of the best level in a word: "avx512vbmi2", "avx512", "avx2", "neon", "scalar". */
const char *ckpi_cpu_name(uint32_t cpu);
#endif
