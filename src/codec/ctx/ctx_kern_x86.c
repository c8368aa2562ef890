/* SPDX-License-Identifier: Apache-2.0 */
/* VBMI2's byte compress and expand do one context of 64 symbols at a time. */
#include "base/cpu.h"
#include "codec/ctx/ctx_kern.h"
#if CKPI_X86
#include <immintrin.h>
#include <string.h>

CKPI_TARGET_VBMI2 static size_t
split_vbmi2(uint8_t **at, const uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts)
{
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i s = _mm512_loadu_si512(sym + i), c = _mm512_loadu_si512(ctx + i);
        for (unsigned k = 0; k < contexts; k++) {
            const __mmask64 of = _mm512_cmpeq_epi8_mask(c, _mm512_set1_epi8((char)k));
            _mm512_storeu_si512(at[k], _mm512_maskz_compress_epi8(of, s));
            at[k] += (unsigned)_mm_popcnt_u64(of);
        }
    }
    return i;
}

CKPI_TARGET_VBMI2 static size_t
merge_vbmi2(const uint8_t **at, uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts)
{
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i c = _mm512_loadu_si512(ctx + i);
        __m512i s = _mm512_setzero_si512();
        for (unsigned k = 0; k < contexts; k++) {
            const __mmask64 of = _mm512_cmpeq_epi8_mask(c, _mm512_set1_epi8((char)k));
            s = _mm512_mask_expand_epi8(s, of, _mm512_loadu_si512(at[k]));
            at[k] += (unsigned)_mm_popcnt_u64(of);
        }
        _mm512_storeu_si512(sym + i, s);
    }
    return i;
}

static const ckpi_ctx_kern vbmi2 = {CKPI_CPU_VBMI2, split_vbmi2, merge_vbmi2};

const ckpi_ctx_kern *
ckpi_ctx_kern_pick(uint32_t cpu)
{
    return cpu & CKPI_CPU_VBMI2 ? &vbmi2 : NULL;
}
#else
const ckpi_ctx_kern *
ckpi_ctx_kern_pick(uint32_t cpu)
{
    (void)cpu;
    return NULL;
}
#endif
