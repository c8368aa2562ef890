/* SPDX-License-Identifier: Apache-2.0 */
/* Which elements stand for a weight when its rate and distortion are measured. Private to the room. */
#ifndef CKPI_PLAN_RD_SAMPLE_H
#define CKPI_PLAN_RD_SAMPLE_H
#include "plan/rd.h"

/*
 * Units of a layout's weights, and a layout of their samples: group i holds what is measured of unit i. Both belong to the caller. The groups
 * have no moments but those that shape steps.
 */
CKP_MUST_USE ckp_status ckpi_rdplan_sample(ckpi_rdplan *rd, ckpi_layout **sample, const ckpi_pred *pred, ckp_error *err);
#endif
