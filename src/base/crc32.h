/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 as zip has it (polynomial 0x04c11db7, reflected). */
#ifndef CKPI_BASE_CRC32_H
#define CKPI_BASE_CRC32_H
#include <stddef.h>
#include <stdint.h>

/* Tables for eight bytes a step; filled by init in microseconds, so that no table is global and none is generated. */
typedef struct ckpi_crc { uint32_t table[8][256]; } ckpi_crc;
void ckpi_crc_init(ckpi_crc *c);
/* crc is 0 at the start, and what the last call gave from then on. */
uint32_t ckpi_crc_add(const ckpi_crc *c, uint32_t crc, const void *p, size_t n);
/* The same by tables alone: the reference of the tests. */
uint32_t ckpi_crc_add_ref(const ckpi_crc *c, uint32_t crc, const void *p, size_t n);
#endif
