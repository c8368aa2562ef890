/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/half.h"
#include "base/float.h"
#include "optim/kern.h"

CKPI_NO_CONTRACT

void
ckpi_half_up(float *to, const uint16_t *from, size_t n, ckp_dtype dtype)
{
    if (dtype == CKP_BF16)
        ckpi_bf16_to_f32_n(to, from, n);
    else
        ckpi_f16_to_f32_n(to, from, n);
}

void
ckpi_half_down(uint16_t *to, const float *from, size_t n, ckp_dtype dtype, uint32_t z)
{
    if (dtype == CKP_F16) {
        ckpi_f32_to_f16_n(to, from, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        to[i] = ckpi_o_bf16(ckpi_o_bits(from[i]), z + (uint32_t)i * CKPI_O_WALK);
}

void
ckpi_split_up(float *to, const uint16_t *from, const void *rest, unsigned rest_bits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t r = rest_bits == 8 ? ((const int8_t *)rest)[i] * 256 : ((const int16_t *)rest)[i];
        to[i] = ckpi_o_float(ckpi_o_split_up(from[i], r));
    }
}

void
ckpi_split_down(uint16_t *to, void *rest, unsigned rest_bits, const float *from, size_t n, uint32_t z)
{
    for (size_t i = 0; i < n; i++) {
        int32_t r;
        to[i] = ckpi_o_split_down(ckpi_o_bits(from[i]), rest_bits, z + (uint32_t)i * CKPI_O_WALK, &r);
        if (rest_bits == 8)
            ((int8_t *)rest)[i] = (int8_t)r;
        else
            ((int16_t *)rest)[i] = (int16_t)r;
    }
}
