/* SPDX-License-Identifier: Apache-2.0 */
/* Words of step_kern.inc beyond those of quant/vec_neon.h. Included by step_neon.c alone. */
#ifndef CKPI_OPTIM_VEC_NEON_H
#define CKPI_OPTIM_VEC_NEON_H
#include "quant/vec_neon.h"

V vf heldf(vf a) { return a; }                       /* compilers here keep constants in registers unasked */
V vi held(vi a) { return a; }
typedef struct v16 { uint8x16x4_t bytes; } v16;      /* by the low four bits of an index */
V v16 ld16(const float *p) { return (v16){{{bytes_at(p), bytes_at(p + 4), bytes_at(p + 8), bytes_at(p + 12)}}}; }
V vf look16(v16 t, vi i) { return asf((vi){entry_of(t.bytes, i.lo), entry_of(t.bytes, i.hi)}); }
V v16 held16(v16 t) { return t; }

V vf rootf(vf a) { return BOTH1(vf, vsqrtq_f32, a); }
V vf mul_add(vf a, vf b, vf c) { return BOTH3(vf, vfmaq_f32, c, a, b); }                 /* one rounding */
V vf mul_sub(vf a, vf b, vf c) { return mul_add(a, b, BOTH1(vf, vnegq_f32, c)); }
V bool every(vm a) { return all(a); }
V vi sll(vi a, vi k) { return (vi){vshlq_u32(a.lo, SIGNED(k.lo)), vshlq_u32(a.hi, SIGNED(k.hi))}; }
V vi minus(vi k) { return (vi){WORDS(vnegq_s32(SIGNED(k.lo))), WORDS(vnegq_s32(SIGNED(k.hi)))}; }
V vi srl(vi a, vi k) { return sll(a, minus(k)); }
V vi sra(vi a, vi k)
{
    const vi left = minus(k);
    return (vi){WORDS(vshlq_s32(SIGNED(a.lo), SIGNED(left.lo))), WORDS(vshlq_s32(SIGNED(a.hi), SIGNED(left.hi)))};
}
V vi maxi(vi a, vi b) { return (vi){WORDS(vmaxq_s32(SIGNED(a.lo), SIGNED(b.lo))), WORDS(vmaxq_s32(SIGNED(a.hi), SIGNED(b.hi)))}; }
V vi mini(vi a, vi b) { return (vi){WORDS(vminq_s32(SIGNED(a.lo), SIGNED(b.lo))), WORDS(vminq_s32(SIGNED(a.hi), SIGNED(b.hi)))}; }
V vm some(vi a) { return BOTH2(vm, vtstq_u32, a, a); }               /* not 0 */
V vf mul_if(vm m, vf a, vf b) { return iff(m, mulf(a, b)); }         /* m ? a * b : 0 */
V vi absi(vi a) { return (vi){WORDS(vabsq_s32(SIGNED(a.lo))), WORDS(vabsq_s32(SIGNED(a.hi)))}; }
V vf minus_if(vf a, vi k, vi sign) { return asf(xori(asi(a), andi(k, sign))); }
V vi xor_and(vi a, vi b, vi c) { return andi(xori(a, b), c); }
/* a - b, or b - a where x is below 0 */
V vi sub_by_sign(vi a, vi b, vf x)
{
    const vi d = subi(a, b), below = SRA(asi(x), 31);
    return subi(xori(d, below), below);
}
V vi or_and(vi a, vi b, vi c) { return ori(a, andi(b, c)); }         /* a | (b & c) */
V vi maxb(vi a, vi b) { return (vi){OF_BYTES(vmaxq_u8(BYTES(a.lo), BYTES(b.lo))), OF_BYTES(vmaxq_u8(BYTES(a.hi), BYTES(b.hi)))}; }
V vi nibbles(vi low, vi high) { return ori(andi(low, seti(15)), SLL(high, 4)); }         /* and what is above a byte */
V void stb(void *p, vi x) { stc(p, x); }                             /* the low byte of each */
V vi ldu(const void *p)
{
    const uint16x8_t h = vmovl_u8(vld1_u8(p));
    return (vi){vmovl_u16(vget_low_u16(h)), vmovl_u16(vget_high_u16(h))};
}
V vm some_bytes(const void *p) { return some(ldu(p)); }              /* ldu(p) is not 0 */
V void stc_signed(void *p, vi a, vi b, vf x) { stc(p, sub_by_sign(a, b, x)); }
V void stw(void *p, vi x) { vst1q_u16(p, halves(x)); }
#endif
