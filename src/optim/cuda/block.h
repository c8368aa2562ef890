/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread block's work: the phases, and the barriers between them. Whoever includes it says what a barrier is:
 *
 *     CKPI_O_GPU_FN             of what kind these functions are
 *     CKPI_O_SYNC()             every lane of the block has come here, and sees what the others have written
 *     CKPI_O_MOST(at, x)        *at, in the block's memory, becomes the largest of what it is and every lane's x; all lanes call it
 *     CKPI_O_ADD(at, x)         x is added to *at, in the block's memory
 *     CKPI_O_COUNT(at, x)       the same in the device's memory
 *
 * step.cu has those of a GPU; a test has threads and theirs.
 */
#ifndef CKPI_OPTIM_CUDA_BLOCK_H
#define CKPI_OPTIM_CUDA_BLOCK_H
#include "optim/cuda/phases.h"

typedef struct ckpi_o_gpu_shared {
    uint32_t most, unusable;
    float fresh[CKPI_O_BLOCK];           /* of a momentum */
    int8_t k[CKPI_O_BLOCK];
} ckpi_o_gpu_shared;

/* By one lane, behind a barrier. */
CKPI_O_GPU_FN void
ckpi_o_gpu_count(const ckpi_o_gpu *j, const ckpi_o_gpu_shared *s, bool raised)
{
    if (s->unusable != 0)
        CKPI_O_COUNT(&j->counts[0], s->unusable);
    if (raised)
        CKPI_O_COUNT(&j->counts[1], 1u);
}

/* AdamW and Adam: rows block, block + blocks, ... */
CKPI_O_GPU_FN void
ckpi_o_gpu_rows(const ckpi_o_gpu *j, unsigned m_bits, unsigned v_bits, uint64_t block, uint64_t blocks, unsigned lane, unsigned lanes,
                ckpi_o_gpu_shared *s, uint8_t *scratch)
{
    for (uint64_t i = block; i < j->rows; i += blocks) {
        const ckpi_o_gpu_row r = ckpi_o_gpu_row_of(j, i, scratch);
        if (lane == 0)
            s->most = s->unusable = 0;
        CKPI_O_SYNC();                   /* and scratch memory is free: the row before is packed */
        const ckpi_o_seen seen = ckpi_o_gpu_elements(j, &r, m_bits, v_bits, lane, lanes);
        CKPI_O_MOST(&s->most, seen.raw_max);
        if (seen.unusable != 0)
            CKPI_O_ADD(&s->unusable, seen.unusable);
        CKPI_O_SYNC();                   /* the largest is known, and no lane reads packed codes any more */
        ckpi_o_gpu_follow(j, &r, s->most, lane, lanes);
        CKPI_O_SYNC();                   /* all codes are there, and no lane reads the old factor any more */
        ckpi_o_gpu_put(j, &r, m_bits, v_bits, lane, lanes);
        if (lane == 0)
            ckpi_o_gpu_count(j, s, ckpi_o_gpu_row_factor(j, &r, s->most));
    }
}

/* SGD and Lion: blocks of 64 elements, in the same way. */
CKPI_O_GPU_FN void
ckpi_o_gpu_momentum(const ckpi_o_gpu *j, uint64_t block, uint64_t blocks, unsigned lane, unsigned lanes, ckpi_o_gpu_shared *s)
{
    const uint64_t pieces = ckpi_o_gpu_pieces(j);
    for (uint64_t i = block; i < pieces; i += blocks) {
        const ckpi_o_gpu_piece b = ckpi_o_gpu_piece_of(j, i);
        if (lane == 0)
            s->most = s->unusable = 0;
        CKPI_O_SYNC();
        const ckpi_o_seen seen = ckpi_o_gpu_move(j, &b, s->fresh, lane, lanes);
        CKPI_O_MOST(&s->most, seen.raw_max);
        if (seen.unusable != 0)
            CKPI_O_ADD(&s->unusable, seen.unusable);
        CKPI_O_SYNC();
        ckpi_o_gpu_code(j, &b, s->most, s->fresh, s->k, lane, lanes);
        CKPI_O_SYNC();
        ckpi_o_gpu_piece_put(j, &b, s->k, lane, lanes);
        if (lane == 0)
            ckpi_o_gpu_count(j, s, ckpi_o_gpu_piece_factor(j, &b, s->most));
    }
}
#endif
