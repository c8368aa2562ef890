/* SPDX-License-Identifier: Apache-2.0 */
/* The words of kern.inc for NEON: 8 lanes in two registers, masks as all-ones lanes. Included by kern_neon.c alone. */
#ifndef CKPI_QUANT_VEC_NEON_H
#define CKPI_QUANT_VEC_NEON_H
#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>

#define LANES 8
#define TARGET
#define V static inline __attribute__((always_inline))

typedef struct vf { float32x4_t lo, hi; } vf;
typedef struct vi { uint32x4_t lo, hi; } vi;
typedef vi vm;
typedef struct vt { uint8x16x4_t bytes; } vt;      /* 16 floats, by code modulo 16 */

/* f of both halves of one, two, three arguments. */
#define BOTH1(t, f, a) ((t){f((a).lo), f((a).hi)})
#define BOTH2(t, f, a, b) ((t){f((a).lo, (b).lo), f((a).hi, (b).hi)})
#define BOTH3(t, f, a, b, c) ((t){f((a).lo, (b).lo, (c).lo), f((a).hi, (b).hi, (c).hi)})
#define SIGNED(x) vreinterpretq_s32_u32(x)
#define WORDS(x) vreinterpretq_u32_s32(x)
#define BYTES(x) vreinterpretq_u8_u32(x)
#define OF_BYTES(x) vreinterpretq_u32_u8(x)

V vf ldf(const float *p) { return (vf){vld1q_f32(p), vld1q_f32(p + 4)}; }
V void stf(float *p, vf x) { vst1q_f32(p, x.lo), vst1q_f32(p + 4, x.hi); }
V vi ldi(const void *p) { return (vi){OF_BYTES(vld1q_u8(p)), OF_BYTES(vld1q_u8((const uint8_t *)p + 16))}; }
V void sti(void *p, vi x) { vst1q_u8(p, BYTES(x.lo)), vst1q_u8((uint8_t *)p + 16, BYTES(x.hi)); }
V vf setf(float x) { return (vf){vdupq_n_f32(x), vdupq_n_f32(x)}; }
V vi seti(uint32_t x) { return (vi){vdupq_n_u32(x), vdupq_n_u32(x)}; }
V vi asi(vf x) { return BOTH1(vi, vreinterpretq_u32_f32, x); }
V vf asf(vi x) { return BOTH1(vf, vreinterpretq_f32_u32, x); }

V vf addf(vf a, vf b) { return BOTH2(vf, vaddq_f32, a, b); }
V vf subf(vf a, vf b) { return BOTH2(vf, vsubq_f32, a, b); }
V vf mulf(vf a, vf b) { return BOTH2(vf, vmulq_f32, a, b); }
V vf divf(vf a, vf b) { return BOTH2(vf, vdivq_f32, a, b); }
V vm ltf(vf a, vf b) { return BOTH2(vm, vcltq_f32, a, b); }
V vm lef(vf a, vf b) { return BOTH2(vm, vcleq_f32, a, b); }
V vm eqf(vf a, vf b) { return BOTH2(vm, vceqq_f32, a, b); }
V vf self(vm m, vf a, vf b) { return BOTH3(vf, vbslq_f32, m, a, b); }      /* m ? a : b */
V vi seli(vm m, vi a, vi b) { return BOTH3(vi, vbslq_u32, m, a, b); }
V vf minf(vf a, vf b) { return self(ltf(a, b), a, b); }                    /* b when either is NaN */
V vf maxf(vf a, vf b) { return self(ltf(b, a), a, b); }
V vf absf(vf a) { return BOTH1(vf, vabsq_f32, a); }
V vf nearf(vf a) { return BOTH1(vf, vrndnq_f32, a); }
V vf downf(vf a) { return BOTH1(vf, vrndmq_f32, a); }
V vi toi(vf a) { return (vi){WORDS(vcvtnq_s32_f32(a.lo)), WORDS(vcvtnq_s32_f32(a.hi))}; }      /* of what fits */
V vf tof(vi a) { return (vf){vcvtq_f32_s32(SIGNED(a.lo)), vcvtq_f32_s32(SIGNED(a.hi))}; }

V vi addi(vi a, vi b) { return BOTH2(vi, vaddq_u32, a, b); }
V vi subi(vi a, vi b) { return BOTH2(vi, vsubq_u32, a, b); }
V vi muli(vi a, vi b) { return BOTH2(vi, vmulq_u32, a, b); }
V vi andi(vi a, vi b) { return BOTH2(vi, vandq_u32, a, b); }
V vi ori(vi a, vi b) { return BOTH2(vi, vorrq_u32, a, b); }
V vi xori(vi a, vi b) { return BOTH2(vi, veorq_u32, a, b); }
V vi maxu(vi a, vi b) { return BOTH2(vi, vmaxq_u32, a, b); }
V vi addb(vi a, vi b) { return (vi){OF_BYTES(vaddq_u8(BYTES(a.lo), BYTES(b.lo))), OF_BYTES(vaddq_u8(BYTES(a.hi), BYTES(b.hi)))}; }
V vi subb(vi a, vi b) { return (vi){OF_BYTES(vsubq_u8(BYTES(a.lo), BYTES(b.lo))), OF_BYTES(vsubq_u8(BYTES(a.hi), BYTES(b.hi)))}; }
#define SLL(a, k) ((vi){vshlq_n_u32((a).lo, k), vshlq_n_u32((a).hi, k)})
#define SRA(a, k) ((vi){WORDS(vshrq_n_s32(SIGNED((a).lo), k)), WORDS(vshrq_n_s32(SIGNED((a).hi), k))})
#define SRL(a, k) ((vi){vshrq_n_u32((a).lo, k), vshrq_n_u32((a).hi, k)})

