/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/tensor.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/float.h"
#include "base/rng.h"
#include "optim/pack.h"

CKPI_NO_CONTRACT

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

/* Raw codes of a row under columns' factors `now`, and the row's own raised by `lift` so that none falls. */
static uint32_t
lifted(uint16_t *raw, const uint8_t *v, size_t n, const int8_t *was, const int8_t *now, int lift, unsigned mant)
{
    uint32_t max = 0;
    for (size_t j = 0; j < n; j++) {
        const uint32_t c = v[j] == 0 ? 0 : v[j] + ((uint32_t)(was[j] - now[j] + lift) << mant);
        raw[j] = (uint16_t)c;
        max = max > c ? max : c;
    }
    return max;
}

void
ckpi_o_refit(ckp_optim_tensor *t, const ckpi_o_shape *s, ckpi_o_work *w, uint32_t key)
{
    int8_t *now = (int8_t *)w->p;        /* p's memory serves: nobody else needs it here */
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    int lift = 0;
    memset(w->sum, 0, s->cols * sizeof *w->sum);
    for (size_t i = 0; i < s->rows; i++) {
        pk->unpack(w->v, t->v + i * s->v_bytes, ckpi_o_row_len(s, i), t->v_bits);
        ckpi_o_cols_of_codes(w->sum, ckpi_o_row_len(s, i), w->v, t->col, t->row[i], s->vg.mant);
    }
    ckpi_o_cols_fit(w->sum, s->cols, now);
    if (memcmp(now, t->col, s->cols) == 0)
        return;
    for (size_t j = 0; j < s->cols; j++)
        lift = lift > now[j] - t->col[j] ? lift : now[j] - t->col[j];
    for (size_t i = 0; i < s->rows; i++)
        if (t->row[i] != 0 && t->row[i] < (int)CKPI_O_ROW_MIN + lift)
            return;                      /* v next to nothing: not worth a case of its own */
    for (size_t i = 0; i < s->rows; i++) {
        const size_t n = ckpi_o_row_len(s, i);
        if (t->row[i] == 0)
            continue;
        pk->unpack(w->v, t->v + i * s->v_bytes, n, t->v_bits);
        pk->unpack_signed(w->m, t->m + i * s->m_bytes, n, t->m_bits);
        const uint32_t max = lifted(w->raw, w->v, n, t->col, now, lift, s->vg.mant);
        uint8_t row = (uint8_t)(t->row[i] - lift);
        ckpi_o_row_end(&s->mg, &s->vg, n, key + (uint32_t)(t->first + i * t->cols) * CKPI_O_WALK, max, w->raw, w->m, w->v, &row);
        t->row[i] = row;
        pk->pack(t->v + i * s->v_bytes, w->v, n, t->v_bits);
        pk->pack(t->m + i * s->m_bytes, (uint8_t *)w->m, n, t->m_bits);
    }
    memcpy(t->col, now, s->cols);
}
