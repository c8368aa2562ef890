/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/loss.h"
#include <math.h>
#include "base/bytes.h"
#include "base/cpu.h"
#include "quant/num.h"
#if CKPI_X86
#include <immintrin.h>
#endif

CKPI_NO_CONTRACT

enum { LANES = 8 };

/* Partial sums, in the place of their lane. */
typedef struct lanes { double err2[LANES], sum2[LANES], most[LANES]; } lanes;

/* ---- any machine -------------------------------------------------------------------------------------------------------- */

static void
scores_ref(float *score, const float *v, const float *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        score[i] = sqrtf(v[i] > 0 ? v[i] : 0) * f32_abs(w[i]); /* a square root is one IEEE operation */
}

/* Values from `first` on. */
static void
lanes_ref(lanes *s, const float *w, const float *r, size_t first, size_t n)
{
    for (size_t i = first; i < n; i++) {
        const size_t k = i % LANES;
        const double x = (double)w[i], e = x - (double)r[i], size = e < 0 ? -e : e;
        s->err2[k] += e * e;
        s->sum2[k] += x * x;
        s->most[k] = size > s->most[k] ? size : s->most[k];
    }
}

#if CKPI_X86

/* ---- AVX2: a lane's sums in two registers -------------------------------------------------------------------------------- */

CKPI_TARGET_AVX2 static size_t
scores_avx2(float *score, const float *v, const float *w, size_t n)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 positive = _mm256_max_ps(_mm256_loadu_ps(v + i), _mm256_setzero_ps()); /* of a NaN: the second, zero */
        _mm256_storeu_ps(score + i, _mm256_mul_ps(_mm256_sqrt_ps(positive), _mm256_and_ps(_mm256_loadu_ps(w + i), magnitude)));
    }
    return i;
}

CKPI_TARGET_AVX2 static size_t
lanes_avx2(lanes *s, const float *w, const float *r, size_t n)
{
    const __m256d magnitude = _mm256_castsi256_pd(_mm256_set1_epi64x(INT64_MAX));
    size_t i = 0;
    for (unsigned half = 0; half < 2; half++) {
        __m256d err2 = _mm256_setzero_pd(), sum2 = err2, most = err2;
        for (i = 0; i + LANES <= n; i += LANES) {
            const __m256d x = _mm256_cvtps_pd(_mm_loadu_ps(w + i + 4 * half)), e = _mm256_sub_pd(x, _mm256_cvtps_pd(_mm_loadu_ps(r + i + 4 * half)));
            err2 = _mm256_add_pd(err2, _mm256_mul_pd(e, e));
            sum2 = _mm256_add_pd(sum2, _mm256_mul_pd(x, x));
            most = _mm256_max_pd(_mm256_and_pd(e, magnitude), most);
        }
        _mm256_storeu_pd(s->err2 + 4 * half, err2);
        _mm256_storeu_pd(s->sum2 + 4 * half, sum2);
        _mm256_storeu_pd(s->most + 4 * half, most);
    }
    return i;
}

/* ---- AVX-512 -------------------------------------------------------------------------------------------------------------- */

CKPI_TARGET_AVX512 static size_t
scores_avx512(float *score, const float *v, const float *w, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 positive = _mm512_max_ps(_mm512_loadu_ps(v + i), _mm512_setzero_ps());
        _mm512_storeu_ps(score + i, _mm512_mul_ps(_mm512_sqrt_ps(positive), _mm512_abs_ps(_mm512_loadu_ps(w + i))));
    }
    return i;
}

CKPI_TARGET_AVX512 static size_t
lanes_avx512(lanes *s, const float *w, const float *r, size_t n)
{
    __m512d err2 = _mm512_setzero_pd(), sum2 = err2, most = err2;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m512d x = _mm512_cvtps_pd(_mm256_loadu_ps(w + i)), e = _mm512_sub_pd(x, _mm512_cvtps_pd(_mm256_loadu_ps(r + i)));
        err2 = _mm512_add_pd(err2, _mm512_mul_pd(e, e));
        sum2 = _mm512_add_pd(sum2, _mm512_mul_pd(x, x));
        most = _mm512_max_pd(_mm512_abs_pd(e), most);
    }
    _mm512_storeu_pd(s->err2, err2);
    _mm512_storeu_pd(s->sum2, sum2);
    _mm512_storeu_pd(s->most, most);
    return i;
}
#endif

/* ---- bindings -------------------------------------------------------------------------------------------------------------- */

void
ckpi_loss_scores(float *score, const float *v, const float *w, size_t n, uint32_t cpu)
{
    const ckpi_fpenv env = ckpi_fp_enter();
    size_t i = 0;
#if CKPI_X86
    if (cpu & CKPI_CPU_AVX512)
        i = scores_avx512(score, v, w, n);
    else if (cpu & CKPI_CPU_AVX2)
        i = scores_avx2(score, v, w, n);
#else
    (void)cpu;
#endif
    scores_ref(score + i, v + i, w + i, n - i);
    ckpi_fp_leave(env);
}

void
ckpi_loss_of(ckpi_loss_sums *s, const float *w, const float *r, size_t n, uint32_t cpu)
{
    const ckpi_fpenv env = ckpi_fp_enter();
    lanes l = {{0}, {0}, {0}};
    size_t i = 0;
#if CKPI_X86
    if (cpu & CKPI_CPU_AVX512)
        i = lanes_avx512(&l, w, r, n);
    else if (cpu & CKPI_CPU_AVX2)
        i = lanes_avx2(&l, w, r, n);
#else
    (void)cpu;
#endif
    lanes_ref(&l, w, r, i, n);
    *s = (ckpi_loss_sums){0};
    for (unsigned k = 0; k < LANES; k++) {
        s->err2 += l.err2[k];
        s->sum2 += l.sum2[k];
        s->max_err = CKPI_MAX(s->max_err, l.most[k]);
    }
    ckpi_fp_leave(env);
}
