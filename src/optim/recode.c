/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor's codes at another width, row by row: codes of a row in a worker's memory, then into their new place. Values are those that the old codes stand
 * for, rounded without bias where the new grid is coarser; a row's factor follows as after a step (row.c).
 */
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/float.h"
#include "optim/job.h"
#include "optim/pack.h"
#include "optim/tensor.h"

CKPI_NO_CONTRACT

enum { PART = 1 << 16 };

typedef struct job {
    ckp_optim *o;
    const ckp_optim_tensor *t;
    ckpi_o_shape was, now;
    uint8_t *m, *v;
    unsigned m_bits, v_bits;
    uint32_t key;
    size_t part;                         /* rows of a part */
    uint32_t by_code[256];               /* bits of 1 + |m| on the new grid, by those of m's code: where v's exponent stays */
} job;

/* v's code on a grid with other mantissa bits, before its row's factor follows. */
static uint32_t
v_code(uint32_t c, unsigned was, unsigned now, uint32_t x)
{
    if (c == 0 || now >= was)
        return c << (now >= was ? now - was : 0);
    const unsigned drop = was - now;
    const uint32_t rounded = (c + (x & ((1u << drop) - 1u))) >> drop;
    return rounded != 0 ? rounded : 1;
}

static void
tables(job *k)
{
    const ckpi_mgrid *was = &k->was.mg, *now = &k->now.mg;
    for (int i = -(int)was->top; i <= (int)was->top; i++) {
        const float size = ckpi_mgrid_value(was, i < 0 ? -i : i) * (was->h / now->h);
        k->by_code[(uint8_t)i] = ckpi_f32_bits(size + 1.0f);
    }
}

/* m's code where v's exponent goes from `from` to `to`, rounded by the low bits of y. */
static int8_t
m_code(const job *k, int8_t code, uint32_t from, uint32_t to, uint32_t e22, uint32_t y)
{
    const ckpi_mgrid *now = &k->now.mg;
    if (from == to) {                    /* ckpi_o_m_code with its multiplications looked up */
        const unsigned shift = 23 - now->mant;
        const uint32_t size = ((k->by_code[(uint8_t)code] + (y & ((1u << shift) - 1u))) >> shift) - (127u << now->mant);
        const int top = size < now->top ? (int)size : (int)now->top;
        return (int8_t)(code < 0 ? -top : top);
    }
    const float s = ckpi_f32_from_bits(ckpi_o_root_bits((from << 22) + e22));
    const float per_s = ckpi_f32_from_bits(ckpi_o_per_root_bits((to << 22) + e22));
    return ckpi_o_m_code(now, ckpi_mgrid_value(&k->was.mg, code) * (k->was.mg.h / now->h) * CKPI_O_AGAIN * s, per_s, y);
}

static void
recode_row(const job *k, ckpi_o_work *w, size_t i)
{
    const ckp_optim_tensor *t = k->t;
    const size_t n = ckpi_o_row_len(&k->was, i);
    const uint32_t z = k->key + (uint32_t)(t->first + i * t->cols) * CKPI_O_WALK, row = t->row[i] != 0 ? t->row[i] : CKPI_O_ROW_MIN;
    const unsigned was = k->was.vg.mant, now = k->now.vg.mant;
    const bool same = k->m_bits == t->m_bits;
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    uint32_t raw_max = 0;
    pk->unpack_signed(w->m, t->m + i * k->was.m_bytes, n, t->m_bits);
    pk->unpack(w->v, t->v + i * k->was.v_bytes, n, t->v_bits);
    for (size_t j = 0; j < n; j++) {
        const uint32_t raw = v_code(w->v[j], was, now, ckpi_o_random(z + (uint32_t)j * CKPI_O_WALK));
        w->raw[j] = (uint16_t)raw;
        raw_max = raw_max > raw ? raw_max : raw;
    }
    for (size_t j = 0; j < n && !(same && now >= was); j++) {
        const uint32_t from = w->v[j] >> was, to = (uint32_t)w->raw[j] >> now, x = ckpi_o_random(z + (uint32_t)j * CKPI_O_WALK);
        if (w->m[j] != 0 && !(same && from == to))
            w->m[j] = m_code(k, w->m[j], from, to, (row << 22) + w->col[j], x ^ (z + (uint32_t)j * CKPI_O_WALK));
    }
    ckpi_o_row_end(&k->now.mg, &k->now.vg, n, z, raw_max, w->raw, w->m, w->v, &t->row[i]);
    pk->pack(k->m + i * k->now.m_bytes, (const uint8_t *)w->m, n, k->m_bits);
    pk->pack(k->v + i * k->now.v_bytes, w->v, n, k->v_bits);
}

static void
recode_part(void *user, size_t index, unsigned worker)
{
    const job *k = user;
    ckpi_o_work *w = ckpi_optim_work(k->o, worker);
    const size_t first = index * k->part, end = CKPI_MIN(first + k->part, k->was.rows);
    const ckpi_fpenv env = ckpi_fp_enter();
    ckpi_o_cols_up(w->col, k->t->col, k->was.cols);
    for (size_t i = first; i < end; i++)
        recode_row(k, w, i);
    ckpi_fp_leave(env);
}

/* Codes of different widths in the same memory would be overwritten before they are read. */
static bool
in_the_way(const ckp_optim_tensor *t, unsigned m_bits, unsigned v_bits, const uint8_t *m, const uint8_t *v)
{
    return t->numel != 0 && ((m == t->m && m_bits != t->m_bits) || (v == t->v && v_bits != t->v_bits) || m == v || m == t->v || v == t->m);
}

ckp_status
ckp_optim_recode(ckp_optim *o, ckp_optim_tensor *t, unsigned m_bits, unsigned v_bits, uint8_t *m, uint8_t *v, ckp_error *err)
{
    ckpi_error_clear(err);
    if (o == NULL || t == NULL || t->how == NULL)
        return ckpi_fail(err, CKP_EINVAL, "optim_recode: NULL argument");
    job k = {.o = o, .t = t, .m = m, .v = v, .m_bits = m_bits, .v_bits = v_bits};
    ckp_optim_tensor after = *t;
    after.m = m;
    after.v = v;
    after.m_bits = m_bits;
    after.v_bits = v_bits;
    if (t->v_bits == 0 || v_bits == 0)
        return ckpi_o_refuse(t, err, "a momentum without v is not coded anew");
    ckp_status st = ckpi_o_shape_of(&k.was, t, err);
    if (st == CKP_OK)
        st = ckpi_o_shape_of(&k.now, &after, err);
    if (st == CKP_OK && in_the_way(t, m_bits, v_bits, m, v)) {
        st = ckpi_fail(err, CKP_EINVAL, "optim: new codes need memory of their own");
        if (t->name != NULL)
            ckpi_fail_tensor(err, t->name);
    }
    if (st == CKP_OK)
        st = ckpi_optim_reserve(o, k.was.cols, err);
    if (st != CKP_OK)
        return st;
    tables(&k);
    k.key = ckpi_o_key(t, CKPI_O_USE_RECODE);
    k.part = CKPI_MAX((size_t)PART / k.was.cols, (size_t)1);
    st = ckpi_pool_run(ckpi_optim_pool(o), (k.was.rows + k.part - 1) / k.part, recode_part, &k, err);
    if (st == CKP_OK)
        *t = after;
    return st;
}
