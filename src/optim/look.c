/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a visit sees of a tensor, as sums of integers: whatever order parts are added in, the same comes out.
 *
 * Up to LOOKS runs of 64 elements, each drawn from a part of its own of the whole parameter; a rank adds those that it has. Gradients and weights
 * become integers of 12 bits under their run's largest exponent, by powers of two and cut off, so that no CPU and no order matters. Sums of
 * runs lie in windows of 16 octaves: window w counts units of 2^(16 w - 75) (|g|), 2^(16 w - 150) (g * g and p * p).
 */
#include <math.h>
#include <string.h>
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/float.h"
#include "base/rng.h"
#include "optim/half.h"
#include "optim/job.h"
#include "optim/look.h"
#include "optim/pack.h"
#include "optim/tensor.h"

CKPI_NO_CONTRACT

enum { RUN = CKPI_O_GROUP, LOOKS = 16, BITS = 12, LOW = 63, HIGH = 104 };  /* exponents: those of 2^-64 to 2^40 */

/*
 * Arrays of a run are padded with zeros to its whole length, so that loops are of a number the compiler knows, and become vectors. Nothing here may
 * depend on the order of additions: all are of integers.
 */
typedef struct piece {
    int32_t q[RUN];
    float x[RUN];
    int8_t m[RUN + 8];                   /* unpacking writes up to 7 more */
    uint8_t v[RUN + 8];
    int8_t col[RUN];
} piece;

/* x as integers below 2^BITS, in q; returns the exponent above LOW, -1: nothing of a size that counts. */
static int
integers(piece *u)
{
    int32_t top = 0;
    memcpy(u->q, u->x, sizeof u->q);
    for (int i = 0; i < RUN; i++) {
        const int32_t size = u->q[i] & INT32_MAX;
        u->q[i] = size & (size < (int32_t)CKPI_O_GRAD_END ? -1 : 0);
    }
    for (int i = 0; i < RUN; i++)
        top = u->q[i] > top ? u->q[i] : top;
    memcpy(u->x, u->q, sizeof u->q);
    const int e = (top >> 23) - LOW;
    if (e < 0)
        return -1;
    const float scale = ckpi_f32_from_bits((uint32_t)(127 + BITS - 1 + 127 - LOW - e) << 23);
    for (int i = 0; i < RUN; i++)
        u->q[i] = (int32_t)(u->x[i] * scale);
    return e;
}

static void
add_squares(int64_t *windows, const int32_t *q, int e)
{
    uint32_t sum = 0;                    /* up to 2^30 */
    for (int i = 0; i < RUN; i++)
        sum += (uint32_t)(q[i] * q[i]);
    windows[2 * e / 16] += (int64_t)sum << (2 * e % 16);
}

static void
add_sizes(int64_t *windows, const int32_t *q, int e)
{
    int32_t sum = 0;
    for (int i = 0; i < RUN; i++)
        sum += q[i];
    windows[e / 16] += (int64_t)sum << (e % 16);
}

/* What does not change from run to run. */
typedef struct view {
    const ckp_optim_tensor *t;
    ckpi_o_shape s;
    const ckpi_o_packer *pk;
    int32_t size[256];                   /* of m in parts of 2^16 of the root of v's power of two, by the bits of its code */
} view;

static void
sizes_by_code(view *w)
{
    const float h = w->s.mg.h * CKPI_O_UNIT;
    for (int k = -(int)w->s.mg.top; k <= (int)w->s.mg.top; k++) {
        const float y = ckpi_mgrid_value(&w->s.mg, k) * h;
        w->size[(uint8_t)k] = (int32_t)(fabsf(y) * 65536.0f);
    }
}

