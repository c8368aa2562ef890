/* SPDX-License-Identifier: Apache-2.0 */
/* xxHash is inlined here and in hash_avx2.c: its header-only build is faster for short inputs and needs no library. */
#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/alloc.h"
#include "base/hash_kern.h"

#if CKPI_X86
/* Shorter ones do not get into the loops that vectors make faster. */
enum { LONG_INPUT = 1024 };

static bool
has_avx2(size_t n)
{
    return n >= LONG_INPUT && (ckpi_cpu() & CKPI_CPU_AVX2) != 0;
}
#endif

uint64_t
ckpi_hash64(const void *p, size_t n)
{
#if CKPI_X86
    if (has_avx2(n))
        return ckpi_hash64_avx2(p, n);
#endif
    return XXH3_64bits(p, n);
}

ckpi_id
ckpi_hash128(const void *p, size_t n)
{
#if CKPI_X86
    if (has_avx2(n))
        return ckpi_hash128_avx2(p, n);
#endif
    const XXH128_hash_t h = XXH3_128bits(p, n);
    return (ckpi_id){.lo = h.low64, .hi = h.high64};
}

void
ckpi_id_hex(ckpi_id id, char out[33])
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < 32; i++) {
        const uint64_t half = i < 16 ? id.hi : id.lo;
        out[i] = digits[half >> (60 - i % 16 * 4) & 15];
    }
    out[32] = 0;
}

bool
ckpi_id_parse(const char *hex, ckpi_id *out)
{
    uint64_t half[2] = {0, 0};
    for (unsigned i = 0; i < 32; i++) {
        const char c = hex[i];
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else
            return false;
        half[i / 16] = half[i / 16] << 4 | digit;
    }
    if (hex[32] != 0)
        return false;
    *out = (ckpi_id){.hi = half[0], .lo = half[1]};
    return true;
}

/*
 * The 64- and 128-bit variants share reset and update (same state, same accumulators) and differ in the digest alone,
 * so one pass gives both; test_hash compares them with the one-shot functions. The state asks for 64-byte alignment.
 */
struct ckpi_hasher {
    XXH3_state_t state;
};

ckpi_hasher *
ckpi_hasher_new(void)
{
    ckpi_hasher *h = ckpi_aligned_alloc(sizeof *h);
    if (h != NULL)
        ckpi_hasher_reset(h);
    return h;
}

void
ckpi_hasher_free(ckpi_hasher *h)
{
    ckpi_aligned_free(h);
}

void
ckpi_hasher_reset(ckpi_hasher *h)
{
    XXH3_INITSTATE(&h->state);
    (void)XXH3_128bits_reset(&h->state);
}

void
ckpi_hasher_add(ckpi_hasher *h, const void *p, size_t n)
{
#if CKPI_X86
    if (has_avx2(n)) {
        ckpi_hash_update_avx2(&h->state, p, n);
        return;
    }
#endif
    if (n != 0)
        (void)XXH3_128bits_update(&h->state, p, n);
}

uint64_t
ckpi_hasher_64(const ckpi_hasher *h)
{
    return XXH3_64bits_digest(&h->state);
}

ckpi_id
ckpi_hasher_128(const ckpi_hasher *h)
{
    const XXH128_hash_t d = XXH3_128bits_digest(&h->state);
    return (ckpi_id){.lo = d.low64, .hi = d.high64};
}
