/* SPDX-License-Identifier: Apache-2.0 */
/* The words of kern.inc for AVX-512 (F, BW, DQ, VL): 16 lanes, masks in k registers. Included by kern_avx512.c alone. */
#ifndef CKPI_QUANT_VEC_AVX512_H
#define CKPI_QUANT_VEC_AVX512_H
#include <immintrin.h>
#include "base/cpu.h"

#define LANES 16
#define TARGET CKPI_TARGET_AVX512
#define V static inline __attribute__((always_inline)) TARGET

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;
typedef __m512 vt;      /* 16 table entries, by code -8..7 modulo 16 */

V vf ldf(const float *p) { return _mm512_loadu_ps(p); }
V void stf(float *p, vf x) { _mm512_storeu_ps(p, x); }
V vi ldi(const void *p) { return _mm512_loadu_si512(p); }
V void sti(void *p, vi x) { _mm512_storeu_si512(p, x); }
V vf setf(float x) { return _mm512_set1_ps(x); }
V vi seti(uint32_t x) { return _mm512_set1_epi32((int)x); }
V vi asi(vf x) { return _mm512_castps_si512(x); }
V vf asf(vi x) { return _mm512_castsi512_ps(x); }

V vf addf(vf a, vf b) { return _mm512_add_ps(a, b); }
V vf subf(vf a, vf b) { return _mm512_sub_ps(a, b); }
V vf mulf(vf a, vf b) { return _mm512_mul_ps(a, b); }
V vf divf(vf a, vf b) { return _mm512_div_ps(a, b); }
V vf minf(vf a, vf b) { return _mm512_min_ps(a, b); }       /* b when either is NaN */
V vf maxf(vf a, vf b) { return _mm512_max_ps(a, b); }
V vf absf(vf a) { return _mm512_abs_ps(a); }
V vf nearf(vf a) { return _mm512_roundscale_ps(a, 0x08); }
V vf downf(vf a) { return _mm512_roundscale_ps(a, 0x09); }
V vi toi(vf a) { return _mm512_cvtps_epi32(a); }
V vf tof(vi a) { return _mm512_cvtepi32_ps(a); }

V vi addi(vi a, vi b) { return _mm512_add_epi32(a, b); }
V vi subi(vi a, vi b) { return _mm512_sub_epi32(a, b); }
V vi muli(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
V vi andi(vi a, vi b) { return _mm512_and_si512(a, b); }
V vi ori(vi a, vi b) { return _mm512_or_si512(a, b); }
V vi xori(vi a, vi b) { return _mm512_xor_si512(a, b); }
V vi maxu(vi a, vi b) { return _mm512_max_epu32(a, b); }
V vi addb(vi a, vi b) { return _mm512_add_epi8(a, b); }
V vi subb(vi a, vi b) { return _mm512_sub_epi8(a, b); }
#define SLL(a, k) _mm512_slli_epi32(a, k)
#define SRL(a, k) _mm512_srli_epi32(a, k)
#define SRA(a, k) _mm512_srai_epi32(a, k)

/* Whole numbers as floats and as codes at once; beyond int32, and for NaN, -2^31. */
V vf near_code(vf a, vi *code) { *code = toi(a); return tof(*code); }
V vf down_code(vf a, vi *code) { *code = _mm512_cvt_roundps_epi32(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); return tof(*code); }
/* base where a is within `stay` of it. */
V vf stay_code(vi base, vf a, float stay, vi *code)
{
    const __mmask16 far = _mm512_cmp_ps_mask(absf(subf(a, tof(base))), setf(stay), _CMP_NLE_UQ);
    *code = _mm512_mask_cvtps_epi32(base, far, a);
    return tof(*code);
}
/* a + (x >> 9) * 2^-23: the product is exact, so that it is one rounding either way. */
V vf add_fraction(vf a, vi x) { return _mm512_fmadd_ps(tof(_mm512_srli_epi32(x, 9)), setf(0x1p-23f), a); }
/* of a >= 0 and |b|, no NaN */
V vf max_abs(vf a, vf b) { return _mm512_range_ps(a, b, 0xb); }
/* Whether no a is NaN and every b finite. */
V bool numbers_and_finite(vf a, vf b)
{
    enum { NANS = 0x81, NANS_AND_INFS = 0x99 };
    return (_mm512_fpclass_ps_mask(a, NANS) | _mm512_fpclass_ps_mask(b, NANS_AND_INFS)) == 0;
}

V vm ltf(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
V vm lef(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
V vm eqf(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
V vm eqi(vi a, vi b) { return _mm512_cmpeq_epi32_mask(a, b); }
V vm leu(vi a, vi b) { return _mm512_cmple_epu32_mask(a, b); }
V vm andm(vm a, vm b) { return (vm)(a & b); }
V vm orm(vm a, vm b) { return (vm)(a | b); }
V vm notm(vm a) { return (vm)~a; }
V bool all(vm a) { return a == 0xffff; }
V unsigned count(vm a) { return (unsigned)_mm_popcnt_u32(a); }

V vf self(vm m, vf a, vf b) { return _mm512_mask_mov_ps(b, m, a); }    /* m ? a : b */
V vi seli(vm m, vi a, vi b) { return _mm512_mask_mov_epi32(b, m, a); }
V vf iff(vm m, vf a) { return _mm512_maskz_mov_ps(m, a); }            /* m ? a : 0 */
V vi ifi(vm m, vi a) { return _mm512_maskz_mov_epi32(m, a); }
V vi add_ifi(vm m, vi a, vi b) { return _mm512_mask_add_epi32(a, m, a, b); }
V vf add_iff(vm m, vf a, vf b) { return _mm512_mask_add_ps(a, m, a, b); }

/* Positive finite x = 2^e * g. */
V vf split(vf x, vf *g)
{
    *g = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
    return _mm512_getexp_ps(x);
}

V vf split_normal(vf x, vf *g) { return split(x, g); }

V vt table_narrow(const float *by_code)
{
    return _mm512_castsi512_ps(_mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)by_code)),
                                                  _mm256_loadu_si256((const void *)(by_code + 248)), 1));
}
V vt table_scale(vt t, vf x) { return _mm512_mul_ps(x, t); }
V vf look(vt t, vi code) { return _mm512_permutexvar_ps(code, t); }
V vf gather(const float *by_code, vi code) { return _mm512_i32gather_ps(_mm512_and_si512(code, _mm512_set1_epi32(255)), by_code, 4); }

/* int8 to lanes and back; codes fit. */
V vi ldc(const void *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
V void stc(void *p, vi x) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(x)); }
V vm zero_bytes(const void *p) { const __m128i x = _mm_loadu_si128(p); return _mm_testn_epi8_mask(x, x); }

V vf round_f16(vf x) { return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }
V vm nanf_(vf x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }

V vi lane_index(void) { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

V int64_t sum_u(vi x)
{
    const __m512i lo = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(x));
    const __m512i hi = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(x, 1));
    return _mm512_reduce_add_epi64(_mm512_add_epi64(lo, hi));
}
V int64_t sum_i(vi x) { return _mm512_reduce_add_epi32(x); }
V float sum_f(vf x) { return _mm512_reduce_add_ps(x); }      /* only of sums that are exact in any order */
V float max_f(vf x) { return _mm512_reduce_max_ps(x); }
V float min_f(vf x) { return _mm512_reduce_min_ps(x); }
V uint32_t max_u(vi x) { return _mm512_reduce_max_epu32(x); }
#endif
