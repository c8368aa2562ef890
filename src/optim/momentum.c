/* SPDX-License-Identifier: Apache-2.0 */
/* One step of SGD with momentum, or of Lion. */
#include "base/cpu.h"
#include "base/fail.h"
#include "base/float.h"
#include "optim/job.h"
#include "optim/pack.h"

CKPI_NO_CONTRACT

static bool
is_share(double x)
{
    return x >= 0.0 && x <= 1.0;
}

static ckp_status
check(const ckp_optim_tensor *t, ckp_error *err)
{
    const ckp_momentum *h = t->momentum;
    if (h == NULL || t->v_bits != 0 || t->col != NULL)
        return ckpi_o_refuse(t, err, "no settings, or a v or columns' factors, which a momentum does not have");
    if (!ckpi_o_not_negative(h->lr) || !ckpi_o_not_negative(h->weight_decay))
        return ckpi_o_refuse(t, err, "lr and weight_decay must be finite and not negative");
    if (!is_share(h->momentum) || !is_share(h->lion ? h->beta1 : h->dampening))
        return ckpi_o_refuse(t, err, "momentum, dampening and betas must be 0 to 1");
    return CKP_OK;
}

/* torch's buffer is the first gradient after the first step, whatever dampening says; Lion's begins at 0. */
static void
parameters(ckpi_o_task *k)
{
    const ckp_momentum *h = k->t->momentum;
    ckpi_o_mpar *p = &k->mpar;
    k->fresh = k->t->m_corr == 0.0;
    k->m_corr = 1.0;
    k->v_corr = 0.0;
    *p = (ckpi_o_mpar){.sign = h->maximize ? -1.0f : 1.0f, .am = (float)h->momentum, .lr = (float)h->lr, .lion = h->lion, .m = k->shape.mg};
    p->l2 = h->lion ? 0.0f : (float)h->weight_decay;
    p->decay = h->lion ? (float)(1.0 - h->lr * h->weight_decay) : 1.0f;
    p->bm = (float)(h->lion ? 1.0 - h->momentum : k->fresh ? 1.0 : 1.0 - h->dampening);
    p->cm = h->lion ? (float)h->beta1 : h->nesterov ? (float)h->momentum : 1.0f;
    p->cg = h->lion ? (float)(1.0 - h->beta1) : h->nesterov ? 1.0f : 0.0f;
    ckpi_o_mpar_tables(p);
}

static void
step_row(const ckpi_o_task *k, const ckpi_o_ops *ops, ckpi_o_work *w, size_t i, ckpi_o_found *f)
{
    const ckpi_o_shape *s = &k->shape;
    const ckp_optim_tensor *t = k->t;
    const size_t n = ckpi_o_row_len(s, i), at = i * s->cols;
    const ckpi_o_packer *pk = ckpi_o_pack_pick(ckpi_cpu());
    uint8_t *m = t->m + i * s->m_bytes;
    pk->unpack_signed(w->m, m, n, t->m_bits);
    const ckpi_o_mrow r = {
        .factor = t->row + i * ckpi_o_blocks(s->cols),
        .z = k->key + (uint32_t)(t->first + at) * CKPI_O_WALK,
        .p = ckpi_o_p_row(t, w, at, n),
        .g = ckpi_o_g_row(t, at, n, w->g),
        .m = w->m,
    };
    const ckpi_o_mseen seen = ops->momentum(n, &k->mpar, &r);
    ckpi_o_p_back(k, w, at, n);
    pk->pack(m, (const uint8_t *)w->m, n, t->m_bits);
    f->unusable += seen.unusable;
    f->raised += seen.raised;
}

const ckpi_o_rule ckpi_o_momentum_rule = {check, parameters, NULL, step_row, ckpi_o_wide_momentum};

ckp_status
ckp_optim_momentum(ckp_optim *o, ckp_optim_tensor *t, size_t n, ckp_error *err)
{
    ckpi_error_clear(err);
    if (o == NULL || (t == NULL && n != 0))
        return ckpi_fail(err, CKP_EINVAL, "optim_momentum: NULL argument");
    return ckpi_o_run(o, t, n, &ckpi_o_momentum_rule, err);
}
