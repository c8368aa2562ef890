/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 with VBMI2: test, compress and expand, once for each width. Tails by masked loads and stores. */
#include "base/cpu.h"

#if CKPI_X86
#include <immintrin.h>
#include <string.h>

#include "codec/mask/mask_kern_x86.h"

#define TARGET CKPI_TARGET_VBMI2
#define INLINE TARGET static inline __attribute__((always_inline))

#define WIDTH 1
#define MASK __mmask64
#define OP(f, t) _mm512_##f##_epi8##t
#define NAME(f) f##1
#include "codec/mask/mask_kern_512.inc"

#define WIDTH 2
#define MASK __mmask32
#define OP(f, t) _mm512_##f##_epi16##t
#define NAME(f) f##2
#include "codec/mask/mask_kern_512.inc"

#define WIDTH 4
#define MASK __mmask16
#define OP(f, t) _mm512_##f##_epi32##t
#define NAME(f) f##4
#include "codec/mask/mask_kern_512.inc"

const ckpi_mask_ops ckpi_mask_ops_vbmi2 = {
    .split = {split1, split2, split4},
    .join = {join1, join2, join4},
};
#else
typedef int ckpi_mask_kern_512_unused;
#endif
