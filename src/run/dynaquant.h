/* SPDX-License-Identifier: Apache-2.0 */
/* DynaQuant's configuration: checked, copied for a run, and bound to the tensors of a table. */
#ifndef CKPI_RUN_DYNAQUANT_H
#define CKPI_RUN_DYNAQUANT_H
#include <ckpress/run.h>
#include "engine/dynaquant.h"

/* CKP_EINVAL: a number out of range, a NULL, or a profile without loss. */
CKP_MUST_USE ckp_status ckpi_dynaquant_check(const ckp_dynaquant *c, ckp_profile profile, ckp_error *err);
/* With copies of its lists and names; sensitivities stay the caller's. Freed by ckpi_dynaquant_free (accepts NULL). */
CKP_MUST_USE ckp_status ckpi_dynaquant_copy(ckp_dynaquant **out, const ckp_dynaquant *c, ckp_error *err);
void ckpi_dynaquant_free(ckp_dynaquant *c);

/* Kinds and sensitivities by tensor. Replaces *out, which starts from {0}. CKP_EMISMATCH: a sensitivity of another size than its tensor. */
CKP_MUST_USE ckp_status ckpi_dynaquant_bind(ckpi_dq *out, const ckp_dynaquant *c, const ckpi_table *t, ckp_error *err);
void ckpi_dynaquant_unbind(ckpi_dq *d);
#endif
