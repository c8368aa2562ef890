/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 with BMI2: compare finds the elements that are not zero, PEXT and PDEP move eight bytes of them at a time. */
#include "base/cpu.h"

#if CKPI_X86
#include <immintrin.h>
#include <string.h>

#include "codec/mask/mask_kern_x86.h"

#define TARGET CKPI_TARGET_AVX2
#define INLINE TARGET static inline __attribute__((always_inline))

#define WIDTH 1
#define ONES 0x0101010101010101u /* the lowest bit of each element in eight bytes */
#define CMPEQ _mm256_cmpeq_epi8
#define NAME(f) f##1
#include "codec/mask/mask_kern_avx2.inc"

#define WIDTH 2
#define ONES 0x0001000100010001u
#define CMPEQ _mm256_cmpeq_epi16
#define NAME(f) f##2
#include "codec/mask/mask_kern_avx2.inc"

#define WIDTH 4
#define ONES 0x0000000100000001u
#define CMPEQ _mm256_cmpeq_epi32
#define NAME(f) f##4
#include "codec/mask/mask_kern_avx2.inc"

const ckpi_mask_ops ckpi_mask_ops_avx2 = {
    .split = {split1, split2, split4},
    .join = {join1, join2, join4},
};
#else
typedef int ckpi_mask_kern_avx2_unused;
#endif
