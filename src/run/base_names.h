/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensor of a base model is meant by the name of a run's: "model.encoder.weight" may be "encoder.weight" there, or the other way round. */
#ifndef CKPI_RUN_BASE_NAMES_H
#define CKPI_RUN_BASE_NAMES_H
#include "format/format.h"

/* Every ending of a name that begins at a component (after '.' or '/'), the whole name too. */
typedef struct ckpi_ending { const char *text; uint32_t tensor; } ckpi_ending;
typedef struct ckpi_endings { ckpi_ending *at; size_t n; } ckpi_endings;   /* sorted by text */

CKP_MUST_USE ckp_status ckpi_endings_new(ckpi_endings *e, const ckp_state *s, ckp_error *err);
void ckpi_endings_free(ckpi_endings *e);
/*
 * The tensor of s that shares the longest ending with the row's name, and has its shape and dtype, or both are floats of 16 or 32 bits.
 * CKPI_NO_TENSOR: none, or several with that ending, or the row is no whole weight, master or copy of one.
 */
uint32_t ckpi_endings_match(const ckpi_endings *e, const ckp_state *s, const ckpi_rec *r);
#endif
