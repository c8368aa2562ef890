/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream of bytes inside a codec's payload, coded the cheapest way: stored, one value repeated, or rANS. The codecs that
 * split numbers into parts (planes, diff) are made of such streams. Wire format: README.md beside this file.
 */
#ifndef CKPI_CODEC_STREAM_H
#define CKPI_CODEC_STREAM_H
#include "base/buf.h"
#include "base/cursor.h"
#include "codec/codec.h"

/* A stream costs at most this much more than its bytes. */
#define CKPI_STREAM_OVERHEAD 1

/* Appends a stream of n bytes to out, whose memory is never moved (out.max = out.cap). Failures: out's own, CKP_ENOMEM. */
CKP_MUST_USE ckp_status ckpi_stream_put(ckpi_buf *out, const uint8_t *src, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* The same where the caller has counted the bytes. */
CKP_MUST_USE ckp_status ckpi_stream_put_counted(ckpi_buf *out, const uint8_t *src, size_t n, const uint32_t hist[256], ckpi_scratch *ws,
                                                uint32_t cpu, ckp_error *err);

/* The same for bytes that are known not to shrink: gives the place to write them to, or NULL (out says why). */
uint8_t *ckpi_stream_put_raw(ckpi_buf *out, size_t n);

/**
 * Reads a stream of n bytes. *bytes points into the payload when they are stored there, else to scratch memory of n bytes
 * that is taken here.
 * @return CKP_OK; CKP_ECORRUPT; CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_stream_get(ckpi_rd *in, const uint8_t **bytes, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* The same, into dst. */
CKP_MUST_USE ckp_status ckpi_stream_get_to(ckpi_rd *in, uint8_t *dst, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* Bytes that a stream with this histogram takes, about: what ckpi_stream_put would choose, table included. */
uint64_t ckpi_stream_cost(const uint32_t hist[256], uint64_t n);

/* A buffer over the caller's memory; cap must not be 0. */
ckpi_buf ckpi_stream_out(uint8_t *dst, size_t cap);
#endif
