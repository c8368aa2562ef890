/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By tables, eight bytes a step; with carry-less multiplication, 64 bytes a step: four 128-bit remainders are each moved 512 bits on
 * (multiplied by x^512 and x^576 modulo the polynomial), folded into one, and reduced by Barrett's method. The constants are powers of x
 * modulo the polynomial, bit-reflected.
 */
#include "base/crc32.h"
#include "base/bytes.h"
#include "base/cpu.h"

#define POLY 0xedb88320u

void
ckpi_crc_init(ckpi_crc *c)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int k = 0; k < 8; k++)
            v = v >> 1 ^ (POLY & (0u - (v & 1)));
        c->table[0][i] = v;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            c->table[k][i] = c->table[k - 1][i] >> 8 ^ c->table[0][c->table[k - 1][i] & 0xff];
}

/* On the inverted remainder, as all that follows. */
static uint32_t
by_tables(const ckpi_crc *c, uint32_t r, const uint8_t *p, size_t n)
{
    for (; n >= 8; n -= 8, p += 8) {
        const uint32_t a = ckpi_ld32(p) ^ r, b = ckpi_ld32(p + 4);
        r = c->table[7][a & 0xff] ^ c->table[6][a >> 8 & 0xff] ^ c->table[5][a >> 16 & 0xff] ^ c->table[4][a >> 24] ^
            c->table[3][b & 0xff] ^ c->table[2][b >> 8 & 0xff] ^ c->table[1][b >> 16 & 0xff] ^ c->table[0][b >> 24];
    }
    while (n-- > 0)
        r = r >> 8 ^ c->table[0][(r ^ *p++) & 0xff];
    return r;
}

uint32_t
ckpi_crc_add_ref(const ckpi_crc *c, uint32_t crc, const void *p, size_t n)
{
    return ~by_tables(c, ~crc, p, n);
}

#if CKPI_X86
#include <immintrin.h>

#define TARGET_CLMUL CKPI_TARGET("pclmul,sse4.1")

TARGET_CLMUL static inline __m128i
fold(__m128i x, __m128i k, __m128i next)
{
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next);
}

TARGET_CLMUL static inline __m128i
load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* 128 bits to 32: two folds, then Barrett. */
TARGET_CLMUL static uint32_t
reduce(__m128i x)
{
    const __m128i k34 = _mm_set_epi64x(0x0ccaa009eLL, 0x1751997d0LL);
    const __m128i k5 = _mm_set_epi64x(0, 0x163cd6124LL);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641LL, 0x1db710641LL);
    const __m128i low32 = _mm_set_epi32(0, -1, 0, -1);
    __m128i t = _mm_clmulepi64_si128(x, k34, 0x10);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), t);
    t = _mm_srli_si128(x, 4);
    x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low32), k5, 0x00), t);
    t = _mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10);
    t = _mm_clmulepi64_si128(_mm_and_si128(t, low32), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, t), 1);
}

/* n is a multiple of 16 and at least 64. */
TARGET_CLMUL static uint32_t
by_clmul(uint32_t r, const uint8_t *p, size_t n)
{
    const __m128i k12 = _mm_set_epi64x(0x1c6e41596LL, 0x154442bd4LL);
    const __m128i k34 = _mm_set_epi64x(0x0ccaa009eLL, 0x1751997d0LL);
    __m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)r));
    __m128i b = load(p + 16), c = load(p + 32), d = load(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        a = fold(a, k12, load(p));
        b = fold(b, k12, load(p + 16));
        c = fold(c, k12, load(p + 32));
        d = fold(d, k12, load(p + 48));
    }
    a = fold(fold(fold(a, k34, b), k34, c), k34, d);
    for (; n >= 16; p += 16, n -= 16)
        a = fold(a, k34, load(p));
    return reduce(a);
}

static int
has_clmul(void)
{
    return (ckpi_cpu() & CKPI_CPU_AVX2) != 0 && __builtin_cpu_supports("pclmul");
}
#endif

uint32_t
ckpi_crc_add(const ckpi_crc *c, uint32_t crc, const void *data, size_t n)
{
    const uint8_t *p = data;
    uint32_t r = ~crc;
#if CKPI_X86
    if (n >= 128 && has_clmul()) {
        const size_t whole = n / 16 * 16;
        r = by_clmul(r, p, whole);
        p += whole;
        n -= whole;
    }
#endif
    return ~by_tables(c, r, p, n);
}
