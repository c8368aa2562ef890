/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the sketch: floats to buckets. What counts them is the same plain loop for every ISA (sketch.c). */
#ifndef CKPI_QUANT_SKETCH_KERN_H
#define CKPI_QUANT_SKETCH_KERN_H
#include <stddef.h>
#include <stdint.h>

enum { CKPI_SKETCH_BLOCK = 2048, CKPI_SKETCH_SLOTS = 1 << 15 };

/* slot[i] = the top 15 bits of x[i], sign first; with y those of |x[i] * y[i]|. At most CKPI_SKETCH_BLOCK values, slot has room for
   all of them. Returns how many are zero. */
typedef size_t ckpi_sketch_slots_fn(uint16_t *slot, const float *x, const float *y, size_t n);

ckpi_sketch_slots_fn ckpi_sketch_slots_ref;
ckpi_sketch_slots_fn ckpi_sketch_slots_avx2;
ckpi_sketch_slots_fn ckpi_sketch_slots_avx512;

ckpi_sketch_slots_fn *ckpi_sketch_pick(uint32_t cpu);
#endif
