/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of moments in clusters (quant/clusters.h; docs/format.md, section 12): beside lossless weights, without a base. */
#ifndef CKPI_ENGINE_CLUSTER_CHUNK_H
#define CKPI_ENGINE_CLUSTER_CHUNK_H
#include "engine/encode.h"

/* Parameters, escapes and payload of a clustered group into e's body; what was lost to s->cluster_loss. Pieces and head are the caller's. */
CKP_MUST_USE ckp_status ckpi_cluster_code(ckpi_encoded *e, size_t *params_len, size_t *escapes_end, const ckpi_group *g, ckpi_stage *s, ckpi_effort effort,
                                          ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
/* A chunk's values, escapes among them. */
CKP_MUST_USE ckp_status ckpi_cluster_decode(const ckpi_chunk *c, float *out, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);

/* What a chunk's parameters say of one piece: the loss is information, as the writer measured it. */
typedef struct ckpi_cluster_piece { ckpi_clusters clusters; double mse, mre; } ckpi_cluster_piece;
/* Of the next piece, once the chunk's kind has been read. What is wrong is the cursor's to tell. */
void ckpi_cluster_get(ckpi_rd *r, ckpi_clusters_kind kind, ckpi_cluster_piece *out);
ckpi_clusters_kind ckpi_cluster_get_kind(ckpi_rd *r);
#endif
