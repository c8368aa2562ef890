/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/stream/plane.h"
#include "base/cpu.h"

#if CKPI_X86
#include <emmintrin.h>

/* Sixteen elements a turn with what every x86-64 has: byte k moved down, the others masked off, packed. Returns how many are done. */
static size_t
take_2(uint8_t *dst, const uint8_t *src, size_t n, unsigned k)
{
    const __m128i low = _mm_set1_epi16(0xff), down = _mm_cvtsi32_si128((int)(8 * k));
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        const __m128i *p = (const __m128i *)(const void *)(src + 2 * i);
        const __m128i a = _mm_and_si128(_mm_srl_epi16(_mm_loadu_si128(p), down), low);
        const __m128i b = _mm_and_si128(_mm_srl_epi16(_mm_loadu_si128(p + 1), down), low);
        _mm_storeu_si128((__m128i *)(void *)(dst + i), _mm_packus_epi16(a, b));
    }
    return i;
}

static size_t
take_4(uint8_t *dst, const uint8_t *src, size_t n, unsigned k)
{
    const __m128i low = _mm_set1_epi32(0xff), down = _mm_cvtsi32_si128((int)(8 * k));
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m128i v[4];
        for (int j = 0; j < 4; j++)
            v[j] = _mm_and_si128(_mm_srl_epi32(_mm_loadu_si128((const __m128i *)(const void *)(src + 4 * i) + j), down), low);
        const __m128i a = _mm_packs_epi32(v[0], v[1]), b = _mm_packs_epi32(v[2], v[3]);
        _mm_storeu_si128((__m128i *)(void *)(dst + i), _mm_packus_epi16(a, b));
    }
    return i;
}
#else
static size_t
take_2(uint8_t *dst, const uint8_t *src, size_t n, unsigned k)
{
    return (void)dst, (void)src, (void)n, (void)k, 0;
}

static size_t
take_4(uint8_t *dst, const uint8_t *src, size_t n, unsigned k)
{
    return (void)dst, (void)src, (void)n, (void)k, 0;
}
#endif

void
ckpi_plane_take(uint8_t *dst, const uint8_t *src, size_t n, unsigned width, unsigned k)
{
    for (size_t i = width == 2 ? take_2(dst, src, n, k) : width == 4 ? take_4(dst, src, n, k) : 0; i < n; i++)
        dst[i] = src[i * width + k];
}

/* Written out for the usual widths: a stride that the compiler knows is half of the time. */
void
ckpi_plane_put(uint8_t *dst, const uint8_t *src, size_t n, unsigned width, unsigned k)
{
    dst += k;
    if (width == 2)
        for (size_t i = 0; i < n; i++)
            dst[2 * i] = src[i];
    else if (width == 4)
        for (size_t i = 0; i < n; i++)
            dst[4 * i] = src[i];
    else
        for (size_t i = 0; i < n; i++)
            dst[i * width] = src[i];
}
