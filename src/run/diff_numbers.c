/* SPDX-License-Identifier: Apache-2.0 */
#include "run/diff_numbers.h"
#include <math.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/float.h"
CKPI_NO_CONTRACT

#define BLOCK 1024               /* elements whose sums are made before they are added to all: keeps rounding small */

/* ---- sums ---------------------------------------------------------------------------------------------------------- */

/* Squares of what lies between these neither overflow nor vanish. */
#define BIG 0x1p500
#define SMALL 0x1p-500
#define SHIFT 0x1p600

static void
square(ckpi_squares *s, double x)
{
    const double size = fabs(x);

    if (size > BIG)
        s->big += x / SHIFT * (x / SHIFT);
    else if (size < SMALL)
        s->small += x * SHIFT * (x * SHIFT);
    else
        s->mid += x * x;
}

static void
merge(ckpi_squares *to, const ckpi_squares *s)
{
    to->mid += s->mid;
    to->big += s->big;
    to->small += s->small;
}

double
ckpi_squares_rms(const ckpi_squares *s, uint64_t n)
{
    const double count = n != 0 ? (double)n : 1.0;

    if (s->big > 0.0)
        return sqrt((s->big + s->mid / SHIFT / SHIFT) / count) * SHIFT;
    if (s->mid > 0.0)
        return sqrt((s->mid + s->small / SHIFT / SHIFT) / count);
    return sqrt(s->small / count) / SHIFT;
}

/* ---- elements as numbers ------------------------------------------------------------------------------------------- */

/* A float of one byte (base/dtype.c has exponent and mantissa). What is special about each kind is in its name. */
static double
small_float(const ckpi_dtype_info *t, unsigned byte)
{
    const unsigned exponent = byte >> t->mant_bits & ((1u << t->exp_bits) - 1), mantissa = byte & ((1u << t->mant_bits) - 1);
    const bool fnuz = t->id == CKP_F8E4M3FNUZ || t->id == CKP_F8E5M2FNUZ || t->id == CKP_F8E4M3B11FNUZ;
    const bool ieee = t->id == CKP_F8E5M2 || t->id == CKP_F8E4M3 || t->id == CKP_F8E3M4;
    const int bias = t->id == CKP_F8E4M3B11FNUZ ? 11 : (1 << (t->exp_bits - 1)) - 1 + fnuz;
    const bool top = exponent == (1u << t->exp_bits) - 1;
    const double sign = t->is_signed && (byte >> (t->exp_bits + t->mant_bits) & 1) != 0 ? -1.0 : 1.0;

    if (t->id == CKP_F8E8M0FNU)
        return byte == 0xFF ? (double)NAN : ldexp(1.0, (int)byte - 127);
    if (fnuz ? byte == 0x80 : t->id == CKP_F8E4M3FN ? top && mantissa == 7 : ieee && top && mantissa != 0)
        return (double)NAN;
    if (ieee && top)
        return sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp((double)mantissa, 1 - bias - t->mant_bits);
    return sign * ldexp((double)(mantissa + (1u << t->mant_bits)), (int)exponent - bias - t->mant_bits);
}

/* n numbers, each of part_bytes: a complex element is two. */
static void
load(const ckpi_dtype_info *t, double *out, const uint8_t *p, size_t n)
{
    switch (t->part_bytes) {
    case 1:
        for (size_t i = 0; i < n; i++)
            out[i] = small_float(t, p[i]);
        break;
    case 2:
        for (size_t i = 0; i < n; i++)
            out[i] = (double)(t->id == CKP_BF16 ? ckpi_bf16_to_f32(ckpi_ld16(p + 2 * i)) : ckpi_f16_to_f32(ckpi_ld16(p + 2 * i)));
        break;
    case 4:
        for (size_t i = 0; i < n; i++)
            out[i] = (double)ckpi_f32_from_bits(ckpi_ld32(p + 4 * i));
        break;
    default:
        for (size_t i = 0; i < n; i++)
            out[i] = ckpi_f64_from_bits(ckpi_ld64(p + 8 * i));
        break;
    }
}

/* A whole number, sign extended to 64 bits. */
static uint64_t
whole(const ckpi_dtype_info *t, const uint8_t *p)
{
    const unsigned bits = 8u * t->part_bytes;
    const uint64_t v = t->part_bytes == 1 ? *p : t->part_bytes == 2 ? ckpi_ld16(p) : t->part_bytes == 4 ? ckpi_ld32(p) : ckpi_ld64(p);

    return t->is_signed && bits < 64 && (v >> (bits - 1) & 1) != 0 ? v | UINT64_MAX << bits : v;
}

static double
as_double(const ckpi_dtype_info *t, uint64_t v)
{
    return !t->is_signed || v <= INT64_MAX ? (double)v : -(double)(UINT64_MAX - v + 1);
}

