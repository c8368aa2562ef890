/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's tensors in memory, as a state that can be planned for. */
#ifndef CKPI_RUN_STORED_H
#define CKPI_RUN_STORED_H
#include "run/checkpoint.h"
#include "state/state.h"

typedef struct ckpi_stored {
    ckp_state *state;            /* not sealed; views of mem */
    uint8_t *mem;
} ckpi_stored;

/*
 * Where the file stores no roles, they are found as for a lossy profile. no_moments: without what optimizers keep.
 * CKP_ELIMIT: more than max_bytes; CKP_EUNSUPPORTED: one shard of several.
 */
CKP_MUST_USE ckp_status ckpi_stored_read(ckpi_stored *s, ckp_checkpoint *ck, bool no_moments, uint64_t max_bytes, unsigned threads, ckp_error *err);
void ckpi_stored_free(ckpi_stored *s);
#endif
