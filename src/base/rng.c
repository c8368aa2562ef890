/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

/* Steele, Lea and Flood's SplitMix64 finalizer (Stafford's variant 13), as a sponge over the four words. */
static uint64_t
absorb(uint64_t h, uint64_t word)
{
    h += word + 0x9e3779b97f4a7c15U;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9U;
    h = (h ^ h >> 27) * 0x94d049bb133111ebU;
    return h ^ h >> 31;
}

uint32_t
ckpi_rng_key(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    const uint64_t h = absorb(absorb(absorb(absorb(0, a), b), c), d);
    return (uint32_t)(h >> 32);
}
