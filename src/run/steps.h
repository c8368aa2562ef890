/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors may lose something, and the steps that the caller chose by name (ckp_coding.steps). */
#ifndef CKPI_RUN_STEPS_H
#define CKPI_RUN_STEPS_H
#include <ckpress/run.h>
#include "engine/pred.h"
#include "run/copies.h"
#include "state/state.h"

/* CKP_EINVAL: a step without a name, out of range, or with a profile that has no steps. */
CKP_MUST_USE ckp_status ckpi_steps_check(const ckp_coding *c, ckp_error *err);
/* A copy that belongs to the caller: freed by ckpi_steps_free(copy, c->n_steps). NULL when there are none. */
CKP_MUST_USE ckp_status ckpi_steps_copy(ckp_tensor_step **out, const ckp_coding *c, ckp_error *err);
void ckpi_steps_free(ckp_tensor_step *steps, size_t n);

/*
 * Table and layout of a sealed state: never lossy is what the state says, and what has a step of 0. Both belong to the caller; NULL on failure. A
 * master is as exact as its copies.
 * CKP_EINVAL: a step for a name that the state does not have.
 */
CKP_MUST_USE ckp_status ckpi_lay_out(ckpi_table **table, ckpi_layout **layout, const ckp_state *s, const ckpi_settings *set, const ckp_coding *c,
                                     ckpi_packing packing, const ckpi_copies *copies, ckp_error *err);
/* Steps into a predictor of that state. CKP_EINVAL: for a tensor whose values are not coded with a step, or two for one memory. */
CKP_MUST_USE ckp_status ckpi_steps_set(ckpi_pred *pred, const ckp_state *s, const ckp_coding *c, ckp_error *err);
#endif
