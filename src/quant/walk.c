/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/walk.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "quant/num.h"

#define SHORT_ROW 64    /* below: rows are spread, whatever their length */

ckp_status
ckpi_q_grid_check(const ckpi_grid *g, ckp_error *err)
{
    if (g->n > UINT32_MAX || g->cols == 0 || g->rows != g->n / g->cols + (g->n % g->cols != 0))
        return ckpi_fail(err, CKP_EINVAL, "quantizer grid: %zu elements are not %zu rows of %zu", g->n, g->rows, g->cols);
    if (g->has_v && (g->vstep < 1 || g->vstep > 4096 || (g->vstep & (g->vstep - 1)) != 0))
        return ckpi_fail(err, CKP_EINVAL, "quantizer grid: step %d is not a power of two from 1 to 4096", (int)g->vstep);
    if (g->row == NULL && (g->has_v || g->col != NULL) && g->n != 0)
        return ckpi_fail(err, CKP_EINVAL, "quantizer grid: no row factors");
    return CKP_OK;
}

void
ckpi_q_code_table(float table[256], const ckpi_grid *g, int unit, float zero)
{
    const int32_t step = g->has_v ? g->vstep : 0;
    for (int32_t c = -128; c < 128; c++)
        table[(uint8_t)c] = ckpi_exp2_fixed(unit * c * step);
    table[(uint8_t)CKPI_VCODE_ZERO] = zero;
}

static float *
floats(ckpi_scratch *ws, size_t n)
{
    return ckpi_scratch_get(ws, (n + CKPI_Q_PAD) * sizeof(float));
}

static float *
constant_run(ckpi_scratch *ws, float x)
{
    float *p = floats(ws, CKPI_Q_RUN);
    for (size_t j = 0; p != NULL && j < CKPI_Q_RUN; j++)
        p[j] = x;
    return p;
}

static bool
column_tables(ckpi_q_walk *w, ckpi_scratch *ws)
{
    /* A short last row may be the only one: no more columns than elements are ever looked at. */
    const size_t cols = CKPI_MIN(w->g->cols, w->g->n);
    if (w->g->col == NULL) {
        w->fcol = constant_run(ws, 1.0f);
        w->pcol = constant_run(ws, 0.0f);
        return w->fcol != NULL && w->pcol != NULL;
    }
    float *fcol = floats(ws, cols);
    float *pcol = w->logs ? floats(ws, cols) : fcol;
    if (fcol == NULL || pcol == NULL)
        return false;
    for (size_t j = 0; j < cols; j++) {
        if (w->logs)
            pcol[j] = (float)w->g->col[j] * w->inv_step;
        fcol[j] = f32_exp2(w->unit * w->g->col[j]);
    }
    w->fcol = fcol;
    w->pcol = pcol;
    return true;
}

/* Runs of a row are as equal as whole groups of 16 allow. */
static size_t
run_length(size_t cols)
{
    const size_t runs = (cols + CKPI_Q_RUN - 1) / CKPI_Q_RUN;
    const size_t groups = (cols + 15) / 16;
    return (groups + runs - 1) / runs * 16;
}

ckp_status
ckpi_q_walk_init(ckpi_q_walk *w, const ckpi_grid *g, int unit, bool logs, ckpi_scratch *ws, ckp_error *err)
{
    const float step = g->has_v ? (float)g->vstep : 1.0f;
    *w = (ckpi_q_walk){.g = g, .unit = unit, .logs = logs, .inv_step = 1.0f / step, .k0 = CKPI_Q_A0 * (128.0f / step)};
    w->spread = g->cols < SHORT_ROW || (g->cols < CKPI_Q_RUN && g->cols % 16 != 0);
    w->seg = run_length(g->cols);
    const size_t rows = w->spread ? CKPI_Q_RUN : 1;
    w->frow = floats(ws, rows);
    w->krow = floats(ws, rows);
    w->prow = floats(ws, rows);
    bool ok = w->frow != NULL && w->krow != NULL && w->prow != NULL && column_tables(w, ws);
    if (w->spread && g->col != NULL) {
        w->run_fcol = floats(ws, CKPI_Q_RUN);
        w->run_pcol = floats(ws, CKPI_Q_RUN);
        ok = ok && w->run_fcol != NULL && w->run_pcol != NULL;
    }
    return ok ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "quantizer: no memory for factor tables");
}

static void
row_factors(const ckpi_q_walk *w, size_t i, size_t j, size_t n)
{
    const int32_t row = w->g->row == NULL ? 0 : w->g->row[i];
    const float f = f32_exp2(w->unit * (row + w->g->lift));
    const float p = (float)row * w->inv_step;
    for (size_t k = j; k < j + n; k++) {
        w->frow[k] = f;
        w->prow[k] = p;
        w->krow[k] = w->k0 - p;
    }
}

/* Elements [at, ...) up to a whole run, over as many rows as that takes. */
static size_t
spread_rows(const ckpi_q_walk *w)
{
    const size_t total = CKPI_MIN(CKPI_Q_RUN, w->g->n - w->at);
    for (size_t j = 0; j < total;) {
        const size_t i = (w->at + j) / w->g->cols, c = (w->at + j) % w->g->cols;
        const size_t n = CKPI_MIN(w->g->cols - c, total - j);
        row_factors(w, i, j, n);
        if (w->g->col != NULL) {
            memcpy(w->run_fcol + j, w->fcol + c, n * sizeof(float));
            if (w->logs)
                memcpy(w->run_pcol + j, w->pcol + c, n * sizeof(float));
        }
        j += n;
    }
    return total;
}

bool
ckpi_q_walk_next(ckpi_q_walk *w, ckpi_q_run *r, size_t *at)
{
    const ckpi_grid *g = w->g;
    if (w->at >= g->n)
        return false;
    *at = w->at;
    *r = (ckpi_q_run){.spread = w->spread, .frow = w->frow, .krow = w->krow, .prow = w->prow, .fcol = w->fcol, .pcol = w->pcol};
    if (w->spread) {
        r->n = spread_rows(w);
        if (g->col != NULL) {
            r->fcol = w->run_fcol;
            r->pcol = w->run_pcol;
        }
    } else {
        const size_t c = w->col;
        r->n = CKPI_MIN(CKPI_MIN(w->seg, g->cols - c), g->n - w->at);
        row_factors(w, w->row, 0, 1);
        w->col = c + r->n < g->cols ? c + r->n : 0;
        w->row += w->col == 0;
        if (g->col != NULL) {
            r->fcol = w->fcol + c;
            r->pcol = w->pcol + c;
        }
    }
    w->at += r->n;
    return true;
}
