/* SPDX-License-Identifier: Apache-2.0 */
/* From what the caller says about a tensor to a checked view of it. Private to the room. */
#ifndef CKPI_STATE_VIEW_H
#define CKPI_STATE_VIEW_H
#include "state/state.h"

/*
 * Fills the view part of *row from t: shapes are copied, sizes computed, strides dropped when they are row-major.
 * CKP_EINVAL says what is wrong. On failure *row still may be given to ckpi_view_free.
 */
CKP_MUST_USE ckp_status ckpi_view_init(ckpi_tensor *row, const char *name, const ckp_tensor *t, ckp_error *err);
void ckpi_view_free(ckpi_tensor *row);
/* Same local shape, same place in the same global shape. */
bool ckpi_view_same_shape(const ckpi_tensor *a, const ckpi_tensor *b);
/* Same address, dtype, local shape and strides: one payload. Equal payloads have equal hashes. */
bool ckpi_view_same_payload(const ckpi_tensor *a, const ckpi_tensor *b);
uint64_t ckpi_view_payload_hash(const ckpi_tensor *t);
#endif
