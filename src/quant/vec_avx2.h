/* SPDX-License-Identifier: Apache-2.0 */
/* The words of kern.inc for AVX2 and F16C: 8 lanes, masks as all-ones lanes. Included by kern_avx2.c alone. */
#ifndef CKPI_QUANT_VEC_AVX2_H
#define CKPI_QUANT_VEC_AVX2_H
#include <immintrin.h>
#include "base/cpu.h"

#define LANES 8
#define TARGET CKPI_TARGET_AVX2
#define V static inline __attribute__((always_inline)) TARGET

typedef __m256 vf;
typedef __m256i vi;
typedef __m256i vm;
typedef struct vt { __m256 pos, neg; } vt;      /* codes 0..7 and -8..-1 */

V vf ldf(const float *p) { return _mm256_loadu_ps(p); }
V void stf(float *p, vf x) { _mm256_storeu_ps(p, x); }
V vi ldi(const void *p) { return _mm256_loadu_si256(p); }
V void sti(void *p, vi x) { _mm256_storeu_si256(p, x); }
V vf setf(float x) { return _mm256_set1_ps(x); }
V vi seti(uint32_t x) { return _mm256_set1_epi32((int)x); }
V vi asi(vf x) { return _mm256_castps_si256(x); }
V vf asf(vi x) { return _mm256_castsi256_ps(x); }

V vf addf(vf a, vf b) { return _mm256_add_ps(a, b); }
V vf subf(vf a, vf b) { return _mm256_sub_ps(a, b); }
V vf mulf(vf a, vf b) { return _mm256_mul_ps(a, b); }
V vf divf(vf a, vf b) { return _mm256_div_ps(a, b); }
V vf minf(vf a, vf b) { return _mm256_min_ps(a, b); }       /* b when either is NaN */
V vf maxf(vf a, vf b) { return _mm256_max_ps(a, b); }
V vf absf(vf a) { return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff))); }
V vf nearf(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
V vf downf(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
V vi toi(vf a) { return _mm256_cvtps_epi32(a); }
V vf tof(vi a) { return _mm256_cvtepi32_ps(a); }

V vi addi(vi a, vi b) { return _mm256_add_epi32(a, b); }
V vi subi(vi a, vi b) { return _mm256_sub_epi32(a, b); }
V vi muli(vi a, vi b) { return _mm256_mullo_epi32(a, b); }
V vi andi(vi a, vi b) { return _mm256_and_si256(a, b); }
V vi ori(vi a, vi b) { return _mm256_or_si256(a, b); }
V vi xori(vi a, vi b) { return _mm256_xor_si256(a, b); }
V vi maxu(vi a, vi b) { return _mm256_max_epu32(a, b); }
V vi addb(vi a, vi b) { return _mm256_add_epi8(a, b); }
V vi subb(vi a, vi b) { return _mm256_sub_epi8(a, b); }
#define SLL(a, k) _mm256_slli_epi32(a, k)
#define SRL(a, k) _mm256_srli_epi32(a, k)
#define SRA(a, k) _mm256_srai_epi32(a, k)

V vm ltf(vf a, vf b) { return asi(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
V vm lef(vf a, vf b) { return asi(_mm256_cmp_ps(a, b, _CMP_LE_OQ)); }
V vm eqf(vf a, vf b) { return asi(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
V vm eqi(vi a, vi b) { return _mm256_cmpeq_epi32(a, b); }
V vm leu(vi a, vi b) { return _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), b); }
V vm andm(vm a, vm b) { return _mm256_and_si256(a, b); }
V vm orm(vm a, vm b) { return _mm256_or_si256(a, b); }
V vm notm(vm a) { return _mm256_xor_si256(a, _mm256_set1_epi32(-1)); }
V bool all(vm a) { return _mm256_movemask_ps(asf(a)) == 0xff; }
V unsigned count(vm a) { return (unsigned)_mm_popcnt_u32((unsigned)_mm256_movemask_ps(asf(a))); }

V vf self(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, asf(m)); }    /* m ? a : b */
V vi seli(vm m, vi a, vi b) { return _mm256_blendv_epi8(b, a, m); }
V vf iff(vm m, vf a) { return _mm256_and_ps(a, asf(m)); }                /* m ? a : 0 */
V vi ifi(vm m, vi a) { return _mm256_and_si256(a, m); }
V vi add_ifi(vm m, vi a, vi b) { return addi(a, ifi(m, b)); }
V vf add_iff(vm m, vf a, vf b) { return addf(a, iff(m, b)); }

#include "quant/vec_code.inc"
#include "quant/vec_split.inc"

V vt table_narrow(const float *by_code) { return (vt){ldf(by_code), ldf(by_code + 248)}; }
V vt table_scale(vt t, vf x) { return (vt){mulf(x, t.pos), mulf(x, t.neg)}; }
V vf look(vt t, vi code)
{
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t.pos, code), _mm256_permutevar8x32_ps(t.neg, code), asf(code));
}
V vf gather(const float *by_code, vi code) { return _mm256_i32gather_ps(by_code, andi(code, seti(255)), 4); }

/* int8 to lanes and back; codes fit. */
V vi ldc(const void *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
V void stc(void *p, vi x)
{
    const __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64(p, _mm_packs_epi16(w, w));
}
V vm zero_bytes(const void *p) { return eqi(ldc(p), _mm256_setzero_si256()); }

V vf round_f16(vf x) { return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
V vm nanf_(vf x) { return asi(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)); }

V vi lane_index(void) { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }

V int64_t sum_u(vi x)
{
    uint32_t lane[8];
    int64_t sum = 0;
    sti(lane, x);
    for (int k = 0; k < 8; k++)
        sum += lane[k];
    return sum;
}
V int64_t sum_i(vi x)
{
    int32_t lane[8];
    int64_t sum = 0;
    sti(lane, x);
    for (int k = 0; k < 8; k++)
        sum += lane[k];
    return sum;
}
V float sum_f(vf x)             /* only of sums that are exact in any order */
{
    float lane[8], sum = 0;
    stf(lane, x);
    for (int k = 0; k < 8; k++)
        sum += lane[k];
    return sum;
}
V float max_f(vf x)
{
    float lane[8], best;
    stf(lane, x);
    best = lane[0];
    for (int k = 1; k < 8; k++)
        best = lane[k] > best ? lane[k] : best;
    return best;
}
V float min_f(vf x) { return -max_f(subf(setf(0), x)); }
V uint32_t max_u(vi x)
{
    uint32_t lane[8], best = 0;
    sti(lane, x);
    for (int k = 0; k < 8; k++)
        best = lane[k] > best ? lane[k] : best;
    return best;
}
#endif
