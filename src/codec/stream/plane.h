/* SPDX-License-Identifier: Apache-2.0 */
/* One byte of each element, as a row of its own, and back: what byte planes are made of. */
#ifndef CKPI_CODEC_PLANE_H
#define CKPI_CODEC_PLANE_H
#include <stddef.h>
#include <stdint.h>

/* dst[i] = src[i * width + k], i from 0 to n - 1. width at least 1, k below it. */
void ckpi_plane_take(uint8_t *dst, const uint8_t *src, size_t n, unsigned width, unsigned k);
/* dst[i * width + k] = plane[k][i]: all of them together again. */
void ckpi_plane_join(uint8_t *dst, const uint8_t *const *plane, size_t n, unsigned width);
#endif
