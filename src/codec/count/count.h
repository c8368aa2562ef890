/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPI_CODEC_COUNT_H
#define CKPI_CODEC_COUNT_H
#include <stddef.h>
#include <stdint.h>

/* How often one value occurs among n bytes. */
size_t ckpi_count_byte(const uint8_t *p, size_t n, unsigned value, uint32_t cpu);
#endif
