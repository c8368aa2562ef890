/* SPDX-License-Identifier: Apache-2.0 */
/* Words of step_kern.inc beyond those of quant/vec_avx2.h. Included by step_avx2.c alone. */
#ifndef CKPI_OPTIM_VEC_AVX2_H
#define CKPI_OPTIM_VEC_AVX2_H
#include <stdbool.h>
#include <stdint.h>
#include "quant/vec_avx2.h"

#undef TARGET
#define TARGET CKPI_TARGET_AVX2_FMA

V vf heldf(vf a) { __asm__("" : "+x"(a)); return a; }                    /* a constant that is not made anew in the loop */
V vi held(vi a) { __asm__("" : "+x"(a)); return a; }

typedef struct v16 { vf lo, hi; } v16;     /* by the low four bits of an index */
V v16 ld16(const float *p) { return (v16){ldf(p), ldf(p + 8)}; }
V vf look16(v16 t, vi i)
{
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t.lo, i), _mm256_permutevar8x32_ps(t.hi, i), asf(_mm256_slli_epi32(i, 28)));
}

V v16 held16(v16 t) { return (v16){heldf(t.lo), heldf(t.hi)}; }
V vf rootf(vf a) { return _mm256_sqrt_ps(a); }
V vf mul_add(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }      /* one rounding */
V vf mul_sub(vf a, vf b, vf c) { return _mm256_fmsub_ps(a, b, c); }
V bool every(vm a) { return all(a); }
V vi sll(vi a, vi k) { return _mm256_sllv_epi32(a, k); }
V vi srl(vi a, vi k) { return _mm256_srlv_epi32(a, k); }
V vi sra(vi a, vi k) { return _mm256_srav_epi32(a, k); }
V vi maxi(vi a, vi b) { return _mm256_max_epi32(a, b); }
V vi mini(vi a, vi b) { return _mm256_min_epi32(a, b); }
V vm some(vi a) { return notm(eqi(a, _mm256_setzero_si256())); }     /* not 0 */
V vf mul_if(vm m, vf a, vf b) { return asf(andi(m, asi(mulf(a, b)))); }     /* m ? a * b : 0 */
V vi absi(vi a) { return _mm256_abs_epi32(a); }
V vf minus_if(vf a, vi k, vi sign) { return asf(xori(asi(a), andi(k, sign))); }
V vi xor_and(vi a, vi b, vi c) { return andi(xori(a, b), c); }
/* a - b, or b - a where x is below 0 */
V vi sub_by_sign(vi a, vi b, vf x) { return _mm256_sign_epi32(subi(a, b), ori(asi(x), seti(1))); }
V vi or_and(vi a, vi b, vi c) { return ori(a, andi(b, c)); }         /* a | (b & c) */
V vi maxb(vi a, vi b) { return _mm256_max_epu8(a, b); }
V vi nibbles(vi low, vi high) { return ori(andi(low, seti(15)), _mm256_slli_epi32(high, 4)); }     /* and what is above a byte */
V void stb(void *p, vi x)                                            /* the low byte of each */
{
    const __m256i b = _mm256_shuffle_epi8(x, _mm256_set1_epi32(0x0c080400));
    _mm_storel_epi64(p, _mm_unpacklo_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1)));
}
V vi ldu(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
V vm some_bytes(const void *p) { return some(ldu(p)); }              /* ldu(p) is not 0 */
V void stc_signed(void *p, vi a, vi b, vf x) { stc(p, sub_by_sign(a, b, x)); }
V void stw(void *p, vi x) { _mm_storeu_si128(p, _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1))); }
#endif
