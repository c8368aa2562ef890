/* SPDX-License-Identifier: Apache-2.0 */
/* Reference of the passes that make factors and model-wide numbers. Integers from the first addition on: order does not matter. */
#include "quant/num.h"

CKPI_NO_CONTRACT

void
ckpi_q_logs_ref(size_t n, const float *x, bool from_m, int64_t *rsum, uint32_t *rcnt, int32_t *csum, uint32_t *ccnt)
{
    for (size_t j = 0; j < n; j++) {
        const float v = from_m ? f32_abs(x[j]) : x[j];
        if (!(v > 0) || !f32_finite(v))
            continue;
        const int32_t l = f32_log_units(v) * (from_m ? 2 : 1);
        *rsum += l;
        *rcnt += 1;
        if (csum != NULL) {
            csum[j] += l;
            ccnt[j] += 1;
        }
    }
}

void
ckpi_q_wmax_ref(size_t n, const float *w, ckpi_wstats *st)
{
    for (size_t j = 0; j < n; j++) {
        const uint32_t b = f32_bits(w[j]) & 0x7fffffffu;
        if (b >= CKPI_F32_INF_BITS)
            continue;
        st->n_finite++;
        st->max_bits = b > st->max_bits ? b : st->max_bits;
    }
}

void
ckpi_q_wsq_ref(size_t n, const float *w, float unit, ckpi_wstats *st)
{
    for (size_t j = 0; j < n; j++) {
        if (!f32_finite(w[j]))
            continue;
        const float x = w[j] * unit;
        st->sum_sq += (int64_t)f32_rint(f32_min(x * x, CKPI_Q_SQ_MAX));
    }
}
