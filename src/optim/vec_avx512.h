/* SPDX-License-Identifier: Apache-2.0 */
/* Words of step_kern.inc beyond those of quant/vec_avx512.h. Included by step_avx512.c alone. */
#ifndef CKPI_OPTIM_VEC_AVX512_H
#define CKPI_OPTIM_VEC_AVX512_H
#include <stdbool.h>
#include <stdint.h>
#include "quant/vec_avx512.h"

typedef __m512 v16;     /* by the low four bits of an index */
V v16 ld16(const float *p) { return ldf(p); }
V vf look16(v16 t, vi i) { return _mm512_permutexvar_ps(i, t); }

#define SLL(a, k) _mm512_slli_epi32(a, k)
V vf rootf(vf a) { return _mm512_sqrt_ps(a); }
V vi sll(vi a, vi k) { return _mm512_sllv_epi32(a, k); }
V vi srl(vi a, vi k) { return _mm512_srlv_epi32(a, k); }
V vi sra(vi a, vi k) { return _mm512_srav_epi32(a, k); }
V vi maxi(vi a, vi b) { return _mm512_max_epi32(a, b); }
V vi mini(vi a, vi b) { return _mm512_min_epi32(a, b); }
V vm some(vi a) { return _mm512_test_epi32_mask(a, a); }             /* not 0 */
V vi sub_if_bit(vi a, vi bit, vi c) { return _mm512_mask_sub_epi32(a, _mm512_test_epi32_mask(a, bit), a, c); }
V vi minus_if_minus(vi a, vf x) { return _mm512_mask_sub_epi32(a, _mm512_movepi32_mask(asi(x)), _mm512_setzero_si512(), a); }
V vi ldu(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
V void stw(void *p, vi x) { _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(x)); }
#endif
