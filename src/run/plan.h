/* SPDX-License-Identifier: Apache-2.0 */
/* What planning for states and for files share. */
#ifndef CKPI_RUN_PLAN_H
#define CKPI_RUN_PLAN_H
#include <ckpress/run_plan.h>
#include "run/file.h"

CKP_MUST_USE ckp_status ckpi_plan_check(const ckp_plan_options *opt, ckp_error *err);
/* As the file would be written: options are checked. */
CKP_MUST_USE ckp_status ckpi_plan_make(ckp_plan **out, ckp_state *state, const ckp_plan_options *opt, ckpi_packing packing, ckp_error *err);
#endif
