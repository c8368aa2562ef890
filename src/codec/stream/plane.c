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

static size_t
join_2(uint8_t *dst, const uint8_t *const *plane, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m128i v[2], *to = (__m128i *)(void *)(dst + 2 * i);
        for (int k = 0; k < 2; k++)
            v[k] = _mm_loadu_si128((const __m128i *)(const void *)(plane[k] + i));
        _mm_storeu_si128(to, _mm_unpacklo_epi8(v[0], v[1]));
        _mm_storeu_si128(to + 1, _mm_unpackhi_epi8(v[0], v[1]));
    }
    return i;
}

static size_t
join_4(uint8_t *dst, const uint8_t *const *plane, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m128i v[4], *to = (__m128i *)(void *)(dst + 4 * i);
        for (int k = 0; k < 4; k++)
            v[k] = _mm_loadu_si128((const __m128i *)(const void *)(plane[k] + i));
        const __m128i low[2] = {_mm_unpacklo_epi8(v[0], v[1]), _mm_unpackhi_epi8(v[0], v[1])};
        const __m128i high[2] = {_mm_unpacklo_epi8(v[2], v[3]), _mm_unpackhi_epi8(v[2], v[3])};
        for (int j = 0; j < 2; j++) {
            _mm_storeu_si128(to + 2 * j, _mm_unpacklo_epi16(low[j], high[j]));
            _mm_storeu_si128(to + 2 * j + 1, _mm_unpackhi_epi16(low[j], high[j]));
        }
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

static size_t
join_2(uint8_t *dst, const uint8_t *const *plane, size_t n)
{
    return (void)dst, (void)plane, (void)n, 0;
}

static size_t
join_4(uint8_t *dst, const uint8_t *const *plane, size_t n)
{
    return (void)dst, (void)plane, (void)n, 0;
}
#endif

void
ckpi_plane_take(uint8_t *dst, const uint8_t *src, size_t n, unsigned width, unsigned k)
{
    for (size_t i = width == 2 ? take_2(dst, src, n, k) : width == 4 ? take_4(dst, src, n, k) : 0; i < n; i++)
        dst[i] = src[i * width + k];
}

void
ckpi_plane_join(uint8_t *dst, const uint8_t *const *plane, size_t n, unsigned width)
{
    const size_t done = width == 2 ? join_2(dst, plane, n) : width == 4 ? join_4(dst, plane, n) : 0;
    for (unsigned k = 0; k < width; k++)
        for (size_t i = done; i < n; i++)
            dst[i * width + k] = plane[k][i];
}
