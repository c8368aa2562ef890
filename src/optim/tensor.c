/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/tensor.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/rng.h"
#include "optim/pack.h"

uint64_t
ckp_optim_state_bytes(uint64_t numel, uint64_t cols, unsigned bits)
{
    if (cols == 0 || cols > CKPI_O_COLS_MAX || numel > (uint64_t)INT64_MAX / 8 || !ckpi_o_pack_known(bits))
        return 0;
    return numel / cols * ckpi_o_pack_bytes((size_t)cols, bits) + ckpi_o_pack_bytes((size_t)(numel % cols), bits);
}

ckp_status
ckpi_o_shape_of(ckpi_o_shape *s, const ckp_optim_tensor *t, ckp_error *err)
{
    const char *wrong = NULL;
    const bool alone = t->v_bits == 0;       /* a momentum without v */
    if (!ckpi_o_pack_known(t->m_bits) || !(alone || ckpi_o_pack_known(t->v_bits)))
        wrong = "bits of a moment must be 2, 3, 4, 5, 6 or 8";
    else if (t->cols == 0 || t->cols > CKPI_O_COLS_MAX || t->numel > (uint64_t)INT64_MAX / 8)
        wrong = "rows of no or too many elements";
    else if (t->numel != 0 && (t->m == NULL || (t->v == NULL && !alone) || t->row == NULL))
        wrong = "no memory for its state";
    else if (!(t->m_corr >= 0.0 && t->m_corr <= 1.0 && t->v_corr >= 0.0 && t->v_corr <= 1.0))
        wrong = "corrections must be 0 to 1";
    if (wrong != NULL) {
        const ckp_status st = ckpi_fail(err, CKP_EINVAL, "optim: %s", wrong);
        if (t->name != NULL)
            ckpi_fail_tensor(err, t->name);
        return st;
    }
    s->cols = (size_t)t->cols;
    s->rows = (size_t)((t->numel + t->cols - 1) / t->cols);
    s->last = s->rows != 0 ? (size_t)(t->numel - (s->rows - 1) * t->cols) : 0;
    s->m_bytes = ckpi_o_pack_bytes(s->cols, t->m_bits);
    s->v_bytes = ckpi_o_pack_bytes(s->cols, t->v_bits);
    s->mg = alone ? ckpi_momentum_grid_of(t->m_bits) : ckpi_mgrid_of(t->m_bits);
    s->vg = ckpi_vgrid_of(t->v_bits);
    return CKP_OK;
}

uint32_t
ckpi_o_key(const ckp_optim_tensor *t, uint32_t use)
{
    return ckpi_rng_key(t->how != NULL ? t->how->seed : t->momentum->seed, t->step, t->id, use);
}

bool
ckpi_o_work_grow(ckpi_o_work *w, size_t cols)
{
    const size_t n = cols + 64;
    if (n <= w->cap)
        return true;
    ckpi_o_work_free(w);
    size_t bytes;
    if (!ckpi_mul_size(n, sizeof(float), &bytes))
        return false;
    w->p = ckpi_aligned_alloc(bytes);
    w->g = ckpi_aligned_alloc(bytes);
    w->m = ckpi_aligned_alloc(n);
    w->v = ckpi_aligned_alloc(n);
    w->raw = ckpi_aligned_alloc(n * sizeof *w->raw);
    w->col = ckpi_aligned_alloc(n * sizeof *w->col);
    w->sum = ckpi_calloc(n, sizeof *w->sum);
    const void *const all[] = {w->p, w->g, w->m, w->v, w->raw, w->col, w->sum};
    bool whole = true;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        whole = whole && all[i] != NULL;
    if (!whole) {
        ckpi_o_work_free(w);
        return false;
    }
    w->cap = n;
    return true;
}

void
ckpi_o_work_free(ckpi_o_work *w)
{
    ckpi_aligned_free(w->p);
    ckpi_aligned_free(w->g);
    ckpi_aligned_free(w->m);
    ckpi_aligned_free(w->v);
    ckpi_aligned_free(w->raw);
    ckpi_aligned_free(w->col);
    free(w->sum);
    *w = (ckpi_o_work){0};
}

void
ckpi_o_cols_up(uint32_t *to, const int8_t *col, size_t n)
{
    for (size_t j = 0; j < n; j++)
        to[j] = col != NULL ? (uint32_t)col[j] << 22 : 0;
}
