/* SPDX-License-Identifier: Apache-2.0 */
/* Words of step_kern.inc beyond those of quant/vec_avx512.h. Included by step_avx512.c alone. */
#ifndef CKPI_OPTIM_VEC_AVX512_H
#define CKPI_OPTIM_VEC_AVX512_H
#include <stdbool.h>
#include <stdint.h>
#include "quant/vec_avx512.h"

V vf heldf(vf a) { __asm__("" : "+v"(a)); return a; }                    /* a constant that is not made anew in the loop */
typedef __m512 v16;     /* by the low four bits of an index */
V v16 ld16(const float *p) { return ldf(p); }
V vf look16(v16 t, vi i) { return _mm512_permutexvar_ps(i, t); }
V v16 held16(v16 t) { return heldf(t); }

V vf rootf(vf a) { return _mm512_sqrt_ps(a); }
V vf mul_add(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }      /* one rounding */
V vf mul_sub(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }
V vi held(vi a) { __asm__("" : "+v"(a)); return a; }
V bool every(vm a) { return _kortestc_mask16_u8(a, a) != 0; }
V vi sll(vi a, vi k) { return _mm512_sllv_epi32(a, k); }
V vi srl(vi a, vi k) { return _mm512_srlv_epi32(a, k); }
V vi sra(vi a, vi k) { return _mm512_srav_epi32(a, k); }
V vi maxi(vi a, vi b) { return _mm512_max_epi32(a, b); }
V vi mini(vi a, vi b) { return _mm512_min_epi32(a, b); }
V vm some(vi a) { return _mm512_test_epi32_mask(a, a); }             /* not 0 */
V vi absi(vi a) { return _mm512_abs_epi32(a); }
V vm some_bytes(const void *p) { const __m128i x = _mm_loadu_si128(p); return _mm_test_epi8_mask(x, x); }      /* ldu(p) is not 0 */
V vf mul_if(vm m, vf a, vf b) { return _mm512_maskz_mul_ps(m, a, b); }       /* m ? a * b : 0 */
V vf minus_if(vf a, vi k, vi sign) { return asf(_mm512_ternarylogic_epi32(asi(a), k, sign, 0x78)); }   /* a ^ (k & sign) */
V vi xor_and(vi a, vi b, vi c) { return _mm512_ternarylogic_epi32(a, b, c, 0x28); }      /* (a ^ b) & c */
/* a - b, or b - a where x is below 0 */
V vi sub_by_sign(vi a, vi b, vf x) { return _mm512_mask_sub_epi32(subi(a, b), _mm512_movepi32_mask(asi(x)), b, a); }
V vi or_and(vi a, vi b, vi c) { return _mm512_ternarylogic_epi32(a, b, c, 0xf8); }       /* a | (b & c) */
V vi maxb(vi a, vi b) { return _mm512_max_epu8(a, b); }
V vi nibbles(vi low, vi high) { return _mm512_ternarylogic_epi32(_mm512_slli_epi32(high, 4), low, seti(15), 0xd8); }     /* and what is above a byte */
V void stb(void *p, vi x) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(x)); }      /* the low byte of each */
/* The low bytes of sub_by_sign: whatever is borrowed goes above them. */
V void stc_signed(void *p, vi a, vi b, vf x)
{
    const __m128i a8 = _mm512_cvtepi32_epi8(a), b8 = _mm512_cvtepi32_epi8(b);
    _mm_storeu_si128(p, _mm_mask_sub_epi8(_mm_sub_epi8(a8, b8), _mm512_movepi32_mask(asi(x)), b8, a8));
}
V vi ldu(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
V void stw(void *p, vi x) { _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(x)); }
#endif