static void
add_codes(int64_t *sum, const view *w, piece *u, size_t row, size_t at, size_t n)
{
    const ckp_optim_tensor *t = w->t;
    const int32_t mant = (int32_t)w->s.vg.mant, factor = t->row[row];
    int32_t count = 0, e1 = 0, e2 = 0, c1 = 0, c2 = 0;
    int64_t m1 = 0;
    w->pk->unpack_signed(u->m, t->m + row * w->s.m_bytes + ckpi_o_pack_bytes(at, t->m_bits), n, t->m_bits);
    w->pk->unpack(u->v, t->v + row * w->s.v_bytes + ckpi_o_pack_bytes(at, t->v_bits), n, t->v_bits);
    memset(u->col, 0, sizeof u->col);
    if (t->col != NULL)
        memcpy(u->col, t->col + at, n);
    memset(u->v + n, 0, sizeof u->v - n);
    memset(u->m + n, 0, sizeof u->m - n);
    for (int i = 0; i < RUN; i++)
        m1 += w->size[(uint8_t)u->m[i]];
    for (int i = 0; i < RUN; i++) {
        const int32_t on = u->v[i] != 0 ? -1 : 0, octave = (u->v[i] >> mant) & on, e = (octave + factor + u->col[i]) & on;
        count -= on;
        c1 += octave;
        c2 += octave * octave;
        e1 += e;
        e2 += e * e;
    }
    sum[CKPI_LOOK_V] += count;
    sum[CKPI_LOOK_E] += e1;
    sum[CKPI_LOOK_EE] += e2;
    sum[CKPI_LOOK_C] += c1;
    sum[CKPI_LOOK_CC] += c2;
    sum[CKPI_LOOK_DEPTH] += (int64_t)count * (w->s.vg.top >> w->s.vg.mant) - c1;
    sum[CKPI_LOOK_M] += m1;
}

static void
floats(float *to, const void *from, ckp_dtype dtype, size_t at, size_t n)
{
    if (dtype == CKP_F32)
        memcpy(to, (const float *)from + at, n * sizeof *to);
    else
        ckpi_half_up(to, (const uint16_t *)from + at, n, dtype);
    memset(to + n, 0, (RUN - n) * sizeof *to);
}

static void
add_run(int64_t *sum, const view *w, size_t row, size_t at)
{
    const ckp_optim_tensor *t = w->t;
    const size_t n = CKPI_MIN((size_t)RUN, ckpi_o_row_len(&w->s, row) - at), first = row * w->s.cols + at;
    piece u;
    sum[CKPI_LOOK_N] += (int64_t)n;
    floats(u.x, t->g, t->g_dtype, first, n);
    int e = integers(&u);
    if (e >= 0) {
        add_sizes(sum + CKPI_LOOK_G, u.q, e);
        add_squares(sum + CKPI_LOOK_GG, u.q, e);
    }
    floats(u.x, t->p, t->p_dtype, first, n);
    e = integers(&u);
    if (e >= 0)
        add_squares(sum + CKPI_LOOK_PP, u.q, e);
    add_codes(sum, w, &u, row, at, n);
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
    view w = {.t = t, .pk = ckpi_o_pack_pick(ckpi_cpu())};
    if (t->v_bits == 0)
        return ckpi_o_refuse(t, err, "a momentum without v is not looked at");
    const ckp_status st = ckpi_o_shape_of(&w.s, t, err);
    if (st != CKP_OK)
        return st;
    if (total > (uint64_t)INT64_MAX / 8 || t->first > total || t->numel > total - t->first || t->first % t->cols != 0)
        return ckpi_fail(err, CKP_EINVAL, "optim_look: not a part of its parameter, by whole rows");
    memset(out, 0, sizeof *out);
    const uint64_t across = (t->cols + RUN - 1) / RUN, whole = total / t->cols, rest = (total % t->cols + RUN - 1) / RUN;
    const uint64_t runs = whole * across + rest, looks = CKPI_MIN(runs, (uint64_t)LOOKS), first = t->first / t->cols;
    const uint32_t key = ckpi_o_key(t, CKPI_O_USE_LOOK);
    const ckpi_fpenv env = ckpi_fp_enter();
    sizes_by_code(&w);
    for (uint64_t k = 0; k < looks; k++) {
        const uint64_t run = draw(runs, looks, k, key), row = run / across;
        if (row >= first && row - first < w.s.rows)
            add_run(out->sum, &w, (size_t)(row - first), (size_t)(run % across * RUN));
    }
    ckpi_fp_leave(env);
    return CKP_OK;
}
