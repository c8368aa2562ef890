/* SPDX-License-Identifier: Apache-2.0 */
/* One step over many tensors, by rules: what all rules share is in adamw.c. */
#ifndef CKPI_OPTIM_JOB_H
#define CKPI_OPTIM_JOB_H
#include "optim/tensor.h"

typedef struct ckpi_o_task {
    ckp_optim_tensor *t;
    ckpi_o_shape shape;
    ckpi_o_par par;                      /* of AdamW's rule */
    ckpi_o_mpar mpar;                    /* of a momentum's */
    ckpi_o_wpar wpar;                    /* of AdamW's with moments in f32 */
    uint32_t key, p_key;
    double m_corr, v_corr;               /* after the step */
    bool fresh;                          /* no moments yet */
    size_t part;                         /* rows of a part */
    size_t parts;                        /* of this tensor and all before it */
} ckpi_o_task;

typedef struct ckpi_o_found { uint64_t unusable, raised; } ckpi_o_found;

typedef struct ckpi_o_rule {
    ckp_status (*check)(const ckp_optim_tensor *t, ckp_error *err);      /* of settings; the rest is looked at for all */
    void (*parameters)(ckpi_o_task *k);
    void (*fit)(const ckpi_o_task *k, ckpi_o_work *w);                   /* columns' factors, where it is time; NULL: there are none */
    void (*row)(const ckpi_o_task *k, const ckpi_o_ops *ops, ckpi_o_work *w, size_t i, ckpi_o_found *f);
    void (*wide)(const ckpi_o_task *k, ckpi_o_work *w, size_t i, ckpi_o_found *f);      /* the same of moments in f32 */
} ckpi_o_rule;

extern const ckpi_o_rule ckpi_o_adamw_rule, ckpi_o_momentum_rule;

/* What a step by that rule does to t, after everything about it was looked at. */
CKP_MUST_USE ckp_status ckpi_o_task_of(ckpi_o_task *k, ckp_optim_tensor *t, const ckpi_o_rule *rule, ckp_error *err);
ckp_status ckpi_o_run(ckp_optim *o, ckp_optim_tensor *t, size_t n, const ckpi_o_rule *rule, ckp_error *err);

ckp_status ckpi_o_refuse(const ckp_optim_tensor *t, ckp_error *err, const char *why);
/* What all rules ask of a tensor beside its shape. */
ckp_status ckpi_o_check(const ckp_optim_tensor *t, ckp_error *err);
/* Finite and 0 or more. */
bool ckpi_o_not_negative(double x);
/* Row of the gradient, of the weights in f32, and the weights back. */
const float *ckpi_o_g_row(const ckp_optim_tensor *t, size_t at, size_t n, float *to);
float *ckpi_o_p_row(const ckp_optim_tensor *t, ckpi_o_work *w, size_t at, size_t n);
void ckpi_o_p_back(const ckpi_o_task *k, const ckpi_o_work *w, size_t at, size_t n);

/* wide.c: tensors whose m_bits are CKPI_O_WIDE. */
ckp_status ckpi_o_wide_shape(ckpi_o_shape *s, const ckp_optim_tensor *t, ckp_error *err);
void ckpi_o_wide_parameters(ckpi_o_task *k);     /* after the corrections */
void ckpi_o_wide_adamw(const ckpi_o_task *k, ckpi_o_work *w, size_t i, ckpi_o_found *f);
void ckpi_o_wide_momentum(const ckpi_o_task *k, ckpi_o_work *w, size_t i, ckpi_o_found *f);

/* columns.c: whether a step fits columns' factors; whether sums that it was given are such; and fits them. */
bool ckpi_o_fits_columns(const ckp_optim_tensor *t);
bool ckpi_o_sums_sound(const ckp_optim_tensor *t);
void ckpi_o_sums_take(const ckp_optim_tensor *t, ckpi_o_colsum *to);
#define CKPI_O_NO_SUMS "sums of columns that no elements have"
void ckpi_o_fit_columns(const ckpi_o_task *k, ckpi_o_work *w);
#endif
