/* SPDX-License-Identifier: Apache-2.0 */
/* Giving out whole tensors in an order of the receiver's choice, decoding chunks in parallel windows. */
#ifndef CKPI_RUN_GIVE_H
#define CKPI_RUN_GIVE_H
#include "run/checkpoint.h"

/* A run of elements of one tensor, in order. bytes are valid during the call. */
typedef ckp_status (*ckpi_give_fn)(void *user, uint32_t tensor, uint64_t first, uint64_t count, const void *bytes, size_t len, ckp_error *err);

typedef struct ckpi_give_range { uint32_t tensor; uint64_t first, count; } ckpi_give_range;

/* Gives the ranges one after another, each in order. Ranges of aliases read their payload's chunks. */
CKP_MUST_USE ckp_status ckpi_give(const ckp_checkpoint *ck, const ckpi_give_range *r, size_t n, unsigned threads, ckpi_give_fn fn, void *user,
                                  ckp_progress_fn progress, void *progress_user, ckp_error *err);
#endif
