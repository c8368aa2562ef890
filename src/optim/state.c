/* SPDX-License-Identifier: Apache-2.0 */
/* State in and out: codes a byte each, and moments as torch keeps them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/float.h"
#include "optim/job.h"
#include "optim/pack.h"
#include "optim/tensor.h"

CKPI_NO_CONTRACT

static ckp_status
check(const void *a, const void *b, uint64_t numel, uint64_t cols, unsigned bits, ckp_error *err)
{
    ckpi_error_clear(err);
    if ((numel != 0 && (a == NULL || b == NULL || ckp_optim_state_bytes(numel, cols, bits) == 0)) || !ckpi_o_pack_known(bits))
        return ckpi_fail(err, CKP_EINVAL, "optim: codes without memory, of a width or of rows that do not exist");
    return CKP_OK;
}

ckp_status
ckp_optim_unpack(uint8_t *code, const uint8_t *packed, uint64_t numel, uint64_t cols, unsigned bits, bool is_signed, ckp_error *err)
{
    const ckp_status st = check(code, packed, numel, cols, bits, err);
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    uint8_t last[CKPI_O_GROUP];
    for (uint64_t left = numel; st == CKP_OK && left != 0;) {
        const size_t n = (size_t)(left < cols ? left : cols), whole = n / CKPI_O_GROUP * CKPI_O_GROUP;
        /* Unpacking writes up to a group's end: the row's last group goes through memory of ours. */
        const size_t at = ckpi_o_pack_bytes(whole, bits);
        pk->unpack(code, packed, whole, bits);
        pk->unpack(last, packed + at, n - whole, bits);
        if (n > whole)
            memcpy(code + whole, last, n - whole);
        const uint8_t top = (uint8_t)(1u << (bits - 1));
        for (size_t i = 0; is_signed && bits != 8 && i < n; i++)
            code[i] = (uint8_t)((code[i] ^ top) - top);
        code += n;
        packed += ckpi_o_pack_bytes(n, bits);
        left -= n;
    }
    return st;
}

ckp_status
ckp_optim_pack(uint8_t *packed, const uint8_t *code, uint64_t numel, uint64_t cols, unsigned bits, ckp_error *err)
{
    const ckp_status st = check(packed, code, numel, cols, bits, err);
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    for (uint64_t left = numel; st == CKP_OK && left != 0;) {
        const size_t n = (size_t)(left < cols ? left : cols);
        pk->pack(packed, code, n, bits);
        code += n;
        packed += ckpi_o_pack_bytes(n, bits);
        left -= n;
    }
    return st;
}

/* What codes of m stand for, by their low 8 bits, before the root of v and the correction. */
static void
m_values(const ckpi_mgrid *g, bool alone, double *value)
{
    for (int k = -128; k < 128; k++) {
        const double y = abs(k) <= (int)g->top ? (double)ckpi_mgrid_value(g, k) : 0.0;
        value[(uint8_t)k] = alone ? y : y * (double)g->h * (double)CKPI_O_AGAIN;
    }
}

typedef struct reader {
    const ckp_optim_tensor *t;
    ckpi_o_shape s;
    const ckpi_o_packer *pk;
    double value[256];               /* of m's codes */
} reader;

static ckp_status
reader_init(reader *r, const ckp_optim_tensor *t, ckp_error *err)
{
    ckpi_error_clear(err);
    const ckp_status st = t == NULL ? ckpi_fail(err, CKP_EINVAL, "optim_read: NULL argument") : ckpi_o_shape_of(&r->s, t, err);
    if (st != CKP_OK)
        return st;
    r->t = t;
    r->pk = ckpi_o_pack_pick(ckpi_cpu());
    m_values(&r->s.mg, t->v_bits == 0, r->value);
    return CKP_OK;
}

/* A group of row i, its codes from `at` on: n floats of m or of v, where those are not NULL. */
static void
read_group(const reader *r, size_t i, size_t at, size_t n, float *m, float *v)
{
    const ckp_optim_tensor *t = r->t;
    const ckpi_o_shape *s = &r->s;
    uint8_t c[CKPI_O_GROUP], k[CKPI_O_GROUP];
    const uint32_t row = t->row[i] != 0 ? t->row[i] : CKPI_O_ROW_MIN;

    r->pk->unpack(c, t->v + i * s->v_bytes + ckpi_o_pack_bytes(at, t->v_bits), n, t->v_bits);
    if (m != NULL)
        r->pk->unpack_signed((int8_t *)k, t->m + i * s->m_bytes + ckpi_o_pack_bytes(at, t->m_bits), n, t->m_bits);
    for (size_t j = 0; j < n; j++) {
        const uint32_t e22 = (row << 22) + (t->col != NULL ? (uint32_t)t->col[at + j] << 22 : 0);
        if (m != NULL)
            m[j] = (float)(r->value[k[j]] * (double)ckpi_f32_from_bits(ckpi_o_root_bits(((uint32_t)c[j] >> s->vg.mant << 22) + e22)) * t->m_corr);
        if (v != NULL)
            v[j] = c[j] == 0 ? 0.0f : (float)((double)ckpi_f32_from_bits(((uint32_t)c[j] << (23 - s->vg.mant)) + (e22 << 1)) * t->v_corr);
    }
}

