/* SPDX-License-Identifier: Apache-2.0 */
/* Binding of the decoder: tables from the factors, then one kernel call a run. The bits of codes, factors and base may be anything. */
#include <math.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "quant/num.h"
#include "quant/step.h"
#include "quant/walk.h"

CKPI_NO_CONTRACT

typedef struct job {
    const ckpi_q_ops *ops;
    ckpi_q_walk walk;
    float *table;
    size_t mark;
    ckpi_fpenv env;
} job;

static ckp_status
begin(job *j, const ckpi_grid *g, int unit, float zero, const int8_t *vcode, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckp_status st = ckpi_q_grid_check(g, err);
    if (st == CKP_OK && g->has_v && vcode == NULL)
        st = ckpi_fail(err, CKP_EINVAL, "quantizer: no codes of v");
    *j = (job){.ops = ckpi_q_pick(cpu), .mark = ckpi_scratch_mark(ws), .env = ckpi_fp_enter()};
    if (st != CKP_OK)
        return st;
    j->table = ckpi_scratch_get(ws, 256 * sizeof(float));
    if (j->table == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "quantizer: no memory for a table");
    ckpi_q_code_table(j->table, g, unit, zero);
    return ckpi_q_walk_init(&j->walk, g, unit, false, ws, err);
}

static void
end(const job *j, ckpi_scratch *ws)
{
    ckpi_fp_leave(j->env);
    ckpi_scratch_release(ws, j->mark);
}

static const int8_t *
codes_at(const ckpi_grid *g, const int8_t *vcode, size_t at)
{
    return g->has_v ? vcode + at : NULL;
}

size_t
ckpi_quant_pack2(const int8_t *code, size_t n, uint8_t *two, uint32_t cpu)
{
    return ckpi_q_pick(cpu)->pack2(n, code, two);
}

size_t
ckpi_quant_unpack2(const uint8_t *two, size_t n, int8_t *code, uint32_t cpu)
{
    return ckpi_q_pick(cpu)->unpack2(n, two, code);
}

void
ckpi_quant_vcode_apply(int8_t *vcode, const int8_t *diff, size_t n, bool key, uint32_t cpu)
{
    if (n == 0)
        return;
    if (key)
        memcpy(vcode, diff, n);
    else
        ckpi_q_pick(cpu)->undiff(n, diff, vcode);
}

ckp_status
ckpi_quant_decode_v(const ckpi_grid *g, const int8_t *vcode, float *v, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    job j;
    ckpi_q_run r;
    size_t at;
    ckp_status st = begin(&j, g, CKPI_Q_S, 0.0f, vcode, ws, cpu, err);
    while (st == CKP_OK && ckpi_q_walk_next(&j.walk, &r, &at))
        j.ops->dec_v(&r, j.table, codes_at(g, vcode, at), v + at);
    end(&j, ws);
    return st;
}

ckp_status
ckpi_quant_decode_m(const ckpi_grid *g, const int8_t *vcode, const int8_t *mcode, float mg, bool along, float *m, ckpi_scratch *ws,
                    uint32_t cpu, ckp_error *err)
{
    job j;
    ckpi_q_run r;
    size_t at;
    if (!f32_finite(mg))
        return ckpi_fail(err, CKP_ECORRUPT, "quantizer: gain of m is not finite");
    ckp_status st = begin(&j, g, CKPI_Q_S, 0.0f, vcode, ws, cpu, err);
    while (st == CKP_OK && ckpi_q_walk_next(&j.walk, &r, &at))
        j.ops->dec_m(&r, j.table, codes_at(g, vcode, at), mcode + at, mg, along, m + at);
    end(&j, ws);
    return st;
}

ckp_status
ckpi_quant_decode_w(const ckpi_grid *g, const int8_t *vcode, const int8_t *wcode, const ckpi_wstep *q, ckp_dtype w_dtype, bool key,
                    float *wrec, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    job j;
    ckpi_q_run r;
    size_t at;
    const ckpi_q_wpar par = {.step = *q, .dtype = w_dtype, .key = key};
    if (w_dtype != CKP_F32 && w_dtype != CKP_BF16 && w_dtype != CKP_F16)
        return ckpi_fail(err, CKP_EUNSUPPORTED, "quantizer: weights of dtype %d", (int)w_dtype);
    ckp_status st = begin(&j, g, CKPI_Q_RQ, INFINITY, vcode, ws, cpu, err);
    /* After begin(): under the caller's DAZ a denormal step would compare as 0. */
    if (st == CKP_OK && !ckpi_q_wstep_ok(q))
        st = ckpi_fail(err, CKP_ECORRUPT, "quantizer: steps of w are not finite, positive and in order");
    while (st == CKP_OK && ckpi_q_walk_next(&j.walk, &r, &at))
        j.ops->dec_w(&r, j.table, codes_at(g, vcode, at), wcode + at, &par, wrec + at);
    end(&j, ws);
    return st;
}
