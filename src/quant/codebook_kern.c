/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/codebook_kern.h"
#include "base/cpu.h"
#include "quant/num.h"
#if CKPI_X86
#include <immintrin.h>
#endif

CKPI_NO_CONTRACT

static int8_t
code_of(const ckpi_borders *b, float x, const float *g)
{
    const float size = f32_abs(x), score = g != NULL ? f32_abs(b->part.g_is_score ? *g : *g * x) : 0;
    if (!f32_finite(x) || size >= b->part.keep_from || (g != NULL && !(score < b->part.keep_score_from)))
        return b->protect;
    if ((b->part.prune_by_score ? score : size) < b->part.prune_below)
        return 0;
    int8_t code = 1;
    for (uint32_t i = 0; i < b->n; i++)
        code = (int8_t)(code + (x >= b->at[i]));
    return code;
}

void
ckpi_codebook_codes_ref(const ckpi_borders *b, const float *x, const float *g, size_t n, int8_t *code)
{
    for (size_t i = 0; i < n; i++)
        code[i] = code_of(b, x[i], g != NULL ? g + i : NULL);
}

#if CKPI_X86

/* ---- AVX2: binary search; the borders that each step may want fill a register, or two ----------------------------------------- */

#define INLINE2 CKPI_TARGET_AVX2 static inline __attribute__((always_inline))

/* Levels of eight values with what is pruned and protected put in. */
INLINE2 __m256i
finish8(const ckpi_borders *b, __m256 x, const float *g, __m256i level)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 size = _mm256_and_ps(x, magnitude), inf = _mm256_castsi256_ps(_mm256_set1_epi32(CKPI_F32_INF_BITS));
    __m256 keep = _mm256_or_ps(_mm256_cmp_ps(size, inf, _CMP_NLT_UQ), _mm256_cmp_ps(size, _mm256_set1_ps(b->part.keep_from), _CMP_GE_OQ));
    __m256 by = size;
    if (g != NULL) {
        const __m256 given = _mm256_loadu_ps(g), score = _mm256_and_ps(b->part.g_is_score ? given : _mm256_mul_ps(given, x), magnitude);
        keep = _mm256_or_ps(keep, _mm256_cmp_ps(score, _mm256_set1_ps(b->part.keep_score_from), _CMP_NLT_UQ));
        by = b->part.prune_by_score ? score : size;
    }
    const __m256 prune = _mm256_cmp_ps(by, _mm256_set1_ps(b->part.prune_below), _CMP_LT_OQ);
    level = _mm256_andnot_si256(_mm256_castps_si256(prune), level);
    return _mm256_blendv_epi8(level, _mm256_set1_epi32(b->protect), _mm256_castps_si256(keep));
}

/* Borders by step: those that steps 16 and 8 want, by halves; of steps 4 and 2; of step 1, by halves. */
typedef struct steps {
    __m256 half, quarter[2], four, two, one[2];
} steps;

INLINE2 steps
steps_of(const float *t)
{
    return (steps){
        .half = _mm256_set1_ps(t[15]),
        .quarter = {_mm256_set1_ps(t[7]), _mm256_set1_ps(t[23])},
        .four = _mm256_setr_ps(t[3], t[11], t[19], t[27], 0, 0, 0, 0),
        .two = _mm256_setr_ps(t[1], t[5], t[9], t[13], t[17], t[21], t[25], t[29]),
        .one = {_mm256_setr_ps(t[0], t[2], t[4], t[6], t[8], t[10], t[12], t[14]),
                _mm256_setr_ps(t[16], t[18], t[20], t[22], t[24], t[26], t[28], t[30])},
    };
}

/* One more binary digit: 2 * at, plus 1 where x is not below the border. */
INLINE2 __m256i
digit(__m256i at, __m256 x, __m256 border)
{
    return _mm256_sub_epi32(_mm256_add_epi32(at, at), _mm256_castps_si256(_mm256_cmp_ps(x, border, _CMP_GE_OQ)));
}

INLINE2 __m256i
search8(const steps *s, __m256 x)
{
    const __m256 high = _mm256_cmp_ps(x, s->half, _CMP_GE_OQ);
    __m256i at = _mm256_srli_epi32(_mm256_castps_si256(high), 31);
    at = digit(at, x, _mm256_blendv_ps(s->quarter[0], s->quarter[1], high));
    at = digit(at, x, _mm256_permutevar8x32_ps(s->four, at));
    at = digit(at, x, _mm256_permutevar8x32_ps(s->two, at));
    const __m256 lower = _mm256_permutevar8x32_ps(s->one[0], at), upper = _mm256_permutevar8x32_ps(s->one[1], at);
    at = digit(at, x, _mm256_blendv_ps(lower, upper, high)); /* lanes are permuted by their low three bits */
    return _mm256_add_epi32(at, _mm256_set1_epi32(1));
}

