/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/pack.h"
#include <string.h>
#include "base/cpu.h"
#if CKPI_X86
#include <immintrin.h>
#endif

#define EACH_BYTE(x) ((uint64_t)(x) * UINT64_C(0x0101010101010101))

typedef uint64_t words16 __attribute__((vector_size(16)));
typedef uint64_t words32 __attribute__((vector_size(32)));

bool
ckpi_o_pack_known(unsigned bits)
{
    return bits >= 2 && bits <= 8 && bits != 7;
}

size_t
ckpi_o_pack_bytes(size_t n, unsigned bits)
{
    return bits == 8 ? n : (n + 7) / 8 * bits;
}

/* The last group of a row, n codes. */
static void
rest_in(uint8_t *packed, const uint8_t *code, size_t n, unsigned bits)
{
    const unsigned g = (unsigned)(n + 7) / 8 * 8;
    if (n == 0)
        return;
    memset(packed, 0, g / 8 * bits);
    for (unsigned w = 4, at = 0; w > 0; w /= 2)
        if (bits & w) {
            for (unsigned i = 0; i < n; i++) {
                unsigned shift;
                uint8_t *byte = &packed[ckpi_o_place(i, g, w, &shift)];
                *byte = (uint8_t)(*byte | (((unsigned)code[i] >> at & ((1u << w) - 1u)) << shift));
            }
            packed += g * w / 8;
            at += w;
        }
}

static void
rest_out(uint8_t *code, const uint8_t *packed, size_t n, unsigned bits)
{
    const unsigned g = (unsigned)(n + 7) / 8 * 8;
    if (n == 0)
        return;
    memset(code, 0, g);
    for (unsigned w = 4, at = 0; w > 0; w /= 2)
        if (bits & w) {
            for (unsigned i = 0; i < g; i++) {
                unsigned shift;
                const unsigned byte = packed[ckpi_o_place(i, g, w, &shift)];
                code[i] = (uint8_t)(code[i] | ((byte >> shift & ((1u << w) - 1u)) << at));
            }
            packed += g * w / 8;
            at += w;
        }
}

#define V static inline __attribute__((always_inline)) TARGET

#define TARGET
#define NAME(f) f##_ref
V uint32_t
bits_in_ref(const words32 *c, unsigned at)
{
    uint8_t code[32];
    uint32_t word = 0;
    memcpy(code, c, 32);
    for (unsigned i = 0; i < 32; i++)
        word |= (uint32_t)(code[i] >> at & 1) << i;
    return word;
}

V void
bits_out_ref(words32 *c, uint32_t word, unsigned at)
{
    uint8_t code[32];
    words32 more;
    for (unsigned i = 0; i < 32; i++)
        code[i] = (uint8_t)((word >> i & 1) << at);
    memcpy(&more, code, 32);
    *c |= more;
}
#include "optim/pack.inc"
#undef TARGET
#undef NAME

#if CKPI_X86
#define TARGET CKPI_TARGET_AVX2
#define NAME(f) f##_avx2
V uint32_t
bits_in_avx2(const words32 *c, unsigned at)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_sll_epi16((__m256i)*c, _mm_cvtsi32_si128(7 - (int)at)));
}

V void
bits_out_avx2(words32 *c, uint32_t word, unsigned at)
{
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)UINT64_C(0x8040201008040201));
    const __m256i all = _mm256_shuffle_epi8(_mm256_set1_epi32((int)word), byte);
    *c |= (words32)_mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit), _mm256_set1_epi8((char)(1 << at)));
}
#include "optim/pack.inc"
#undef TARGET
#undef NAME
#endif

const ckpi_o_packer *
ckpi_o_pack_pick(uint32_t cpu)
{
    static const ckpi_o_packer ref = {pack_ref, unpack_ref, unpack_signed_ref};
#if CKPI_X86
    static const ckpi_o_packer avx2 = {pack_avx2, unpack_avx2, unpack_signed_avx2};
    if (cpu & CKPI_CPU_AVX2)
        return &avx2;
#else
    (void)cpu;
#endif
    return &ref;
}
