/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of -1, 0 and 1 in two bits each: what a staged three-valued moment takes in memory (never on disk). */
#ifndef CKPI_ENGINE_PACK2_H
#define CKPI_ENGINE_PACK2_H
#include <stddef.h>
#include <stdint.h>

#define CKPI_PACK2_BYTES(n) (((n) + 3) / 4)
void ckpi_pack2(uint8_t *dst, const int8_t *code, size_t n);
void ckpi_unpack2(int8_t *code, const uint8_t *src, size_t n);
#endif
