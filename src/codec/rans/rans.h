/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order-0 rANS of bytes: what the rest of src/codec may call. Wire format and limits: README.md beside this file.
 *
 * A stream does not say how many bytes it decodes to nor where it ends: its owner records both. It is never longer than
 * the input plus one byte, and every ISA writes the same bytes.
 */
#ifndef CKPI_CODEC_RANS_H
#define CKPI_CODEC_RANS_H
#include "codec/codec.h"

/* Longest input: frequencies are counted in 32 bits. */
#define CKPI_RANS_MAX ((size_t)UINT32_MAX)

/* Most bytes that n bytes can take. */
size_t ckpi_rans_bound(size_t n);

/**
 * Encode n bytes. hist: how often each byte occurs in src, or NULL to count here.
 * @return CKP_OK; CKP_EINVAL: cap below ckpi_rans_bound(n), or n above CKPI_RANS_MAX; CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_rans_encode(const uint8_t *src, size_t n, const uint32_t *hist, uint8_t *dst, size_t cap, size_t *len,
                                         ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/**
 * Decode exactly n bytes from exactly len bytes.
 * @return CKP_OK; CKP_ECORRUPT: any byte of src is not what the encoder writes for n symbols (dst then holds rubbish); CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_rans_decode(const uint8_t *src, size_t len, uint8_t *dst, size_t n, ckpi_scratch *ws, uint32_t cpu,
                                         ckp_error *err);

/* Counts of each byte value. n at most CKPI_RANS_MAX. */
void ckpi_rans_hist(const uint8_t *src, size_t n, uint32_t hist[256]);

/* Order-0 entropy of a histogram in bytes, rounded up, by integer arithmetic (within 0.01 %). What a stream costs without its
   table and states (about 12 to 190 bytes). */
uint64_t ckpi_rans_entropy_bytes(const uint32_t hist[256]);

/* log2(x) in 1/65536, x > 0; within 2 units. The same on every machine. */
uint32_t ckpi_rans_log2(uint32_t x);
#endif
