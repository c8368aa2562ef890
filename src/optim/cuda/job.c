/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/cuda/job.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "optim/job.h"

enum { WARP = 32 };

/* Bytes for a row's raw codes and codes of m. */
static uint64_t
place_of(uint64_t cols)
{
    return (3 * cols + 15) / 16 * 16;
}

static unsigned
blocks_of(uint64_t rows, uint64_t most)
{
    return (unsigned)CKPI_MIN(rows, most);
}

uint64_t
ckpi_o_gpu_scratch(const ckp_optim_tensor *t, size_t n)
{
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        if (t[i].how == NULL || t[i].cols == 0 || t[i].cols > CKPI_O_COLS_MAX || t[i].numel > (uint64_t)INT64_MAX / 8)
            continue;
        const uint64_t place = place_of(t[i].cols), rows = (t[i].numel + t[i].cols - 1) / t[i].cols;
        if (place > CKPI_O_GPU_SHARED)
            most = CKPI_MAX(most, place * blocks_of(rows, CKPI_O_GPU_BLOCKS));
    }
    return most;
}

static ckp_status
task_of(ckpi_o_task *k, ckp_optim_tensor *t, ckp_error *err)
{
    if (t->m_bits == CKPI_O_WIDE)
        return ckpi_o_refuse(t, err, "moments in f32 have no kernel for GPUs");
    return ckpi_o_task_of(k, t, t->how != NULL ? &ckpi_o_adamw_rule : &ckpi_o_momentum_rule, err);
}

static ckpi_o_gpu
gpu_of(const ckpi_o_task *k, uint64_t *counts, uint8_t *scratch)
{
    const ckp_optim_tensor *t = k->t;
    const ckpi_o_shape *s = &k->shape;
    ckpi_o_gpu j = {
        .par = k->par, .mpar = k->mpar, .vg = s->vg, .rows = s->rows, .cols = s->cols, .last = s->last, .first = t->first,
        .m_bytes = s->m_bytes, .v_bytes = s->v_bytes, .key = k->key, .p_key = k->p_key, .m_bits = t->m_bits, .v_bits = t->v_bits,
        .rest_bits = t->rest_bits, .p_dtype = t->p_dtype, .g_dtype = t->g_dtype, .p = t->p, .rest = t->rest, .g = t->g,
        .m = t->m, .v = t->v, .row = t->row, .col = t->col, .counts = counts, .momentum = t->how == NULL,
    };
    if (j.momentum) {
        j.blocks = blocks_of(ckpi_o_gpu_pieces(&j), INT32_MAX);
        j.lanes = CKPI_O_BLOCK;
        return j;
    }
    j.place = place_of(s->cols);
    j.scratch = j.place > CKPI_O_GPU_SHARED ? scratch : NULL;
    j.blocks = blocks_of(s->rows, j.scratch != NULL ? CKPI_O_GPU_BLOCKS : INT32_MAX);
    j.lanes = (unsigned)CKPI_MIN((s->cols + WARP - 1) / WARP * WARP, (size_t)CKPI_O_GPU_LANES);
    return j;
}

ckp_status
ckpi_o_gpu_refused(ckp_error *err, const char *why)
{
    return ckpi_fail(err, CKP_ESTATE, "optim: the device refused a step: %s", why);
}

ckp_status
ckpi_o_gpu_step(ckp_optim_tensor *t, size_t n, uint64_t *counts, uint8_t *scratch, uint64_t scratch_bytes, ckpi_o_gpu_launch launch, void *user,
                ckp_error *err)
{
    ckpi_o_task k;
    ckpi_error_clear(err);
    if ((t == NULL || counts == NULL) && n != 0)
        return ckpi_fail(err, CKP_EINVAL, "optim: NULL argument");
    if (ckpi_o_gpu_scratch(t, n) > (scratch != NULL ? scratch_bytes : 0))
        return ckpi_fail(err, CKP_EINVAL, "optim: too little scratch memory");
    for (size_t i = 0; i < n; i++) {
        const ckp_status st = task_of(&k, &t[i], err);
        if (st != CKP_OK)
            return st;
    }
    for (size_t i = 0; i < n; i++) {
        const ckp_status st = task_of(&k, &t[i], err);
        if (st != CKP_OK)
            return st;
        const ckpi_o_gpu j = gpu_of(&k, counts + 2 * i, scratch);
        const char *const why = j.blocks != 0 ? launch(&j, user) : NULL;
        if (why != NULL) {
            const ckp_status refused = ckpi_o_gpu_refused(err, why);
            if (t[i].name != NULL)
                ckpi_fail_tensor(err, t[i].name);
            return refused;
        }
        t[i].m_corr = k.m_corr;
        t[i].v_corr = k.v_corr;
    }
    return CKP_OK;
}