/* The same of a momentum alone: a group is what one factor is for. */
static void
read_block(const reader *r, size_t i, size_t at, size_t n, float *m)
{
    const ckp_optim_tensor *t = r->t;
    uint8_t k[CKPI_O_GROUP];
    const double unit = (double)ckpi_f32_from_bits(ckpi_o_factor_bits(t->row[i * ckpi_o_blocks(r->s.cols) + at / CKPI_O_BLOCK]));

    r->pk->unpack_signed((int8_t *)k, t->m + i * r->s.m_bytes + ckpi_o_pack_bytes(at, t->m_bits), n, t->m_bits);
    for (size_t j = 0; j < n; j++)
        m[j] = (float)(r->value[k[j]] * unit);
}
_Static_assert((int)CKPI_O_GROUP == (int)CKPI_O_BLOCK, "read_block");

/* Elements [first, first + count). */
static void
read_range(const reader *r, uint64_t first, uint64_t count, float *m, float *v)
{
    float gm[CKPI_O_GROUP], gv[CKPI_O_GROUP];
    const ckpi_fpenv env = ckpi_fp_enter();
    while (count > 0) {
        const size_t i = (size_t)(first / r->s.cols), in_row = (size_t)(first % r->s.cols), at = in_row / CKPI_O_GROUP * CKPI_O_GROUP;
        const size_t n = CKPI_MIN(ckpi_o_row_len(&r->s, i) - at, (size_t)CKPI_O_GROUP);
        const size_t take = (size_t)CKPI_MIN(count, (uint64_t)(at + n - in_row));
        const bool whole = take == n;    /* straight to where it belongs */
        float *const to_m = m == NULL ? NULL : whole ? m : gm, *const to_v = v == NULL ? NULL : whole ? v : gv;
        if (r->t->v_bits != 0)
            read_group(r, i, at, n, to_m, to_v);
        else
            read_block(r, i, at, n, to_m);
        if (m != NULL && !whole)
            memcpy(m, gm + (in_row - at), take * sizeof *m);
        if (v != NULL && !whole)
            memcpy(v, gv + (in_row - at), take * sizeof *v);
        m = m == NULL ? NULL : m + take;
        v = v == NULL ? NULL : v + take;
        first += take;
        count -= take;
    }
    ckpi_fp_leave(env);
}

ckp_status
ckp_optim_read(const ckp_optim_tensor *t, float *m, float *v, ckp_error *err)
{
    reader r;
    const ckp_status st = reader_init(&r, t, err);
    if (st == CKP_OK && (m != NULL || (v != NULL && t->v_bits != 0)))
        read_range(&r, 0, t->numel, m, t->v_bits != 0 ? v : NULL);
    return st;
}

static ckp_status
pull(const ckp_optim_tensor *t, uint64_t first, uint64_t count, void *dst, bool second, ckp_error *err)
{
    reader r;
    const ckp_status st = reader_init(&r, t, err);
    if (st != CKP_OK)
        return st;
    if (first > t->numel || count > t->numel - first || (count != 0 && dst == NULL) || (second && t->v_bits == 0))
        return ckpi_fail(err, CKP_EINVAL, "optim: elements %llu to %llu of a moment of %llu, or no such moment", (unsigned long long)first,
                         (unsigned long long)(first + count), (unsigned long long)t->numel);
    read_range(&r, first, count, second ? NULL : dst, second ? dst : NULL);
    return CKP_OK;
}

ckp_status
ckp_optim_pull_m(void *tensor, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    return pull(tensor, first, count, dst, false, err);
}

ckp_status
ckp_optim_pull_v(void *tensor, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    return pull(tensor, first, count, dst, true, err);
}

static bool
moments_hold(const ckp_optim_tensor *t, const float *m, const float *v)
{
    const bool alone = t->v_bits == 0;
    for (uint64_t i = 0; i < t->numel; i++)
        if (!isfinite(m[i]) || (alone && !(fabsf(m[i]) < 0x1p80f)))
            return false;
    for (uint64_t i = 0; !alone && i < t->numel; i++)
        if (!(v[i] >= 0.0f && (double)v[i] / t->v_corr < 0x1p80))
            return false;
    return true;
}

