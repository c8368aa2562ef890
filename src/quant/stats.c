/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "base/fixed.h"
#include "quant/num.h"
#include "quant/step.h"

/* Runs of a whole number of vectors whose lanes cannot overflow. */
#define STAT_RUN CKPI_Q_RUN

bool
ckpi_q_wstep_ok(const ckpi_wstep *s)
{
    return s->qmul > 0 && s->qlo > 0 && s->qlo <= s->qhi && f32_finite(s->qmul) && f32_finite(s->qhi);
}

float
ckpi_q_err_unit(float qhi)
{
    const int e = (int)(f32_bits(qhi) >> 23) - 127;
    return ckpi_exp2_fixed(CKPI_MAX(-126, CKPI_MIN(11 - e, 126)) * 512);
}

float
ckpi_q_sq_unit(int sq_exp)
{
    return ckpi_exp2_fixed(CKPI_MAX(-252, CKPI_MIN(sq_exp, 252)) / 2 * 512);
}

int
ckpi_quant_sq_exp(uint32_t max_bits)
{
    const int e = (int)(max_bits >> 23) - 127;
    return CKPI_MAX(-252, CKPI_MIN(24 - 2 * (e + 1), 252));
}

void
ckpi_quant_wmax(const float *w, size_t n, ckpi_wstats *st, uint32_t cpu)
{
    const ckpi_q_ops *ops = ckpi_q_pick(cpu);
    for (size_t at = 0; at < n; at += STAT_RUN)
        ops->wmax(CKPI_MIN(STAT_RUN, n - at), w + at, st);
}

void
ckpi_quant_wsq(const float *w, size_t n, int sq_exp, ckpi_wstats *st, uint32_t cpu)
{
    const ckpi_q_ops *ops = ckpi_q_pick(cpu);
    const ckpi_fpenv env = ckpi_fp_enter();
    const float unit = ckpi_q_sq_unit(sq_exp);
    for (size_t at = 0; at < n; at += STAT_RUN)
        ops->wsq(CKPI_MIN(STAT_RUN, n - at), w + at, unit, st);
    ckpi_fp_leave(env);
}
