/* SPDX-License-Identifier: Apache-2.0 */
/* What every function of optim.h knows of a tensor: its checks, its rows, its grids. */
#ifndef CKPI_OPTIM_TENSOR_H
#define CKPI_OPTIM_TENSOR_H
#include <ckpress/optim.h>
#include "base/pool.h"
#include "optim/row.h"

#define CKPI_O_COLS_MAX (UINT64_C(1) << 31)

typedef struct ckpi_o_shape {
    size_t rows, cols, last;         /* last: elements of the last row */
    size_t m_bytes, v_bytes;         /* of a whole row, packed */
    ckpi_mgrid mg;
    ckpi_vgrid vg;
} ckpi_o_shape;

/* Shape of t, after everything about it that a caller may get wrong was looked at. */
ckp_status ckpi_o_shape_of(ckpi_o_shape *s, const ckp_optim_tensor *t, ckp_error *err);
static inline size_t
ckpi_o_row_len(const ckpi_o_shape *s, size_t i)
{
    return i + 1 == s->rows ? s->last : s->cols;
}

/* Factors of a row of a momentum. */
static inline size_t
ckpi_o_blocks(size_t cols)
{
    return (cols + CKPI_O_BLOCK - 1) / CKPI_O_BLOCK;
}

/* A worker's row: arrays of the longest row, padded. */
typedef struct ckpi_o_work {
    size_t cap;
    float *p, *g;
    int8_t *m;
    uint8_t *v;
    uint16_t *raw;
    uint32_t *col;
    ckpi_o_colsum *sum;
} ckpi_o_work;

bool ckpi_o_work_grow(ckpi_o_work *w, size_t cols);
void ckpi_o_work_free(ckpi_o_work *w);
/* Columns' factors << 22; of none they are 0. */
void ckpi_o_cols_up(uint32_t *to, const int8_t *col, size_t n);

/* Start of a stream of random numbers for one use of a tensor in one step. */
uint32_t ckpi_o_key(const ckp_optim_tensor *t, uint32_t use);
enum { CKPI_O_USE_STEP, CKPI_O_USE_P, CKPI_O_USE_REFIT, CKPI_O_USE_WRITE, CKPI_O_USE_RECODE, CKPI_O_USE_LOOK };

/* Of a handle, for what else works on rows: memory of every worker for rows of `cols`, and jobs on its threads. */
CKP_MUST_USE ckp_status ckpi_optim_reserve(ckp_optim *o, size_t cols, ckp_error *err);
ckpi_o_work *ckpi_optim_work(ckp_optim *o, unsigned worker);
ckpi_pool *ckpi_optim_pool(ckp_optim *o);
#endif
