/* SPDX-License-Identifier: Apache-2.0 */
/* What the profiles mean in settings (DESIGN section 4; docs/quality.md has what was measured). */
#ifndef CKPI_RUN_PROFILE_H
#define CKPI_RUN_PROFILE_H
#include <ckpress/run.h>
#include "engine/pred.h"

/* CKP_EINVAL: an option out of range. */
CKP_MUST_USE ckp_status ckpi_coding_check(const ckp_coding *c, ckp_error *err);
/* By its name in a manifest; lossless for one that this version does not know, or NULL. */
ckp_profile ckpi_profile_named(const char *name);
ckpi_settings ckpi_profile_settings(const ckp_coding *c);
/* Bytes of memory beyond the live state that may be used. */
uint64_t ckpi_memory_budget(const ckp_coding *c);
#endif
