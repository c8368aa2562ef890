/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "quant/kern.h"

#define ROW(isa, bits)                                                                                                              \
    {                                                                                                                               \
        #isa, bits, ckpi_q_enc_v_##isa, ckpi_q_enc_m_##isa, ckpi_q_enc_w_##isa, ckpi_q_dec_v_##isa, ckpi_q_dec_m_##isa,             \
            ckpi_q_dec_w_##isa, ckpi_q_diff_##isa, ckpi_q_undiff_##isa, ckpi_q_pack2_##isa, ckpi_q_unpack2_##isa, ckpi_q_logs_##isa,   \
            ckpi_q_wmax_##isa, ckpi_q_wsq_##isa                                                                                     \
    }

/* Best first; the last needs nothing. */
static const ckpi_q_ops rows[] = {
#if CKPI_X86
    ROW(avx512, CKPI_CPU_AVX512),
    ROW(avx2, CKPI_CPU_AVX2),
#endif
#if CKPI_ARM
    ROW(neon, CKPI_CPU_NEON),
#endif
    ROW(ref, 0),
};

const ckpi_q_ops *
ckpi_q_pick(uint32_t cpu)
{
    size_t i = 0;
    while ((cpu & rows[i].needs) != rows[i].needs)
        i++;
    return &rows[i];
}
