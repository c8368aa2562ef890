/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's reference: quant.h, element by element. Every input but the run's shape may be hostile: any bits give some bits. */
#include "base/bytes.h"
#include "quant/num.h"

CKPI_NO_CONTRACT

static float
scale_of(const ckpi_q_run *r, const float *table, const int8_t *vcode, size_t j)
{
    const uint8_t c = vcode == NULL ? 0 : (uint8_t)vcode[j];
    return (r->frow[r->spread ? j : 0] * table[c]) * r->fcol[j];
}

static bool
is_zero(const int8_t *vcode, size_t j)
{
    return vcode != NULL && vcode[j] == CKPI_VCODE_ZERO;
}

void
ckpi_q_dec_v_ref(const ckpi_q_run *r, const float *table, const int8_t *vcode, float *v)
{
    for (size_t j = 0; j < r->n; j++) {
        const float s = scale_of(r, table, vcode, j);
        v[j] = is_zero(vcode, j) ? 0.0f : s * s;
    }
}

void
ckpi_q_dec_m_ref(const ckpi_q_run *r, const float *table, const int8_t *vcode, const int8_t *mcode, float mg, bool along, float *m)
{
    for (size_t j = 0; j < r->n; j++) {
        const float s = is_zero(vcode, j) ? 0.0f : scale_of(r, table, vcode, j);
        const float code = (float)mcode[j] * mg, x = along ? (code + m[j]) * s : code * s;
        m[j] = (along ? x == 0 : mcode[j] == 0) ? 0.0f : x;
    }
}

void
ckpi_q_dec_w_ref(const ckpi_q_run *r, const float *table, const int8_t *vcode, const int8_t *wcode, const ckpi_q_wpar *p, float *wrec)
{
    for (size_t j = 0; j < r->n; j++) {
        const float base = p->key ? 0.0f : wrec[j];
        const float q = is_zero(vcode, j) ? p->step.qhi : wstep_of(&p->step, scale_of(r, table, vcode, j));
        wrec[j] = wcode[j] == 0 ? base : f32_round_to(base + (float)wcode[j] * q, p->dtype);
    }
}

void
ckpi_q_undiff_ref(size_t n, const int8_t *diff, int8_t *code)
{
    for (size_t j = 0; j < n; j++)
        code[j] = (int8_t)(uint8_t)((uint8_t)code[j] + (uint8_t)diff[j]);
}

size_t
ckpi_q_unpack2_ref(size_t n, const uint8_t *two, int8_t *code)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const uint32_t b = two[i / 4], c = (b | b << 6 | b << 12 | b << 18) & 0x03030303U;
        if ((b & ~(b << 1) & 0xaaU) != 0)
            break;
        ckpi_st32(code + i, c | ((c >> 1) & 0x01010101U) * 0xfcU);      /* 3 becomes -1 */
    }
    return i;
}
