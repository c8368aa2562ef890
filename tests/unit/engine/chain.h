/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of saves in memory: what a session does, without threads and directories, so that tests see into the predictor. */
#ifndef CKP_TESTS_ENGINE_CHAIN_H
#define CKP_TESTS_ENGINE_CHAIN_H
#include "engine/decode.h"
#include "engine/dynaquant.h"
#include "engine/encode.h"
#include "harness/check.h"
#include "harness/sim.h"

#define CHAIN_MAX 32

typedef struct chain {
    ckpi_settings set;
    ckpi_lasting lasting;
    ckpi_dq dq;                  /* with set.dynaquant; the first tensor counts as an embedding */
    const ckpi_dq_numbers *again;   /* coded again by these before the file is written */
    ckpi_packing packing;
    ckpi_ctx *ctx;
    bool keep_raw;
    bool lone;
    bool staged;                 /* false: the pass is part of the encoding */
    uint64_t restore_count;
    ckp_progress_fn progress;    /* of the encoding; may be NULL, as load */
    void *progress_user;
    ckp_status (*load)(void *user, size_t g, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
    void *load_user;
    ckpi_late *late;             /* of a staged one; may be NULL */
    ckpi_pred *pred;
    ckpi_stage *stages;
    ckpi_buf file[CHAIN_MAX];
    ckpi_fmt_sum sum[CHAIN_MAX];
    ckpi_buf tree[CHAIN_MAX];
    size_t n;                    /* saves */
    size_t key_at;               /* the last key */
} chain;

ckpi_settings chain_settings(const char *profile);      /* lossless, resume, small, weights, uniform, dynaquant, codebook, clusters, centres */
chain *chain_new(const char *profile, unsigned threads, uint32_t cpu_mask);
void chain_free(chain *c);
/* One save: a key when asked, or when there is nothing to predict from. exact: weights losslessly. */
ckp_status chain_save_try(chain *c, const sim *m, bool key, bool exact, ckp_error *err);
void chain_save(chain *c, const sim *m, bool key, bool exact);
/* The lineage of save i (or of other bytes in its place). */
ckpi_lineage *chain_open(const chain *c, size_t i);
ckp_status chain_open_try(const chain *c, size_t i, const void *bytes, size_t len, ckpi_lineage **out, ckp_error *err);
/* Decodes every unit of a lineage; the first failure. */
ckp_status chain_decode_all(const chain *c, const ckpi_lineage *l, ckp_error *err);
/* Bytes of a tensor as restored. */
void chain_read(const chain *c, const ckpi_lineage *l, uint32_t tensor, uint8_t *dst);
/* Asserts that the predictor holds exactly what a decoder of save i gets. */
void chain_check_recon(const chain *c, size_t i);
/* Asserts that every tensor that is coded losslessly comes back bit for bit, and that lossy ones are close. */
void chain_check_values(const chain *c, const sim *m, size_t i);
#endif
