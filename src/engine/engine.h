/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: the only room where quant meets codec. States become chunks and chunks become states, predicted from the base.
 *
 *   state --layout--> groups --snap--> stages (codes or bytes) --encode--> chunks --format--> file
 *   files (a chain) --chain--> units --decode--> codes, reconstructions, bytes --> the caller's memory
 *
 * Closed loop (DESIGN section 3, item 1): a group's recon is what a decoder of the last save has; the next save predicts from it.
 */
#ifndef CKPI_ENGINE_H
#define CKPI_ENGINE_H
#include "base/alloc.h"
#include "base/buf.h"
#include "base/pool.h"
#include "codec/codec.h"
#include "format/format.h"
#include "quant/quant.h"
#include "state/state.h"

/* Threads and scratch of one operation. The pool may be shared; one run at a time. */
typedef struct ckpi_ctx {
    ckpi_pool *pool;
    ckpi_scratch **ws;           /* one a worker */
    size_t in_flight;            /* groups of a file between their pass and their write, at most */
    ckpi_buf *bodies;            /* of the chunks in flight, kept for the next file: a long run's heap would creep without */
    size_t n_bodies;             /* in_flight x CKPI_CHUNKS_PER_GROUP */
    unsigned workers;
    uint32_t cpu;
} ckpi_ctx;

CKP_MUST_USE ckp_status ckpi_ctx_new(ckpi_ctx **out, unsigned threads, bool low_priority, ckp_error *err);
void ckpi_ctx_free(ckpi_ctx *ctx);
/* Threads of it that can run at a time. */
unsigned ckpi_ctx_at_once(const ckpi_ctx *ctx);
/* Bytes that it keeps for the next file. */
uint64_t ckpi_ctx_bytes(const ckpi_ctx *ctx);

#define CKPI_CHUNKS_PER_GROUP 3

/*
 * Runs fn for each index on the pool; the first failure (by index) is returned and later indices are skipped.
 */
typedef ckp_status (*ckpi_task_fn)(void *user, size_t index, ckpi_scratch *ws, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_ctx_run(ckpi_ctx *ctx, size_t count, ckpi_task_fn fn, void *user, ckp_error *err);
#endif
