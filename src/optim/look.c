/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a visit sees of a tensor, as sums of integers: whatever order parts are added in, the same comes out.
 *
 * Up to LOOKS runs of 64 elements, each drawn from a part of its own of the whole parameter; a rank adds those that it has. Gradients and weights
 * become integers of 12 bits under their run's largest exponent, by powers of two and cut off, so that no CPU and no order matters. Sums of
 * runs lie in windows of 16 octaves: window w counts units of 2^(16 w - 75) (|g|), 2^(16 w - 150) (g * g and p * p).
 */
#include <string.h>
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/float.h"
#include "base/rng.h"
#include "optim/half.h"
#include "optim/look.h"
#include "optim/pack.h"
#include "optim/tensor.h"

CKPI_NO_CONTRACT

enum { RUN = CKPI_O_GROUP, LOOKS = 64, BITS = 12, LOW = 63, HIGH = 104 };  /* exponents: those of 2^-64 to 2^40 */

/* Values as integers below 2^BITS; returns the exponent above LOW, -1: nothing of a size that counts. */
static int
integers(int32_t *q, const float *x, size_t n)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = ckpi_f32_bits(x[i]) & 0x7fffffffu;
        top = size > top && size < CKPI_O_GRAD_END ? size : top;
    }
    const int e = (int)(top >> 23) - LOW;
    if (e < 0)
        return -1;
    const float scale = ckpi_f32_from_bits((uint32_t)(127 + BITS - 1 + 127 - LOW - e) << 23);
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = ckpi_f32_bits(x[i]) & 0x7fffffffu;
        q[i] = (int32_t)(ckpi_f32_from_bits(size < CKPI_O_GRAD_END ? size : 0) * scale);
    }
    return e;
}

static void
add_squares(int64_t *windows, const int32_t *q, size_t n, int e)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += q[i] * q[i];
    windows[2 * e / 16] += sum << (2 * e % 16);
}

static void
add_sizes(int64_t *windows, const int32_t *q, size_t n, int e)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += q[i];
    windows[e / 16] += sum << (e % 16);
}

static void
add_codes(int64_t *sum, const ckp_optim_tensor *t, const ckpi_o_shape *s, size_t row, size_t at, size_t n)
{
    int8_t m[RUN];
    uint8_t v[RUN];
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    pk->unpack_signed(m, t->m + row * s->m_bytes + ckpi_o_pack_bytes(at, t->m_bits), n, t->m_bits);
    pk->unpack(v, t->v + row * s->v_bytes + ckpi_o_pack_bytes(at, t->v_bits), n, t->v_bits);
    int64_t m2 = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t y = (int64_t)(ckpi_mgrid_value(&s->mg, m[i]) * 64.0f), octave = v[i] >> s->vg.mant;
        const int64_t e = octave + t->row[row] + (t->col != NULL ? t->col[at + i] : 0);
        m2 += y * y;
        if (v[i] == 0)
            continue;
        sum[CKPI_LOOK_V]++;
        sum[CKPI_LOOK_E] += e;
        sum[CKPI_LOOK_EE] += e * e;
        sum[CKPI_LOOK_C] += octave;
        sum[CKPI_LOOK_CC] += octave * octave;
        sum[CKPI_LOOK_DEPTH] += (s->vg.top >> s->vg.mant) - octave;
    }
    /* in parts of 2^24 of s * s, whatever the width */
    sum[CKPI_LOOK_M2] += m2 * (int64_t)(s->mg.h * s->mg.h * 4096.0f + 0.5f);
}

static const float *
floats(const void *from, ckp_dtype dtype, size_t at, size_t n, float *to)
{
    if (dtype == CKP_F32)
        return (const float *)from + at;
    ckpi_half_up(to, (const uint16_t *)from + at, n, dtype);
    return to;
}

static void
add_run(int64_t *sum, const ckp_optim_tensor *t, const ckpi_o_shape *s, size_t row, size_t at)
{
    const size_t n = CKPI_MIN((size_t)RUN, ckpi_o_row_len(s, row) - at);
    float x[RUN];
    int32_t q[RUN];
    sum[CKPI_LOOK_N] += (int64_t)n;
    int e = integers(q, floats(t->g, t->g_dtype, row * s->cols + at, n, x), n);
    if (e >= 0) {
        add_sizes(sum + CKPI_LOOK_G, q, n, e);
        add_squares(sum + CKPI_LOOK_GG, q, n, e);
    }
    e = integers(q, floats(t->p, t->p_dtype, row * s->cols + at, n, x), n);
    if (e >= 0)
        add_squares(sum + CKPI_LOOK_PP, q, n, e);
    add_codes(sum, t, s, row, at, n);
}

/* Number of the run that look `k` of `looks` draws out of its part of `runs`. */
static uint64_t
draw(uint64_t runs, uint64_t looks, uint64_t k, uint32_t key)
{
    const uint64_t each = runs / looks, more = runs % looks, first = k * each + CKPI_MIN(k, more), n = each + (k < more);
    return first + ckpi_rng32(key, (uint32_t)k) % n;
}

ckp_status
ckp_optim_look(const ckp_optim_tensor *t, uint64_t total, ckp_optim_stats *out, ckp_error *err)
{
    ckpi_error_clear(err);
    if (t == NULL || t->how == NULL || out == NULL || (t->numel != 0 && (t->p == NULL || t->g == NULL)))
        return ckpi_fail(err, CKP_EINVAL, "optim_look: NULL argument");
    ckpi_o_shape s;
    const ckp_status st = ckpi_o_shape_of(&s, t, err);
    if (st != CKP_OK)
        return st;
    if (total > (uint64_t)INT64_MAX / 8 || t->first > total || t->numel > total - t->first || t->first % t->cols != 0)
        return ckpi_fail(err, CKP_EINVAL, "optim_look: not a part of its parameter, by whole rows");
    memset(out, 0, sizeof *out);
    const uint64_t across = (t->cols + RUN - 1) / RUN, whole = total / t->cols, rest = (total % t->cols + RUN - 1) / RUN;
    const uint64_t runs = whole * across + rest, looks = CKPI_MIN(runs, (uint64_t)LOOKS), first = t->first / t->cols;
    const uint32_t key = ckpi_o_key(t, CKPI_O_USE_LOOK);
    const ckpi_fpenv env = ckpi_fp_enter();
    for (uint64_t k = 0; k < looks; k++) {
        const uint64_t run = draw(runs, looks, k, key), row = run / across;
        if (row >= first && row - first < s.rows)
            add_run(out->sum, t, &s, (size_t)(row - first), (size_t)(run % across * RUN));
    }
    ckpi_fp_leave(env);
    return CKP_OK;
}
