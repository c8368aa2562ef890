/* SPDX-License-Identifier: Apache-2.0 */
/* Replaying one unit: v, m and w of each level, from the deepest that is needed up to level 0. decode.c gives out what comes of it. */
#ifndef CKPI_ENGINE_REPLAY_H
#define CKPI_ENGINE_REPLAY_H
#include "engine/decode.h"
#include "quant/low.h"

/* One unit being replayed. */
typedef struct ckpi_replay {
    const ckpi_lineage *c;
    const ckpi_unit *u;
    ckpi_scratch *ws;
    uint32_t cpu;
    size_t n;
    const ckpi_piece *piece;     /* of the weights (or of the first chunk there is) */
    size_t n_pieces;
    ckpi_recon rec;              /* wrec, vcode in scratch or the caller's; factors and indices owned here */
    bool w_known, v_known, fac_known;
    /* of level 0 */
    int8_t *mcode;
    float *mg;
    ckpi_low *low;               /* by piece; NULL: no directions */
    bool m_has_v;
    ckpi_escapes wesc, mesc, vesc;
    ckpi_buf body;
} ckpi_replay;

/* Memory that the caller has not brought (NULL fields of rec) comes from scratch. */
CKP_MUST_USE ckp_status ckpi_replay_init(ckpi_replay *r, const ckpi_lineage *c, const ckpi_unit *u, ckpi_scratch *ws, uint32_t cpu,
                                         ckp_error *err);
/* All levels. want: CKPI_WANT_W or not, since weights take most of the time. */
CKP_MUST_USE ckp_status ckpi_replay_run(ckpi_replay *r, unsigned want, ckp_error *err);
/* All but factors and indices, which may have moved on. */
void ckpi_replay_free(ckpi_replay *r);

/* Puts file, tensor and, where it is missing, the offset of chunk k of a level into an error. Returns st. */
ckp_status ckpi_replay_fail(const ckpi_replay *r, size_t level, const ckpi_chunk *k, ckp_status st, ckp_error *err);
/* Reads chunk i of a level into r->body. */
CKP_MUST_USE ckp_status ckpi_replay_read(ckpi_replay *r, size_t level, size_t i, ckpi_chunk *k, ckp_error *err);
/* A chunk's payload by its codec, with offsets in the file. */
CKP_MUST_USE ckp_status ckpi_decode_payload(const ckpi_chunk *c, const ckpi_block *b, void *dst, ckpi_scratch *ws, uint32_t cpu,
                                            ckp_error *err);
#endif
