/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece as a sequence of runs, with the factors that each needs as floats. Column factors become tables once a piece; a row
 * that is long enough is cut into runs of equal length, shorter ones are put side by side (spread). The cut depends on the grid
 * alone, never on the ISA.
 */
#ifndef CKPI_QUANT_WALK_H
#define CKPI_QUANT_WALK_H
#include "quant/kern.h"

/* What S's argument is, per unit of a factor or code: v^(-1/4) for steps, sqrt(v) for v and m. */
#define CKPI_Q_RQ (-1)
#define CKPI_Q_S 2

typedef struct ckpi_q_walk {
    const ckpi_grid *g;
    int unit;                       /* CKPI_Q_RQ or CKPI_Q_S */
    bool logs;                      /* krow, prow and pcol wanted */
    bool spread;
    float inv_step, k0;             /* 1/vstep; A0 * S */
    size_t at, seg;                 /* next element; length of a run inside a row */
    size_t row, col;                /* at / cols and at % cols, where rows are not spread: two divisions a run were 2 % of a save's stall */
    const float *fcol, *pcol;       /* of the columns, or of one run of equal ones */
    float *frow, *krow, *prow;      /* of the run at hand */
    float *run_fcol, *run_pcol;     /* spread, with columns */
} ckpi_q_walk;

/* CKP_EINVAL: rows, cols and n do not agree, vstep is no power of two in [1, 4096], or factors are missing. */
CKP_MUST_USE ckp_status ckpi_q_grid_check(const ckpi_grid *g, ckp_error *err);
/* Memory from ws, to be released by the caller. The grid has passed the check. */
CKP_MUST_USE ckp_status ckpi_q_walk_init(ckpi_q_walk *w, const ckpi_grid *g, int unit, bool logs, ckpi_scratch *ws, ckp_error *err);
/* False at the end. *at: first element of the run. */
bool ckpi_q_walk_next(ckpi_q_walk *w, ckpi_q_run *r, size_t *at);
/* table[(uint8_t)c] = S(unit * c * vstep); `zero` at CKPI_VCODE_ZERO. Without codes (has_v false) only entry 0 is used. */
void ckpi_q_code_table(float table[256], const ckpi_grid *g, int unit, float zero);
#endif
