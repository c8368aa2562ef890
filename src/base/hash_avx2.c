/* SPDX-License-Identifier: Apache-2.0 */
/* xxHash for AVX2, where the rest of the library is built for any processor of its kind: twice as fast on what is in the cache. */
#include "base/hash_kern.h"
#if CKPI_X86
/* first what xxhash.h includes: these functions keep the targets they have */
#include <immintrin.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#define XXH_VECTOR XXH_AVX2
#include <xxhash.h>

uint64_t
ckpi_hash64_avx2(const void *p, size_t n)
{
    return XXH3_64bits(p, n);
}

ckpi_id
ckpi_hash128_avx2(const void *p, size_t n)
{
    const XXH128_hash_t h = XXH3_128bits(p, n);
    return (ckpi_id){.lo = h.low64, .hi = h.high64};
}

void
ckpi_hash_update_avx2(void *state, const void *p, size_t n)
{
    (void)XXH3_128bits_update(state, p, n);
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
