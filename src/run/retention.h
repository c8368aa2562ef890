/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's rules of retention as the store takes them. */
#ifndef CKPI_RUN_RETENTION_H
#define CKPI_RUN_RETENTION_H
#include <ckpress/run.h>
#include "store/store.h"

/* CKP_EINVAL: size, a metric without a number of best ones, or the other way round. NULL is well. */
CKP_MUST_USE ckp_status ckpi_rules_check(const ckp_retention *r, ckp_error *err);
/* r may be NULL; *out points into it. */
void ckpi_rules_of(ckpi_retention *out, const ckp_retention *r);
#endif