/* ---- stretches ------------------------------------------------------------------------------------------------------ */

static bool
is_equal(const uint8_t *a, const uint8_t *b, size_t size)
{
    return memcmp(a, b, size) == 0;
}

/* What one pair of elements that differ adds; `size` is |B - A|. */
static void
differs(ckpi_diff_sums *s, ckpi_squares *d, double size, bool finite)
{
    s->differ++;
    if (!finite || !isfinite(size)) {
        s->not_finite++;
        return;
    }
    s->max_abs = fmax(s->max_abs, size);
    square(d, size);
}

/* Differences are exact before they are rounded: two counters of 2^60 may be one apart. */
static void
add_whole(ckpi_diff_sums *s, const ckpi_dtype_info *t, const uint8_t *a, const uint8_t *b, size_t n)
{
    ckpi_squares of_a = {0}, d = {0};

    for (size_t i = 0; i < n; i++) {
        const uint64_t x = whole(t, a + i * t->part_bytes), y = whole(t, b + i * t->part_bytes);
        square(&of_a, as_double(t, x));
        if (x == y)
            continue;
        /* as signed numbers by turning the sign bit around */
        const uint64_t turn = t->is_signed ? UINT64_C(1) << 63 : 0;
        differs(s, &d, (double)((x ^ turn) > (y ^ turn) ? x - y : y - x), true);
    }
    merge(&s->a, &of_a);
    merge(&s->d, &d);
}

static void
add_floats(ckpi_diff_sums *s, const ckpi_dtype_info *t, const uint8_t *a, const uint8_t *b, size_t n)
{
    const bool same = memcmp(a, b, n * t->part_bytes) == 0;
    double x[BLOCK], y[BLOCK];
    ckpi_squares of_a = {0}, d = {0};

    load(t, x, a, n);
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]))
            square(&of_a, x[i]);
    merge(&s->a, &of_a);
    if (same)
        return;
    load(t, y, b, n);
    for (size_t i = 0; i < n; i++)
        if (!is_equal(a + i * t->part_bytes, b + i * t->part_bytes, t->part_bytes))
            differs(s, &d, fabs(y[i] - x[i]), isfinite(x[i]) && isfinite(y[i]));
    merge(&s->d, &d);
}

static void
add_complex(ckpi_diff_sums *s, const ckpi_dtype_info *t, const uint8_t *a, const uint8_t *b, size_t n)
{
    const size_t size = 2u * t->part_bytes;
    double x[2 * BLOCK], y[2 * BLOCK];
    ckpi_squares of_a = {0}, d = {0};

    load(t, x, a, 2 * n);
    load(t, y, b, 2 * n);
    for (size_t i = 0; i < n; i++) {
        const double *p = x + 2 * i, *q = y + 2 * i;
        const bool known = isfinite(p[0]) && isfinite(p[1]);
        if (known) {
            square(&of_a, p[0]);
            square(&of_a, p[1]);
        }
        if (!is_equal(a + i * size, b + i * size, size))
            differs(s, &d, hypot(q[0] - p[0], q[1] - p[1]), known && isfinite(q[0]) && isfinite(q[1]));
    }
    merge(&s->a, &of_a);
    merge(&s->d, &d);
}

/* Elements of any number of bits, also packed ones. */
static void
add_opaque(ckpi_diff_sums *s, unsigned bits, const uint8_t *a, const uint8_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool same = true;
        if (bits % 8 == 0)
            same = is_equal(a + i * (bits / 8), b + i * (bits / 8), bits / 8);
        else
            for (size_t k = i * bits; same && k < (i + 1) * bits; k++)
                same = ((a[k / 8] ^ b[k / 8]) >> (k % 8) & 1) == 0;
        s->differ += !same;
    }
}

bool
ckpi_diff_has_numbers(ckp_dtype dt)
{
    const ckpi_dtype_info *t = ckpi_dtype_get(dt);
    return t != NULL && t->kind != CKPI_KIND_OPAQUE;
}

void
ckpi_diff_add(ckpi_diff_sums *s, ckp_dtype dt, const void *a, const void *b, size_t n)
{
    const ckpi_dtype_info *t = ckpi_dtype_get(dt);
    const uint8_t *p = a, *q = b;

    for (size_t at = 0; at < n; at += BLOCK) {      /* a multiple of 8: packed elements begin on a byte */
        const size_t k = CKPI_MIN((size_t)BLOCK, n - at), skip = at / 8 * t->bits;
        switch (t->kind) {
        case CKPI_KIND_OPAQUE: add_opaque(s, t->bits, p + skip, q + skip, k); break;
        case CKPI_KIND_FLOAT: add_floats(s, t, p + skip, q + skip, k); break;
        case CKPI_KIND_COMPLEX: add_complex(s, t, p + skip, q + skip, k); break;
        default: add_whole(s, t, p + skip, q + skip, k); break;
        }
    }
}
