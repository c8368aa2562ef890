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

/* Infinities and NaN have nothing to round: adding to their bits would change what they are. */
void
ckpi_half_down(uint16_t *to, const float *from, size_t n, ckp_dtype dtype, uint32_t z)
{
    if (dtype == CKP_F16) {
        ckpi_f32_to_f16_n(to, from, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = ckpi_f32_bits(from[i]), x = ckpi_o_random(z + (uint32_t)i * CKPI_O_WALK) >> 16;
        const uint32_t finite = (bits & 0x7f800000u) != 0x7f800000u;
        to[i] = (uint16_t)((bits + (finite ? x : 0)) >> 16 | (!finite && (bits & 0x007fffffu) != 0 ? 0x40u : 0));
    }
}
