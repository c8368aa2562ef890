/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and gradients of 16 bits. */
#ifndef CKPI_OPTIM_HALF_H
#define CKPI_OPTIM_HALF_H
#include <ckpress/base.h>

void ckpi_half_up(float *to, const uint16_t *from, size_t n, ckp_dtype dtype);
/* bf16: rounded without bias, by the random numbers from z on; f16: to nearest. */
void ckpi_half_down(uint16_t *to, const float *from, size_t n, ckp_dtype dtype, uint32_t z);
#endif
