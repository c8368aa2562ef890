/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel: a pure function of the feature word and the model. */
#include "base/cpu.h"
#include "codec/rans/rans_kern.h"

ckpi_rans_dec_fn *
ckpi_rans_dec_pick(const ckpi_rans_model *m, uint32_t cpu)
{
    (void)m;
    (void)cpu;
    return NULL;
}

ckpi_rans_enc_fn *
ckpi_rans_enc_pick(const ckpi_rans_model *m, uint32_t cpu)
{
    (void)m;
    (void)cpu;
    return NULL;
}