V vm eqi(vi a, vi b) { return BOTH2(vm, vceqq_u32, a, b); }
V vm leu(vi a, vi b) { return BOTH2(vm, vcleq_u32, a, b); }
V vm andm(vm a, vm b) { return andi(a, b); }
V vm orm(vm a, vm b) { return ori(a, b); }
V vm notm(vm a) { return BOTH1(vm, vmvnq_u32, a); }
V bool all(vm a) { return vminvq_u32(vandq_u32(a.lo, a.hi)) != 0; }
V unsigned count(vm a) { return vaddvq_u32(vaddq_u32(vshrq_n_u32(a.lo, 31), vshrq_n_u32(a.hi, 31))); }
V vf iff(vm m, vf a) { return asf(andi(m, asi(a))); }                      /* m ? a : 0 */
V vi ifi(vm m, vi a) { return andi(m, a); }
V vi add_ifi(vm m, vi a, vi b) { return addi(a, ifi(m, b)); }
V vf add_iff(vm m, vf a, vf b) { return addf(a, iff(m, b)); }

#include "quant/vec_code.inc"
#include "quant/vec_split.inc"

V uint8x16_t bytes_at(const float *p) { return vreinterpretq_u8_f32(vld1q_f32(p)); }
/* The four bytes of entry i modulo 16. */
V uint32x4_t entry_of(uint8x16x4_t t, uint32x4_t i)
{
    const uint32x4_t at = vmlaq_u32(vdupq_n_u32(0x03020100u), vandq_u32(i, vdupq_n_u32(15)), vdupq_n_u32(0x04040404u));
    return OF_BYTES(vqtbl4q_u8(t, BYTES(at)));
}
V vt table_narrow(const float *by_code) { return (vt){{{bytes_at(by_code), bytes_at(by_code + 4), bytes_at(by_code + 248), bytes_at(by_code + 252)}}}; }
V vf look(vt t, vi code) { return asf((vi){entry_of(t.bytes, code.lo), entry_of(t.bytes, code.hi)}); }
V vt table_scale(vt t, vf x)
{
    for (int k = 0; k < 4; k++)
        t.bytes.val[k] = vreinterpretq_u8_f32(vmulq_f32(vreinterpretq_f32_u8(t.bytes.val[k]), x.lo));
    return t;
}
V vf gather(const float *by_code, vi code)
{
    uint32_t at[LANES];
    float x[LANES];
    sti(at, code);
    for (int k = 0; k < LANES; k++)
        x[k] = by_code[at[k] & 255];
    return ldf(x);
}

/* int8 to lanes and back; codes fit. */
V vi ldc(const void *p)
{
    const int16x8_t h = vmovl_s8(vld1_s8(p));
    return (vi){WORDS(vmovl_s16(vget_low_s16(h))), WORDS(vmovl_s16(vget_high_s16(h)))};
}
V uint16x8_t halves(vi x) { return vcombine_u16(vmovn_u32(x.lo), vmovn_u32(x.hi)); }       /* the low 16 bits of each */
V void stc(void *p, vi x) { vst1_u8(p, vmovn_u16(halves(x))); }
V vm zero_bytes(const void *p) { return eqi(ldc(p), seti(0)); }

V float32x4_t round4_f16(float32x4_t x) { return vcvt_f32_f16(vcvt_f16_f32(x)); }
V vf round_f16(vf x) { return BOTH1(vf, round4_f16, x); }
V vm nanf_(vf x) { return notm(eqf(x, x)); }

V vi lane_index(void)
{
    static const uint32_t index[LANES] = {0, 1, 2, 3, 4, 5, 6, 7};
    return ldi(index);
}

V int64_t sum_u(vi x) { return (int64_t)(vaddlvq_u32(x.lo) + vaddlvq_u32(x.hi)); }
V int64_t sum_i(vi x) { return vaddlvq_s32(SIGNED(x.lo)) + vaddlvq_s32(SIGNED(x.hi)); }
V float sum_f(vf x) { return vaddvq_f32(vaddq_f32(x.lo, x.hi)); }          /* only of sums that are exact in any order */
V float max_f(vf x) { const vf y = maxf((vf){x.lo, x.lo}, (vf){x.hi, x.hi}); return vmaxvq_f32(y.lo); }
V float min_f(vf x) { return -max_f(subf(setf(0), x)); }
V uint32_t max_u(vi x) { return vmaxvq_u32(vmaxq_u32(x.lo, x.hi)); }
#endif
