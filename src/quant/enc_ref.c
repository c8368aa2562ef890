/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder's reference: one element at a time, in the words of quant.h and kern.h. */
#include "base/bytes.h"
#include "quant/num.h"

CKPI_NO_CONTRACT

static void
escape(ckpi_q_tile *t, size_t j)
{
    t->esc[t->n_esc++] = (uint16_t)j;
}

void
ckpi_q_tile_begin(ckpi_q_tile *t)
{
    t->n_esc = 0;
    if (t->any_dead)
        memset(t->dead, 0, sizeof t->dead);
    t->any_dead = false;
}

static void
die(ckpi_q_tile *t, size_t j)
{
    t->any_dead = true;
    t->dead[j] = 1;
}

static void
ref_not_positive(const ckpi_q_run *r, const ckpi_q_vpar *p, float v, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a, size_t j)
{
    const float prow = r->prow[r->spread ? j : 0];
    a->not_pos++;
    a->not_pos_p += (int64_t)((prow + r->pcol[j]) * p->vstep);
    code[j] = CKPI_VCODE_ZERO;
    t->rq[j] = f32_of(CKPI_F32_INF_BITS);
    die(t, j);
    if (f32_bits(v) != 0)
        escape(t, j);
}

static void
ref_positive(const ckpi_q_run *r, const ckpi_q_vpar *p, float v, const int8_t *base, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a, size_t j)
{
    const size_t i = r->spread ? j : 0;
    float g;
    const float ge = f32_split(v, &g);
    const float x = (ge * p->s + r->krow[i]) + (p->a2 * g + p->a1) * g;
    const float d = x - r->pcol[j];
    const bool stays = base != NULL && base[j] != CKPI_VCODE_ZERO && f32_abs(d - (float)base[j]) <= p->stay;
    const float nearest = stays ? (float)base[j] : f32_rint(d);
    const float c = f32_max(f32_min(nearest, 127.0f), -127.0f);
    code[j] = (int8_t)c;
    t->rq[j] = (r->frow[i] * p->table[(uint8_t)code[j]]) * r->fcol[j];
    a->csum += code[j];
    const uint32_t bits = f32_bits(v);
    const bool lost = f32_abs(nearest) > p->cmax || bits < p->bits_lo || bits > p->bits_hi;
    if (lost) {
        die(t, j);
        escape(t, j);
        return;
    }
    a->step_max = f32_max(a->step_max, d - c);
    a->step_min = f32_min(a->step_min, d - c);
}

void
ckpi_q_ref_v(const ckpi_q_run *r, const ckpi_q_vpar *p, const float *v, const int8_t *base, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a,
             size_t at, size_t n)
{
    for (size_t j = at; j < at + n; j++)
        if (v[j] > 0 && f32_finite(v[j]))
            ref_positive(r, p, v[j], base, code, t, a, j);
        else
            ref_not_positive(r, p, v[j], code, t, a, j);
}

void
ckpi_q_ref_m(const ckpi_q_mpar *p, const float *m, int8_t *code, ckpi_q_tile *t, size_t at, size_t n)
{
    for (size_t j = at; j < at + n; j++) {
        code[j] = 0;
        if (t->dead[j] || !f32_finite(m[j])) {
            if (f32_bits(m[j]) != 0)
                escape(t, j);
            continue;
        }
        const float c = f32_rint((m[j] * (t->rq[j] * t->rq[j])) * p->t);
        /* NaN, from factors that overflow, always escapes */
        if (f32_abs(c) <= (p->kind == CKPI_M_CLAMPED ? f32_of(CKPI_F32_INF_BITS) : 127.0f))
            code[j] = (int8_t)f32_max(f32_min(c, 127.0f), -127.0f);
        else
            escape(t, j);
    }
}

/* In [0, 1), of the element whose counter is z. */
static float
phase(uint32_t z)
{
    const uint32_t h = (z ^ z >> 13) * CKPI_Q_PHASE_MUL;
    return f32_of(h >> 9 | 0x3f800000u) - 1.0f;
}

