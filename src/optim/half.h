/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and gradients of 16 bits. */
#ifndef CKPI_OPTIM_HALF_H
#define CKPI_OPTIM_HALF_H
#include <ckpress/base.h>

void ckpi_half_up(float *to, const uint16_t *from, size_t n, ckp_dtype dtype);
/* bf16: rounded without bias, by the random numbers from z on; f16: to nearest. */
void ckpi_half_down(uint16_t *to, const float *from, size_t n, ckp_dtype dtype, uint32_t z);
/* A master weight in f32 from bf16 and the rest of its bits (optim.h), and back. Whatever the rest, a finite weight stays one and 0 stays small. */
void ckpi_split_up(float *to, const uint16_t *from, const void *rest, unsigned rest_bits, size_t n);
void ckpi_split_down(uint16_t *to, void *rest, unsigned rest_bits, const float *from, size_t n, uint32_t z);
#endif
