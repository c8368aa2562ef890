/* SPDX-License-Identifier: Apache-2.0 */
/* Stages to chunks to a file. */
#ifndef CKPI_ENGINE_ENCODE_H
#define CKPI_ENGINE_ENCODE_H
#include "engine/flow.h"
#include "engine/stage.h"

/* A chunk with the memory that it points into. */
typedef struct ckpi_encoded {
    ckpi_chunk c;
    ckpi_buf body;               /* params, escapes, payload, one after another */
    ckpi_piece *piece;           /* owned; c.piece */
} ckpi_encoded;
void ckpi_encoded_reset(ckpi_encoded *e);   /* ready for another group; keeps the body's memory */
void ckpi_encoded_fit(ckpi_encoded *e);     /* gives back the memory that its chunk does not take */

/* A chunk's bytes as the codecs see them: complex numbers as their parts, packed ones as bytes. */
ckpi_block ckpi_block_of(ckp_dtype dt, const void *data, const void *base, uint64_t bytes, size_t cols);

/*
 * The chunks of one group, in the order v, m, w (or one, lossless), into zeroed or reset ones. *n says how many. Moves the
 * group's new base into the predictor.
 */
CKP_MUST_USE ckp_status ckpi_encode_group(ckpi_pred *pred, size_t g, ckpi_stage *s, ckpi_effort effort, bool keep_raw, uint32_t cpu,
                                          ckpi_encoded out[CKPI_CHUNKS_PER_GROUP], size_t *n, ckpi_scratch *ws, ckp_error *err);

/* Bytes that the group's weights (of a lossless group: all of it) would take, frame heads not counted. Nothing moves. */
CKP_MUST_USE ckp_status ckpi_encode_weights_size(ckpi_pred *pred, size_t g, ckpi_stage *s, ckpi_effort effort, uint32_t cpu, uint64_t *bytes,
                                                 ckpi_scratch *ws, ckp_error *err);

/* Everything between a pass and a finished file. */
typedef struct ckpi_encode_job {
    ckpi_pred *pred;
    ckpi_stage *stages;          /* by group; NULL: pass makes each as it is needed */
    const ckpi_pass *pass;       /* with stages NULL */
    bool serial_pass;            /* the pass reads pull sources: on the calling thread only, in order */
    ckpi_effort effort;
    bool keep_raw;               /* lossless bytes stay as the next save's base */
    /* with stages NULL: brings a group's base into the predictor before its pass; NULL: it is there, or this is a key */
    ckp_status (*load)(void *user, size_t g, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
    void *load_user;
    bool drop_base;              /* a group's reconstruction is freed when its chunks are written */
    ckp_progress_fn progress;    /* from one thread at a time: the calling one, or the helper's */
    void *progress_user;
    uint64_t total_bytes;        /* for progress */
    ckpi_clusters_loss *clusters;   /* by role: adds what moments in clusters lost; may be NULL */
    uint64_t *quantized_w;       /* adds the bytes of frames of quantized weights; may be NULL */
    ckpi_late *late;             /* with stages: who helps when it is late; NULL: nobody */
} ckpi_encode_job;

/* Codes groups in parallel, a few ahead of their frames, which the calling thread (of a late file: who helps) writes in order; then index and trailer. */
CKP_MUST_USE ckp_status ckpi_encode_file(ckpi_ctx *ctx, const ckpi_encode_job *job, ckpi_fmt_writer *fw, ckpi_fmt_sum *sum, ckp_error *err);
#endif