CKPI_TARGET_AVX2 void
ckpi_codebook_codes_avx2(const ckpi_borders *b, const float *x, const float *g, size_t n, int8_t *code)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const steps s = steps_of(b->at);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i level[4];
        for (unsigned k = 0; k < 4; k++) {
            const __m256 v = _mm256_loadu_ps(x + i + 8 * k);
            level[k] = finish8(b, v, g != NULL ? g + i + 8 * k : NULL, search8(&s, v));
        }
        const __m256i lo = _mm256_packs_epi32(level[0], level[1]), hi = _mm256_packs_epi32(level[2], level[3]);
        _mm256_storeu_si256((__m256i *)(void *)(code + i), _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi), order));
    }
    ckpi_codebook_codes_ref(b, x + i, g != NULL ? g + i : NULL, n - i, code + i);
}

/* ---- AVX-512: binary search, the borders in two registers -------------------------------------------------------------------- */

#define INLINE5 CKPI_TARGET_AVX512 static inline __attribute__((always_inline))

INLINE5 __m512i
search16(__m512 lo, __m512 hi, __m512 x, bool wide)
{
    __m512i at = _mm512_setzero_si512();
    for (int step = wide ? 16 : 8; step > 0; step /= 2) {
        const __m512i probe = _mm512_add_epi32(at, _mm512_set1_epi32(step - 1));
        const __m512 border = wide ? _mm512_permutex2var_ps(lo, probe, hi) : _mm512_permutexvar_ps(probe, lo);
        at = _mm512_mask_add_epi32(at, _mm512_cmp_ps_mask(x, border, _CMP_GE_OQ), at, _mm512_set1_epi32(step));
    }
    return _mm512_add_epi32(at, _mm512_set1_epi32(1));
}

INLINE5 void
codes16(const ckpi_borders *b, __m512 lo, __m512 hi, const float *p, const float *g, int8_t *code, bool wide)
{
    const __m512 x = _mm512_loadu_ps(p), size = _mm512_abs_ps(x);
    __mmask16 keep = _mm512_cmp_ps_mask(size, _mm512_castsi512_ps(_mm512_set1_epi32(CKPI_F32_INF_BITS)), _CMP_NLT_UQ);
    keep |= _mm512_cmp_ps_mask(size, _mm512_set1_ps(b->part.keep_from), _CMP_GE_OQ);
    __m512 by = size;
    if (g != NULL) {
        const __m512 given = _mm512_loadu_ps(g), score = _mm512_abs_ps(b->part.g_is_score ? given : _mm512_mul_ps(given, x));
        keep |= _mm512_cmp_ps_mask(score, _mm512_set1_ps(b->part.keep_score_from), _CMP_NLT_UQ);
        by = b->part.prune_by_score ? score : size;
    }
    const __mmask16 live = (__mmask16)~_mm512_cmp_ps_mask(by, _mm512_set1_ps(b->part.prune_below), _CMP_LT_OQ);
    __m512i level = _mm512_maskz_mov_epi32(live, search16(lo, hi, x, wide));
    level = _mm512_mask_mov_epi32(level, keep, _mm512_set1_epi32(b->protect));
    _mm_storeu_si128((__m128i *)(void *)code, _mm512_cvtepi32_epi8(level));
}

INLINE5 size_t
codes_loop(const ckpi_borders *b, const float *x, const float *g, size_t n, int8_t *code, bool wide)
{
    const __m512 lo = _mm512_loadu_ps(b->at), hi = _mm512_loadu_ps(b->at + 16);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        codes16(b, lo, hi, x + i, g != NULL ? g + i : NULL, code + i, wide);
    return i;
}

CKPI_TARGET_AVX512 void
ckpi_codebook_codes_avx512(const ckpi_borders *b, const float *x, const float *g, size_t n, int8_t *code)
{
    const size_t i = b->n < 16 ? codes_loop(b, x, g, n, code, false) : codes_loop(b, x, g, n, code, true);
    ckpi_codebook_codes_ref(b, x + i, g != NULL ? g + i : NULL, n - i, code + i);
}
#endif

ckpi_codebook_codes_fn *
ckpi_codebook_pick(uint32_t cpu)
{
#if CKPI_X86
    if (cpu & CKPI_CPU_AVX512)
        return ckpi_codebook_codes_avx512;
    if (cpu & CKPI_CPU_AVX2)
        return ckpi_codebook_codes_avx2;
#endif
    (void)cpu;
    return ckpi_codebook_codes_ref;
}
