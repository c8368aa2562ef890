/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols under contexts: the symbols of each context, in order, as a stream of its own with its own rANS table. The decoder
 * knows the contexts beforehand. Splitting and merging are the kernels here.
 */
#ifndef CKPI_CODEC_CTX_H
#define CKPI_CODEC_CTX_H
#include "codec/stream/stream.h"

#define CKPI_CTX_MAX 16

/* Appends one stream for each of the `contexts` contexts; ctx[i] < contexts <= CKPI_CTX_MAX. hist: receives the counts of all symbols. */
CKP_MUST_USE ckp_status ckpi_ctx_put(ckpi_buf *out, const uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts,
                                     uint32_t hist[256], ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* Reads them into sym, n bytes. */
CKP_MUST_USE ckp_status ckpi_ctx_get(ckpi_rd *in, uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts, ckpi_scratch *ws,
                                     uint32_t cpu, ckp_error *err);
#endif
