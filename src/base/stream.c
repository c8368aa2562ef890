/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stream.h"
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

enum { LINE = 64 };

static void
stream_line(uint8_t *dst, const uint8_t *src)
{
    const __m128i a = _mm_loadu_si128((const void *)src), b = _mm_loadu_si128((const void *)(src + 16));
    const __m128i c = _mm_loadu_si128((const void *)(src + 32)), d = _mm_loadu_si128((const void *)(src + 48));
    _mm_stream_si128((void *)dst, a);
    _mm_stream_si128((void *)(dst + 16), b);
    _mm_stream_si128((void *)(dst + 32), c);
    _mm_stream_si128((void *)(dst + 48), d);
}

void
ckpi_stream(void *restrict dst, const void *restrict src, size_t n)
{
    const size_t head = (size_t)(-(uintptr_t)dst & (LINE - 1));

    if (n < head + LINE) {
        memcpy(dst, src, n);
        return;
    }
    uint8_t *to = dst;
    const uint8_t *from = src;
    size_t i = head;
    memcpy(to, from, head);
    for (; i + LINE <= n; i += LINE)
        stream_line(to + i, from + i);
    memcpy(to + i, from + i, n - i);
    _mm_sfence();                /* such stores are ordered by nothing else */
}
#else
void
ckpi_stream(void *restrict dst, const void *restrict src, size_t n)
{
    memcpy(dst, src, n);
}
#endif
