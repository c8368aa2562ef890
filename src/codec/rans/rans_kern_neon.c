/* SPDX-License-Identifier: Apache-2.0 */
/* NEON: the decoders of rans_kern.inc on 8 lanes. Encoding and large alphabets take the reference. */
#include "base/cpu.h"

#if CKPI_ARM
#include <arm_neon.h>
#include <string.h>

#include "codec/rans/rans_kern_arm.h"
#include "codec/rans/rans_shuffle.h"

#define TARGET
#define INLINE static inline __attribute__((always_inline))
#define NAME(f) f##_neon
#define PER 8
typedef uint16x8_t vec;

#define SET1(v) vdupq_n_u16((uint16_t)(v))
#define ADD vaddq_u16
#define SUB vsubq_u16
#define MULLO vmulq_u16
#define ABOVE vcgtq_u16
#define FLIP(v) (v)
#define ABOVE_FLIPPED vcgtq_u16
#define IS_ZERO(v) vceqq_u16(v, vdupq_n_u16(0))
#define SELECT vbslq_u16
#define LOAD vld1q_u16
#define STORE vst1q_u16
#define PUT8(dst, v) vst1_u8(dst, vmovn_u16(v))

INLINE vec
mulhi(vec a, vec b)
{
    const uint32x4_t lo = vmull_u16(vget_low_u16(a), vget_low_u16(b)), hi = vmull_u16(vget_high_u16(a), vget_high_u16(b));
    return vcombine_u16(vshrn_n_u32(lo, 16), vshrn_n_u32(hi, 16));
}
#define MULHI mulhi

INLINE vec
expand(vec l, vec need, const uint8_t **p)
{
    static const uint16_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    const unsigned k = vaddvq_u16(vandq_u16(need, vld1q_u16(bit)));
    const uint8x16_t w = vqtbl1q_u8(vld1q_u8(*p), vld1q_u8(ckpi_rans_expand8[k]));
    *p += 2 * (size_t)(unsigned)__builtin_popcount(k);
    return vbslq_u16(need, vreinterpretq_u16_u8(w), l);
}
#define EXPAND expand

typedef struct table {
    uint8x16_t lo, hi;
} table;

static void
look_init(table *t, const uint16_t *words)
{
    const uint8x16x2_t v = vld2q_u8((const uint8_t *)words);
    t->lo = v.val[0];
    t->hi = v.val[1];
}

/* An index beyond the table gives zero. */
INLINE vec
look(const table *t, vec i)
{
    const uint8x16_t lo = vqtbl1q_u8(t->lo, vreinterpretq_u8_u16(vorrq_u16(i, vdupq_n_u16(0xff00))));
    const uint8x16_t hi = vqtbl1q_u8(t->hi, vreinterpretq_u8_u16(vorrq_u16(vshlq_n_u16(i, 8), vdupq_n_u16(0x00ff))));
    return vreinterpretq_u16_u8(vorrq_u8(lo, hi));
}
#define LOOK look
#define LOOK_INIT look_init

typedef struct big_table {
    uint8x16x4_t lo, hi;
} big_table;

static void
look_big_init(big_table *t, const uint16_t *words)
{
    for (unsigned k = 0; k < 4; k++) {
        const uint8x16x2_t v = vld2q_u8((const uint8_t *)(words + 16 * k));
        t->lo.val[k] = v.val[0];
        t->hi.val[k] = v.val[1];
    }
}

INLINE vec
look_big(const big_table *t, vec i)
{
    const uint8x16_t lo = vqtbl4q_u8(t->lo, vreinterpretq_u8_u16(vorrq_u16(i, vdupq_n_u16(0xff00))));
    const uint8x16_t hi = vqtbl4q_u8(t->hi, vreinterpretq_u8_u16(vorrq_u16(vshlq_n_u16(i, 8), vdupq_n_u16(0x00ff))));
    return vreinterpretq_u16_u8(vorrq_u8(lo, hi));
}
#define LOOK_BIG look_big
#define LOOK_BIG_INIT look_big_init

#include "codec/rans/rans_kern.inc"
#else
typedef int ckpi_rans_kern_neon_unused;
#endif
