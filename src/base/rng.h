/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter RNG: a pure function of (key, index), so that any ISA, thread count and sharding draws the same numbers.
 * The mixer is the two-multiply xorshift-multiply hash on 32 bits (constants 0x7feb352d, 0x846ca68b: Wellons' search for low bias).
 */
#ifndef CKPI_BASE_RNG_H
#define CKPI_BASE_RNG_H
#include <stdint.h>

static inline uint32_t
ckpi_mix32(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    x ^= x >> 16;
    return x;
}

/* Draw number i of stream `key`; the high half of a 64-bit index is folded into the key by the caller (ckpi_rng_key). */
static inline uint32_t
ckpi_rng32(uint32_t key, uint32_t i)
{
    return ckpi_mix32(i ^ key);
}

/* Key of a stream from up to four 64-bit words. */
uint32_t ckpi_rng_key(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
#endif
