/* SPDX-License-Identifier: Apache-2.0 */
/* What both directions of conversion share. */
#ifndef CKPI_RUN_CONVERT_H
#define CKPI_RUN_CONVERT_H
#include "run/file.h"

/* A path or "-" (standard input). coding: whose progress is asked when a signal interrupts the wait for a pipe; outlives the reader. */
CKP_MUST_USE ckp_status ckpi_in_open(ckpi_reader **out, const char *path, const ckp_coding *coding, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_convert_check(const char *in, const char *out, const ckp_convert_options *opt, const ckp_convert_result *res,
                                           ckp_error *err);
/* Sizes, count and kind, where res begins as zeros. */
void ckpi_convert_done(ckp_convert_result *res, ckpi_reader *r, const ckpi_writer *w, uint64_t tensors, const char *kind);
#endif
