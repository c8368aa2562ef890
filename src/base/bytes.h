/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian loads and stores at any alignment. The whole format is little-endian. */
#ifndef CKPI_BASE_BYTES_H
#define CKPI_BASE_BYTES_H
#include <stdint.h>
#include <string.h>

#define CKPI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CKPI_MAX(a, b) ((a) > (b) ? (a) : (b))

static inline uint16_t
ckpi_ld16(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint16_t)(b[0] | (unsigned)b[1] << 8);
}

static inline uint32_t
ckpi_ld32(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t
ckpi_ld64(const void *p)
{
    return (uint64_t)ckpi_ld32(p) | (uint64_t)ckpi_ld32((const uint8_t *)p + 4) << 32;
}

static inline void
ckpi_st16(void *p, uint16_t v)
{
    uint8_t *b = (uint8_t *)p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

static inline void
ckpi_st32(void *p, uint32_t v)
{
    ckpi_st16(p, (uint16_t)v);
    ckpi_st16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

static inline void
ckpi_st64(void *p, uint64_t v)
{
    ckpi_st32(p, (uint32_t)v);
    ckpi_st32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}
#endif
