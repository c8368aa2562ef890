/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codes that are nearly all -1, 0 or 1 in two bits each, the others beside them in order: what staged differences of v take in memory
 * (never on disk).
 */
#ifndef CKPI_ENGINE_PACK2_H
#define CKPI_ENGINE_PACK2_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ckpi_pack2 {
    uint8_t *two;                /* CKPI_PACK2_BYTES(cap) */
    size_t n, cap;               /* codes, a multiple of 4 but at the end */
    int8_t *other;
    size_t n_other, cap_other;
} ckpi_pack2;

#define CKPI_PACK2_BYTES(n) (((n) + 3) / 4)
/* Memory for cap codes, unless it is there; empty. False: none. */
bool ckpi_pack2_alloc(ckpi_pack2 *p, size_t cap);
void ckpi_pack2_free(ckpi_pack2 *p);
uint64_t ckpi_pack2_held(const ckpi_pack2 *p);
/* Adds n codes behind those there are, which begin at the next multiple of 4: what has been added in pieces is taken in the same pieces. False: no memory. */
bool ckpi_pack2_add(ckpi_pack2 *p, const int8_t *code, size_t n, uint32_t cpu);
/* A place to read from. Start from {0}. */
typedef struct ckpi_unpack2 { size_t at, other; } ckpi_unpack2;
void ckpi_pack2_take(const ckpi_pack2 *p, ckpi_unpack2 *from, int8_t *code, size_t n, uint32_t cpu);
#endif
