/* SPDX-License-Identifier: Apache-2.0 */
/* What listing and inspecting a run share. */
#ifndef CKPI_RUN_LIST_H
#define CKPI_RUN_LIST_H
#include <ckpress/run_objects.h>
#include "run/place.h"
#include "store/store.h"

/* A run for reading. */
CKP_MUST_USE ckp_status ckpi_list_reader(const ckpi_place *place, ckpi_store **out, ckp_error *err);
void ckpi_list_fill(const ckpi_entries *all, const ckpi_entry *e, ckp_list_entry *out);
#endif
