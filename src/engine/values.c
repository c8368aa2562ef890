/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "engine/values.h"

/* NaNs that were 16 bits keep them all, there and back: conversions alone would make signalling ones quiet. shift: of the payload. */
static void
narrow_nans(uint8_t *dst, const float *src, size_t n, int shift, uint16_t infinity)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t b = ckpi_f32_bits(src[i]);
        if ((b & 0x7fffffffU) <= 0x7f800000U)
            continue;
        const uint16_t payload = (uint16_t)((b & 0x7fffffU) >> shift);
        /* one that had its payload further down would become infinite */
        ckpi_st16(dst + 2 * i, (uint16_t)((b >> 16 & 0x8000U) | infinity | (payload != 0 ? payload : (unsigned)(0x400000 >> shift))));
    }
}

static void
widen_nans(float *dst, const uint8_t *src, size_t n, int shift, uint16_t infinity)
{
    for (size_t i = 0; i < n; i++) {
        const uint16_t h = ckpi_ld16(src + 2 * i);
        if ((h & 0x7fffU) <= infinity)
            continue;
        const uint32_t b = (uint32_t)(h & 0x8000U) << 16 | 0x7f800000U | (uint32_t)(h & 0x7fffU & ~(unsigned)infinity) << shift;
        memcpy(&dst[i], &b, sizeof b);
    }
}

enum { BF16_SHIFT = 16, BF16_INF = 0x7f80, F16_SHIFT = 13, F16_INF = 0x7c00 };

void
ckpi_floats_to(ckp_dtype dt, void *dst, const float *src, size_t n)
{
    if (dt == CKP_BF16) {
        ckpi_f32_to_bf16_n(dst, src, n);
        narrow_nans(dst, src, n, BF16_SHIFT, BF16_INF);
    } else if (dt == CKP_F16) {
        ckpi_f32_to_f16_n(dst, src, n);
        narrow_nans(dst, src, n, F16_SHIFT, F16_INF);
    } else if (dst != (const void *)src) {
        memcpy(dst, src, n * sizeof *src);
    }
}

void
ckpi_round_copy(ckp_dtype dt, void *dst, const void *src, size_t n)
{
    if (dt == CKP_BF16)
        ckpi_f32_to_bf16_n(dst, src, n);
    else
        ckpi_f32_to_f16_n(dst, src, n);
}

void
ckpi_floats_from(ckp_dtype dt, float *dst, const void *src, size_t n)
{
    if (dt == CKP_BF16) {
        ckpi_bf16_to_f32_n(dst, src, n);
        widen_nans(dst, src, n, BF16_SHIFT, BF16_INF);
    } else if (dt == CKP_F16) {
        ckpi_f16_to_f32_n(dst, src, n);
        widen_nans(dst, src, n, F16_SHIFT, F16_INF);
    } else {
        memcpy(dst, src, n * sizeof *dst);
    }
}

void
ckpi_patch(void *dst, size_t width, const ckpi_escapes *e)
{
    for (size_t i = 0; e != NULL && i < e->n; i++) {
        uint8_t *p = (uint8_t *)dst + e->at[i].index * width;
        if (width == 2)
            ckpi_st16(p, (uint16_t)e->at[i].bits);
        else
            ckpi_st32(p, e->at[i].bits);
    }
}

/*
 * Half dtypes have few exponents, and v^ and m^ are off by factors: what is positive or finite stays so. Of v = 0 an optimizer divides by
 * its epsilon alone; of an infinite one it never moves again.
 */
static void
keep_kind(ckp_dtype dt, void *dst, const float *x, size_t n, bool v)
{
    const uint16_t inf = dt == CKP_BF16 ? 0x7f80 : 0x7c00;

    for (size_t i = 0; i < n; i++) {
        uint8_t *at = (uint8_t *)dst + 2 * i;
        const uint16_t h = ckpi_ld16(at);
        if ((h & 0x7fff) == inf && (ckpi_f32_bits(x[i]) & 0x7fffffffU) < 0x7f800000U)
            ckpi_st16(at, (uint16_t)(h - 1));
        else if (v && h == 0 && ckpi_f32_bits(x[i]) != 0)
            ckpi_st16(at, 1);
    }
}

/* One piece of moments as fp32. */
static ckp_status
piece_values(const ckpi_values *c, bool v, size_t k, size_t at, float *dst, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_grid grid = ckpi_recon_grid(c->rec, k, (size_t)c->piece[k].count, c->has_v);
    const int8_t *vcode = c->has_v ? c->rec->vcode + at : NULL;

    if (v)
        return ckpi_quant_decode_v(&grid, vcode, dst, ws, c->cpu, err);
    const bool along = c->low != NULL && c->low[k].rank != 0;
    if (along)
        ckpi_low_values(&c->low[k], grid.n, dst, c->cpu);
    return ckpi_quant_decode_m(&grid, vcode, c->mcode + at, c->mg[k], along, dst, ws, c->cpu, err);
}

static ckp_status
moments(const ckpi_values *c, bool v, void *dst, ckpi_scratch *ws, ckp_error *err)
{
    const size_t width = c->dtype == CKP_F32 ? 4 : 2;
    ckp_status st = CKP_OK;
    size_t at = 0;

    for (size_t k = 0; st == CKP_OK && k < c->n_pieces; k++) {
        const size_t n = (size_t)c->piece[k].count, mark = ckpi_scratch_mark(ws);
        uint8_t *to = (uint8_t *)dst + at * width;
        /* a float may be written in place only where it is aligned, which scratch and live fp32 tensors are */
        float *f = c->dtype == CKP_F32 && ((uintptr_t)to & 3) == 0 ? (float *)(void *)to : ckpi_scratch_get(ws, n * sizeof *f);
        if (f == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory to decode %zu elements", n);
        st = piece_values(c, v, k, at, f, ws, err);
        if (st == CKP_OK)
            ckpi_floats_to(c->dtype, to, f, n);
        if (st == CKP_OK && width == 2)
            keep_kind(c->dtype, to, f, n, v);
        ckpi_scratch_release(ws, mark);
        at += n;
    }
    ckpi_patch(dst, width, c->esc);
    return st;
}

ckp_status
ckpi_values_v(const ckpi_values *c, void *dst, ckpi_scratch *ws, ckp_error *err)
{
    return moments(c, true, dst, ws, err);
}

ckp_status
ckpi_values_m(const ckpi_values *c, void *dst, ckpi_scratch *ws, ckp_error *err)
{
    return moments(c, false, dst, ws, err);
}

ckp_status
ckpi_values_w(const ckpi_values *c, void *dst, ckpi_scratch *ws, ckp_error *err)
{
    (void)ws;
    (void)err;
    ckpi_floats_to(c->dtype, dst, c->rec->wrec, c->n);
    ckpi_patch(dst, c->dtype == CKP_F32 ? 4 : 2, c->esc);
    return CKP_OK;
}
