/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "codec/mask/mask_kern.h"

const ckpi_mask_ops *
ckpi_mask_pick(uint32_t cpu)
{
    (void)cpu;
    return &ckpi_mask_ops_ref;
}
