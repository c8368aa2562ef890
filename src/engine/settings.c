/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/settings.h"
#include "base/cursor.h"
#include "base/fail.h"
#include "engine/cluster_chunk.h"
#include "engine/dynaquant.h"
#include "engine/params.h"
#include "quant/quant.h"

static void
get_w(ckpi_rd *rd, size_t piece, ckpi_piece_settings *out)
{
    out->follows = (ckpi_rd_u8(rd) & CKPI_PAR_SCALE_V) != 0;
    out->step = ckpi_rd_f32(rd);
    for (size_t i = 0; i <= piece; i++) {
        out->lo = ckpi_rd_f32(rd);
        out->hi = ckpi_rd_f32(rd);
    }
}

static void
get_m(ckpi_rd *rd, size_t piece, ckpi_piece_settings *out)
{
    (void)ckpi_rd_u8(rd);
    for (size_t i = 0; i <= piece; i++)
        out->magnitude = ckpi_rd_f32(rd);
}

static void
get_v(ckpi_rd *rd, const ckpi_chunk *c, size_t piece, ckpi_piece_settings *out)
{
    if (!(ckpi_rd_u8(rd) & CKPI_PAR_FACTORS))
        return;                  /* the base's factors, and their step */
    for (size_t i = 0; i <= piece; i++) {
        (void)ckpi_rd_varint(rd, c->piece[i].count);
        const uint8_t k = ckpi_rd_u8(rd);
        if (k > 12)
            ckpi_rd_fail(rd, "log2 of a step, at most 12");
        out->vstep = ckpi_rd_ok(rd) ? (int32_t)1 << k : 0;
    }
}

static void
get_index(ckpi_rd *rd, size_t piece, ckpi_piece_settings *out)
{
    (void)ckpi_rd_u8(rd);
    for (size_t i = 0; i <= piece; i++)
        out->levels = ckpi_dq_skip_book(rd);
}

static void
get_clusters(ckpi_rd *rd, size_t piece, ckpi_piece_settings *out)
{
    const ckpi_clusters_kind kind = ckpi_cluster_get_kind(rd);
    ckpi_cluster_piece p = {.mse = 0};

    out->quantizer = kind == CKPI_CLUSTERS_CENTRES ? "codebook" : "cluster";
    for (size_t i = 0; i <= piece; i++)
        ckpi_cluster_get(rd, kind, &p);
    out->levels = p.clusters.k;
    out->mse = p.mse;
    out->mre = p.mre;
}

ckp_status
ckpi_piece_settings_get(const ckpi_chunk *c, size_t piece, ckpi_piece_settings *out, ckp_error *err)
{
    ckpi_rd rd = ckpi_rd_init(c->params, c->params_len, c->body_offset);

    *out = (ckpi_piece_settings){.quantizer = "?"};
    switch (c->quant) {
    case CKPI_QUANT_NONE: out->quantizer = "none"; break;
    case CKPI_QUANT_V: out->quantizer = "v"; get_v(&rd, c, piece, out); break;
    case CKPI_QUANT_M: out->quantizer = "m"; get_m(&rd, piece, out); break;
    case CKPI_QUANT_W: out->quantizer = "w"; get_w(&rd, piece, out); break;
    case CKPI_QUANT_INDEX: out->quantizer = "index"; get_index(&rd, piece, out); break;
    case CKPI_QUANT_CLUSTER: get_clusters(&rd, piece, out); break;
    default: break;
    }
    return ckpi_rd_ok(&rd) ? CKP_OK : ckpi_rd_error(&rd, err, "parameters of a chunk");
}
