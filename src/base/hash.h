/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 behind our own names: checksums (64) and identities (128). */
#ifndef CKPI_BASE_HASH_H
#define CKPI_BASE_HASH_H
#include <stdbool.h>
#include <ckpress/base.h>

typedef struct ckpi_id { uint64_t lo, hi; } ckpi_id;     /* XXH3-128; on disk lo then hi */

uint64_t ckpi_hash64(const void *p, size_t n);
ckpi_id ckpi_hash128(const void *p, size_t n);
static inline bool ckpi_id_eq(ckpi_id a, ckpi_id b) { return a.lo == b.lo && a.hi == b.hi; }
static inline bool ckpi_id_is_zero(ckpi_id a) { return (a.lo | a.hi) == 0; }
/* 32 lower-case hex digits, hi first, and back; false on anything else. */
void ckpi_id_hex(ckpi_id id, char out[33]);
bool ckpi_id_parse(const char *hex, ckpi_id *out);

/* Streaming. */
typedef struct ckpi_hasher ckpi_hasher;
ckpi_hasher *ckpi_hasher_new(void);                      /* NULL on lack of memory */
void ckpi_hasher_free(ckpi_hasher *h);
void ckpi_hasher_reset(ckpi_hasher *h);
void ckpi_hasher_add(ckpi_hasher *h, const void *p, size_t n);
uint64_t ckpi_hasher_64(const ckpi_hasher *h);
ckpi_id ckpi_hasher_128(const ckpi_hasher *h);
#endif
