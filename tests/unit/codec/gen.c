/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/codec/gen.h"

#include <math.h>
#include <string.h>

#include "base/float.h"

const char *
gen_name(gen_pattern g)
{
    static const char *const names[GEN_PATTERNS] = {"zero",   "constant", "normal", "scaled", "short",
                                                    "few",    "sparse",   "edge",   "random", "repeat"};
    return names[g];
}

unsigned
gen_width(ckp_dtype dtype)
{
    return ckpi_dtype_get(dtype)->part_bytes;
}

static void
put_float(uint8_t *at, ckp_dtype dtype, double v)
{
    const float f = (float)v;
    const uint16_t half = dtype == CKP_BF16 ? ckpi_f32_to_bf16(f) : ckpi_f32_to_f16(f);
    switch (gen_width(dtype)) {
    case 8: memcpy(at, &v, 8); break;
    case 4: memcpy(at, &f, 4); break;
    case 2: memcpy(at, &half, 2); break;
    default: at[0] = (uint8_t)(int)v; break;
    }
}

static bool
is_float(ckp_dtype dtype)
{
    return dtype == CKP_F16 || dtype == CKP_BF16 || dtype == CKP_F32 || dtype == CKP_F64;
}

static void
put_value(uint8_t *at, ckp_dtype dtype, double v)
{
    const unsigned width = gen_width(dtype);
    if (is_float(dtype)) {
        put_float(at, dtype, v);
        return;
    }
    const int64_t i = (int64_t)(v * 1000);
    for (unsigned k = 0; k < width; k++)
        at[k] = (uint8_t)(k < 8 ? (uint64_t)i >> (8 * k) : i < 0 ? 255 : 0);
}

/* Bit patterns that arithmetic treats specially, for one element: the sign and exponent field set or clear, the rest few bits. */
static void
put_edge(test_rng *r, uint8_t *at, ckp_dtype dtype)
{
    const ckpi_dtype_info *info = ckpi_dtype_get(dtype);
    const unsigned width = gen_width(dtype), mant = info->mant_bits != 0 && info->mant_bits < 64 ? info->mant_bits : 4 * width % 64;
    uint64_t word = test_below(r, 2) ? 0 : UINT64_MAX << mant;
    word ^= test_below(r, 3) ? 0 : UINT64_C(1) << test_below(r, 8 * (width < 8 ? width : 8));
    word ^= test_below(r, 3);
    memset(at, (int)test_below(r, 2) * 255, width);
    memcpy(at, &word, width < 8 ? width : 8);
    if (width <= 8 && test_below(r, 2))
        at[width - 1] &= 0x7F;
}

static double
value(test_rng *r, gen_pattern g, size_t i, size_t cols)
{
    const size_t row = i / cols, col = i % cols;
    switch (g) {
    case GEN_SCALED: {
        const double x = test_normal(r);
        return exp2((double)(row * 7 % 23) - 30 + (double)(col * 5 % 17)) * x * x;
    }
    case GEN_FEW: return (double)test_below(r, 5) - 2;
    case GEN_SPARSE: return test_below(r, 20) == 0 ? test_normal(r) : 0;
    case GEN_SHORT: return row % 5 == 3 ? 0 : row % 3 == 1 ? (double)(int)(test_normal(r) * 64) / 64 : test_normal(r);
    default: return 0.02 * test_normal(r);
    }
}

void
gen_fill(test_rng *r, gen_pattern g, ckp_dtype dtype, void *dst, size_t n, size_t cols)
{
    const unsigned width = gen_width(dtype);
    uint8_t *at = dst;
    const size_t row = cols != 0 ? cols : 100;
    if (g == GEN_RANDOM) {
        test_bytes(r, dst, n * width);
        return;
    }
    for (size_t i = 0; i < n; i++, at += width) {
        if (g == GEN_ZERO)
            memset(at, 0, width);
        else if (g == GEN_CONSTANT)
            put_value(at, dtype, -1.5);
        else if (g == GEN_EDGE)
            put_edge(r, at, dtype);
        else if (g == GEN_REPEAT && i >= 37)
            memcpy(at, at - (size_t)37 * width, width);
        else
            put_value(at, dtype, value(r, g, i, row));
    }
}

void
gen_base_fill(test_rng *r, gen_base g, ckp_dtype dtype, void *base, const void *data, size_t n)
{
    const unsigned width = gen_width(dtype);
    uint8_t *at = base;
    if (g == GEN_BASE_OTHER) {
        gen_fill(r, GEN_NORMAL, dtype, base, n, 0);
        return;
    }
    if (n != 0)
        memcpy(base, data, n * width);
    for (size_t i = 0; i < n; i++, at += width) {
        if (g == GEN_BASE_FEW ? test_below(r, 50) == 0 : test_below(r, 4) != 0)
            at[0] = (uint8_t)(at[0] + (int)(test_normal(r) * 4));
        if (width > 1 && g == GEN_BASE_NEAR && test_below(r, 10) == 0)
            at[1] = (uint8_t)(at[1] + (int)test_below(r, 3) - 1);
    }
}