static void
ref_wstats(const ckpi_q_wpar *p, float w, ckpi_q_acc *a)
{
    if (!f32_finite(w)) {
        a->not_finite++;
        return;
    }
    const float x = w * p->sq_unit;
    a->sq += (int64_t)f32_rint(f32_min(x * x, CKPI_Q_SQ_MAX));
    const uint32_t b = f32_bits(w) & 0x7fffffffu;
    a->max_bits = b > a->max_bits ? b : a->max_bits;
}

void
ckpi_q_ref_w(const ckpi_q_wpar *p, const float *w, float *wrec, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a, size_t at, size_t n)
{
    for (size_t j = at; j < at + n; j++) {
        const float base = p->key ? 0.0f : wrec[j];
        const float q = wstep_of(&p->step, t->rq[j]);
        const float x = (w[j] - base) / q;
        const float d = p->phase ? f32_floor(x + phase(p->z + (uint32_t)j * CKPI_Q_PHASE_STEP)) : f32_rint(x);
        const float moved = f32_round_to(base + d * q, p->dtype);
        const float rec = d == 0 ? base : moved;
        ref_wstats(p, w[j], a);
        /* d is NaN or infinite when w or base is. */
        if (!(f32_abs(d) <= 127.0f) || !f32_finite(rec)) {
            code[j] = 0;
            wrec[j] = w[j];
            escape(t, j);
            continue;
        }
        code[j] = (int8_t)d;
        wrec[j] = rec;
        const float err = f32_abs(w[j] - rec), e = err * p->err_unit;
        a->max_err = f32_max(a->max_err, err);
        a->err2 += (int64_t)f32_rint(f32_min(e * e, CKPI_Q_SQ_MAX));
    }
}

void
ckpi_q_enc_v_ref(const ckpi_q_run *r, const ckpi_q_vpar *p, const float *v, const int8_t *base, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a)
{
    ckpi_q_tile_begin(t);
    ckpi_q_ref_v(r, p, v, base, code, t, a, 0, r->n);
}

void
ckpi_q_enc_m_ref(size_t n, const ckpi_q_mpar *p, const float *m, int8_t *code, ckpi_q_tile *t)
{
    t->n_esc = 0;
    ckpi_q_ref_m(p, m, code, t, 0, n);
}

void
ckpi_q_enc_w_ref(size_t n, const ckpi_q_wpar *p, const float *w, float *wrec, int8_t *code, ckpi_q_tile *t, ckpi_q_acc *a)
{
    t->n_esc = 0;
    ckpi_q_ref_w(p, w, wrec, code, t, a, 0, n);
}

void
ckpi_q_diff_ref(size_t n, const int8_t *code, bool key, int8_t *diff, int8_t *base)
{
    for (size_t j = 0; j < n; j++) {
        const uint8_t was = key ? 0 : (uint8_t)base[j];
        diff[j] = (int8_t)(uint8_t)((uint8_t)code[j] - was);
        base[j] = code[j];
    }
}

/* The low two bits of four bytes side by side: the product gathers them in its top byte. */
static uint8_t
gather(uint32_t four)
{
    return (uint8_t)(((four & 0x03030303U) * 0x01041040U) >> 24);
}

/* Whether all of four bytes are -1, 0 or 1: but for the lowest bit, each is all ones or all zeros. */
static bool
are_small(uint32_t four)
{
    const uint32_t high = four & 0xfefefefeU;
    return high == (four >> 7 & 0x01010101U) * 0xfeU && (four & (four >> 7 & 0x01010101U)) == (four >> 7 & 0x01010101U);
}

size_t
ckpi_q_pack2_ref(size_t n, const int8_t *code, uint8_t *two)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const uint32_t four = ckpi_ld32(code + i);
        if (!are_small(four))
            break;
        two[i / 4] = gather(four);
    }
    return i;
}
