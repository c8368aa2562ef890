/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/pack/pack.h"
#include "base/bytes.h"
#include "base/cpu.h"
#if CKPI_X86
#include <immintrin.h>
#endif

/* Eight elements make `bits` whole bytes: the unit of every variant. */

static uint64_t
gather8(const uint8_t *src, size_t n, unsigned bits)
{
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)(src[i] & ((1u << bits) - 1)) << (i * bits);
    return word;
}

static void
pack_tail(uint8_t *dst, const uint8_t *src, size_t n, unsigned bits)
{
    const uint64_t word = gather8(src, n, bits);
    for (size_t i = 0; i < (n * bits + 7) / 8; i++)
        dst[i] = (uint8_t)(word >> (8 * i));
}

static void
unpack_tail(uint8_t *dst, const uint8_t *src, size_t n, unsigned bits)
{
    uint64_t word = 0;
    for (size_t i = 0; i < (n * bits + 7) / 8; i++)
        word |= (uint64_t)src[i] << (8 * i);
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(word >> (i * bits)) & (uint8_t)((1u << bits) - 1);
}

#if CKPI_X86
/* Stores of eight bytes run over into the next group's place, so the last groups go through pack_tail. */
CKPI_TARGET_AVX2 static size_t
pack_pext(uint8_t *dst, const uint8_t *src, size_t n, unsigned bits)
{
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    size_t i = 0;
    for (; i + 8 * 9 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, src + i, 8);
        word = _pext_u64(word, mask);
        memcpy(dst + i / 8 * bits, &word, 8);
    }
    return i;
}

CKPI_TARGET_AVX2 static size_t
unpack_pdep(uint8_t *dst, const uint8_t *src, size_t n, unsigned bits)
{
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    size_t i = 0;
    for (; i + 8 * 9 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, src + i / 8 * bits, 8);
        word = _pdep_u64(word, mask);
        memcpy(dst + i, &word, 8);
    }
    return i;
}
#endif

void
ckpi_pack(uint8_t *dst, const uint8_t *src, size_t n, unsigned bits, uint32_t cpu)
{
    size_t i = 0;
#if CKPI_X86
    if (cpu & CKPI_CPU_AVX2)
        i = pack_pext(dst, src, n, bits);
#else
    (void)cpu;
#endif
    for (; i < n; i += 8)
        pack_tail(dst + i / 8 * bits, src + i, CKPI_MIN(n - i, (size_t)8), bits);
}

void
ckpi_unpack(uint8_t *dst, const uint8_t *src, size_t n, unsigned bits, uint32_t cpu)
{
    size_t i = 0;
#if CKPI_X86
    if (cpu & CKPI_CPU_AVX2)
        i = unpack_pdep(dst, src, n, bits);
#else
    (void)cpu;
#endif
    for (; i < n; i += 8)
        unpack_tail(dst + i, src + i / 8 * bits, CKPI_MIN(n - i, (size_t)8), bits);
}