static void
write_momentum(const ckp_optim_tensor *t, const ckpi_o_shape *s, const ckpi_o_work *w, size_t i, const float *m, uint32_t key)
{
    const size_t n = ckpi_o_row_len(s, i);
    const uint32_t z = key + (uint32_t)(t->first + i * t->cols) * CKPI_O_WALK;
    for (size_t at = 0; at < n; at += CKPI_O_BLOCK) {
        const size_t len = CKPI_MIN(n - at, (size_t)CKPI_O_BLOCK);
        uint8_t *f = &t->row[i * ckpi_o_blocks(s->cols) + at / CKPI_O_BLOCK];
        uint32_t max = 0;
        for (size_t j = at; j < at + len; j++)
            max = CKPI_MAX(max, ckpi_f32_bits(m[j]) & 0x7fffffffu);
        *f = (uint8_t)ckpi_o_factor_of(&s->mg, max);
        ckpi_o_code_ref(len, &s->mg, m + at, ckpi_f32_from_bits(ckpi_o_per_factor_bits(*f)), z + (uint32_t)at * CKPI_O_WALK, w->m + at);
    }
    ckpi_o_pack_pick(ckpi_cpu())->pack(t->m + i * s->m_bytes, (const uint8_t *)w->m, n, t->m_bits);
}

static void
write_row(const ckp_optim_tensor *t, const ckpi_o_shape *s, const ckpi_o_work *w, size_t i, const float *m, const float *v, uint32_t key)
{
    const size_t n = ckpi_o_row_len(s, i);
    const uint32_t z = key + (uint32_t)(t->first + i * t->cols) * CKPI_O_WALK;
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    uint32_t raw_max = 0;
    t->row[i] = 0;
    for (size_t j = 0; j < n; j++) {
        const uint32_t e22 = (CKPI_O_ROW_MIN << 22) + w->col[j], zj = z + (uint32_t)j * CKPI_O_WALK, x = ckpi_o_random(zj);
        const uint32_t raw = ckpi_o_v_code(ckpi_f32_bits(w->g[j] = (float)((double)v[j] / t->v_corr)), x, e22 << 1, s->vg.mant);
        const float per_s = ckpi_f32_from_bits(ckpi_o_per_root_bits((raw >> s->vg.mant << 22) + e22));
        w->raw[j] = (uint16_t)raw;
        w->m[j] = raw == 0 ? 0 : ckpi_o_m_code(&s->mg, (float)((double)m[j] / t->m_corr / (double)s->mg.h), per_s, x ^ zj);
        raw_max = raw_max > raw ? raw_max : raw;
    }
    ckpi_o_row_end(&s->mg, &s->vg, n, z, raw_max, w->raw, w->m, w->v, &t->row[i]);
    pk->pack(t->m + i * s->m_bytes, (const uint8_t *)w->m, n, t->m_bits);
    pk->pack(t->v + i * s->v_bytes, w->v, n, t->v_bits);
}

ckp_status
ckp_optim_write(ckp_optim_tensor *t, const float *m, const float *v, ckp_error *err)
{
    ckpi_error_clear(err);
    ckpi_o_shape s;
    ckpi_o_work w = {0};
    if (t == NULL || (t->v_bits != 0 ? t->how == NULL : t->momentum == NULL) || (t->numel != 0 && (m == NULL || (v == NULL && t->v_bits != 0))))
        return ckpi_fail(err, CKP_EINVAL, "optim_write: NULL argument");
    ckp_status st = ckpi_o_shape_of(&s, t, err);
    if (st == CKP_OK && !(t->m_corr > 0.0 && (t->v_bits == 0 || t->v_corr > 0.0) && moments_hold(t, m, v))) {
        st = ckpi_fail(err, CKP_EINVAL, "optim: moments must be finite, second ones not negative, and steps counted");
        if (t->name != NULL)
            ckpi_fail_tensor(err, t->name);
    }
    if (st == CKP_OK && t->sums != NULL && t->col != NULL && !ckpi_o_sums_sound(t))
        st = ckpi_o_refuse(t, err, CKPI_O_NO_SUMS);
    if (st == CKP_OK && !ckpi_o_work_grow(&w, s.cols))
        st = ckpi_fail(err, CKP_ENOMEM, "optim: out of memory");
    if (st != CKP_OK)
        return st;
    const ckpi_fpenv env = ckpi_fp_enter();
    if (t->col != NULL && t->v_bits != 0) {
        for (size_t i = 0; t->sums == NULL && i < s.rows; i++)
            ckpi_o_cols_of_floats(w.sum, ckpi_o_row_len(&s, i), v + i * s.cols, false);
        if (t->sums != NULL)
            ckpi_o_sums_take(t, w.sum);
        if (t->sums != NULL || s.rows > 1)
            ckpi_o_cols_fit(w.sum, s.cols, t->col);
        else
            memset(t->col, 0, s.cols);
    }
    ckpi_o_cols_up(w.col, t->col, s.cols);
    for (size_t i = 0; i < s.rows; i++)
        if (t->v_bits != 0)
            write_row(t, &s, &w, i, m + i * s.cols, v + i * s.cols, ckpi_o_key(t, CKPI_O_USE_WRITE));
        else
            write_momentum(t, &s, &w, i, m + i * s.cols, ckpi_o_key(t, CKPI_O_USE_WRITE));
    ckpi_fp_leave(env);
    ckpi_o_work_free(&w);
    return CKP_OK;
}
